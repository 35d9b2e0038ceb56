//! The audit: which steps there were, where the host waited for the device, whether that is within the budget.
//!
//! In: a [`Trace`] and [`AuditOptions`]. Out: an [`Audit`], complete in itself (reports need no trace). Rules live in
//! the files of this folder, one question each. The audit must never lose a wait: every wait is in exactly one site
//! and at most one step, and the totals are the sums of the rows ([`Audit::reconcile`]).

mod budget;
mod idioms;
mod inferred;
mod options;
mod ranks;
mod seen;
mod sites;
mod steps;
mod verdict;
mod waits;

pub use budget::{Budget, Level, Over, Terms};
pub(crate) use options::stem;
pub use options::{AuditOptions, LogEvery, Pattern, PatternError, StepRules};
pub use ranks::{RankRow, Share};
pub use sites::{Frame, Site, SiteStatus};
pub(crate) use sites::{canonical, fingerprint, fnv1a};
pub use steps::{Step, StepKind, StepSource};
pub(crate) use verdict::plural;
pub use verdict::{Doubt, Verdict};
pub use waits::{Calls, Evidence, Wait, WaitKind};

use std::collections::BTreeSet;

use crate::model::{Problem, Source, Trace};
use crate::price::{Abstention, Effort, Pricing};
use crate::symbols::Symbols;

/// Numbers of steps by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    pub total: usize,
    pub warmup: usize,
    pub log: usize,
    pub ordinary: usize,
    /// Steps that had not ended when the trace did; not judged unless they are over the budget already.
    pub unfinished: usize,
    pub source: StepSource,
}

/// Sums over all waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub waits: u64,
    /// Calls that the waits are made of.
    pub calls: u64,
    /// Calls of any kind in the trace.
    pub recorded_calls: u64,
    /// Copies to the host, whether they made the host wait or not.
    pub device_to_host_copies: u64,
    pub device_to_host_bytes: u64,
    /// Host time inside waits; `None` where times mean nothing.
    pub blocked_ns: Option<u64>,
    pub ordinary_waits: u64,
    pub ordinary_waits_per_step: f64,
    pub log_waits: u64,
    /// Of `log_waits`, those outside of the log range.
    pub log_waits_outside_range: u64,
    pub warmup_waits: u64,
    pub unfinished_waits: u64,
    pub outside_steps_waits: u64,
}

/// A process as reports name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRow {
    pub pid: u64,
    pub name: String,
    pub rank: Option<u32>,
    pub steps: usize,
    pub waits: u64,
}

impl ProcessRow {
    /// `rank 3`, or `process 4711` where no rank is known.
    #[must_use]
    pub fn name_of(rank: Option<u32>, pid: u64) -> String {
        rank.map_or_else(|| format!("process {pid}"), |rank| format!("rank {rank}"))
    }
}

/// The result: everything a report or a gate needs.
#[derive(Clone, Debug)]
pub struct Audit {
    pub source: Source,
    /// Whether times may be shown.
    pub times_meaningful: bool,
    /// Events known to be lost.
    pub dropped_records: u64,
    pub problems: Vec<Problem>,
    pub verdict: Verdict,
    /// Why the verdict is what it is, most important first; full sentences.
    pub reasons: Vec<String>,
    /// What to do next; full sentences, may be empty.
    pub next: Vec<String>,
    pub budget: Budget,
    /// What may hide waits: with any of these the verdict can't be "pass".
    pub doubts: Vec<Doubt>,
    /// The call that the trace ends in, as a full sentence.
    pub cut_short: Option<String>,
    /// Names of ranges, operators and functions that the run got to, as far as the trace tells.
    pub seen: BTreeSet<String>,
    pub step_counts: StepCounts,
    pub totals: Totals,
    /// Worst first: over budget, then by number of ordinary waits; ties in the program's order.
    pub sites: Vec<Site>,
    /// In order of process, then time.
    pub steps: Vec<Step>,
    /// In order of process, thread, time.
    pub waits: Vec<Wait>,
    pub processes: Vec<ProcessRow>,
    /// The ranks of the job; see [`RankRow`]. A job of one process without a rank has at most one.
    pub ranks: Vec<RankRow>,
    /// What the waits cost; `None` where nobody asked ([`crate::assess`]).
    pub pricing: Option<Pricing>,
}

/// Audits a trace.
#[must_use]
pub fn audit(trace: &Trace, options: &AuditOptions) -> Audit {
    let mut symbols = Symbols::new(trace, &options.roots);
    let mut waits = waits::find(trace, &mut sites::Places::new(&mut symbols));
    let mut noticed = Vec::new();
    let (mut steps, source) = steps::find(trace, &options.steps, &mut noticed);
    steps::assign(trace, &options.steps, &mut steps, &mut waits);
    let mut sites = sites::group(trace, &mut symbols, &steps, &mut waits);
    idioms::name(trace, &waits, &mut sites);
    let mut problems = symbols.into_problems();
    problems.append(&mut noticed);
    let mut audit =
        verdict::sum_up(trace, options, verdict::Findings { steps, source, waits, sites, problems });
    audit.judge(options, &vec![Terms::default(); audit.sites.len()]);
    audit
}

/// What judging found, beside what it wrote into the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Per site, in the audit's order: whether it is over the budget.
    pub over: Vec<Option<Over>>,
    /// Per site in the order before: where it is now.
    pub moved_to: Vec<u32>,
}

impl Audit {
    /// Judges by the budget, with what is accepted of each site (`terms`, in the order of the sites): steps, statuses, the
    /// order of the sites, verdict and reasons are set anew. A wait is never added or lost.
    ///
    /// # Panics
    /// If there are not as many terms as sites.
    pub fn judge(&mut self, options: &AuditOptions, terms: &[Terms]) -> Judgement {
        assert_eq!(terms.len(), self.sites.len(), "one of the terms for each site");
        let before = budget::judge(options, terms, &mut self.steps, &mut self.sites, &self.waits);
        let moved_to = sites::sort(&mut self.sites, &mut self.waits);
        let mut over = vec![None; before.len()];
        for (at, how) in moved_to.iter().zip(before) {
            over[*at as usize] = how;
        }
        verdict::conclude(self);
        Judgement { over, moved_to }
    }

    /// Why its places can't be compared with those of a baseline, an allow-list or another run: functions of the program have no names, so that
    /// fingerprints are those of no place. Empty where they can.
    #[must_use]
    pub fn incomparable(&self) -> Vec<Doubt> {
        let judged = |site: &&Site| site.ordinary_waits + site.unfinished_waits > 0;
        let why: BTreeSet<&String> =
            self.sites.iter().filter(judged).flat_map(|site| &site.unnamed).collect();
        let next = "record again with the program as it is now, or put the files back that ran: a trace of 'syncaudit run' keeps its \
                    names once the run has ended";
        let doubt = |why: &String| Doubt {
            reason: format!("waits can't be told apart by their functions, whose names are missing: {why}"),
            next: Some(next.to_owned()),
            of_part: false,
        };
        // A source that brings names itself has no others to lose.
        if self.source.kind == crate::model::SourceKind::Live {
            why.into_iter().map(doubt).collect()
        } else {
            Vec::new()
        }
    }

    /// Says by how much the waits of an ordinary step let the device stand idle beyond the budget, if there is one for that and it is
    /// exceeded.
    pub(crate) fn exposed_over_budget(&self) -> Option<String> {
        let limit_ns = self.budget.exposed_ns?;
        let exposed_ns = self.pricing.as_ref()?.known()?.idle.waits_ns;
        let ms = |ns: u64| format!("{}.{:03}", ns / 1_000_000, ns / 1_000 % 1_000);
        (exposed_ns > limit_ns).then(|| {
            format!(
                "waits let the device stand idle for {} ms per step (budget: {} ms)",
                ms(exposed_ns),
                ms(limit_ns)
            )
        })
    }

    /// Prices the waits; `trace` is the one that this is the audit of. A budget for idle time that can't be judged is a doubt.
    pub fn price(&mut self, trace: &Trace, effort: Effort) {
        let pricing = crate::price::price(trace, self, effort);
        if let (Some(_), Err(abstention)) = (self.budget.exposed_ns, &pricing.prices)
            && *abstention != Abstention::NothingToPrice
        {
            self.doubts.push(Doubt {
                reason: abstention.text(),
                next: Some("record what is missing, or take exposed-ms-per-step out of [budget]".to_owned()),
                of_part: false,
            });
        }
        self.pricing = Some(pricing);
    }

    /// Checks that every wait is in exactly one row of each table and that the totals are the sums of the rows.
    ///
    /// # Errors
    /// Names the first sum that differs: a fault in the audit, never in the trace.
    pub fn reconcile(&self) -> Result<(), String> {
        let totals = &self.totals;
        let sum = |pick: fn(&Site) -> u64| self.sites.iter().map(pick).sum::<u64>();
        let step_sum =
            |kind| self.steps.iter().filter(|step| step.kind == kind).map(|step| step.waits).sum::<u64>();
        let in_steps = totals.waits - totals.outside_steps_waits;
        for (what, left, right) in [
            ("waits and totals", self.waits.len() as u64, totals.waits),
            ("waits of sites", sum(|site| site.waits), totals.waits),
            ("calls of sites", sum(|site| site.calls), totals.calls),
            ("ordinary waits of sites", sum(|site| site.ordinary_waits), totals.ordinary_waits),
            ("log waits of sites", sum(|site| site.log_waits), totals.log_waits),
            ("warm-up waits of sites", sum(|site| site.warmup_waits), totals.warmup_waits),
            ("unfinished waits of sites", sum(|site| site.unfinished_waits), totals.unfinished_waits),
            ("outside waits of sites", sum(|site| site.outside_waits), totals.outside_steps_waits),
            ("waits of steps", self.steps.iter().map(|step| step.waits).sum(), in_steps),
            ("waits of ordinary steps", step_sum(StepKind::Ordinary), totals.ordinary_waits),
            ("waits of log steps", step_sum(StepKind::Log), totals.log_waits),
            ("waits of warm-up steps", step_sum(StepKind::Warmup), totals.warmup_waits),
            ("waits of unfinished steps", step_sum(StepKind::Unfinished), totals.unfinished_waits),
            ("waits of processes", self.processes.iter().map(|row| row.waits).sum(), totals.waits),
            (
                "kinds of steps",
                totals.ordinary_waits + totals.log_waits + totals.warmup_waits + totals.unfinished_waits,
                in_steps,
            ),
        ] {
            if left != right {
                return Err(format!("{what}: {left} against {right}"));
            }
        }
        for site in &self.sites {
            let parts = site.ordinary_waits
                + site.log_waits
                + site.warmup_waits
                + site.unfinished_waits
                + site.outside_waits;
            if parts != site.waits {
                return Err(format!("site {}: {parts} against {}", site.fingerprint, site.waits));
            }
        }
        match self.waits.iter().find(|wait| wait.site as usize >= self.sites.len()) {
            Some(wait) => Err(format!("a wait has site {} of {}", wait.site, self.sites.len())),
            None => Ok(()),
        }
    }
}
