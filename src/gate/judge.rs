//! From an audit, rules and a baseline to findings and the final verdict.
//!
//! In: audits of one or several runs of one program. Out: [`Judged`]. Each site is put on terms (what of it is accepted, and by whom); the audit
//! judges itself again on these terms, so that there is one rule for what is over; then each site has at most one finding.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap as HashMap;

use super::allow::{self, Allowed, Unmatched};
use super::compare::{Change, Comparison, compare};
use super::place::judged_per_step;
use super::{Against, Baseline, Code, Date, Finding, Judged, Rules, Runs, Severity, Written};
use crate::Audit;
use crate::audit::{AuditOptions, Doubt, Level, Over, Site, Terms, Verdict, plural};
use crate::model::ProblemKind;

/// Judges one run.
#[must_use]
pub fn judge(
    audit: Audit,
    options: &AuditOptions,
    rules: &Rules,
    against: Option<Against<'_>>,
    today: Date,
) -> Judged {
    let doubts = incomparable(std::slice::from_ref(&audit), rules, against);
    if !doubts.is_empty() {
        return unjudged(audit, doubts, options, against.is_some());
    }
    let most = judged_per_step(&audit);
    with_counts(audit, &Counted { shared: most, in_any: BTreeSet::new() }, options, rules, against, today)
}

/// What several runs say together.
struct Counted {
    /// Per site of the first: waits in one step that all of them have.
    shared: Vec<u64>,
    /// Groups of sites that any of them has; empty for a single run.
    in_any: BTreeSet<String>,
}

/// Judges several runs of one program together. With [`Runs::All`] the result is about the first run, and what not every run has is
/// not held against it. With [`Runs::Any`] it is about the run that has the most errors, with those of the others behind them.
#[must_use]
pub fn judge_runs(
    mut runs: Vec<Audit>,
    options: &AuditOptions,
    rules: &Rules,
    against: Option<Against<'_>>,
    today: Date,
) -> Option<Judged> {
    if runs.len() <= 1 {
        return runs.pop().map(|audit| judge(audit, options, rules, against, today));
    }
    let all = runs.len();
    match rules.runs {
        Runs::All => {
            let names_missing = incomparable(&runs, rules, against);
            if !names_missing.is_empty() {
                return Some(unjudged(runs.swap_remove(0), names_missing, options, against.is_some()));
            }
            let in_any = runs.iter().flat_map(judged_groups).collect();
            let counted = Counted { shared: shared_counts(&runs), in_any };
            let of_others = runs.iter().enumerate().skip(1);
            let doubts: Vec<Doubt> = of_others
                .clone()
                .flat_map(|(run, audit)| {
                    audit.doubts.iter().map(move |doubt| of_run(run, all, doubt.clone()))
                })
                .collect();
            let elsewhere = only_elsewhere(&runs);
            let early: Vec<String> = of_others
                .flat_map(|(run, audit)| {
                    early_ends(audit).map(move |text| format!("run {} of {all}: {text}", run + 1))
                })
                .collect();
            let devices = of_both_devices(&runs);
            let mut first = runs.swap_remove(0);
            first.doubts.extend(doubts);
            let mut judged = with_counts(first, &counted, options, rules, against, today);
            judged.findings.extend(elsewhere);
            sort(&mut judged.findings);
            judged.audit.reasons.extend(early);
            judged.audit.reasons.extend(devices);
            judged.audit.reasons.push(format!(
                "{all} runs: a wait counts only as often as all of them have it (--runs any: if one has it); steps and places are those of the \
                 first"
            ));
            Some(judged)
        }
        Runs::Any => {
            let mut judged: Vec<Judged> =
                runs.into_iter().map(|audit| judge(audit, options, rules, against, today)).collect();
            let errors = |judged: &Judged| {
                let verdict = match judged.audit.verdict {
                    Verdict::Fail => 2,
                    Verdict::Inconclusive => 1,
                    Verdict::Pass => 0,
                };
                (verdict, judged.findings.iter().filter(|f| f.severity == Severity::Error).count())
            };
            let at = (0..judged.len()).max_by_key(|&at| (errors(&judged[at]), Reverse(at)))?;
            let mut worst = judged.swap_remove(at);
            for finding in judged.into_iter().flat_map(|other| other.findings) {
                let known = |known: &Finding| {
                    known.code == finding.code
                        && known.fingerprint == finding.fingerprint
                        && known.message == finding.message
                };
                if finding.severity == Severity::Error && !worst.findings.iter().any(known) {
                    worst.findings.push(Finding { site: None, ..finding });
                }
            }
            sort(&mut worst.findings);
            worst.audit.reasons.push(format!(
                "{all} runs: a wait counts if one of them has it (--runs all: only if all have it); steps and places are those of run {}",
                at + 1
            ));
            Some(worst)
        }
    }
}

/// Why these runs can't be held against a baseline, an allow-list or each other; empty where they can, or where nothing asks for it.
fn incomparable(runs: &[Audit], rules: &Rules, against: Option<Against<'_>>) -> Vec<Doubt> {
    let by_place = |entry: &super::AllowEntry| entry.fingerprint.is_some() || entry.function.is_some();
    if runs.len() < 2 && against.is_none() && !rules.allow.iter().any(by_place) {
        return Vec::new();
    }
    let of = |(run, audit): (usize, &Audit)| {
        audit.incomparable().into_iter().map(move |doubt| match runs.len() {
            1 => doubt,
            all => of_run(run, all, doubt),
        })
    };
    runs.iter().enumerate().flat_map(of).collect()
}

/// A doubt with the run that it is about.
fn of_run(run: usize, all: usize, doubt: Doubt) -> Doubt {
    Doubt { reason: format!("run {} of {all}: {}", run + 1, doubt.reason), ..doubt }
}

/// How the program of a run ended too early.
fn early_ends(audit: &Audit) -> impl Iterator<Item = &str> {
    let early = audit.problems.iter().filter(|problem| problem.kind == ProblemKind::EndedEarly);
    early.map(|problem| problem.text.as_str())
}

/// Says that runs of the emulated device were held against runs of a GPU.
fn of_both_devices(runs: &[Audit]) -> Option<String> {
    let emulated = runs.iter().filter(|run| run.source.emulated).count();
    (emulated > 0 && emulated < runs.len()).then(|| {
        format!(
            "{emulated} of the {} runs are of the emulated device, which never waits where only a real driver does: such waits can't be in all runs",
            runs.len()
        )
    })
}

/// Waits that other runs have and the first has not, each place once.
fn only_elsewhere(runs: &[Audit]) -> Vec<Finding> {
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    let mut known: BTreeSet<String> = judged_groups(first).into_iter().collect();
    let mut findings = Vec::new();
    for (run, audit) in others.iter().enumerate() {
        for (site, most) in audit.sites.iter().zip(judged_per_step(audit)) {
            if most == 0 || site.by_recorder || !known.insert(site.group.clone()) {
                continue;
            }
            let message = format!(
                "{}: up to {} in a step in run {}, and not in all of the others",
                site.kind.id(),
                plural(most, "wait", "waits"),
                run + 2
            );
            findings.push(Finding {
                fingerprint: Some(site.fingerprint.clone()),
                kind: Some(site.kind),
                place: site.place().cloned(),
                ..finding(Code::FlickeringWait, Severity::Note, message)
            });
        }
    }
    findings
}

/// Nothing can be said against any place, because it may be one that somebody accepts: the answer is why.
fn unjudged(mut audit: Audit, doubts: Vec<Doubt>, options: &AuditOptions, with_baseline: bool) -> Judged {
    audit.doubts.extend(doubts);
    let accepted = Terms { accepted_per_step: u64::MAX, strict: false };
    audit.judge(options, &vec![accepted; audit.sites.len()]);
    let findings = audit.doubts.iter().map(of_doubt).collect();
    Judged { audit, findings, with_baseline }
}

fn of_doubt(doubt: &Doubt) -> Finding {
    Finding {
        help: doubt.next.clone().unwrap_or_default(),
        ..finding(Code::Inconclusive, Severity::Error, doubt.reason.clone())
    }
}

fn judged_groups(audit: &Audit) -> Vec<String> {
    let judged = audit.sites.iter().zip(judged_per_step(audit)).filter(|(_, most)| *most > 0);
    judged.map(|(site, _)| site.group.clone()).collect()
}

/// Per site of the first run: how many of its waits in one step all runs have. Places that differ only in their lines are taken together, the
/// most frequent first.
fn shared_counts(runs: &[Audit]) -> Vec<u64> {
    let counts = |audit: &Audit| {
        let mut groups: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (site, most) in audit.sites.iter().zip(judged_per_step(audit)) {
            groups.entry(site.group.clone()).or_default().push(most);
        }
        groups.values_mut().for_each(|counts| counts.sort_unstable_by_key(|&count| Reverse(count)));
        groups
    };
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    let others: Vec<_> = others.iter().map(counts).collect();
    let mut shared = judged_per_step(first);
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, site) in first.sites.iter().enumerate() {
        members.entry(&site.group).or_default().push(index);
    }
    for (group, mut members) in members {
        members.sort_by_key(|&index| (Reverse(shared[index]), first.sites[index].ordinal));
        for (rank, index) in members.into_iter().enumerate() {
            for other in &others {
                let theirs = other.get(group).and_then(|counts| counts.get(rank)).copied().unwrap_or(0);
                shared[index] = shared[index].min(theirs);
            }
        }
    }
    shared
}

/// Who accepts a site's waits.
#[derive(Clone, Debug, Default)]
struct Standing {
    change: Option<Change>,
    /// Index into the allow-list.
    entry: Option<usize>,
    expired: bool,
    /// Not all runs have all of it.
    flickers: bool,
    /// Most waits in one judged step, in this run.
    most: u64,
}

fn with_counts(
    mut audit: Audit,
    counted: &Counted,
    options: &AuditOptions,
    rules: &Rules,
    against: Option<Against<'_>>,
    today: Date,
) -> Judged {
    let empty = Baseline::default();
    let baseline = against.map_or(&empty, |against| against.baseline);
    let allowed = allow::find(&rules.allow, &audit, &baseline.entries, today);
    let most = judged_per_step(&audit);
    let (current, mut comparison) = against_baseline(&audit, &counted.shared, options, baseline);
    // What another run still has is not gone.
    comparison.gone.retain(|gone| !counted.in_any.contains(&baseline.entries[gone.old].place.fingerprint(0)));
    let mut standings: Vec<Standing> = most
        .iter()
        .zip(&allowed.of_site)
        .zip(&counted.shared)
        .map(|((&most, &entry), &counted)| Standing {
            change: None,
            entry,
            expired: entry.is_some_and(|entry| rules.allow[entry].is_expired(today)),
            flickers: counted < most,
            most,
        })
        .collect();
    if against.is_some() {
        for (&site, &change) in current.iter().zip(&comparison.changes) {
            standings[site].change = Some(change);
        }
    }
    let terms: Vec<Terms> = standings
        .iter()
        .zip(&counted.shared)
        .map(|(standing, &counted)| {
            let known = standing.change.and_then(Change::old).map_or(0, |old| baseline.entries[old].per_step);
            let by_entry = match standing.entry {
                Some(_) if standing.expired => None,
                Some(entry) => Some(rules.allow[entry].max_per_step.unwrap_or(u64::MAX)),
                None => Some(0),
            };
            let flicker = standing.most - counted.min(standing.most);
            Terms {
                // An entry that has expired stands for a decision that is due: the baseline does not make up for it.
                accepted_per_step: by_entry.map_or(0, |by_entry| by_entry.max(known).saturating_add(flicker)),
                strict: against.is_some() || standing.expired || limited(rules, standing),
            }
        })
        .collect();
    let judgement = audit.judge(options, &terms);
    let mut sorted: Vec<Standing> = vec![Standing::default(); standings.len()];
    for (&at, standing) in judgement.moved_to.iter().zip(standings) {
        sorted[at as usize] = standing;
    }
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::default();
    for (index, site) in audit.sites.iter().enumerate() {
        groups.entry(&site.group).or_default().push(index);
    }
    let context = Context { audit: &audit, options, rules, against, baseline, groups };
    let mut findings: Vec<Finding> = sorted
        .iter()
        .zip(&judgement.over)
        .enumerate()
        .filter_map(|(site, (standing, over))| context.of_site(site, standing, *over))
        .collect();
    findings.extend(context.of_baseline(&comparison));
    findings.extend(context.of_allow_list(&allowed, today));
    findings.extend(audit.exposed_over_budget().map(|message| Finding {
        help: help(Code::ExposedOverBudget),
        ..finding(Code::ExposedOverBudget, Severity::Error, message)
    }));
    findings.extend(audit.doubts.iter().map(of_doubt));
    sort(&mut findings);
    say_why(&mut audit, &findings, against.is_some());
    Judged { audit, findings, with_baseline: against.is_some() }
}

/// An entry with a limit is judged by that limit, not by the budget.
fn limited(rules: &Rules, standing: &Standing) -> bool {
    standing.entry.is_some_and(|entry| rules.allow[entry].max_per_step.is_some())
}

/// The sites that a baseline is about, and what it says of them.
fn against_baseline(
    audit: &Audit,
    counted: &[u64],
    options: &AuditOptions,
    baseline: &Baseline,
) -> (Vec<usize>, Comparison) {
    let current: Vec<usize> = (0..audit.sites.len())
        .filter(|&index| {
            let site = &audit.sites[index];
            counted[index] > 0 && !site.by_recorder && options.level(site.kind) != Level::Off
        })
        .collect();
    let entries: Vec<_> =
        current.iter().map(|&index| super::Entry::of(audit, &audit.sites[index], counted[index])).collect();
    let comparison = compare(&baseline.entries, &entries, audit);
    (current, comparison)
}

fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let key = |f: &Finding| (Reverse(f.severity), f.code, f.site.unwrap_or(usize::MAX));
        let line = |f: &Finding| f.written.as_ref().map_or(0, |written| written.line);
        key(a).cmp(&key(b)).then_with(|| line(a).cmp(&line(b))).then_with(|| a.message.cmp(&b.message))
    });
}

fn finding(code: Code, severity: Severity, message: String) -> Finding {
    Finding {
        code,
        severity,
        site: None,
        fingerprint: None,
        kind: None,
        message,
        help: String::new(),
        justification: None,
        owner: None,
        place: None,
        written: None,
    }
}

struct Context<'a> {
    audit: &'a Audit,
    options: &'a AuditOptions,
    rules: &'a Rules,
    against: Option<Against<'a>>,
    baseline: &'a Baseline,
    /// Sites by what they share if they differ only in their lines.
    groups: HashMap<&'a str, Vec<usize>>,
}

impl Context<'_> {
    fn of_site(&self, index: usize, standing: &Standing, over: Option<Over>) -> Option<Finding> {
        let site = &self.audit.sites[index];
        if self.options.level(site.kind) == Level::Off {
            return None;
        }
        let entry = standing.entry.map(|entry| &self.rules.allow[entry]);
        let old = standing.change.and_then(Change::old).map(|old| &self.baseline.entries[old]);
        let times = plural(standing.most, "wait", "waits");
        let kind = site.kind.id();
        let was = old.map_or(0, |old| old.per_step);
        let (code, severity, message) = match (over, entry, standing.change) {
            (Some(Over::LogSteps), ..) => {
                (Code::LogStepOverBudget, Severity::Error, format!("{kind}: over the budget of log steps"))
            }
            (Some(over), entry, change) => {
                let severity = if over == Over::Warn { Severity::Warn } else { Severity::Error };
                let (code, message) = match (entry, change) {
                    (Some(entry), _) if standing.expired => {
                        let last = entry.expires.map(|day| day.to_string()).unwrap_or_default();
                        let owner =
                            entry.owner.as_ref().map_or_else(String::new, |owner| format!(", owner {owner}"));
                        (
                            Code::AllowExpired,
                            format!(
                                "{kind}, up to {times} in a step: was allowed until {last}{owner} ({})",
                                entry.reason
                            ),
                        )
                    }
                    (Some(entry), _) if entry.max_per_step.is_some() => {
                        let limit = entry.max_per_step.unwrap_or_default();
                        (
                            Code::AllowExceeded,
                            format!(
                                "{kind}: up to {times} in a step, and {limit} are allowed ({})",
                                entry.reason
                            ),
                        )
                    }
                    (_, Some(Change::New)) => (Code::NewWait, self.new_wait(site, standing)),
                    (_, Some(Change::Grown(_) | Change::Moved(_) | Change::Known(_) | Change::Shrunk(_))) => {
                        (
                            Code::GrownWait,
                            format!("{kind}: up to {times} in a step, and the baseline has {was}"),
                        )
                    }
                    (_, None) => (
                        Code::OverBudget,
                        format!(
                            "{kind}: up to {times} in an ordinary step, {} in {} of {}{}",
                            site.ordinary_waits,
                            site.steps_with_waits,
                            plural(self.audit.step_counts.ordinary as u64, "step", "steps"),
                            match site.unfinished_waits {
                                0 => String::new(),
                                waits => format!(", {waits} in a step that did not end"),
                            }
                        ),
                    ),
                };
                (code, severity, message)
            }
            (None, ..) if standing.most == 0 => return None,
            (None, Some(_), _) => {
                (Code::AllowedWait, Severity::Note, format!("{kind}: up to {times} in a step, allowed"))
            }
            (None, None, None | Some(Change::New | Change::Grown(_))) if standing.flickers => (
                Code::FlickeringWait,
                Severity::Note,
                format!("{kind}: up to {times} in a step in this run, and not in all of the others"),
            ),
            (None, None, Some(change)) => match change {
                Change::Moved(_) => (
                    Code::MovedWait,
                    Severity::Note,
                    format!("{kind}: known to the baseline at another place"),
                ),
                Change::Shrunk(_) if standing.most < was => (
                    Code::ShrunkWait,
                    Severity::Note,
                    format!("{kind}: up to {times} in a step, and the baseline has {was}"),
                ),
                Change::Known(_) | Change::Shrunk(_) | Change::Grown(_) => {
                    (Code::KnownWait, Severity::Note, format!("{kind}: up to {times} in a step, known"))
                }
                Change::New => return None,
            },
            (None, None, None) => return None,
        };
        let accepted = severity == Severity::Note;
        let justification = match entry {
            Some(entry) => Some(entry.reason.clone()),
            None => old.and_then(|old| old.reason.clone()),
        };
        Some(Finding {
            site: Some(index),
            fingerprint: Some(site.fingerprint.clone()),
            kind: Some(site.kind),
            help: help(code),
            justification: justification.filter(|_| accepted),
            owner: entry.and_then(|entry| entry.owner.clone()),
            place: site.place().cloned(),
            written: match (entry, old) {
                (Some(entry), _) => Some(Written { path: self.rules.allow_path.clone(), line: entry.line }),
                (None, Some(old)) => self.line_of(old.line),
                (None, None) => None,
            },
            ..finding(code, severity, message)
        })
    }

    fn line_of(&self, line: usize) -> Option<Written> {
        self.against.filter(|_| line > 0).map(|against| Written { path: against.path.to_owned(), line })
    }

    fn new_wait(&self, site: &Site, standing: &Standing) -> String {
        let text = format!(
            "{}: up to {} in a step, and the baseline has none here",
            site.kind.id(),
            plural(standing.most, "wait", "waits")
        );
        // Where several places of one function can't be told apart, the reader has to know all of them.
        let alike: Vec<String> = self
            .groups
            .get(site.group.as_str())
            .into_iter()
            .flatten()
            .map(|&other| &self.audit.sites[other])
            .filter(|other| other.fingerprint != site.fingerprint)
            .filter(|other| other.ordinary_waits + other.unfinished_waits > 0)
            .filter_map(|other| other.place())
            .filter(|frame| frame.line > 0)
            .map(|frame| format!("{}:{}", frame.file, frame.line))
            .collect();
        if alike.is_empty() {
            text
        } else {
            format!(
                "{text} (or at {} in the same function: they are told apart by their order only)",
                alike.join(", ")
            )
        }
    }

    /// What the baseline has and this run has not.
    fn of_baseline(&self, comparison: &Comparison) -> Vec<Finding> {
        let mut findings = Vec::new();
        for gone in &comparison.gone {
            let old = &self.baseline.entries[gone.old];
            let (code, message) = match gone.reached {
                true => (Code::FixedWait, format!("{}: gone", old.place)),
                false => (
                    Code::BaselineNotReached,
                    format!("{}: this run, as far as its trace tells, never got there", old.place),
                ),
            };
            findings.push(Finding {
                fingerprint: Some(old.fingerprint()),
                kind: Some(old.place.kind),
                help: help(code),
                written: self.line_of(old.line),
                ..finding(code, Severity::Note, message)
            });
        }
        findings
    }

    /// Entries that cover nothing.
    fn of_allow_list(&self, allowed: &Allowed, today: Date) -> Vec<Finding> {
        let of = |&(index, why): &(usize, Unmatched)| {
            let entry = &self.rules.allow[index];
            let expired = if entry.is_expired(today) { " (and it has expired)" } else { "" };
            let what = entry.what();
            let (code, severity, message, help) = match why {
                Unmatched::Gone => (
                    Code::AllowGone,
                    Severity::Warn,
                    format!(
                        "the entry for {what} covers nothing: the run came by its place and did not wait{expired}"
                    ),
                    "take the entry out",
                ),
                Unmatched::NotReached => (
                    Code::AllowNotReached,
                    Severity::Note,
                    format!(
                        "the entry for {what} covers nothing: this run, as far as its trace tells, never got to its place{expired}"
                    ),
                    "",
                ),
                Unmatched::Unknown => (
                    Code::AllowNotReached,
                    Severity::Note,
                    format!(
                        "the entry for {what} covers nothing, and does not say where its wait was{expired}"
                    ),
                    "add its range or function, so that a later run can tell whether the wait is gone",
                ),
            };
            Finding {
                fingerprint: entry.fingerprint.clone(),
                kind: entry.kind,
                help: help.to_owned(),
                owner: entry.owner.clone(),
                written: Some(Written { path: self.rules.allow_path.clone(), line: entry.line }),
                ..finding(code, severity, message)
            }
        };
        allowed.unmatched.iter().map(of).collect()
    }
}

/// What to do about it.
fn help(code: Code) -> String {
    match code {
        Code::OverBudget | Code::LogStepOverBudget => {
            "remove the wait, or allow it in syncaudit.toml ([[allow]]) with a reason"
        }
        Code::ExposedOverBudget => "ask 'syncaudit whatif TRACE' which waits have to go",
        Code::NewWait | Code::GrownWait => {
            "remove the wait, allow it in syncaudit.toml ([[allow]]) with a reason, or accept it with 'syncaudit baseline TRACE \
             --update --accept REASON'"
        }
        Code::AllowExpired => "remove the wait, or agree with the entry's owner on a new date",
        Code::AllowExceeded => "remove the waits that were added, or raise max-per-step",
        Code::MovedWait | Code::FixedWait | Code::ShrunkWait => {
            "tighten the baseline: 'syncaudit baseline TRACE --update'"
        }
        Code::BaselineNotReached
        | Code::AllowGone
        | Code::AllowNotReached
        | Code::FlickeringWait
        | Code::KnownWait
        | Code::AllowedWait
        | Code::Inconclusive => "",
    }
    .to_owned()
}

/// The reasons of the verdict in the gate's words, where the audit's own are not enough.
fn say_why(audit: &mut Audit, findings: &[Finding], with_baseline: bool) {
    let count = |code: Code, severity: Severity| {
        findings.iter().filter(|f| f.code == code && f.severity == severity).count() as u64
    };
    let mut said = Vec::new();
    let mut parts = Vec::new();
    for (code, one, many) in [
        (Code::NewWait, "wait that the baseline does not have", "waits that the baseline does not have"),
        (
            Code::GrownWait,
            "wait more frequent than in the baseline",
            "waits more frequent than in the baseline",
        ),
        (
            Code::AllowExpired,
            "wait whose entry in the allow-list has expired",
            "waits whose entries in the allow-list have expired",
        ),
        (
            Code::AllowExceeded,
            "wait more frequent than its entry in the allow-list says",
            "waits more frequent than their entries in the allow-list say",
        ),
    ] {
        let errors = count(code, Severity::Error);
        if errors > 0 {
            parts.push(plural(errors, one, many));
        }
    }
    let news = !parts.is_empty();
    if news {
        said.push(parts.join(", "));
    }
    if with_baseline {
        let mut parts = Vec::new();
        for (code, word) in [
            (Code::KnownWait, "known"),
            (Code::MovedWait, "moved"),
            (Code::ShrunkWait, "less frequent"),
            (Code::FixedWait, "fixed"),
            (Code::BaselineNotReached, "not reached by this run"),
        ] {
            let notes = count(code, Severity::Note);
            if notes > 0 {
                parts.push(format!("{notes} {word}"));
            }
        }
        if !parts.is_empty() {
            said.push(format!("of the baseline: {}", parts.join(", ")));
        }
    }
    let of_budget = (audit.verdict != Verdict::Inconclusive && !audit.reasons.is_empty())
        .then(|| audit.reasons.remove(0));
    // The audit's sentence counts all waits of a step; with a baseline the new ones are what matters.
    let exposed = count(Code::ExposedOverBudget, Severity::Error) > 0;
    let explained = with_baseline && audit.verdict == Verdict::Fail && news && !exposed;
    audit.reasons =
        of_budget.filter(|_| !explained).into_iter().chain(said).chain(audit.reasons.drain(..)).collect();
    if explained {
        // The audit's own advice is to raise the budget, which does not cover what the baseline doesn't have.
        audit.next.remove(0);
        audit.next.insert(
            0,
            "remove the waits that are new or more frequent, worst first; what has to stay is allowed in syncaudit.toml ([[allow]]) or \
             taken in by 'syncaudit baseline TRACE --update --accept REASON'"
                .to_owned(),
        );
    }
    if count(Code::FixedWait, Severity::Note) + count(Code::ShrunkWait, Severity::Note) > 0
        && audit.verdict == Verdict::Pass
    {
        audit.next.push(
            "tighten the baseline, so that what is fixed stays fixed: 'syncaudit baseline TRACE --update'"
                .to_owned(),
        );
    }
}
