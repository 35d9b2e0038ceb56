//! The part of a trace that decides how long a step takes: calls that put work on a device or wait, the work itself, and
//! who issued what.
//!
//! In: a trace and its audit. Out: a [`Timeline`] of plain numbers, in the order in which things were issued. Whatever can't be
//! linked (work without a call, a launch without work) is counted, so that the caller can abstain. Holds no rule about time.

use rustc_hash::FxHashMap as HashMap;

use super::handover::{self, Pause};
use super::prices::Unit;
use crate::audit::{Audit, Calls, Step, StepKind};
use crate::model::{
    ApiClass, Call, CallEffect, CopyDirection, DeviceOpKind, MemoryKind, OPEN, Process, SpanKind, StrId,
    StreamId, Trace,
};

/// "There is none"; never an index.
pub(super) const NONE: u32 = u32::MAX;

/// A host thread that puts work on a device or waits.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub process: u32,
    pub thread: u32,
    /// Its calls, as indices into [`Timeline::calls`].
    pub calls: Vec<u32>,
}

/// A call that matters: it puts work on a stream, orders streams, or waits.
#[derive(Clone, Debug)]
pub(super) struct HostCall {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Event that the call is about, 0 for none.
    pub object: u64,
    pub lane: u32,
    pub stream: u32,
    /// Index into the audit's waits.
    pub wait: u32,
    /// Its work: `ops[first_op..first_op + ops]`.
    pub first_op: u32,
    pub ops: u32,
    pub class: ApiClass,
    /// By its form it returns only when its own work is done.
    pub blocks: bool,
    /// Began in a step that counts.
    pub counted: bool,
}

/// What a piece of device work is, as far as its latency goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum WorkKind {
    Kernel,
    Upload,
    Download,
    OtherCopy,
    Memset,
}

/// One piece of device work.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub start_ns: u64,
    pub end_ns: u64,
    pub stream: u32,
    /// The call that issued it; [`NONE`] if that was before the recording.
    pub call: u32,
    /// Index of the process' device work, for names.
    pub source: u32,
    pub kind: WorkKind,
    /// Part of a graph: moves with the others of its launch.
    pub in_graph: bool,
}

/// A stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamRow {
    pub process: u32,
    pub device: u32,
    /// The legacy default stream.
    pub legacy: bool,
}

/// A stretch of time whose length is asked for: a step of a process, or the whole recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepRow {
    /// [`NONE`] for all of them: the recording.
    pub process: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Ordinary, or there is no ordinary one.
    pub counted: bool,
}

/// What could not be linked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loose {
    /// Device work whose call is not in the trace although it began after the first call.
    pub work_without_call: u64,
    /// Launches without a record of their work, before the last recorded work.
    pub launches_without_work: u64,
    /// Of those, graph launches.
    pub graphs_without_work: u64,
}

/// See the module.
pub(super) struct Timeline<'a> {
    pub trace: &'a Trace,
    pub audit: &'a Audit,
    pub lanes: Vec<Lane>,
    /// By start.
    pub calls: Vec<HostCall>,
    /// In the order of issue.
    pub ops: Vec<Op>,
    pub streams: Vec<StreamRow>,
    /// By process and start.
    pub steps: Vec<StepRow>,
    pub unit: Unit,
    /// By the call that ends them.
    pub pauses: HashMap<u32, Pause>,
    /// Per process: when the thread of the steps was loading data; in order and apart.
    pub data: Vec<Vec<(u64, u64)>>,
    /// Per process of the trace: the lane that steps are on, else the busiest.
    pub step_lane: Vec<u32>,
    pub kernels: u64,
    pub launches: u64,
    pub loose: Loose,
    /// The earliest time that matters.
    pub from_ns: u64,
    pub until_ns: u64,
}

impl<'a> Timeline<'a> {
    pub fn of(trace: &'a Trace, audit: &'a Audit) -> Self {
        let mut timeline = Self {
            trace,
            audit,
            lanes: Vec::new(),
            calls: Vec::new(),
            ops: Vec::new(),
            streams: Vec::new(),
            steps: Vec::new(),
            unit: Unit::Recording,
            pauses: HashMap::default(),
            data: Vec::new(),
            step_lane: vec![NONE; trace.processes.len()],
            kernels: 0,
            launches: 0,
            loose: Loose::default(),
            from_ns: u64::MAX,
            until_ns: 0,
        };
        let mut waits = audit.waits.iter().enumerate().peekable();
        for (index, process) in trace.processes.iter().enumerate() {
            let mut of_thread: Vec<Vec<(u32, u32, u32)>> = vec![Vec::new(); process.threads.len()];
            while let Some((wait_index, wait)) = waits.next_if(|(_, wait)| wait.process as usize <= index) {
                let Some(list) = of_thread.get_mut(wait.thread as usize) else { continue };
                match wait.calls {
                    Calls::None => {}
                    _ if wait.by_recorder => {}
                    Calls::One(call) => list.push((call, call, index_u32(wait_index))),
                    Calls::Pair(a, b) => {
                        list.push((a, a, index_u32(wait_index)));
                        list.push((b, b, index_u32(wait_index)));
                    }
                    Calls::Run { first, last, .. } => list.push((first, last, index_u32(wait_index))),
                }
            }
            timeline.process(index_u32(index), process, of_thread);
        }
        timeline.order();
        timeline.find_steps();
        timeline.pauses = handover::find(&timeline);
        timeline.data = (0..trace.processes.len()).map(|process| data_ranges(&timeline, process)).collect();
        timeline
    }

    /// Whole steps, and which of them count.
    fn find_steps(&mut self) {
        let whole = |step: &&Step| step.end_ns != OPEN && step.end_ns > step.start_ns;
        let ordinary = self.audit.steps.iter().filter(|step| step.kind == StepKind::Ordinary).count();
        for step in self.audit.steps.iter().filter(whole) {
            self.steps.push(StepRow {
                process: step.process,
                start_ns: step.start_ns,
                end_ns: step.end_ns,
                counted: ordinary == 0 || step.kind == StepKind::Ordinary,
            });
        }
        self.unit = match (ordinary, self.steps.len()) {
            (0, 0) => Unit::Recording,
            (0, count) => Unit::Steps(count),
            (count, _) => Unit::OrdinarySteps(count),
        };
        if self.steps.is_empty() {
            let (start_ns, end_ns) = (self.from_ns, self.until_ns);
            self.steps.push(StepRow { process: NONE, start_ns, end_ns, counted: true });
        }
        for call in &mut self.calls {
            let process = self.lanes[call.lane as usize].process;
            let until =
                self.steps.partition_point(|step| (step.process, step.start_ns) <= (process, call.start_ns));
            let of_process = self.steps[..until].last().filter(|step| step.process == process);
            let step = of_process.or(self.steps.first().filter(|step| step.process == NONE));
            call.counted = step.is_some_and(|step| step.counted && call.start_ns <= step.end_ns);
        }
    }

    /// The fullest step over and over, for a trace with so few steps that none has one of its kind before it: what the host could do for the next
    /// step while the device still works is not in the recording, but it is what the step itself begins with.
    pub fn repeated(&self) -> Option<Self> {
        const TIMES: u64 = 4;
        const MOST_STEPS: usize = 2;
        let mut last: Vec<StepRow> = Vec::new();
        for process in 0..index_u32(self.trace.processes.len()) {
            let of_process: Vec<&StepRow> =
                self.steps.iter().filter(|step| step.process == process).collect();
            if of_process.len() > MOST_STEPS {
                return None;
            }
            // A step that was hardly recorded says little.
            let calls = |step: &StepRow| {
                let from = self.calls.partition_point(|call| call.start_ns < step.start_ns);
                self.calls.partition_point(|call| call.start_ns < step.end_ns) - from
            };
            last.extend(of_process.into_iter().max_by_key(|step| calls(step)).copied());
        }
        let from_ns = last.iter().map(|step| step.start_ns).min()?;
        let period_ns = last.iter().map(|step| step.end_ns).max()? - from_ns;
        let in_step = |process: u32, time_ns: u64| {
            last.iter()
                .any(|step| step.process == process && step.start_ns <= time_ns && time_ns < step.end_ns)
        };
        let mut repeated = Self {
            trace: self.trace,
            audit: self.audit,
            lanes: self.lanes.iter().map(|lane| Lane { calls: Vec::new(), ..*lane }).collect(),
            calls: Vec::new(),
            ops: Vec::new(),
            streams: self.streams.clone(),
            steps: Vec::new(),
            unit: Unit::RepeatedStep,
            pauses: HashMap::default(),
            data: vec![Vec::new(); self.data.len()],
            step_lane: self.step_lane.clone(),
            kernels: self.kernels,
            launches: self.launches,
            loose: self.loose,
            from_ns,
            until_ns: from_ns + TIMES * period_ns,
        };
        for time in 0..TIMES {
            let shift_ns = time * period_ns;
            let counted = time > 0 && time + 1 < TIMES;
            for (at, call) in self.calls.iter().enumerate() {
                if !in_step(self.lanes[call.lane as usize].process, call.start_ns) {
                    continue;
                }
                let index = index_u32(repeated.calls.len());
                let first_op = index_u32(repeated.ops.len());
                repeated.ops.extend(self.ops[self.work(call)].iter().map(|op| Op {
                    start_ns: op.start_ns + shift_ns,
                    end_ns: op.end_ns + shift_ns,
                    call: index,
                    ..op.clone()
                }));
                if let Some(&pause) = self.pauses.get(&index_u32(at)) {
                    repeated.pauses.insert(index, pause.later(shift_ns));
                }
                repeated.lanes[call.lane as usize].calls.push(index);
                repeated.calls.push(HostCall {
                    start_ns: call.start_ns + shift_ns,
                    end_ns: call.end_ns + shift_ns,
                    first_op,
                    counted,
                    ..call.clone()
                });
            }
            for (list, data) in repeated.data.iter_mut().zip(&self.data) {
                let inside = |range: &&(u64, u64)| range.0 >= from_ns && range.1 <= from_ns + period_ns;
                list.extend(data.iter().filter(inside).map(|range| (range.0 + shift_ns, range.1 + shift_ns)));
            }
        }
        for step in last {
            for time in 0..TIMES {
                let shift_ns = time * period_ns;
                repeated.steps.push(StepRow {
                    start_ns: step.start_ns + shift_ns,
                    end_ns: step.end_ns + shift_ns,
                    counted: time > 0 && time + 1 < TIMES,
                    ..step
                });
            }
        }
        Some(repeated)
    }

    /// How many stretches of time count.
    pub fn counted_steps(&self) -> usize {
        self.steps.iter().filter(|step| step.counted).count()
    }

    /// Adds the calls and the work of a process; order comes later.
    fn process(&mut self, index: u32, process: &Process, waits: Vec<Vec<(u32, u32, u32)>>) {
        let first_stream = self.streams.len();
        let mut rows: Vec<u32> = vec![NONE; process.streams.len()];
        let worked = |kind| {
            matches!(
                kind,
                DeviceOpKind::Kernel | DeviceOpKind::Copy | DeviceOpKind::Memset | DeviceOpKind::Graph
            )
        };
        let mut linked: HashMap<u32, u32> = HashMap::default();
        for op in process.device_ops.iter().filter(|op| worked(op.kind) && op.correlation != 0) {
            linked.insert(op.correlation, NONE);
        }
        let mut most = (0, NONE);
        let step_thread = self
            .audit
            .steps
            .iter()
            .find(|step| step.process == index && step.thread.is_some())
            .and_then(|step| step.thread);
        let mut stream_of_handle: HashMap<StreamId, StreamId> = HashMap::default();
        let mut handles: Vec<(u32, StreamId)> = Vec::new();
        let first_call = self.calls.len();
        let mut launches_seen: Vec<(u64, ApiClass, u32)> = Vec::new();
        for (thread_index, (thread, waits)) in process.threads.iter().zip(waits).enumerate() {
            let lane = index_u32(self.lanes.len());
            let before = self.calls.len();
            let mut waits = waits.into_iter().peekable();
            let mut skip_to = 0;
            for (call_index, call) in thread.calls.iter().enumerate() {
                let call_index = index_u32(call_index);
                if call_index < skip_to
                    || call.effect == CallEffect::Failed
                    || thread.recorder_from_ns.is_some_and(|from_ns| from_ns <= call.start_ns)
                {
                    continue;
                }
                while waits.next_if(|&(first, ..)| first < call_index).is_some() {}
                let wait = waits.next_if(|&(first, ..)| first == call_index);
                let class = self.trace.api(call.api).class;
                let puts_work = call.correlation != 0 && linked.contains_key(&call.correlation);
                let launch = matches!(class, ApiClass::Launch | ApiClass::GraphLaunch);
                if launch {
                    self.launches += 1;
                    launches_seen.push((call.start_ns, class, u32::from(puts_work)));
                }
                let orders = matches!(
                    class,
                    ApiClass::EventRecord
                        | ApiClass::StreamWaitEvent
                        | ApiClass::StreamSync
                        | ApiClass::EventSync
                        | ApiClass::DeviceSync
                );
                if !(puts_work || orders || wait.is_some()) {
                    continue;
                }
                let mut end_ns = call.end_ns;
                if let Some((first, last, _)) = wait
                    && last > first
                {
                    end_ns = thread.calls.get(last as usize).map_or(end_ns, |last| last.end_ns);
                    skip_to = last + 1;
                }
                if puts_work {
                    linked.insert(call.correlation, index_u32(self.calls.len()));
                }
                handles.push((index_u32(self.calls.len()), call.stream));
                self.add_call(call, end_ns, lane, class, wait.map_or(NONE, |(.., wait)| wait));
            }
            let count = self.calls.len() - before;
            if count == 0 {
                continue;
            }
            if step_thread == Some(index_u32(thread_index)) {
                most = (usize::MAX, lane);
            } else if count > most.0 {
                most = (count, lane);
            }
            self.lanes.push(Lane { process: index, thread: index_u32(thread_index), calls: Vec::new() });
        }
        self.step_lane[index as usize] = most.1;

        // The program's handle of a stream and the driver's number of it are two rows of the model; work links them.
        let mut row_of = |timeline: &mut Self, id: StreamId| -> u32 {
            let Some(at) = id.get().filter(|&at| at < rows.len()) else { return NONE };
            if rows[at] == NONE {
                rows[at] = index_u32(timeline.streams.len());
                let stream = &process.streams[at];
                timeline.streams.push(StreamRow {
                    process: index,
                    device: stream.device,
                    legacy: stream.number == Some(LEGACY_NUMBER),
                });
            }
            rows[at]
        };
        let calls_from = self.calls[first_call..].iter().map(|call| call.start_ns).min().unwrap_or(u64::MAX);
        let mut last_work_ns = 0;
        for (source, op) in process.device_ops.iter().enumerate().filter(|(_, op)| worked(op.kind)) {
            let call = linked.get(&op.correlation).copied().filter(|_| op.correlation != 0).unwrap_or(NONE);
            if call == NONE && op.start_ns >= calls_from {
                self.loose.work_without_call += 1;
            }
            self.kernels += u64::from(matches!(op.kind, DeviceOpKind::Kernel | DeviceOpKind::Graph));
            last_work_ns = last_work_ns.max(op.end_ns);
            if let Some(call) = (call != NONE).then(|| handles[call as usize - first_call].1)
                && call != StreamId::NONE
                && op.stream != StreamId::NONE
                && op.graph_node == 0
            {
                stream_of_handle.entry(call).or_insert(op.stream);
            }
            let stream = row_of(self, op.stream);
            self.ops.push(Op {
                start_ns: op.start_ns,
                end_ns: op.end_ns.max(op.start_ns),
                stream,
                call,
                source: index_u32(source),
                kind: work_kind(op.kind, op.direction),
                in_graph: op.graph_node != 0,
            });
        }
        for (call, handle) in handles {
            let known = stream_of_handle.get(&handle).copied().unwrap_or(handle);
            let row = row_of(self, known);
            self.calls[call as usize].stream = row;
            // Handle 0 without a number, and handle 1, are the legacy default stream by definition.
            let named = handle.get().and_then(|at| process.streams.get(at));
            let legacy = named.is_some_and(|stream| {
                stream.number.is_none() && (stream.handle == 0 || stream.handle == LEGACY_HANDLE)
            });
            if legacy && row != NONE {
                self.streams[row as usize].legacy = true;
            }
        }
        debug_assert!(first_stream <= self.streams.len());
        for (start_ns, class, has_work) in launches_seen {
            if has_work == 0 && start_ns < last_work_ns {
                self.loose.launches_without_work += 1;
                self.loose.graphs_without_work += u64::from(class == ApiClass::GraphLaunch);
            }
        }
    }

    fn add_call(&mut self, call: &Call, end_ns: u64, lane: u32, class: ApiClass, wait: u32) {
        let pageable = |kind| matches!(kind, MemoryKind::Pageable | MemoryKind::Managed);
        let held = end_ns.saturating_sub(call.start_ns) >= HELD_NS;
        let blocks = match class {
            ApiClass::Copy | ApiClass::CopyAndSync | ApiClass::Memset => true,
            ApiClass::CopyAsync => {
                held || (call.direction == CopyDirection::DeviceToHost && pageable(call.to))
            }
            _ => false,
        };
        self.calls.push(HostCall {
            blocks: blocks && wait != NONE,
            counted: false,
            start_ns: call.start_ns,
            end_ns,
            object: call.object,
            lane,
            stream: NONE,
            wait,
            first_op: 0,
            ops: 0,
            class,
        });
    }

    /// Sorts calls by start and work by issue, and links the two.
    fn order(&mut self) {
        let (mut from_ns, mut until_ns) = (u64::MAX, 0);
        for call in &self.calls {
            from_ns = from_ns.min(call.start_ns);
            until_ns = until_ns.max(if call.end_ns == OPEN { call.start_ns } else { call.end_ns });
        }
        for op in &self.ops {
            from_ns = from_ns.min(op.start_ns);
            until_ns = until_ns.max(op.end_ns);
        }
        for step in &self.audit.steps {
            from_ns = from_ns.min(step.start_ns);
            until_ns = until_ns.max(if step.end_ns == OPEN { step.start_ns } else { step.end_ns });
        }
        (self.from_ns, self.until_ns) = (from_ns.min(until_ns), until_ns);
        let mut order: Vec<u32> = (0..index_u32(self.calls.len())).collect();
        order.sort_by_key(|&at| (self.calls[at as usize].start_ns, self.calls[at as usize].lane));
        let mut place = vec![0u32; order.len()];
        for (to, &from) in order.iter().enumerate() {
            place[from as usize] = index_u32(to);
        }
        let mut calls = Vec::with_capacity(order.len());
        for &from in &order {
            calls.push(self.calls[from as usize].clone());
        }
        for call in &mut calls {
            // The program ended inside of it.
            if call.end_ns == OPEN {
                call.end_ns = until_ns.max(call.start_ns);
            }
        }
        for op in self.ops.iter_mut().filter(|op| op.call != NONE) {
            op.call = place[op.call as usize];
        }
        let issue = |op: &Op| calls.get(op.call as usize).map_or(op.start_ns, |call| call.start_ns);
        self.ops.sort_by_key(|op| (issue(op), op.call, op.start_ns, op.end_ns));
        for (at, op) in self.ops.iter().enumerate().filter(|(_, op)| op.call != NONE) {
            let call = &mut calls[op.call as usize];
            if call.ops == 0 {
                call.first_op = index_u32(at);
            }
            call.ops += 1;
        }
        let mut last_stream = vec![NONE; self.lanes.len()];
        for (at, call) in calls.iter_mut().enumerate() {
            self.lanes[call.lane as usize].calls.push(index_u32(at));
            // Profilers record a synchronise without its stream: it is taken to be about the one that the thread used last.
            let last = &mut last_stream[call.lane as usize];
            if call.class == ApiClass::StreamSync && call.stream == NONE {
                call.stream = *last;
            } else if call.ops > 0 {
                *last = self.ops[call.first_op as usize].stream;
            }
        }
        self.calls = calls;
    }

    /// The work that a call issued.
    pub fn work(&self, call: &HostCall) -> std::ops::Range<usize> {
        call.first_op as usize..(call.first_op + call.ops) as usize
    }

    /// When a piece of work was issued: the start of its call.
    pub fn issued_ns(&self, op: &Op) -> u64 {
        self.calls.get(op.call as usize).map_or(op.start_ns, |call| call.start_ns)
    }

    /// The name of a piece of work.
    pub fn name(&self, op: &Op) -> &str {
        let Some(stream) = self.streams.get(op.stream as usize) else { return "" };
        let ops = self.trace.processes.get(stream.process as usize).map(|process| &process.device_ops);
        ops.and_then(|ops| ops.get(op.source as usize)).map_or("", |op| self.trace.str(op.name))
    }
}

/// CUPTI's number of the legacy default stream of a process' first context.
const LEGACY_NUMBER: u32 = 7;
/// `CU_STREAM_LEGACY`.
const LEGACY_HANDLE: u64 = 1;

/// An asynchronous copy that held the host for so long was not asynchronous.
const HELD_NS: u64 = 50_000;

fn work_kind(kind: DeviceOpKind, direction: CopyDirection) -> WorkKind {
    match (kind, direction) {
        (DeviceOpKind::Copy, CopyDirection::HostToDevice) => WorkKind::Upload,
        (DeviceOpKind::Copy, CopyDirection::DeviceToHost) => WorkKind::Download,
        (DeviceOpKind::Copy, _) => WorkKind::OtherCopy,
        (DeviceOpKind::Memset, _) => WorkKind::Memset,
        _ => WorkKind::Kernel,
    }
}

pub(super) fn index_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

/// When a thread of the process was loading data, by the names of its operators and ranges.
fn data_ranges(timeline: &Timeline<'_>, process: usize) -> Vec<(u64, u64)> {
    let mut known: HashMap<StrId, bool> = HashMap::default();
    let step_lane = timeline.lanes.get(timeline.step_lane[process] as usize);
    let Some(lane) = step_lane else { return Vec::new() };
    let thread = &timeline.trace.processes[process].threads[lane.thread as usize];
    let mut list: Vec<(u64, u64)> = thread
        .spans
        .iter()
        .filter(|span| span.kind != SpanKind::PythonFrame)
        .filter(|span| *known.entry(span.name).or_insert_with(|| loads_data(timeline.trace.str(span.name))))
        .map(|span| (span.start_ns, span.end_ns))
        .collect();
    list.sort_unstable();
    merged(list)
}

/// PyTorch calls it `enumerate(DataLoader)#...`; ranges are named by people.
fn loads_data(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["dataloader", "data_load", "data load", "load_data", "next_batch", "get_batch"]
        .iter()
        .any(|part| name.contains(part))
        || name.split([' ', '#', ':']).next() == Some("data")
}

/// Ranges that touch or overlap as one; the list is sorted.
pub(super) fn merged(list: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(list.len());
    for (start_ns, end_ns) in list {
        match merged.last_mut() {
            Some(last) if start_ns <= last.1 => last.1 = last.1.max(end_ns),
            _ => merged.push((start_ns, end_ns)),
        }
    }
    merged
}
