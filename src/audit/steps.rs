//! What is a step, a log step, a warm-up step.

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    Warmup,
    Log,
    Ordinary,
    /// Had not ended when the trace did.
    Unfinished,
}

impl StepKind {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::Log => "log",
            Self::Ordinary => "ordinary",
            Self::Unfinished => "unfinished",
        }
    }
}

/// How steps were recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepSource {
    Nvtx,
    ProfilerStep,
    OptimizerHook,
    Inferred,
    #[default]
    None,
}

impl StepSource {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Nvtx => "nvtx",
            Self::ProfilerStep => "profiler-step",
            Self::OptimizerHook => "optimizer-hook",
            Self::Inferred => "inferred",
            Self::None => "none",
        }
    }
}

/// One step of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Position among the steps of its process, from 0.
    pub index: usize,
    /// The number that the program itself gave (NVTX payload, or the end of the range's name).
    pub number: Option<i64>,
    /// Index into the trace's processes.
    pub process: u32,
    /// Index into the process' threads; `None` for a range started and ended by handle.
    pub thread: Option<u32>,
    pub start_ns: u64,
    /// [`crate::model::OPEN`] for an unfinished step.
    pub end_ns: u64,
    pub kind: StepKind,
    pub waits: u64,
    pub calls: u64,
    /// Of `waits`, those inside of a log range.
    pub log_range_waits: u64,
    pub blocked_ns: Option<u64>,
    pub over_budget: bool,
}
