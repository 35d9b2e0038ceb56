//! What makes a call a wait. The rules in words, with their sources: `docs/waits.md`.
//!
//! In: the calls and device work of a trace. Out: [`Wait`]s, each made of the calls of one program operation. Evidence in
//! this order: explicit synchronise; copy that is synchronous by its form; copy that touches pageable memory; a copy and
//! the synchronise after it; memory management and code loading; the driver's own record of a full launch queue; a
//! polling loop; else a call that held the host until work of its stream had ended. Where times mean nothing the
//! documented table decides alone. A call that failed did nothing and is never a wait; a device-side wait
//! (`cudaStreamWaitEvent`) and a single query aren't either. No call is part of two waits.

use rustc_hash::FxHashMap as HashMap;

use crate::model::{
    Api, ApiClass, Call, CallEffect, CopyDirection, DeviceOpKind, MemoryKind, OPEN, OverheadKind, Process,
    Span, SpanKind, StreamId, Thread, Trace,
};

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

/// What a wait was recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
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

impl Evidence {
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
    pub evidence: Evidence,
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
    /// Made by the tool that recorded the trace: shown, but in no step.
    pub by_recorder: bool,
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

/// Uploads from pageable memory up to this size are staged by the driver without waiting: "Memory copies from host to device
/// of a memory block of 64 KB or less" are asynchronous (CUDA C Programming Guide, concurrent execution).
pub const STAGED_UPLOAD_BYTES: u64 = 64 * 1024;
/// In a measured trace, a call that only *may* wait is a wait when it held the host at least this long. An asynchronous copy
/// that does not wait returns within 20 us also under a profiler.
pub const HELD_COPY_NS: u64 = 50_000;
/// The same for allocating, freeing, registering and loading: these do work of their own, so the floor is higher.
pub const HELD_MANAGEMENT_NS: u64 = 100_000;
/// So many "not ready" answers in a row are a loop that waits.
pub const POLLING_QUERIES: u64 = 10;

/// Says whether two calls come from the same function of the program, as far as that can be known.
pub(super) trait SamePlace {
    fn same_function(&mut self, a: &Call, b: &Call) -> bool;
}

/// Finds all waits, in order of process, thread, time. Steps and sites are filled in later.
pub(super) fn find(trace: &Trace, places: &mut dyn SamePlace) -> Vec<Wait> {
    let mut waits = Vec::new();
    for (process_index, process) in trace.processes.iter().enumerate() {
        let device = DeviceSide::of(process);
        let full = queue_full(process);
        for (thread_index, thread) in process.threads.iter().enumerate() {
            let first = waits.len();
            let mut finder = Finder {
                trace,
                device: &device,
                thread,
                measured: trace.times_meaningful(),
                place: (index_u32(process_index), index_u32(thread_index)),
                waits: &mut waits,
                last_on_stream: HashMap::default(),
                last_stream: StreamId::NONE,
                queries: None,
            };
            finder.run(places);
            waits.extend(full.iter().filter(|entry| entry.thread == thread_index).map(|entry| Wait {
                kind: WaitKind::LaunchQueueFull,
                evidence: Evidence::CommandBufferFull,
                calls: entry.call.map_or(Calls::None, Calls::One),
                start_ns: entry.start_ns,
                blocked_ns: trace.times_meaningful().then_some(entry.held_ns),
                ..Wait::at(index_u32(process_index), index_u32(thread_index))
            }));
            waits[first..].sort_by_key(|wait| wait.start_ns);
        }
    }
    waits
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Wait {
    fn at(process: u32, thread: u32) -> Self {
        Self {
            kind: WaitKind::Unclassified,
            evidence: Evidence::HeldByDevice,
            process,
            thread,
            calls: Calls::None,
            start_ns: 0,
            blocked_ns: None,
            bytes: 0,
            step: None,
            in_log_range: false,
            unfinished: false,
            by_recorder: false,
            site: 0,
        }
    }
}

/// The device work that each call started, by correlation id.
struct DeviceSide<'a> {
    by_correlation: HashMap<u32, (u64, u64)>,
    process: &'a Process,
}

impl<'a> DeviceSide<'a> {
    fn of(process: &'a Process) -> Self {
        let mut by_correlation: HashMap<u32, (u64, u64)> = HashMap::default();
        for op in &process.device_ops {
            // Only uploads from pageable memory are ever asked for.
            let upload = op.direction == CopyDirection::HostToDevice && op.from == MemoryKind::Pageable;
            if op.kind == DeviceOpKind::Copy && upload && op.correlation != 0 && op.graph_node == 0 {
                let span = by_correlation.entry(op.correlation).or_insert((op.start_ns, op.end_ns));
                *span = (span.0.min(op.start_ns), span.1.max(op.end_ns));
            }
        }
        Self { by_correlation, process }
    }

    /// Start of the copy that the call asked for, where it was recorded.
    fn copy_start_ns(&self, call: &Call) -> Option<u64> {
        (call.correlation != 0)
            .then(|| self.by_correlation.get(&call.correlation))
            .flatten()
            .map(|span| span.0)
    }
}

/// One record of the driver that a launch had to wait for space.
struct QueueFull {
    thread: usize,
    call: Option<u32>,
    start_ns: u64,
    held_ns: u64,
}

/// Gives each record to the thread that it names, or whose call it belongs to, or else to the first thread.
fn queue_full(process: &Process) -> Vec<QueueFull> {
    let records = || process.overheads.iter().filter(|o| o.kind == OverheadKind::CommandBufferFull);
    if records().next().is_none() {
        return Vec::new();
    }
    let mut calls: HashMap<u32, (usize, u32)> = HashMap::default();
    for (thread, data) in process.threads.iter().enumerate() {
        for (index, call) in data.calls.iter().enumerate().filter(|(_, call)| call.correlation != 0) {
            calls.insert(call.correlation, (thread, index_u32(index)));
        }
    }
    records()
        .map(|record| {
            let call = calls.get(&record.correlation).copied();
            let named =
                || process.threads.iter().position(|thread| record.tid != 0 && thread.tid == record.tid);
            QueueFull {
                thread: call.map(|(thread, _)| thread).or_else(named).unwrap_or(0),
                call: call.map(|(_, index)| index),
                start_ns: record.start_ns,
                held_ns: record.end_ns.saturating_sub(record.start_ns),
            }
        })
        .collect()
}

/// What a call is when looked at alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alone {
    /// No wait, and nothing that later calls depend on.
    No,
    Wait(WaitKind, Evidence),
}

struct Finder<'a> {
    trace: &'a Trace,
    device: &'a DeviceSide<'a>,
    thread: &'a Thread,
    measured: bool,
    place: (u32, u32),
    waits: &'a mut Vec<Wait>,
    /// The last recorded call that put work on a stream, and the wait that it already is.
    last_on_stream: HashMap<StreamId, (usize, Option<usize>)>,
    /// The stream that this thread put work on last. Profilers record a synchronise without its stream: it is taken to be
    /// about that one.
    last_stream: StreamId,
    /// The run of queries that is going on: first, last call, how many answers were "not ready".
    queries: Option<(usize, usize, u64)>,
}

impl Finder<'_> {
    fn run(&mut self, places: &mut dyn SamePlace) {
        for index in 0..self.thread.calls.len() {
            let call = &self.thread.calls[index];
            if call.effect == CallEffect::Failed {
                continue;
            }
            let api = self.trace.api(call.api);
            if matches!(api.class, ApiClass::EventQuery | ApiClass::StreamQuery) {
                self.query(index);
                continue;
            }
            self.end_queries();
            let alone = self.alone(call, api);
            if api.class == ApiClass::StreamSync && self.join_copy(index, places) {
                self.last_on_stream.remove(&self.synchronised_stream(call));
                continue;
            }
            let wait = match alone {
                Alone::Wait(kind, evidence) => Some(self.push(kind, evidence, index)),
                Alone::No => None,
            };
            self.remember(index, api.class, wait);
        }
        self.end_queries();
    }

    fn push(&mut self, kind: WaitKind, evidence: Evidence, index: usize) -> usize {
        let call = &self.thread.calls[index];
        let is_copy = call.direction != CopyDirection::Unknown;
        self.waits.push(Wait {
            kind,
            evidence,
            calls: Calls::One(index_u32(index)),
            start_ns: call.start_ns,
            blocked_ns: self.measured.then(|| call.host_ns()).flatten(),
            bytes: if is_copy { call.bytes } else { 0 },
            unfinished: call.end_ns == OPEN,
            by_recorder: self.thread.recorder_from_ns.is_some_and(|from_ns| from_ns <= call.start_ns),
            ..Wait::at(self.place.0, self.place.1)
        });
        self.waits.len() - 1
    }

    /// Keeps in mind what was put on the stream last. An event record is no work: it may stand between a copy and its sync.
    fn remember(&mut self, index: usize, class: ApiClass, wait: Option<usize>) {
        let call = &self.thread.calls[index];
        match class {
            ApiClass::CopyAsync => {
                self.last_on_stream.insert(call.stream, (index, wait));
                self.last_stream = call.stream;
            }
            // A synchronous copy has waited already; a synchronise after it is an operation of its own.
            ApiClass::Copy
            | ApiClass::CopyAndSync
            | ApiClass::Memset
            | ApiClass::MemsetAsync
            | ApiClass::StreamWaitEvent
            | ApiClass::Launch
            | ApiClass::GraphLaunch
            | ApiClass::HostFunction => {
                self.last_on_stream.remove(&call.stream);
                self.last_stream = call.stream;
            }
            ApiClass::StreamSync => {
                self.last_on_stream.remove(&self.synchronised_stream(call));
            }
            ApiClass::DeviceSync => self.last_on_stream.clear(),
            _ => {}
        }
    }

    /// The stream that a stream synchronise is about.
    fn synchronised_stream(&self, sync: &Call) -> StreamId {
        if sync.stream == StreamId::NONE { self.last_stream } else { sync.stream }
    }

    /// Makes one wait of a stream synchronise and the copy before it: same thread, same stream, nothing else put on
    /// the stream between, same innermost range, same function.
    fn join_copy(&mut self, index: usize, places: &mut dyn SamePlace) -> bool {
        let sync = &self.thread.calls[index];
        let stream = self.synchronised_stream(sync);
        let Some(&(copy_index, copy_wait)) = self.last_on_stream.get(&stream) else { return false };
        let copy = &self.thread.calls[copy_index];
        let kind = match copy.direction {
            CopyDirection::DeviceToHost => WaitKind::DeviceToHostRead,
            CopyDirection::HostToDevice => WaitKind::HostToDeviceWrite,
            _ => return false,
        };
        // A call may open and close a span of its own (an operator), so what counts is the range around it.
        if self.innermost_range(copy) != self.innermost_range(sync) || !places.same_function(copy, sync) {
            return false;
        }
        let wait = copy_wait.unwrap_or_else(|| self.push(kind, Evidence::CopyThenSync, copy_index));
        let wait = &mut self.waits[wait];
        wait.kind = kind;
        wait.evidence = Evidence::CopyThenSync;
        wait.calls = Calls::Pair(index_u32(copy_index), index_u32(index));
        wait.bytes = copy.bytes;
        wait.unfinished |= sync.end_ns == OPEN;
        wait.blocked_ns =
            self.measured.then(|| Some(copy.host_ns()?.saturating_add(sync.host_ns()?))).flatten();
        true
    }

    fn innermost_range(&self, call: &Call) -> Option<*const Span> {
        self.thread.spans_around(call).find(|span| span.kind == SpanKind::Range).map(std::ptr::from_ref)
    }

    fn query(&mut self, index: usize) {
        let call = &self.thread.calls[index];
        let not_ready = u64::from(call.not_ready);
        if let Some((_, last, count)) = &mut self.queries {
            let before = &self.thread.calls[*last];
            if before.api == call.api
                && (before.object, before.stream) == (call.object, call.stream)
                && before.not_ready == before.count
            {
                (*last, *count) = (index, *count + not_ready);
                return;
            }
        }
        self.end_queries();
        self.queries = Some((index, index, not_ready));
    }

    fn end_queries(&mut self) {
        let Some((first, last, not_ready)) = self.queries.take() else { return };
        if not_ready < POLLING_QUERIES {
            return;
        }
        let calls = &self.thread.calls;
        let count = calls[first..=last]
            .iter()
            .filter(|call| call.effect != CallEffect::Failed)
            .fold(0u32, |sum, call| sum.saturating_add(call.count));
        let (start_ns, end_ns) = (calls[first].start_ns, calls[last].end_ns);
        self.waits.push(Wait {
            kind: WaitKind::Polling,
            evidence: Evidence::PollingLoop,
            calls: Calls::Run { first: index_u32(first), last: index_u32(last), count },
            start_ns,
            blocked_ns: (self.measured && end_ns != OPEN).then(|| end_ns.saturating_sub(start_ns)),
            unfinished: end_ns == OPEN,
            ..Wait::at(self.place.0, self.place.1)
        });
    }

    /// The rule table. `docs/waits.md` says the same in words.
    fn alone(&self, call: &Call, api: &Api) -> Alone {
        use ApiClass as C;
        // How long the program stood in a call that never returned is not known. With a device it may have been hours; emulated, the
        // table alone decides, or every kill in an asynchronous copy would look like a wait.
        let died_here = self.measured && call.end_ns == OPEN;
        let held = |floor_ns| died_here || (self.measured && call.host_ns().is_some_and(|ns| ns >= floor_ns));
        match api.class {
            C::StreamSync => Alone::Wait(WaitKind::StreamSync, Evidence::ExplicitSync),
            C::EventSync => Alone::Wait(WaitKind::EventSync, Evidence::ExplicitSync),
            C::DeviceSync | C::ContextDestroy => Alone::Wait(WaitKind::DeviceSync, Evidence::ExplicitSync),
            C::CopyAndSync => Alone::Wait(copy_kind(call.direction), Evidence::SynchronousCopy),
            C::Copy => self.synchronous_copy(call, held(HELD_COPY_NS)),
            C::CopyAsync => self.asynchronous_copy(call, held(HELD_COPY_NS), died_here),
            C::Memset if matches!(call.to, MemoryKind::Pinned | MemoryKind::Managed) => {
                Alone::Wait(WaitKind::StreamSync, Evidence::SynchronousCopy)
            }
            C::DeviceFree | C::HostFree | C::HostUnregister => {
                // Freeing a null pointer is the usual way to create a context early: no memory is given back.
                let by_rule = !self.measured && call.object != 0;
                wait_if(
                    by_rule || held(HELD_MANAGEMENT_NS),
                    WaitKind::MemoryManagement,
                    Evidence::MemoryManagement,
                )
            }
            C::DeviceAlloc | C::HostAlloc | C::HostRegister | C::PoolRelease | C::VirtualMemory => {
                wait_if(held(HELD_MANAGEMENT_NS), WaitKind::MemoryManagement, Evidence::MemoryManagement)
            }
            C::ModuleLoad => wait_if(
                !self.measured || held(HELD_MANAGEMENT_NS),
                WaitKind::ModuleLoad,
                Evidence::ModuleLoad,
            ),
            C::ModuleUnload | C::FunctionLookup => {
                wait_if(held(HELD_MANAGEMENT_NS), WaitKind::ModuleLoad, Evidence::ModuleLoad)
            }
            // A launch, a device-side wait, a query or anything else never waits by documentation. If one held the host
            // all the same until work of its own stream had ended, say so without naming a cause.
            C::Memset
            | C::MemsetAsync
            | C::EventRecord
            | C::StreamWaitEvent
            | C::StreamOrderedMemory
            | C::Launch
            | C::GraphLaunch
            | C::HostFunction
            | C::Other => wait_if(
                self.measured && self.held_until_device_work_ended(call),
                WaitKind::Unclassified,
                Evidence::HeldByDevice,
            ),
            C::StreamQuery | C::EventQuery => Alone::No,
        }
    }

    fn synchronous_copy(&self, call: &Call, held: bool) -> Alone {
        let staged = call.from == MemoryKind::Pageable && call.bytes <= STAGED_UPLOAD_BYTES;
        match call.direction {
            CopyDirection::DeviceToDevice => Alone::No,
            // The two documents disagree about small pageable uploads; a measured one is believed.
            CopyDirection::HostToDevice if self.measured && staged && !held => Alone::No,
            direction => Alone::Wait(copy_kind(direction), Evidence::SynchronousCopy),
        }
    }

    fn asynchronous_copy(&self, call: &Call, held: bool, died_here: bool) -> Alone {
        let kind = copy_kind(call.direction);
        let pageable = call.from == MemoryKind::Pageable || call.to == MemoryKind::Pageable;
        let managed = call.from == MemoryKind::Managed || call.to == MemoryKind::Managed;
        let unknown = call.from == MemoryKind::Unknown && call.to == MemoryKind::Unknown;
        match call.direction {
            CopyDirection::HostToHost => Alone::Wait(kind, Evidence::SynchronousCopy),
            CopyDirection::DeviceToHost if pageable => Alone::Wait(kind, Evidence::PageableCopy),
            CopyDirection::HostToDevice if pageable && !self.measured => {
                wait_if(call.bytes > STAGED_UPLOAD_BYTES || died_here, kind, Evidence::PageableCopy)
            }
            // Held by the copy itself: it had begun before the call returned.
            CopyDirection::HostToDevice if pageable => wait_if(
                held && self.device.copy_start_ns(call).is_none_or(|start_ns| start_ns < call.end_ns),
                kind,
                Evidence::PageableCopy,
            ),
            CopyDirection::DeviceToDevice => wait_if(
                self.measured && self.held_until_device_work_ended(call),
                kind,
                Evidence::HeldByDevice,
            ),
            // Pinned, managed or unknown memory: only the clock can tell.
            _ => wait_if(
                died_here
                    || (held && (managed || unknown))
                    || (self.measured && self.held_until_device_work_ended(call)),
                kind,
                Evidence::HeldByDevice,
            ),
        }
    }

    /// Whether the call held the host past the floor and work of its stream that was under way when it began ended inside
    /// of it, just before it returned.
    fn held_until_device_work_ended(&self, call: &Call) -> bool {
        let Some(host_ns) = call.host_ns().filter(|&ns| ns >= HELD_MANAGEMENT_NS) else { return false };
        let ops = &self.device.process.device_ops;
        let until = ops.partition_point(|op| op.start_ns <= call.start_ns);
        // Work of a stream runs in order, so the op under way is the last that began; looking back further than a
        // handful of ops would only meet finished ones.
        ops[..until].iter().rev().take(64).any(|op| {
            op.stream == call.stream
                && op.stream != StreamId::NONE
                && matches!(op.kind, DeviceOpKind::Kernel | DeviceOpKind::Copy | DeviceOpKind::Memset)
                && op.end_ns > call.start_ns
                && op.end_ns <= call.end_ns
                && call.end_ns - op.end_ns <= host_ns / 10
        })
    }
}

fn wait_if(condition: bool, kind: WaitKind, evidence: Evidence) -> Alone {
    if condition { Alone::Wait(kind, evidence) } else { Alone::No }
}

fn copy_kind(direction: CopyDirection) -> WaitKind {
    match direction {
        CopyDirection::DeviceToHost => WaitKind::DeviceToHostRead,
        CopyDirection::HostToDevice => WaitKind::HostToDeviceWrite,
        // Host to host by way of the device's queue, and copies on the device that hold the host: what is waited for is
        // the stream.
        CopyDirection::HostToHost | CopyDirection::DeviceToDevice => WaitKind::StreamSync,
        CopyDirection::Unknown => WaitKind::Unclassified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallData, DeviceOp, SpanKind as Kind, ThreadBuilder, TraceBuilder};

    struct Anywhere;

    impl SamePlace for Anywhere {
        fn same_function(&mut self, _: &Call, _: &Call) -> bool {
            true
        }
    }

    struct Elsewhere;

    impl SamePlace for Elsewhere {
        fn same_function(&mut self, _: &Call, _: &Call) -> bool {
            false
        }
    }

    /// The waits of one thread, as (kind, rule, number of calls).
    fn waits(emulated: bool, fill: impl FnOnce(&mut ThreadBuilder<'_>)) -> Vec<(WaitKind, Evidence, u64)> {
        let mut builder = TraceBuilder::default();
        builder.source.emulated = emulated;
        fill(&mut builder.process(1).thread(1));
        find(&builder.finish(), &mut Anywhere)
            .iter()
            .map(|wait| (wait.kind, wait.evidence, wait.calls.count()))
            .collect()
    }

    /// One call of 10 us on stream 0 of a trace.
    fn alone(emulated: bool, api: &str, host_ns: u64, data: CallData) -> Option<(WaitKind, Evidence)> {
        let found = waits(emulated, |thread| thread.call(api, 1_000, 1_000 + host_ns, data));
        assert!(found.len() <= 1);
        found.first().map(|&(kind, evidence, _)| (kind, evidence))
    }

    fn copy(direction: CopyDirection, from: MemoryKind, to: MemoryKind, bytes: u64) -> CallData {
        CallData { direction, from, to, bytes, ..CallData::default() }
    }

    use CopyDirection::{DeviceToDevice, DeviceToHost, HostToDevice, HostToHost};
    use MemoryKind::{Device, Managed, Pageable, Pinned};
    use WaitKind::{DeviceToHostRead, HostToDeviceWrite, MemoryManagement, ModuleLoad, StreamSync};

    const QUICK: u64 = 10_000;

    #[test]
    fn each_row_of_the_table_for_emulated_traces() {
        let object = || CallData { object: 0x7000, ..CallData::default() };
        let none = CallData::default;
        for (api, data, expected) in [
            ("cuStreamSynchronize", none(), Some(StreamSync)),
            ("cudaEventSynchronize", none(), Some(WaitKind::EventSync)),
            ("cuCtxSynchronize_v2", none(), Some(WaitKind::DeviceSync)),
            ("cudaDeviceReset", none(), Some(WaitKind::DeviceSync)),
            ("cudaStreamWaitEvent", none(), None),
            ("cudaEventQuery", none(), None),
            ("cuMemcpyDtoH_v2", copy(DeviceToHost, Device, Pinned, 4), Some(DeviceToHostRead)),
            ("cuMemcpyHtoD_v2", copy(HostToDevice, Pageable, Device, 4), Some(HostToDeviceWrite)),
            ("cudaMemcpy", copy(HostToHost, Pageable, Pageable, 4), Some(StreamSync)),
            ("cuMemcpyDtoD_v2", copy(DeviceToDevice, Device, Device, 4), None),
            ("cudaMemcpyAsync", copy(DeviceToHost, Device, Pageable, 4), Some(DeviceToHostRead)),
            ("cudaMemcpyAsync", copy(DeviceToHost, Device, Pinned, 4), None),
            ("cudaMemcpyAsync", copy(HostToDevice, Pageable, Device, 65_536), None),
            ("cudaMemcpyAsync", copy(HostToDevice, Pageable, Device, 65_537), Some(HostToDeviceWrite)),
            ("cudaMemcpyAsync", copy(HostToDevice, Pinned, Device, 1 << 30), None),
            ("cudaMemcpyAsync", copy(HostToDevice, Managed, Device, 1 << 30), None),
            ("cudaMemcpyAsync", copy(HostToHost, Pinned, Pinned, 4), Some(StreamSync)),
            ("hipMemcpyWithStream", copy(DeviceToHost, Device, Pageable, 4), Some(DeviceToHostRead)),
            ("cuMemFree_v2", object(), Some(MemoryManagement)),
            ("cuMemFree_v2", none(), None),
            ("cuMemFreeHost", object(), Some(MemoryManagement)),
            ("cuMemHostUnregister", object(), Some(MemoryManagement)),
            ("cuMemAlloc_v2", none(), None),
            ("cuMemHostAlloc", none(), None),
            ("cuMemFreeAsync", object(), None),
            ("cuModuleLoadData", none(), Some(ModuleLoad)),
            ("cuModuleGetFunction", none(), None),
            ("cuLaunchKernel", none(), None),
            ("cuGraphLaunch", none(), None),
            ("cuLaunchHostFunc", none(), None),
            ("cuSomethingNew", none(), None),
        ] {
            let shown = format!("{api} {data:?}");
            // The time must not matter: an emulated call may take as long as it likes.
            for host_ns in [0, QUICK, 10_000_000_000] {
                let found = alone(true, api, host_ns, data.clone()).map(|(kind, _)| kind);
                assert_eq!(found, expected, "{shown} for {host_ns} ns");
            }
        }
    }

    #[test]
    fn in_a_measured_trace_a_call_that_may_wait_is_one_when_it_held_the_host() {
        let none = CallData::default;
        let small_upload = || copy(HostToDevice, Pageable, Device, 4);
        for (api, data, host_ns, expected) in [
            ("cudaMalloc", none(), QUICK, None),
            ("cudaMalloc", none(), HELD_MANAGEMENT_NS, Some((MemoryManagement, Evidence::MemoryManagement))),
            ("cudaFree", none(), QUICK, None),
            ("cudaFree", none(), HELD_MANAGEMENT_NS, Some((MemoryManagement, Evidence::MemoryManagement))),
            ("cuModuleLoadData", none(), QUICK, None),
            ("cuLibraryGetKernel", none(), HELD_MANAGEMENT_NS, Some((ModuleLoad, Evidence::ModuleLoad))),
            ("cudaMemcpyAsync", small_upload(), QUICK, None),
            (
                "cudaMemcpyAsync",
                small_upload(),
                HELD_COPY_NS,
                Some((HostToDeviceWrite, Evidence::PageableCopy)),
            ),
            ("cudaMemcpy", small_upload(), QUICK, None),
            (
                "cudaMemcpy",
                copy(HostToDevice, Pinned, Device, 4),
                QUICK,
                Some((HostToDeviceWrite, Evidence::SynchronousCopy)),
            ),
            (
                "cudaMemcpyAsync",
                copy(DeviceToHost, Device, Pageable, 4),
                QUICK,
                Some((DeviceToHostRead, Evidence::PageableCopy)),
            ),
            ("cudaMemcpyAsync", copy(DeviceToHost, Device, Pinned, 4), HELD_COPY_NS, None),
            (
                "cudaMemcpyAsync",
                copy(DeviceToHost, Device, Managed, 4),
                HELD_COPY_NS,
                Some((DeviceToHostRead, Evidence::HeldByDevice)),
            ),
            ("cuStreamSynchronize", none(), 0, Some((StreamSync, Evidence::ExplicitSync))),
            ("cudaLaunchKernel", none(), 10_000_000, None),
        ] {
            let shown = format!("{api} {data:?} for {host_ns} ns");
            assert_eq!(alone(false, api, host_ns, data), expected, "{shown}");
        }
    }

    #[test]
    fn a_pageable_upload_is_no_wait_when_its_copy_began_after_the_call_had_returned() {
        for (copy_start_ns, expected) in [(5_000, 1), (900_000, 0)] {
            let mut builder = TraceBuilder::default();
            let mut process = builder.process(1);
            process.device_op(DeviceOp {
                start_ns: copy_start_ns,
                end_ns: copy_start_ns + 10,
                kind: DeviceOpKind::Copy,
                correlation: 7,
                direction: HostToDevice,
                from: Pageable,
                to: Device,
                ..DeviceOp::default()
            });
            let data = CallData { correlation: 7, bytes: 1 << 20, ..CallData::default() };
            process.thread(1).call("cudaMemcpyAsync", 1_000, 1_000 + HELD_COPY_NS, data);
            assert_eq!(find(&builder.finish(), &mut Anywhere).len(), expected, "copy at {copy_start_ns}");
        }
    }

    fn read_data(stream: StreamId) -> CallData {
        CallData { stream, ..copy(DeviceToHost, Device, Pinned, 4) }
    }

    #[test]
    fn a_copy_and_the_sync_of_its_stream_are_one_wait_of_two_calls() {
        let stream = StreamId(0);
        let sync = || CallData { stream, ..CallData::default() };
        let pair = [(DeviceToHostRead, Evidence::CopyThenSync, 2)];
        let found = waits(true, |thread| {
            thread.call("cudaMemcpyAsync", 10, 20, read_data(stream));
            // An event record is no work.
            thread.call("cudaEventRecord", 21, 22, sync());
            thread.call("cudaStreamSynchronize", 30, 40, sync());
        });
        assert_eq!(found, pair);
        // A pageable copy has waited already; it is still one operation.
        let found = waits(true, |thread| {
            let data = CallData { stream, ..copy(DeviceToHost, Device, Pageable, 4) };
            thread.call("cudaMemcpyAsync", 10, 20, data);
            thread.call("cudaStreamSynchronize", 30, 40, sync());
        });
        assert_eq!(found, pair);
        let found = waits(true, |thread| {
            let data = CallData { stream, ..copy(HostToDevice, Pageable, Device, 8) };
            thread.call("cudaMemcpyAsync", 10, 20, data);
            thread.call("cudaStreamSynchronize", 30, 40, sync());
            thread.call("cudaStreamSynchronize", 50, 60, sync());
        });
        assert_eq!(
            found,
            [(HostToDeviceWrite, Evidence::CopyThenSync, 2), (StreamSync, Evidence::ExplicitSync, 1)]
        );
    }

    #[test]
    fn a_copy_and_a_sync_that_do_not_belong_together_are_not_joined() {
        let (a, b) = (StreamId(0), StreamId(1));
        let on = |stream| CallData { stream, ..CallData::default() };
        let alone = [(StreamSync, Evidence::ExplicitSync, 1)];
        let other_stream = waits(true, |thread| {
            thread.call("cudaMemcpyAsync", 10, 20, read_data(a));
            thread.call("cudaStreamSynchronize", 30, 40, on(b));
        });
        assert_eq!(other_stream, alone);
        let work_between = waits(true, |thread| {
            thread.call("cudaMemcpyAsync", 10, 20, read_data(a));
            thread.call("cuMemsetD8Async", 21, 22, on(a));
            thread.call("cudaStreamSynchronize", 30, 40, on(a));
        });
        assert_eq!(work_between, alone);
        let other_range = waits(true, |thread| {
            thread.named_span(Kind::Range, "log", 25, 45);
            thread.call("cudaMemcpyAsync", 10, 20, read_data(a));
            thread.call("cudaStreamSynchronize", 30, 40, on(a));
        });
        assert_eq!(other_range, alone);
        let mut builder = TraceBuilder::default();
        builder.source.emulated = true;
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        thread.call("cudaMemcpyAsync", 10, 20, read_data(a));
        thread.call("cudaStreamSynchronize", 30, 40, on(a));
        let other_function = find(&builder.finish(), &mut Elsewhere);
        assert_eq!((other_function.len(), other_function[0].kind), (1, StreamSync));
    }

    #[test]
    fn operators_around_each_call_do_not_part_a_copy_from_its_sync() {
        let stream = StreamId(0);
        let found = waits(true, |thread| {
            thread.named_span(Kind::Range, "step", 0, 100);
            thread.named_span(Kind::Op, "aten::copy_", 5, 25);
            thread.call("cudaMemcpyAsync", 10, 20, read_data(stream));
            thread.call("cudaStreamSynchronize", 30, 40, CallData { stream, ..CallData::default() });
        });
        assert_eq!(found, [(DeviceToHostRead, Evidence::CopyThenSync, 2)]);
    }

    #[test]
    fn failed_calls_did_nothing() {
        let failed = || CallData { effect: CallEffect::Failed, ..CallData::default() };
        let found = waits(true, |thread| {
            thread.call("cudaStreamSynchronize", 10, 20, failed());
            thread.call(
                "cudaMemcpyAsync",
                30,
                40,
                CallData { effect: CallEffect::Failed, ..read_data(StreamId(0)) },
            );
            thread.call(
                "cudaStreamSynchronize",
                50,
                60,
                CallData { stream: StreamId(0), ..CallData::default() },
            );
        });
        assert_eq!(found, [(StreamSync, Evidence::ExplicitSync, 1)]);
    }

    #[test]
    fn ten_misses_in_a_row_are_a_polling_loop_and_anything_between_breaks_it() {
        let query = |object| CallData { object, not_ready: 1, ..CallData::default() };
        let loop_of = |count: u64, interrupted: bool| {
            waits(true, |thread| {
                for index in 0..count {
                    if interrupted && index == count / 2 {
                        thread.call("cuMemAlloc_v2", index * 10 + 1, index * 10 + 2, CallData::default());
                    }
                    thread.call("cudaEventQuery", index * 10 + 3, index * 10 + 4, query(1));
                }
            })
        };
        assert_eq!(loop_of(9, false), []);
        assert_eq!(loop_of(10, false), [(WaitKind::Polling, Evidence::PollingLoop, 10)]);
        assert_eq!(loop_of(18, true), []);
        let many_objects = waits(true, |thread| {
            (0..40).for_each(|index| {
                thread.call("cudaEventQuery", index * 10, index * 10 + 1, query(index % 4))
            });
        });
        assert_eq!(many_objects, []);
    }

    #[test]
    fn a_full_launch_queue_is_a_wait_of_the_thread_that_launched() {
        let mut builder = TraceBuilder::default();
        let mut process = builder.process(1);
        process.thread(1).call("cudaLaunchKernel", 5, 8, CallData::default());
        process.thread(2).call(
            "cudaLaunchKernel",
            10,
            90,
            CallData { correlation: 3, ..CallData::default() },
        );
        process.overhead(crate::model::Overhead {
            start_ns: 20,
            end_ns: 80,
            tid: 0,
            correlation: 3,
            kind: OverheadKind::CommandBufferFull,
        });
        let found = find(&builder.finish(), &mut Anywhere);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].kind, found[0].thread, found[0].blocked_ns),
            (WaitKind::LaunchQueueFull, 1, Some(60))
        );
        assert_eq!(found[0].calls, Calls::One(0));
    }

    #[test]
    fn a_call_that_never_returned_is_a_wait_without_a_time() {
        let mut builder = TraceBuilder::default();
        let mut process = builder.process(1);
        process.thread(1).call("cudaMalloc", 10, OPEN, CallData::default());
        let found = find(&builder.finish(), &mut Anywhere);
        assert_eq!((found[0].kind, found[0].blocked_ns, found[0].unfinished), (MemoryManagement, None, true));
    }

    #[test]
    fn an_emulated_program_killed_in_a_call_that_only_may_wait_did_not_wait_there() {
        for (api, class_waits) in
            [("cuMemcpyHtoDAsync_v2", false), ("cuMemAlloc_v2", false), ("cuStreamSynchronize", true)]
        {
            let mut builder = TraceBuilder::default();
            builder.source.emulated = true;
            let mut process = builder.process(1);
            process.thread(1).call(api, 10, OPEN, CallData::default());
            let found = find(&builder.finish(), &mut Anywhere);
            assert_eq!(
                found.iter().map(|wait| wait.unfinished).collect::<Vec<_>>(),
                vec![true; usize::from(class_waits)],
                "{api}"
            );
        }
    }
}
