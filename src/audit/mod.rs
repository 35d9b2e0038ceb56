//! The audit: which steps there were, where the host waited for the device, whether that is within the budget.
//!
//! In: a [`Trace`] and [`AuditOptions`]. Out: an [`Audit`], complete in itself (reports need no trace). Rules live in
//! the files of this folder, one question each. The audit must never lose a wait: every wait is in exactly one site
//! and at most one step, and the totals are the sums of the rows ([`Audit::reconcile`]).

mod budget;
mod options;
mod sites;
mod steps;
mod verdict;
mod waits;

pub use budget::Budget;
pub use options::{AuditOptions, LogEvery, Pattern, PatternError, StepRules};
pub use sites::{Frame, Site, SiteStatus};
pub use steps::{Step, StepKind, StepSource};
pub use verdict::Verdict;
pub use waits::{Calls, Rule, Wait, WaitKind};

use crate::model::{Problem, Source, Trace};

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
    pub step_counts: StepCounts,
    pub totals: Totals,
    /// Worst first: over budget, then by number of ordinary waits; ties by fingerprint.
    pub sites: Vec<Site>,
    /// In order of process, then time.
    pub steps: Vec<Step>,
    /// In order of process, thread, time.
    pub waits: Vec<Wait>,
    pub processes: Vec<ProcessRow>,
}

/// Audits a trace.
#[must_use]
pub fn audit(trace: &Trace, options: &AuditOptions) -> Audit {
    Audit {
        source: trace.source.clone(),
        times_meaningful: trace.times_meaningful(),
        dropped_records: 0,
        problems: trace.problems.clone(),
        verdict: Verdict::Inconclusive,
        reasons: vec!["this version can't judge yet".to_owned()],
        next: Vec::new(),
        budget: options.budget.clone(),
        step_counts: StepCounts::default(),
        totals: Totals::default(),
        sites: Vec::new(),
        steps: Vec::new(),
        waits: Vec::new(),
        processes: Vec::new(),
    }
}
