//! What makes a call a wait. The rules in words: `docs/waits.md`.

/// Kind of a wait. The names are part of the report's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    DeviceToHostRead,
    HostToDeviceWrite,
    StreamSync,
    EventSync,
    DeviceSync,
    MemoryManagement,
    ModuleLoad,
    LaunchQueueFull,
    Polling,
    Unclassified,
}

impl WaitKind {
    /// All kinds, in the order in which reports list them.
    pub const ALL: [Self; 10] = [
        Self::DeviceToHostRead,
        Self::HostToDeviceWrite,
        Self::StreamSync,
        Self::EventSync,
        Self::DeviceSync,
        Self::MemoryManagement,
        Self::ModuleLoad,
        Self::LaunchQueueFull,
        Self::Polling,
        Self::Unclassified,
    ];

    /// The stable name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::DeviceToHostRead => "device-to-host-read",
            Self::HostToDeviceWrite => "host-to-device-write",
            Self::StreamSync => "stream-sync",
            Self::EventSync => "event-sync",
            Self::DeviceSync => "device-sync",
            Self::MemoryManagement => "memory-management",
            Self::ModuleLoad => "module-load",
            Self::LaunchQueueFull => "launch-queue-full",
            Self::Polling => "polling",
            Self::Unclassified => "unclassified",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }
}

/// The rule by which a wait was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A stream, event or device synchronise.
    ExplicitSync,
    /// A copy that by its form returns only when it is done.
    SynchronousCopy,
    /// An asynchronous copy from or to pageable memory that held the host.
    PageableCopy,
    /// A copy and the synchronise after it on the same thread and stream.
    CopyThenSync,
    /// Allocating, freeing or registering memory held the host.
    MemoryManagement,
    /// Loading code held the host.
    ModuleLoad,
    /// The driver reported that a launch waited for space in its queue.
    CommandBufferFull,
    /// Ten or more queries in a row that answered "not ready".
    PollingLoop,
    /// A call that should not wait held the host until work it depends on had ended.
    HeldByDevice,
}

impl Rule {
    /// The stable name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::ExplicitSync => "explicit-sync",
            Self::SynchronousCopy => "synchronous-copy",
            Self::PageableCopy => "pageable-copy",
            Self::CopyThenSync => "copy-then-sync",
            Self::MemoryManagement => "memory-management",
            Self::ModuleLoad => "module-load",
            Self::CommandBufferFull => "command-buffer-full",
            Self::PollingLoop => "polling-loop",
            Self::HeldByDevice => "held-by-device",
        }
    }
}

/// One wait of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub kind: WaitKind,
    pub rule: Rule,
    /// Index into the trace's processes.
    pub process: u32,
    /// Index into the process' threads.
    pub thread: u32,
    /// Indices into the thread's calls, in order: nearly always one or two.
    pub calls: Calls,
    pub start_ns: u64,
    /// `None` where times mean nothing, or for a call that never returned.
    pub blocked_ns: Option<u64>,
    pub bytes: u64,
    /// Index into the audit's steps; `None`: outside of all steps.
    pub step: Option<u32>,
    /// Inside a log range of its step.
    pub in_log_range: bool,
    /// The trace ended while the host was waiting.
    pub unfinished: bool,
    /// Index into the audit's sites.
    pub site: u32,
}

/// Indices of the calls that a wait is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Launch-queue overhead has no recorded call.
    None,
    One(u32),
    Pair(u32, u32),
    /// First and last of a run of queries, and how many there were.
    Run {
        first: u32,
        last: u32,
        count: u32,
    },
}

impl Calls {
    /// How many calls these are.
    #[must_use]
    pub fn count(self) -> u64 {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Pair(..) => 2,
            Self::Run { count, .. } => u64::from(count),
        }
    }

    /// The call that stands for the wait's place in the program: the last one, where the host waits.
    #[must_use]
    pub fn last(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::One(call) | Self::Pair(_, call) => Some(call),
            Self::Run { last, .. } => Some(last),
        }
    }

    /// The first call.
    #[must_use]
    pub fn first(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::One(call) | Self::Pair(call, _) => Some(call),
            Self::Run { first, .. } => Some(first),
        }
    }
}
