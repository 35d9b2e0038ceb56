//! Two runs side by side: what appeared, went, changed and moved.
//!
//! In: two judged audits, from any sources. Out: a [`Diff`]. Only ordinary steps are compared; a wait that is new there fails, unless its kind
//! only warns or an entry of the allow-list covers it. It must never say "nothing new" of a run that may have hidden it.

use super::compare::{Change, compare};
use super::place::{Entry, Place, judged_per_step};
use super::{Code, Judged, program_name};
use crate::audit::{AuditOptions, Frame, Level, SiteStatus, Verdict, plural};
use crate::model::SourceKind;

/// One of the two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    pub source: SourceKind,
    pub emulated: bool,
    pub program: String,
    pub ordinary_steps: usize,
    /// Average over ordinary steps.
    pub waits_per_step: f64,
    /// Host time inside of waits of ordinary steps, per step; `None` where times mean nothing or there is no such step.
    pub blocked_ns_per_step: Option<u64>,
}

/// What became of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    Appeared,
    Grown,
    Shrunk,
    Moved,
    Gone,
    /// The new run never got there, as far as its trace tells.
    NotReached,
    Same,
}

impl RowKind {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Grown => "grown",
            Self::Shrunk => "shrunk",
            Self::Moved => "moved",
            Self::Gone => "gone",
            Self::NotReached => "not-reached",
            Self::Same => "same",
        }
    }
}

/// One place in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub kind: RowKind,
    /// In the new run, else in the old one.
    pub place: Place,
    pub fingerprint: String,
    /// Where it is in the old and in the new run.
    pub old_frame: Option<Frame>,
    pub new_frame: Option<Frame>,
    /// Most waits in one ordinary step.
    pub old_per_step: u64,
    pub new_per_step: u64,
    /// Host time per ordinary step, in waits of all kinds of steps taken together as the trace has them.
    pub old_blocked_ns: Option<u64>,
    pub new_blocked_ns: Option<u64>,
    /// It is new or grown, and nothing accepts it.
    pub fails: bool,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    pub verdict: Verdict,
    /// Full sentences, most important first.
    pub reasons: Vec<String>,
    /// What makes the comparison less sure; full sentences.
    pub warnings: Vec<String>,
    pub old: Side,
    pub new: Side,
    /// What fails first; within a kind by place.
    pub rows: Vec<Row>,
}

impl Diff {
    /// Compares two runs.
    #[must_use]
    pub fn of(old: &Judged, new: &Judged, options: &AuditOptions) -> Self {
        let comparable = old.audit.incomparable().is_empty() && new.audit.incomparable().is_empty();
        // Places without their names would all show as gone and appeared.
        let entries = |judged| if comparable { entries(judged, options) } else { Default::default() };
        let ((old_sites, old_entries), (new_sites, new_entries)) = (entries(old), entries(new));
        let of_site = new.by_site();
        let comparison = compare(&old_entries, &new_entries, &new.audit);
        let mut rows: Vec<Row> = Vec::new();
        for (at, (entry, change)) in new_entries.iter().zip(&comparison.changes).enumerate() {
            let before = change.old();
            let site = &new.audit.sites[new_sites[at]];
            let kind = match change {
                Change::Known(_) => RowKind::Same,
                Change::Shrunk(_) => RowKind::Shrunk,
                Change::Grown(_) => RowKind::Grown,
                Change::Moved(_) => RowKind::Moved,
                Change::New => RowKind::Appeared,
            };
            let allowed = of_site[new_sites[at]].is_some_and(|finding| finding.code == Code::AllowedWait);
            let counts = options.level(site.kind) == Level::Error && !allowed;
            let before_site = before.map(|before| &old.audit.sites[old_sites[before]]);
            rows.push(Row {
                kind,
                place: entry.place.clone(),
                fingerprint: entry.fingerprint(),
                old_frame: before_site.and_then(|site| site.place().cloned()),
                new_frame: site.place().cloned(),
                old_per_step: before.map_or(0, |before| old_entries[before].per_step),
                new_per_step: entry.per_step,
                old_blocked_ns: before_site.and_then(|site| site.blocked_ns),
                new_blocked_ns: site.blocked_ns,
                fails: counts && matches!(kind, RowKind::Appeared | RowKind::Grown),
            });
        }
        for gone in &comparison.gone {
            let entry = &old_entries[gone.old];
            let site = &old.audit.sites[old_sites[gone.old]];
            rows.push(Row {
                kind: if gone.reached { RowKind::Gone } else { RowKind::NotReached },
                place: entry.place.clone(),
                fingerprint: entry.fingerprint(),
                old_frame: site.place().cloned(),
                new_frame: None,
                old_per_step: entry.per_step,
                new_per_step: 0,
                old_blocked_ns: site.blocked_ns,
                new_blocked_ns: None,
                fails: false,
            });
        }
        rows.sort_by(|a, b| {
            let key = |row: &Row| (!row.fails, row.kind);
            key(a).cmp(&key(b)).then_with(|| (&a.place, &a.fingerprint).cmp(&(&b.place, &b.fingerprint)))
        });
        let (verdict, reasons) = decide(old, new, &rows);
        Self { verdict, reasons, warnings: warnings(old, new), old: side(old), new: side(new), rows }
    }
}

fn decide(old: &Judged, new: &Judged, rows: &[Row]) -> (Verdict, Vec<String>) {
    let failing = rows.iter().filter(|row| row.fails).count() as u64;
    let mut reasons = Vec::new();
    if failing > 0 {
        reasons.push(format!(
            "{} in ordinary steps that the old trace does not have, or not as often",
            plural(failing, "wait", "waits")
        ));
    }
    let doubts = |which: &str, judged: &Judged| -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        for doubt in judged.audit.doubts.iter().chain(&judged.audit.incomparable()) {
            let reason = format!("the {which} trace: {}", doubt.reason);
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    };
    let (of_old, of_new) = (doubts("old", old), doubts("new", new));
    // What an incomplete old trace does not have may have been there; what an incomplete new one has is there.
    let verdict = match (failing > 0 && of_old.is_empty(), of_old.is_empty() && of_new.is_empty()) {
        (true, _) => Verdict::Fail,
        (false, true) => Verdict::Pass,
        (false, false) => Verdict::Inconclusive,
    };
    if verdict == Verdict::Pass {
        reasons.push("no new wait in ordinary steps".to_owned());
    }
    reasons.extend(of_old.into_iter().chain(of_new));
    (verdict, reasons)
}

fn warnings(old: &Judged, new: &Judged) -> Vec<String> {
    let (a, b) = (&old.audit.source, &new.audit.source);
    let mut warnings = Vec::new();
    if a.emulated != b.emulated {
        let (emulated, measured) = if a.emulated { ("old", "new") } else { ("new", "old") };
        warnings.push(format!(
            "the {emulated} trace is of the emulated device and the {measured} one of a GPU: waits that only a real driver causes \
             (allocations that block, full launch queues, work inside of libraries) can appear or go without any change to the \
             program, and times can't be compared"
        ));
    }
    if a.kind != b.kind {
        warnings.push(format!(
            "the old trace was recorded by {}, the new one by {}: they know different things of a place (stacks, ranges, operators), \
             so that one and the same wait may show as gone and appeared",
            a.kind.id(),
            b.kind.id()
        ));
    }
    let (program_a, program_b) = (program_name(a), program_name(b));
    if !program_a.is_empty() && !program_b.is_empty() && program_a != program_b {
        warnings.push(format!("the old trace is of '{program_a}', the new one of '{program_b}'"));
    }
    warnings
}

fn side(judged: &Judged) -> Side {
    let audit = &judged.audit;
    let ordinary = audit.step_counts.ordinary;
    let ordinary_steps = audit.steps.iter().filter(|step| step.kind == crate::audit::StepKind::Ordinary);
    let blocked: Option<u64> = ordinary_steps.map(|step| step.blocked_ns).sum();
    Side {
        source: audit.source.kind,
        emulated: audit.source.emulated,
        program: program_name(&audit.source),
        ordinary_steps: ordinary,
        waits_per_step: audit.totals.ordinary_waits_per_step,
        blocked_ns_per_step: blocked.and_then(|sum| sum.checked_div(ordinary as u64)),
    }
}

/// The judged places of a run, with the indices of their sites.
fn entries(judged: &Judged, options: &AuditOptions) -> (Vec<usize>, Vec<Entry>) {
    let audit = &judged.audit;
    let most = judged_per_step(audit);
    (0..audit.sites.len())
        .filter(|&index| {
            let site = &audit.sites[index];
            most[index] > 0
                && !site.by_recorder
                && options.level(site.kind) != Level::Off
                && matches!(site.status, SiteStatus::OverBudget | SiteStatus::Allowed)
        })
        .map(|index| (index, Entry::of(audit, &audit.sites[index], most[index])))
        .unzip()
}
