//! The numbers of a priced trace: per site, together, and what they rest on.
//!
//! In: a timeline that nothing speaks against. Out: [`Prices`], or the reason why its replay can't be believed. All lengths are means over the
//! ordinary steps (all steps where none is ordinary, the recording where there is no step), in nanoseconds.

use super::Effort;
use super::abstain::Abstention;
use super::exposed::{Charges, Exposed, Idle};
use super::graph::Removal;
use super::lead::RunAhead;
use super::plan::{Guesses, Plan, Stretch};
use super::search::{self, Oracle};
use super::timeline::{NONE, Timeline};
use super::what_if::WhatIf;
use crate::audit::{Site, WaitKind, plural};

/// What the lengths are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The mean of so many ordinary steps.
    OrdinarySteps(usize),
    /// The mean of so many steps, none of which is ordinary.
    Steps(usize),
    /// The fullest step of a trace with one or two, over and over.
    RepeatedStep,
    /// The whole recording, which has no steps.
    Recording,
}

impl Unit {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::OrdinarySteps(_) => "ordinary-step",
            Self::Steps(_) => "step",
            Self::RepeatedStep => "repeated-step",
            Self::Recording => "recording",
        }
    }

    /// In a sentence: so much of ...
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Recording => "the recording",
            _ => "a step",
        }
    }
}

/// What keeps a step from being shorter when nothing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Host,
    Device,
}

impl Limit {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
        }
    }
}

/// A step can't be shorter than the longest of these, whichever waits are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// What the host does without waiting.
    pub host_ns: u64,
    /// Work of the busiest stream.
    pub stream_ns: u64,
    /// The longest chain of device work, with what streams wait for each other.
    pub device_ns: u64,
}

impl Bound {
    /// The longest.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.host_ns.max(self.stream_ns).max(self.device_ns)
    }

    /// Which it is.
    #[must_use]
    pub fn limit(&self) -> Limit {
        if self.host_ns > self.stream_ns.max(self.device_ns) { Limit::Host } else { Limit::Device }
    }
}

/// Who pays when a site is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPayer {
    /// Another site of the audit (index at the time of pricing).
    Site(usize),
    /// The host is busy.
    Host,
    /// The device is busy.
    Device,
}

/// How far a number is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    Low,
    Medium,
    High,
}

impl Confidence {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The price of one site, per unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePrice {
    pub fingerprint: String,
    pub blocked_ns: u64,
    pub exposed_ns: u64,
    /// By how much a unit is shorter without this site alone; `None` where that was too much to ask.
    pub alone_ns: Option<i64>,
    /// Fingerprint of the site that pays next, where it is one.
    pub next_site: Option<String>,
    pub next_payer: Option<NextPayer>,
    /// The wait can't just be left out: what it reads decides what is issued next, or it only says that the host is ahead.
    pub removable: bool,
    pub confidence: Confidence,
    /// What to know about the numbers; empty if nothing.
    pub note: String,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Prices {
    pub unit: Unit,
    /// As recorded.
    pub recorded_ns: u64,
    /// As replayed with nothing removed: gains are counted from here.
    pub step_ns: u64,
    /// Median relative error of the replay, in thousandths.
    pub error_permille: u64,
    pub confidence: Confidence,
    pub bound: Bound,
    pub idle: Idle,
    pub exposed: Vec<Exposed>,
    pub run_ahead: RunAhead,
    /// By fingerprint.
    sites: Vec<SitePrice>,
    /// Without all sites that can be removed.
    pub together: WhatIf,
    /// Growing sets, the best as found.
    pub best: Vec<WhatIf>,
    /// Full sentences.
    pub notes: Vec<String>,
}

impl Prices {
    /// The price of a site.
    #[must_use]
    pub fn of_site(&self, fingerprint: &str) -> Option<&SitePrice> {
        let at = self.sites.binary_search_by(|site| site.fingerprint.as_str().cmp(fingerprint)).ok()?;
        Some(&self.sites[at])
    }

    /// All sites with waits in what is counted, by fingerprint.
    #[must_use]
    pub fn sites(&self) -> &[SitePrice] {
        &self.sites
    }
}

/// A replay that misses the recorded times by more can't be believed.
const MOST_ERROR_PERMILLE: u64 = 20;
const REPEATED: &str = "the trace has no more than two steps: gains are those of one of them over and over, in which the host may prepare \
                        the next while the device works";
/// Sites that sets are sought among, the most expensive ones; and how large the sets get.
const MOST_CANDIDATES: usize = 50;
const MOST_IN_SET: usize = 5;

/// A timeline that can be asked.
pub(super) struct Replay<'t, 'a> {
    pub timeline: &'t Timeline<'a>,
    pub plan: Plan,
    times: Vec<i64>,
    /// Mean length as recorded, and as replayed with nothing removed.
    pub recorded_ns: i64,
    pub step_ns: i64,
    /// What the replay of the recording misses, in thousandths.
    pub error_permille: u64,
}

impl<'t, 'a> Replay<'t, 'a> {
    fn new(timeline: &'t Timeline<'a>) -> Result<Self, Abstention> {
        let plan = Plan::of(timeline).map_err(|_| Abstention::Contradiction)?;
        let mut replay =
            Self { timeline, plan, times: Vec::new(), recorded_ns: 0, step_ns: 0, error_permille: 0 };
        replay.recorded_ns = replay.in_the_long_run(|stretch, _| stretch.recorded());
        replay.step_ns = replay.step_ns(&[]);
        Ok(replay)
    }

    /// A replay of the recording that gives the recorded times.
    ///
    /// # Errors
    /// When it does not.
    pub fn checked(timeline: &'t Timeline<'a>) -> Result<Self, Abstention> {
        let mut replay = Self::new(timeline)?;
        let mut errors: Vec<i64> = replay
            .stretches()
            .map(|stretch| {
                let (recorded, replayed) = (stretch.recorded_ns(), stretch.length_ns(&replay.times));
                (recorded - replayed).abs() * 1000 / recorded.max(1)
            })
            .collect();
        errors.sort_unstable();
        replay.error_permille = errors.get(errors.len() / 2).copied().unwrap_or(0).unsigned_abs();
        if replay.error_permille > MOST_ERROR_PERMILLE {
            return Err(Abstention::NotReproduced {
                error_permille: replay.error_permille,
                recorded_ns: replay.recorded_ns.unsigned_abs(),
                replayed_ns: replay.step_ns.unsigned_abs(),
            });
        }
        Ok(replay)
    }

    /// A replay of a step over and over, with what the replay of its recording was good for.
    pub fn of_repeated(timeline: &'t Timeline<'a>, error_permille: u64) -> Result<Self, Abstention> {
        Ok(Self { error_permille, ..Self::new(timeline)? })
    }

    pub fn run(&mut self, removal: &Removal) {
        self.plan.run(removal, &mut self.times);
    }

    fn stretches(&self) -> impl Iterator<Item = &Stretch> {
        self.plan.stretches.iter().filter(|stretch| stretch.counted)
    }

    fn mean(&self, of: impl Fn(&Stretch, &[i64]) -> i64) -> i64 {
        let sum: i64 = self.stretches().map(|stretch| of(stretch, &self.times)).sum();
        sum / self.count()
    }

    /// The mean length of what counts. In the long run host and device make as many steps, but one of them may build up or use up a lead
    /// within what was recorded; the one that is last in the end sets the pace. (host, device, device is last) per stretch.
    fn in_the_long_run(&self, of: impl Fn(&Stretch, &[i64]) -> (i64, i64, bool)) -> i64 {
        let mut sum_ns = 0;
        let stretches: Vec<&Stretch> = self.stretches().collect();
        for of_process in stretches.chunk_by(|a, b| a.process == b.process) {
            let lengths: Vec<(i64, i64, bool)> =
                of_process.iter().map(|stretch| of(stretch, &self.times)).collect();
            let device = lengths.last().is_some_and(|(.., device_is_last)| *device_is_last);
            sum_ns += lengths.iter().map(|(host, dev, _)| if device { *dev } else { *host }).sum::<i64>();
        }
        sum_ns / self.count()
    }

    /// How many stretches a mean is of.
    fn count(&self) -> i64 {
        i64::try_from(self.timeline.counted_steps().max(1)).unwrap_or(i64::MAX)
    }

    fn without(&mut self, removed: &[usize]) {
        let mut removal = self.plan.removal();
        removed.iter().for_each(|&site| removal.take_out(site));
        self.run(&removal);
    }

    /// Sites with waits in what is counted, in the audit's order.
    pub fn sites(&self) -> Vec<usize> {
        let mut counted = vec![false; self.timeline.audit.sites.len()];
        for call in self.timeline.calls.iter().filter(|call| call.counted && call.wait != NONE) {
            counted[self.timeline.audit.waits[call.wait as usize].site as usize] = true;
        }
        (0..counted.len()).filter(|&site| counted[site]).collect()
    }

    /// The bound, whatever is removed.
    pub fn bound(&mut self) -> Bound {
        let mut removal = self.plan.removal();
        (0..self.timeline.audit.sites.len()).for_each(|site| removal.take_out(site));
        self.plan.lift_queues(&mut removal);
        self.run(&removal);
        let host_ns = self.mean(|stretch, times| stretch.host_ns(times));
        self.plan.lift_issue(&mut removal);
        self.run(&removal);
        let device_ns = self.mean(|stretch, times| stretch.device_ns(times));
        let busiest = |stretch: &Stretch, _: &[i64]| i64::try_from(stretch.busiest_stream_ns()).unwrap_or(0);
        let stream_ns = self.mean(busiest);
        let positive = |ns: i64| u64::try_from(ns).unwrap_or(0);
        Bound { host_ns: positive(host_ns), stream_ns: positive(stream_ns), device_ns: positive(device_ns) }
    }

    /// What removing the sites does.
    pub fn what_if(&mut self, removed: &[usize]) -> WhatIf {
        let step_ns = self.step_ns(removed);
        WhatIf::new(self, removed, step_ns)
    }

    /// How long each site holds the host per unit, as recorded.
    fn recorded_blocked_ns(&self) -> Vec<u64> {
        let mut blocked = vec![0; self.timeline.audit.sites.len()];
        for call in self.timeline.calls.iter().filter(|call| call.counted && call.wait != NONE) {
            blocked[self.timeline.audit.waits[call.wait as usize].site as usize] +=
                call.end_ns - call.start_ns;
        }
        let count = self.count().unsigned_abs();
        blocked.iter_mut().for_each(|ns| *ns /= count);
        blocked
    }
}

impl Oracle for Replay<'_, '_> {
    fn step_ns(&mut self, removed: &[usize]) -> i64 {
        self.without(removed);
        self.in_the_long_run(|stretch, times| {
            (stretch.host_ns(times), stretch.device_ns(times), stretch.device_is_last(times))
        })
    }

    fn blocked_ns(&mut self, removed: &[usize]) -> Vec<i64> {
        self.without(removed);
        let mut blocked = vec![0; self.timeline.audit.sites.len()];
        for held in self.plan.held.iter().filter(|held| held.counted) {
            if !removed.contains(&(held.site as usize)) {
                blocked[held.site as usize] += held.blocked_ns(&self.times);
            }
        }
        let count = self.count();
        blocked.iter_mut().for_each(|ns| *ns /= count);
        blocked
    }
}

/// What a read decides can't be issued before it is read: idioms whose value is a size, an index list or a branch.
const DECIDING_RULES: [&str; 7] = [
    "branch-on-tensor",
    "data-dependent-size",
    "expert-loop",
    "mask-indexing",
    "metric-validation",
    "scatter-output-size",
    "varlen-max-length",
];

fn decides(site: &Site) -> bool {
    DECIDING_RULES.contains(&site.rule)
}

/// Whether a question may simply take the site out.
pub(super) fn is_removable(site: &Site) -> bool {
    site.kind != WaitKind::LaunchQueueFull && !decides(site)
}

/// The mean length as recorded.
pub(super) fn recorded_ns(timeline: &Timeline<'_>) -> Result<u64, Abstention> {
    Ok(Replay::new(timeline)?.recorded_ns.unsigned_abs())
}

/// Prices a timeline: by its recording, or by one step over and over where there are too few.
pub(super) fn of(recorded: &Timeline<'_>, effort: Effort) -> Result<Prices, Abstention> {
    let check = Replay::checked(recorded)?;
    let (confidence, mut notes) = (confidence(&check), notes(recorded, &check.plan.guesses));
    let error_permille = check.error_permille;
    let repeated = recorded.repeated();
    let mut replay = match &repeated {
        Some(repeated) => {
            notes.insert(0, REPEATED.to_owned());
            Replay::of_repeated(repeated, error_permille)?
        }
        None => check,
    };
    let recorded_ns = replay.recorded_ns;
    let timeline = replay.timeline;
    let charges = Charges::of(timeline);
    let exposed = if repeated.is_some() { Charges::of(recorded).exposed } else { charges.exposed };
    let count = replay.count().unsigned_abs();
    let bound = replay.bound();
    let blocked = replay.recorded_blocked_ns();
    let before = replay.blocked_ns(&[]);
    let sites = replay.sites();
    let mut passes = passes(effort, replay.plan.edges());
    let mut by_cost = sites.clone();
    by_cost.sort_by_key(|&site| std::cmp::Reverse(blocked[site]));
    let mut rows = Vec::with_capacity(sites.len());
    for &site in &by_cost {
        let row = &timeline.audit.sites[site];
        let asked = passes >= 2;
        let alone_ns = asked.then(|| replay.step_ns - replay.step_ns(&[site]));
        let next_payer = alone_ns
            .and_then(|alone_ns| next_payer(&mut replay, site, alone_ns, before[site], &before, &bound));
        passes -= if asked { 2 } else { 0 };
        rows.push(SitePrice {
            fingerprint: row.fingerprint.clone(),
            blocked_ns: blocked[site],
            exposed_ns: charges.of_site[site] / count,
            alone_ns,
            next_site: match next_payer {
                Some(NextPayer::Site(other)) => Some(timeline.audit.sites[other].fingerprint.clone()),
                _ => None,
            },
            next_payer,
            removable: is_removable(row),
            confidence,
            note: note(row),
        });
    }
    rows.sort_by(|a, b| a.fingerprint.cmp(&b.fingerprint));
    let removable: Vec<usize> =
        sites.iter().copied().filter(|&site| is_removable(&timeline.audit.sites[site])).collect();
    let together = replay.what_if(&removable);
    let mut candidates = removable;
    candidates.sort_by_key(|&site| std::cmp::Reverse(blocked[site]));
    candidates.truncate(MOST_CANDIDATES);
    // Each size of set asks about every candidate.
    let sizes = usize::try_from(passes).unwrap_or(usize::MAX) / (candidates.len() + 2);
    let best = search::best(&mut replay, &candidates, MOST_IN_SET.min(sizes));
    let best = best.into_iter().map(|(set, step_ns)| WhatIf::new(&replay, &set, step_ns)).collect();
    let each = |ns: u64| ns / count;
    let idle = charges.idle;
    Ok(Prices {
        unit: timeline.unit,
        recorded_ns: recorded_ns.unsigned_abs(),
        step_ns: replay.step_ns.unsigned_abs(),
        error_permille,
        confidence,
        bound,
        idle: per_unit(idle, each),
        exposed,
        run_ahead: RunAhead::of(recorded),
        sites: rows,
        together,
        best,
        notes,
    })
}

/// How many passes over the graph an effort is good for.
fn passes(effort: Effort, edges: usize) -> u64 {
    let visits: u64 = match effort {
        Effort::Full => 4_000_000_000,
        Effort::Glance => 100_000_000,
    };
    visits / edges.max(1) as u64
}

/// Each part divided, and the whole as the sum of the parts.
fn per_unit(idle: Idle, each: impl Fn(u64) -> u64) -> Idle {
    let (waits_ns, host_ns, data_ns) = (each(idle.waits_ns), each(idle.host_ns), each(idle.data_ns));
    let (device_ns, unknown_ns) = (each(idle.device_ns), each(idle.unknown_ns));
    let total_ns = waits_ns + host_ns + data_ns + device_ns + unknown_ns;
    Idle { total_ns, waits_ns, host_ns, data_ns, device_ns, unknown_ns }
}

/// Who holds the host, or what it is short of, once the site is gone: nobody if its whole time is gained.
fn next_payer(
    replay: &mut Replay<'_, '_>,
    site: usize,
    alone_ns: i64,
    blocked_ns: i64,
    before: &[i64],
    bound: &Bound,
) -> Option<NextPayer> {
    let left_ns = blocked_ns - alone_ns;
    if blocked_ns <= 0 || left_ns < blocked_ns / 10 {
        return None;
    }
    let after = replay.blocked_ns(&[site]);
    let grown = (0..after.len())
        .filter(|&other| other != site)
        .max_by_key(|&other| (after[other] - before[other], std::cmp::Reverse(other)));
    if let Some(other) = grown.filter(|&other| after[other] - before[other] > left_ns / 10) {
        return Some(NextPayer::Site(other));
    }
    Some(match bound.limit() {
        Limit::Host => NextPayer::Host,
        Limit::Device => NextPayer::Device,
    })
}

fn confidence(replay: &Replay<'_, '_>) -> Confidence {
    let guesses = &replay.plan.guesses;
    let recorded_ns = replay.recorded_ns.unsigned_abs().max(1) * replay.count().unsigned_abs();
    if guesses.late_ns > recorded_ns / 10 || guesses.lone_collectives > guesses.meetings {
        Confidence::Low
    } else if replay.error_permille > 5 || guesses.late_ns > recorded_ns / 50 || guesses.inferred > 0 {
        Confidence::Medium
    } else {
        Confidence::High
    }
}

fn note(site: &Site) -> String {
    if site.kind == WaitKind::LaunchQueueFull {
        "the host is as far ahead as it can be; this costs nothing".to_owned()
    } else if decides(site) {
        "what is read here decides what is issued next: it can't simply be left out".to_owned()
    } else if site.kind == WaitKind::DeviceToHostRead {
        "the copy stays, nobody waits for it; if the value decides what is issued next, it can't simply be left out"
            .to_owned()
    } else {
        String::new()
    }
}

/// Less is not worth a sentence.
const WORTH_SAYING_NS: u64 = 1_000_000;

/// What the numbers rest on that the trace does not say.
fn notes(timeline: &Timeline<'_>, guesses: &Guesses) -> Vec<String> {
    let mut notes = Vec::new();
    if guesses.inferred > 0 {
        notes.push(format!(
            "orders between streams are seen only where they show in the recorded times ({})",
            plural(guesses.inferred, "time", "times")
        ));
    }
    if guesses.meetings > 0 {
        notes.push(format!(
            "{} replayed as meetings of the ranks",
            plural(guesses.meetings, "collective was", "collectives were")
        ));
    }
    if guesses.late_ns >= WORTH_SAYING_NS {
        notes.push(format!(
            "{} began later than anything in the trace explains, by {} ms in all; they keep that delay",
            plural(guesses.late, "piece of device work", "pieces of device work"),
            guesses.late_ns / 1_000_000
        ));
    }
    if guesses.causeless_ns >= WORTH_SAYING_NS {
        notes.push(format!(
            "{} waited for nothing that the trace has, for {} ms in all; they keep that time until they are removed",
            plural(guesses.causeless, "call", "calls"),
            guesses.causeless_ns / 1_000_000
        ));
    }
    if guesses.lone_collectives > 0 {
        notes.push(format!(
            "{} without the other ranks: they keep the durations that they had, waiting for other ranks included",
            plural(guesses.lone_collectives, "collective is", "collectives are")
        ));
    }
    let overheads = timeline.trace.processes.iter().any(|process| !process.overheads.is_empty());
    if !timeline.trace.source.emulated && !overheads {
        notes.push(
            "times were recorded under a tool that makes each call longer, and the trace has no record of how much: on \
             their own, hosts are faster"
                .to_owned(),
        );
    }
    notes
}
