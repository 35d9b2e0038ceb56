//! The gate: an audit held against the budget, the allow-list and the baseline.
//!
//! In: an [`Audit`], what the configuration says ([`crate::config`]) and, where there is one, a baseline. Out: [`Judged`]: the audit with its
//! final verdict, and one [`Finding`] per thing worth saying, which every report format shows. It must never let a wait pass that nobody
//! accepted, and never fail an ordinary-step gate for a wait of a log step, of warm-up or outside of steps.

mod finding;

pub use finding::{Code, Finding, Severity, Written};

use crate::Audit;

/// An audit and what the gate says of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Verdict, reasons, and statuses of sites and steps are the final ones.
    pub audit: Audit,
    /// Errors first, then warnings, then notes; within each by code, then by the audit's order of sites.
    /// At most one finding per site.
    pub findings: Vec<Finding>,
    /// Whether a baseline was given.
    pub with_baseline: bool,
}
