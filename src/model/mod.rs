//! The trace model: everything that any source can tell about a run, in one shape.
//!
//! In: what importers push through [`TraceBuilder`]. Out: a finished [`Trace`], read by the audit and by views.
//! It must never hold a rule (what a wait is, what a step is) and never say where a trace came from, except in
//! [`Source`], which is for printing. Structs are compact (fixed size, 32-bit ids, interned strings), because a
//! trace may hold ten million events: a [`Call`] is 72 bytes, a [`Span`] 48, a [`DeviceOp`] 64 at most.

mod api;
mod builder;
mod device;
mod problem;
mod stacks;
mod strings;
mod thread;

pub use api::{Api, ApiClass, classify};
pub use builder::{CallData, ProcessBuilder, ThreadBuilder, TraceBuilder};
pub use device::{CopyDirection, DeviceOp, DeviceOpKind, MemoryKind, Overhead, OverheadKind, Stream};
pub(crate) use problem::runs;
pub use problem::{Problem, ProblemKind};
pub use stacks::{FrameName, FrameNames, Module, NativeFrame, PythonFrame, StackTable, Stacks};
pub use strings::Strings;
pub use thread::{Call, CallEffect, FreeRange, Mark, Span, SpanKind, Thread};

/// End time of a call or span that had not ended when the trace did.
pub const OPEN: u64 = u64::MAX;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// "There is none"; never an index.
            pub const NONE: Self = Self(u32::MAX);

            /// The index this id stands for, or `None` for [`Self::NONE`].
            #[must_use]
            pub fn get(self) -> Option<usize> {
                (self != Self::NONE).then_some(self.0 as usize)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NONE
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.get() {
                    Some(index) => write!(f, "{}({index})", stringify!($name)),
                    None => write!(f, "{}(none)", stringify!($name)),
                }
            }
        }
    };
}

id!(
    /// An interned string of [`Trace::strings`].
    StrId
);
id!(
    /// An API function of [`Trace::apis`].
    ApiId
);
id!(
    /// A stream of [`Process::streams`].
    StreamId
);
id!(
    /// A span of [`Thread::spans`].
    SpanId
);
id!(
    /// A stack of [`Trace::native`] or [`Trace::python`].
    StackId
);
id!(
    /// A module of [`Trace::modules`].
    ModuleId
);

/// What kind of recording a trace was read from; for printing only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// Our own event log.
    #[default]
    Live,
    /// PyTorch profiler (Kineto, Chrome trace JSON).
    Kineto,
    /// Nsight Systems SQLite export.
    Nsys,
}

impl SourceKind {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Kineto => "kineto",
            Self::Nsys => "nsys",
        }
    }
}

/// Where a trace came from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub kind: SourceKind,
    /// The program and its arguments, where known.
    pub program: Vec<String>,
    /// The command lines of the processes that were traced, where known: `program` may be a shell or a launcher.
    pub commands: Vec<Vec<String>>,
    /// No GPU was there: counts and places are real, times are not (see [`Trace::times_meaningful`]).
    pub emulated: bool,
    /// How long the emulated device was told that kernels take; `None` if it was not, or there was a GPU.
    pub time_model: Option<String>,
    /// What the source says of its own versions, as (name, value): `cuda driver`, `cupti`, `torch`, ...
    pub versions: Vec<(String, String)>,
}

/// One run: one or more processes, on one clock.
#[derive(Debug, Default)]
pub struct Trace {
    pub source: Source,
    pub strings: Strings,
    /// Each distinct API function that was called.
    pub apis: Vec<Api>,
    pub modules: Vec<Module>,
    pub native: Stacks<NativeFrame>,
    /// Names of native addresses that the trace brings along.
    pub names: FrameNames,
    pub python: Stacks<PythonFrame>,
    pub processes: Vec<Process>,
    /// What is wrong with the trace or was noticed about it.
    pub problems: Vec<Problem>,
}

impl Trace {
    /// Whether durations mean anything. Without it no time is ever shown and waits are recognised by the rule table
    /// alone.
    #[must_use]
    pub fn times_meaningful(&self) -> bool {
        !self.source.emulated
    }

    /// The text of an interned string; empty for [`StrId::NONE`] and for ids of another trace.
    #[must_use]
    pub fn str(&self, id: StrId) -> &str {
        self.strings.get(id)
    }

    /// The API function of a call.
    #[must_use]
    pub fn api(&self, id: ApiId) -> &Api {
        id.get().and_then(|index| self.apis.get(index)).unwrap_or(&api::UNKNOWN)
    }

    /// Calls of all threads of all processes.
    #[must_use]
    pub fn call_count(&self) -> usize {
        self.processes.iter().flat_map(|process| &process.threads).map(|thread| thread.calls.len()).sum()
    }
}

/// One process image: after fork or exec comes another one.
#[derive(Debug, Default)]
pub struct Process {
    pub pid: u64,
    pub parent_pid: Option<u64>,
    /// Executable or script name.
    pub name: StrId,
    /// Rank in a distributed job, where known.
    pub rank: Option<u32>,
    /// Host name, where the job spans machines.
    pub host: StrId,
    /// Sorted by thread id.
    pub threads: Vec<Thread>,
    pub streams: Vec<Stream>,
    /// What ran on the devices, sorted by start. The copies also carry what the call could not know (pinned or pageable).
    pub device_ops: Vec<DeviceOp>,
    /// Ranges that were started and ended by handle, possibly on different threads; sorted by start.
    pub free_ranges: Vec<FreeRange>,
    /// Host time that the driver reported as its own overhead; sorted by start.
    pub overheads: Vec<Overhead>,
}
