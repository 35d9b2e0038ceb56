//! The budget: how many waits an ordinary step (and, where asked for, a log step) may have.
//!
//! In: what the configuration allows, and per site what is accepted anyway. Out: which steps and sites are over. Every wait is
//! judged by exactly one line of the budget: the first range line that it is inside of, else the line of its kind, else the total.

use std::collections::BTreeMap;

use super::sites::{Site, SiteStatus};
use super::steps::{Step, StepKind};
use super::waits::Wait;
use super::{AuditOptions, Pattern, WaitKind};

/// Waits allowed per step; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// For all waits that have no allowance of their own, together.
    pub total: u64,
    /// Kinds with an allowance of their own.
    pub per_kind: BTreeMap<WaitKind, u64>,
    /// Ranges with an allowance of their own, before kinds; the first that matches counts.
    pub per_range: Vec<(Pattern, u64)>,
    /// Idle time of the device that the waits of an ordinary step may cause; not judged unless it is set.
    pub exposed_ns: Option<u64>,
}

impl Budget {
    /// Its lines, each with the waits that it is about and how many of them one step may have.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, u64)> {
        let ranges =
            self.per_range.iter().map(|(range, allowed)| (format!("waits in range {range}"), *allowed));
        let kinds = self.per_kind.iter().map(|(kind, allowed)| (format!("{} waits", kind.id()), *allowed));
        let one = self.per_range.is_empty() && self.per_kind.is_empty();
        let rest = if one { "waits" } else { "all other waits" };
        ranges.chain(kinds).chain([(rest.to_owned(), self.total)]).collect()
    }

    /// Which of [`Self::lines`] judges a site.
    #[must_use]
    pub fn line_of(&self, site: &Site) -> usize {
        let in_range = |(pattern, _): &(Pattern, u64)| site.range.iter().any(|name| pattern.matches(name));
        let of_kind = || self.per_kind.keys().position(|kind| *kind == site.kind);
        self.per_range
            .iter()
            .position(in_range)
            .or_else(|| Some(self.per_range.len() + of_kind()?))
            .unwrap_or(self.per_range.len() + self.per_kind.len())
    }
}

/// How much a kind of wait matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not judged.
    Off,
    /// Judged by the budget on its own, and said; fails nothing.
    Warn,
    /// Counts.
    #[default]
    Error,
}

impl Level {
    pub const ALL: [Self; 3] = [Self::Off, Self::Warn, Self::Error];

    /// The name in the budget file.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// What is accepted of one site beyond the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Waits of one judged step that don't count.
    pub accepted_per_step: u64,
    /// No budget covers what is beyond that.
    pub strict: bool,
}

/// In which way a site is over the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Over {
    /// In ordinary steps, but its kind only warns.
    Warn,
    /// In log steps.
    LogSteps,
    /// In ordinary steps.
    OrdinarySteps,
}

/// Lines of a budget, by number: the ranges, then the kinds, then the total.
struct Lines<'b> {
    budget: &'b Budget,
    of_site: Vec<usize>,
}

impl<'b> Lines<'b> {
    fn new(budget: &'b Budget, sites: &[Site]) -> Self {
        let of = |site: &Site| budget.line_of(site);
        Self { budget, of_site: sites.iter().map(of).collect() }
    }

    fn count(&self) -> usize {
        self.budget.per_range.len() + self.budget.per_kind.len() + 1
    }

    fn allowed(&self, line: usize) -> u64 {
        let ranges = self.budget.per_range.len();
        match self.budget.per_range.get(line) {
            Some((_, allowed)) => *allowed,
            None => self.budget.per_kind.values().nth(line - ranges).copied().unwrap_or(self.budget.total),
        }
    }
}

/// Marks steps and sites that are over the budget, and gives each site its status; `terms` is per site. Warm-up steps never are over;
/// log steps only by a budget of their own; a step that had not ended is as soon as it has more waits than a whole step may have.
pub(super) fn judge(
    options: &AuditOptions,
    terms: &[Terms],
    steps: &mut [Step],
    sites: &mut [Site],
    waits: &[Wait],
) -> Vec<Option<Over>> {
    let ordinary = Lines::new(&options.budget, sites);
    let log = options.log_budget.as_ref().map(|budget| Lines::new(budget, sites));
    let mut over: Vec<Option<Over>> = vec![None; sites.len()];
    let mut in_steps: Vec<(u32, u32)> =
        waits.iter().filter_map(|wait| Some((wait.step?, wait.site))).collect();
    in_steps.sort_unstable();
    for step in steps.iter_mut() {
        step.over_budget = false;
    }
    for of_step in in_steps.chunk_by(|a, b| a.0 == b.0) {
        let step = &mut steps[of_step[0].0 as usize];
        let lines = match (step.kind, &log) {
            (StepKind::Ordinary | StepKind::Unfinished, _) => &ordinary,
            (StepKind::Log, Some(log)) => log,
            (StepKind::Log, None) | (StepKind::Warmup, _) => continue,
        };
        // What is not accepted: of each site, and of each line for kinds that count and for those that only warn.
        let mut sums = vec![[0u64; 2]; lines.count()];
        let rest: Vec<(usize, u64)> = of_step
            .chunk_by(|a, b| a.1 == b.1)
            .map(|of_site| {
                let site = of_site[0].1 as usize;
                let accepted = match options.level(sites[site].kind) {
                    Level::Off => u64::MAX,
                    Level::Warn | Level::Error => terms[site].accepted_per_step,
                };
                (site, (of_site.len() as u64).saturating_sub(accepted))
            })
            .filter(|(_, rest)| *rest > 0)
            .collect();
        let counts = |site: usize| options.level(sites[site].kind) == Level::Error;
        for &(site, rest) in &rest {
            sums[lines.of_site[site]][usize::from(counts(site))] += rest;
        }
        for (site, _) in rest {
            let line = lines.of_site[site];
            let strict = terms[site].strict && step.kind != StepKind::Log;
            if !strict && sums[line][usize::from(counts(site))] <= lines.allowed(line) {
                continue;
            }
            let how = match (counts(site), step.kind) {
                (false, _) => Over::Warn,
                (true, StepKind::Log) => Over::LogSteps,
                (true, _) => Over::OrdinarySteps,
            };
            step.over_budget |= how != Over::Warn;
            over[site] = over[site].max(Some(how));
        }
    }
    for (site, over) in sites.iter_mut().zip(&over) {
        site.status = match over {
            Some(Over::OrdinarySteps | Over::LogSteps) => SiteStatus::OverBudget,
            _ if site.ordinary_waits + site.unfinished_waits > 0 => SiteStatus::Allowed,
            _ if site.log_waits > 0 => SiteStatus::LogStep,
            _ if site.warmup_waits > 0 => SiteStatus::Warmup,
            _ => SiteStatus::Outside,
        };
    }
    over
}

#[cfg(test)]
mod tests {
    use super::super::{Audit, audit};
    use super::*;
    use crate::model::{CallData, TraceBuilder};

    const SYNC: &str = "cudaDeviceSynchronize";
    const EVENT: &str = "cudaEventSynchronize";

    /// Six steps (two warm-up; the last one logs), each with these calls, each in its range.
    fn run(calls: &[(&str, &str)], options: &AuditOptions) -> Audit {
        let mut builder = TraceBuilder::default();
        builder.source.emulated = true;
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        for step in 0..6u64 {
            let mut now = step * 10_000;
            thread.push(now, &format!("step {step}"), None);
            if step == 5 {
                thread.push(now + 1, "log", None);
                thread.pop(now + 2);
            }
            for (name, range) in calls {
                now += 100;
                thread.push(now, range, None);
                thread.call(name, now + 1, now + 2, CallData::default());
                thread.pop(now + 3);
            }
            thread.pop(now + 100);
        }
        let audit = audit(&builder.finish(), options);
        audit.reconcile().unwrap();
        audit
    }

    fn over(audit: &Audit) -> usize {
        audit.steps.iter().filter(|step| step.over_budget).count()
    }

    #[test]
    fn a_kind_with_its_own_allowance_is_judged_by_that_alone() {
        let budget =
            Budget { total: 1, per_kind: BTreeMap::from([(WaitKind::EventSync, 2)]), ..Default::default() };
        let options = AuditOptions { budget, ..Default::default() };
        assert_eq!(over(&run(&[(EVENT, "a"), (EVENT, "b"), (SYNC, "c")], &options)), 0);
        let audit = run(&[(EVENT, "a"), (EVENT, "b"), (SYNC, "c"), (SYNC, "d")], &options);
        assert_eq!(over(&audit), 3);
        let kinds: Vec<WaitKind> = audit
            .sites
            .iter()
            .filter(|site| site.status == SiteStatus::OverBudget)
            .map(|site| site.kind)
            .collect();
        assert_eq!(kinds, [WaitKind::DeviceSync; 2], "the events are within their own allowance");
        assert_eq!(over(&run(&[(EVENT, "a"), (EVENT, "b"), (EVENT, "c")], &options)), 3);
    }

    #[test]
    fn a_range_with_its_own_allowance_goes_before_kinds_and_the_first_line_counts() {
        let mut options = AuditOptions::default();
        options.budget.per_kind.insert(WaitKind::EventSync, 5);
        options.budget.per_range = vec![("loader".parse().unwrap(), 1), ("*".parse().unwrap(), 0)];
        assert_eq!(over(&run(&[(EVENT, "loader")], &options)), 0);
        assert_eq!(over(&run(&[(EVENT, "loader"), (SYNC, "loader")], &options)), 3);
        assert_eq!(over(&run(&[(EVENT, "forward")], &options)), 3);
    }

    #[test]
    fn a_kind_that_warns_or_is_off_fails_nothing_and_takes_nothing_from_the_others() {
        for level in [Level::Warn, Level::Off] {
            let mut options = AuditOptions::default();
            options.severity.insert(WaitKind::EventSync, level);
            assert_eq!(over(&run(&[(EVENT, "a")], &options)), 0);
            options.budget.total = 1;
            assert_eq!(over(&run(&[(EVENT, "a"), (EVENT, "b"), (SYNC, "c")], &options)), 0);
            assert_eq!(over(&run(&[(EVENT, "a"), (SYNC, "b"), (SYNC, "c")], &options)), 3);
        }
    }

    #[test]
    fn log_steps_are_judged_only_by_a_budget_of_their_own() {
        let mut options = AuditOptions::default();
        options.budget.total = 9;
        let calls = [(SYNC, "a"), (SYNC, "b")];
        assert_eq!(over(&run(&calls, &options)), 0);
        options.log_budget = Some(Budget { total: 1, ..Default::default() });
        let audit = run(&calls, &options);
        assert_eq!(over(&audit), 1);
        assert!(audit.steps.iter().all(|step| !step.over_budget || step.kind == StepKind::Log));
        assert!(audit.reasons[0].starts_with("1 of 1 log step wait"), "{}", audit.reasons[0]);
    }

    #[test]
    fn what_is_accepted_of_a_site_leaves_the_budget_to_the_rest() {
        let options = AuditOptions::default();
        let mut audit = run(&[(SYNC, "a"), (SYNC, "b")], &options);
        let a = audit.sites.iter().position(|site| site.range.last().unwrap() == "a").unwrap();
        let mut terms = vec![Terms::default(); audit.sites.len()];
        terms[a].accepted_per_step = 1;
        let judgement = audit.judge(&options, &terms);
        let a = judgement.moved_to[a] as usize;
        assert_eq!((audit.sites[a].status, judgement.over[a]), (SiteStatus::Allowed, None));
        assert_eq!(judgement.over[1 - a], Some(Over::OrdinarySteps));
        audit.judge(&options, &[Terms { accepted_per_step: 1, strict: true }; 2]);
        assert_eq!((audit.verdict.id(), over(&audit)), ("pass", 0));
    }
}
