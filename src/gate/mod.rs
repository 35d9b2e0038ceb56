//! The gate: an audit held against the budget, the allow-list and the baseline.
//!
//! In: [`Audit`]s, what the configuration says ([`crate::config`]) and, where there is one, a baseline. Out: [`Judged`]: the audit with its
//! final verdict, and one [`Finding`] per thing worth saying, which every report format shows. It must never let a wait pass that nobody
//! accepted, and never fail an ordinary-step gate for a wait of a log step, of warm-up or outside of steps.

mod allow;
mod baseline;
mod compare;
mod date;
mod diff;
mod finding;
mod judge;
mod place;

pub use allow::AllowEntry;
pub use baseline::{Baseline, BaselineError, Update, program_name};
pub use compare::{Change, Comparison, Gone, compare};
pub use date::Date;
pub use diff::{Diff, Row, RowKind, Side};
pub use finding::{Code, Finding, Severity, Written};
pub use judge::{judge, judge_runs};
pub use place::{Entry, Place, judged_per_step};

use std::path::PathBuf;

use crate::Audit;

/// What the gate is told, beside the options of the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub allow: Vec<AllowEntry>,
    /// The file that `allow` was read from, as it is to be shown.
    pub allow_path: PathBuf,
    pub runs: Runs,
}

/// With several runs of one program: in how many of them a wait must be to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runs {
    /// In one of them.
    Any,
    /// In all of them: allocations and lazy loading wait in one run and not in the next.
    #[default]
    All,
}

/// A baseline and the file it was read from, as it is to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Against<'b> {
    pub baseline: &'b Baseline,
    pub path: &'b std::path::Path,
}

/// An audit and what the gate says of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Verdict, reasons, and statuses of sites and steps are the final ones.
    pub audit: Audit,
    /// Errors first, then warnings, then notes; within each by code, then in the audit's order of sites.
    /// At most one finding per site.
    pub findings: Vec<Finding>,
    /// Whether a baseline was given.
    pub with_baseline: bool,
}

impl From<Audit> for Judged {
    /// An audit as it is: the verdict is that of its budget, and there are no findings.
    fn from(audit: Audit) -> Self {
        Self { audit, findings: Vec::new(), with_baseline: false }
    }
}

impl Judged {
    /// An audit judged by its budget alone.
    #[must_use]
    pub fn by_budget(audit: Audit, options: &crate::AuditOptions) -> Self {
        judge(audit, options, &Rules::default(), None, Date::today())
    }

    /// The finding about one site of the audit; for all of them take [`Self::by_site`].
    #[must_use]
    pub fn of_site(&self, site: usize) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.site == Some(site))
    }

    /// Per site of the audit the finding about it.
    #[must_use]
    pub fn by_site(&self) -> Vec<Option<&Finding>> {
        let mut by_site = vec![None; self.audit.sites.len()];
        for finding in &self.findings {
            if let Some(site) = finding.site {
                by_site[site] = Some(finding);
            }
        }
        by_site
    }
}
