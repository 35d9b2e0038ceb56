//! What is a site, and what goes into its fingerprint.

use super::{Rule, WaitKind};

/// A frame as reports show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Shown path: relative to the source root where possible. Empty if unknown.
    pub file: String,
    /// 0 if unknown.
    pub line: u32,
    pub function: String,
    /// Name of the executable or shared object, empty for Python.
    pub module: String,
    /// Where the file is on this machine, to show its text; never printed. Empty if unknown.
    pub path: String,
    /// Code of the user's own program, as opposed to libraries.
    pub user: bool,
}

/// What a site means for the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteStatus {
    OverBudget,
    Allowed,
    LogStep,
    Warmup,
    Outside,
}

impl SiteStatus {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::OverBudget => "over-budget",
            Self::Allowed => "allowed",
            Self::LogStep => "log-step",
            Self::Warmup => "warmup",
            Self::Outside => "outside",
        }
    }
}

/// A place in the program that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Sixteen hex digits, stable under line moves and on other machines.
    pub fingerprint: String,
    pub kind: WaitKind,
    /// Names of the calls in order, as the program called them.
    pub apis: Vec<String>,
    /// Framework operator, innermost.
    pub op: Option<String>,
    /// Ranges from the outermost inwards, without call sites and numbers.
    pub range: Vec<String>,
    /// Innermost first.
    pub python: Vec<Frame>,
    /// Innermost first, inlined frames included.
    pub native: Vec<Frame>,
    /// The thread, by name or number; empty when it differs between waits.
    pub thread: String,
    pub rule: Rule,
    pub status: SiteStatus,
    pub waits: u64,
    pub calls: u64,
    pub bytes: u64,
    pub blocked_ns: Option<u64>,
    pub ordinary_waits: u64,
    pub log_waits: u64,
    /// Of `log_waits`, those outside of the log range.
    pub log_waits_outside_range: u64,
    pub warmup_waits: u64,
    /// Waits in a step that had not ended when the trace did.
    pub unfinished_waits: u64,
    pub outside_waits: u64,
    /// Ordinary steps with at least one of these waits, and the most in one step.
    pub steps_with_waits: u64,
    pub most_per_step: u64,
    /// The trace ended while the host was waiting here.
    pub killed_here: bool,
    /// Waits per rank, for ranks that have any; empty for a job of one process.
    pub per_rank: Vec<(u32, u64)>,
}

impl Site {
    /// The frame to point at: the user's innermost Python frame, else the user's innermost native frame, else the
    /// innermost frame with a line.
    #[must_use]
    pub fn place(&self) -> Option<&Frame> {
        let frames = || self.python.iter().chain(&self.native);
        frames()
            .find(|frame| frame.user && frame.line > 0)
            .or_else(|| frames().find(|frame| frame.user))
            .or_else(|| frames().find(|frame| frame.line > 0))
    }
}
