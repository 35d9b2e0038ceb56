//! What is looked at: a trace, its audit, and what is looked up in them all the time.
//!
//! In: a [`Trace`] and its audit, held against budget and baseline. Out: lanes (host threads, device streams) with the rows in them, waits in order, and what
//! a wait waited for. Everything is an index into the trace; nothing here decides what a wait or a step is.

use rustc_hash::FxHashMap as HashMap;

use super::axis::Axis;
use super::lod::WaitRow;
use crate::audit::{Calls, Step, StepKind, Wait};
use crate::gate::Judged;
use crate::model::{ApiClass, CopyDirection, DeviceOp, DeviceOpKind, OPEN, Process, SpanKind, Thread, Trace};

/// A trace with its audit, ready to be shown.
#[derive(Debug)]
pub struct Recording {
    pub trace: Trace,
    pub judged: Judged,
    pub axis: Axis,
    pub lanes: Vec<Lane>,
    /// All waits by start.
    pub by_start: Vec<u32>,
    /// Waits of each site, by start.
    pub of_site: Vec<Vec<u32>>,
    /// When each wait ended.
    wait_end_ns: Vec<u64>,
    lane_of_thread: HashMap<(u32, u32), usize>,
    lane_of_stream: HashMap<(u32, u32), usize>,
    /// Device work of each process.
    by_correlation: Vec<ByCorrelation>,
}

/// One host thread or one device stream.
#[derive(Debug)]
pub struct Lane {
    pub process: u32,
    pub kind: LaneKind,
    /// `main`, `thread 12`, `stream 7`.
    pub name: String,
    pub waits: WaitRow,
    /// Ranges and operators by depth: indices into the thread's spans.
    pub ranges: Vec<Vec<u32>>,
    /// Indices into the process' device work.
    pub ops: Vec<u32>,
    /// Latest end of the first so many `ops`.
    pub reach_ns: Vec<u64>,
}

/// What a lane shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// Index into the process' threads.
    Thread(u32),
    /// Number of the stream in its process; `u32::MAX` for work of unknown stream.
    Stream(u32),
}

/// What a wait waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    pub process: u32,
    /// Index into the process' device work.
    pub op: u32,
    /// The wait's own copy, as opposed to the work that was the last to end before it did.
    pub own_copy: bool,
}

impl Recording {
    /// Gets a trace and what was made of it ready.
    #[must_use]
    pub fn new(trace: Trace, judged: impl Into<Judged>) -> Self {
        let judged: Judged = judged.into();
        let audit = &judged.audit;
        let axis = Axis::new(&trace);
        let wait_end_ns: Vec<u64> = audit.waits.iter().map(|wait| end_of(&trace, wait)).collect();
        let mut by_start: Vec<u32> = (0..u32::try_from(audit.waits.len()).unwrap_or(u32::MAX)).collect();
        by_start.sort_by_key(|&wait| audit.waits[wait as usize].start_ns);
        let mut of_site = vec![Vec::new(); audit.sites.len()];
        for &wait in &by_start {
            if let Some(waits) = of_site.get_mut(audit.waits[wait as usize].site as usize) {
                waits.push(wait);
            }
        }
        let mut lanes = Vec::new();
        for (index, process) in (0..).zip(&trace.processes) {
            thread_lanes(&trace, index, process, &mut lanes);
            stream_lanes(&trace, index, process, &mut lanes);
        }
        let mut lane_of_thread = HashMap::default();
        let mut lane_of_stream = HashMap::default();
        for (at, lane) in lanes.iter().enumerate() {
            match lane.kind {
                LaneKind::Thread(thread) => lane_of_thread.insert((lane.process, thread), at),
                LaneKind::Stream(stream) => lane_of_stream.insert((lane.process, stream), at),
            };
        }
        for &id in &by_start {
            let wait = &audit.waits[id as usize];
            if let Some(&lane) = lane_of_thread.get(&(wait.process, wait.thread)) {
                lanes[lane].waits.push(id, wait.start_ns, wait_end_ns[id as usize]);
            }
        }
        let by_correlation =
            trace.processes.iter().map(|process| ByCorrelation::of(&process.device_ops)).collect();
        Self {
            trace,
            judged,
            axis,
            lanes,
            by_start,
            of_site,
            wait_end_ns,
            lane_of_thread,
            lane_of_stream,
            by_correlation,
        }
    }

    /// When a wait ended; [`OPEN`] if it had not when the trace did.
    #[must_use]
    pub fn wait_end_ns(&self, wait: usize) -> u64 {
        self.wait_end_ns[wait]
    }

    /// The thread that waited.
    #[must_use]
    pub fn thread_of(&self, wait: &Wait) -> Option<&Thread> {
        thread_of(&self.trace, wait)
    }

    /// The lane of a wait.
    #[must_use]
    pub fn lane_of_wait(&self, wait: usize) -> Option<usize> {
        let wait = &self.judged.audit.waits[wait];
        self.lane_of_thread.get(&(wait.process, wait.thread)).copied()
    }

    /// The lane of a piece of device work.
    #[must_use]
    pub fn lane_of_op(&self, cause: Cause) -> Option<usize> {
        let op = self.op(cause)?;
        self.lane_of_stream.get(&(cause.process, op.stream.0)).copied()
    }

    /// The device work that a wait waited for.
    #[must_use]
    pub fn op(&self, cause: Cause) -> Option<&DeviceOp> {
        self.trace.processes.get(cause.process as usize)?.device_ops.get(cause.op as usize)
    }

    /// What a wait waited for: its own copy, else the device work that it could depend on and that ended last before it did.
    #[must_use]
    pub fn cause(&self, wait: usize) -> Option<Cause> {
        let (wait, end_ns) = (&self.judged.audit.waits[wait], self.wait_end_ns(wait));
        let thread = self.thread_of(wait)?;
        let correlated = self.by_correlation.get(wait.process as usize)?;
        for call in calls_of(wait).filter_map(|call| thread.calls.get(call as usize)) {
            if let Some(op) = correlated.get(call.correlation) {
                return Some(Cause { process: wait.process, op, own_copy: true });
            }
        }
        // An operation's own copy is known; what the driver answered a synchronise with is its stream's (or device's) last.
        let last = thread.calls.get(wait.calls.last()? as usize)?;
        let one_stream = self.trace.api(last.api).class == ApiClass::StreamSync;
        let lanes = self.lanes.iter().filter(|lane| {
            lane.process == wait.process
                && matches!(lane.kind, LaneKind::Stream(stream) if !one_stream || stream == last.stream.0)
        });
        let ops = &self.trace.processes[wait.process as usize].device_ops;
        lanes
            .filter_map(|lane| lane.last_ended_by(ops, end_ns))
            .filter(|&op| ops[op as usize].end_ns >= wait.start_ns)
            .max_by_key(|&op| ops[op as usize].end_ns)
            .map(|op| Cause { process: wait.process, op, own_copy: false })
    }

    /// Number of the step as the program gave it, else its position.
    #[must_use]
    pub fn step_name(step: &Step) -> String {
        step.number.map_or_else(|| format!("#{}", step.index), |number| number.to_string())
    }

    /// The step to begin with: the worst ordinary one. Over the budget goes first, then waits, then host time in them.
    #[must_use]
    pub fn worst_step(&self) -> Option<usize> {
        let order = |kind| match kind {
            StepKind::Ordinary => 3,
            StepKind::Unfinished => 2,
            StepKind::Log => 1,
            StepKind::Warmup => 0,
        };
        let key = |step: &Step| (order(step.kind), step.over_budget, step.waits, step.blocked_ns);
        (0..self.judged.audit.steps.len()).rev().max_by_key(|&index| key(&self.judged.audit.steps[index]))
    }

    /// The most expensive wait of a step; where there are no times, the first one at the worst place.
    #[must_use]
    pub fn worst_wait(&self, step: usize) -> Option<usize> {
        let waits =
            self.judged.audit.waits.iter().enumerate().filter(|(_, wait)| wait.step == Some(step as u32));
        waits
            .max_by_key(|(_, wait)| {
                (wait.blocked_ns, std::cmp::Reverse(wait.site), std::cmp::Reverse(wait.start_ns))
            })
            .map(|(index, _)| index)
    }

    /// The step of a process at a moment.
    #[must_use]
    pub fn step_at(&self, process: u32, time_ns: u64) -> Option<usize> {
        let of_process = self.steps_of(process);
        let at = self.judged.audit.steps[of_process.clone()].partition_point(|step| step.start_ns <= time_ns);
        let index = of_process.start + at.checked_sub(1)?;
        (self.judged.audit.steps[index].end_ns > time_ns).then_some(index)
    }

    /// The steps of a process, which are in a row and in order of time.
    #[must_use]
    pub fn steps_of(&self, process: u32) -> std::ops::Range<usize> {
        let steps = &self.judged.audit.steps;
        steps.partition_point(|step| step.process < process)
            ..steps.partition_point(|step| step.process <= process)
    }

    /// `rank 3`, or the name and number of the process.
    #[must_use]
    pub fn process_name(&self, process: u32) -> String {
        let Some(row) = self.judged.audit.processes.get(process as usize) else { return String::new() };
        match (row.rank, row.name.is_empty()) {
            (Some(rank), _) => format!("rank {rank}"),
            (None, true) => format!("process {}", row.pid),
            (None, false) => format!("{} {}", row.name, row.pid),
        }
    }

    /// How far the host was ahead of the device when each step ended: until the device had done what the step had asked for.
    /// `None` for a step of which that is not known, as its calls link to no kernel.
    ///
    /// # Errors
    /// Why it is known of no step.
    pub fn run_ahead_ns(&self) -> Result<Vec<Option<u64>>, &'static str> {
        let steps = &self.judged.audit.steps;
        let mut ahead: Vec<Option<u64>> = vec![None; steps.len()];
        if !self.axis.measured() {
            return Err("not known: an emulated device has no times");
        }
        if steps.is_empty() {
            return Err("not known: no steps");
        }
        let mut ops = self.trace.processes.iter().flat_map(|process| &process.device_ops);
        if !ops.any(|op| op.kind == DeviceOpKind::Kernel) {
            return Err("not known: no kernels were recorded (run --gpu-timeline does)");
        }
        for (index, process) in (0..).zip(&self.trace.processes) {
            let range = self.steps_of(index);
            if range.is_empty() {
                continue;
            }
            let ops = &process.device_ops;
            let correlated = &self.by_correlation[index as usize];
            for thread in &process.threads {
                // Calls and steps both go forwards in time.
                let mut step = range.start;
                for call in &thread.calls {
                    // Copies alone say nothing of the work that was launched.
                    let op = correlated.get(call.correlation).map(|op| &ops[op as usize]);
                    let Some(op) = op.filter(|op| op.kind == DeviceOpKind::Kernel) else { continue };
                    while step < range.end && steps[step].end_ns <= call.start_ns {
                        step += 1;
                    }
                    if step == range.end {
                        break;
                    }
                    if steps[step].start_ns <= call.start_ns && steps[step].end_ns != OPEN {
                        let behind = op.end_ns.saturating_sub(steps[step].end_ns);
                        ahead[step] = Some(ahead[step].unwrap_or(0).max(behind));
                    }
                }
            }
        }
        match ahead.iter().any(Option::is_some) {
            true => Ok(ahead),
            false => Err("not known: no kernel links to a call of a step that ended"),
        }
    }
}

/// Finds device work by its correlation: an array where the numbers are as dense as they mostly are, else a map.
#[derive(Debug)]
enum ByCorrelation {
    Dense { first: u32, ops: Vec<u32> },
    Sparse(HashMap<u32, u32>),
}

impl ByCorrelation {
    fn of(all: &[DeviceOp]) -> Self {
        // The driver's record of a host synchronise is no work of the device.
        let linked =
            || all.iter().zip(0u32..).filter(|(op, _)| op.kind != DeviceOpKind::Sync && op.correlation != 0);
        let mut bounds = (u32::MAX, 0);
        let mut count = 0;
        for (op, _) in linked() {
            bounds = (bounds.0.min(op.correlation), bounds.1.max(op.correlation));
            count += 1;
        }
        let (first, last) = bounds;
        if count == 0 || (last - first) as usize > 8 * count + 1024 {
            return Self::Sparse(linked().map(|(op, at)| (op.correlation, at)).collect());
        }
        let mut ops = vec![u32::MAX; (last - first) as usize + 1];
        linked().for_each(|(op, at)| ops[(op.correlation - first) as usize] = at);
        Self::Dense { first, ops }
    }

    fn get(&self, correlation: u32) -> Option<u32> {
        match self {
            Self::Dense { first, ops } => {
                let at = correlation.checked_sub(*first)? as usize;
                ops.get(at).copied().filter(|&op| op != u32::MAX)
            }
            Self::Sparse(map) => map.get(&correlation).copied(),
        }
    }
}

impl Lane {
    /// The piece of work that was the last to end at or before `end_ns`.
    fn last_ended_by(&self, ops: &[DeviceOp], end_ns: u64) -> Option<u32> {
        let over = self.reach_ns.partition_point(|&reach| reach <= end_ns);
        let begun = over + self.ops[over..].partition_point(|&op| ops[op as usize].start_ns <= end_ns);
        let ended = |&&op: &&u32| ops[op as usize].end_ns <= end_ns;
        self.ops[..begun]
            .iter()
            .rev()
            .take(64)
            .filter(ended)
            .max_by_key(|&&op| ops[op as usize].end_ns)
            .copied()
    }
}

/// Indices of the calls of a wait.
pub fn calls_of(wait: &Wait) -> impl Iterator<Item = u32> + use<> {
    let (first, last) = match wait.calls {
        Calls::Pair(first, last) => (Some(first), Some(last)),
        calls => (calls.first(), calls.last().filter(|&last| calls.first() != Some(last))),
    };
    first.into_iter().chain(last)
}

fn thread_of<'a>(trace: &'a Trace, wait: &Wait) -> Option<&'a Thread> {
    trace.processes.get(wait.process as usize)?.threads.get(wait.thread as usize)
}

fn end_of(trace: &Trace, wait: &Wait) -> u64 {
    let last = || thread_of(trace, wait)?.calls.get(wait.calls.last()? as usize);
    match (last(), wait.blocked_ns) {
        (Some(call), _) => call.end_ns.max(wait.start_ns),
        (None, blocked_ns) => wait.start_ns.saturating_add(blocked_ns.unwrap_or(0)),
    }
}

fn thread_lanes(trace: &Trace, index: u32, process: &Process, lanes: &mut Vec<Lane>) {
    let mut threads: Vec<(u32, &Thread)> = (0..)
        .zip(&process.threads)
        .filter(|(_, thread)| {
            !thread.calls.is_empty() || thread.spans.iter().any(|span| span.kind != SpanKind::PythonFrame)
        })
        .collect();
    // The main thread first, then those that do most.
    threads.sort_by_key(|(_, thread)| {
        (thread.tid != process.pid, std::cmp::Reverse(thread.calls.len()), thread.tid)
    });
    for (at, thread) in threads {
        let name = match trace.str(thread.name) {
            _ if thread.tid == process.pid => "main".to_owned(),
            "" => format!("thread {}", thread.tid),
            name => name.to_owned(),
        };
        lanes.push(Lane { name, ranges: ranges(thread), ..Lane::empty(index, LaneKind::Thread(at)) });
    }
}

/// Spans by depth, Python frames left out: stacks have them, and they would be the height of the screen.
fn ranges(thread: &Thread) -> Vec<Vec<u32>> {
    let mut rows: Vec<Vec<u32>> = Vec::new();
    let mut depths: Vec<u16> = Vec::with_capacity(thread.spans.len());
    for (index, span) in (0u32..).zip(&thread.spans) {
        let parent = span.parent.get().and_then(|parent| depths.get(parent)).copied().unwrap_or(0);
        let shown = span.kind != SpanKind::PythonFrame;
        if shown {
            if rows.len() <= usize::from(parent) {
                rows.resize(usize::from(parent) + 1, Vec::new());
            }
            rows[usize::from(parent)].push(index);
        }
        depths.push(parent.saturating_add(u16::from(shown)));
    }
    rows
}

fn stream_lanes(trace: &Trace, index: u32, process: &Process, lanes: &mut Vec<Lane>) {
    let mut by_stream: std::collections::BTreeMap<u32, Vec<u32>> = std::collections::BTreeMap::new();
    for (at, op) in (0u32..).zip(&process.device_ops) {
        // The driver's record of a host synchronise is no work of the device.
        if op.kind != DeviceOpKind::Sync {
            by_stream.entry(op.stream.0).or_default().push(at);
        }
    }
    // Those that do most first, as with threads: a program may have set itself up with a hundred others.
    let mut by_stream: Vec<(u32, Vec<u32>)> = by_stream.into_iter().collect();
    by_stream.sort_by_key(|(_, ops)| std::cmp::Reverse(ops.len()));
    for (stream, ops) in by_stream {
        let known = process.streams.get(stream as usize);
        let name = match known {
            Some(known) if !trace.str(known.name).is_empty() => trace.str(known.name).to_owned(),
            Some(known) => match known.number {
                Some(number) => format!("stream {number}"),
                None if known.handle == 0 => "default stream".to_owned(),
                None => format!("stream {:#x}", known.handle),
            },
            None => "device".to_owned(),
        };
        let mut reach = 0;
        let reach_ns = ops
            .iter()
            .map(|&op| {
                reach = process.device_ops[op as usize].end_ns.max(reach);
                reach
            })
            .collect();
        lanes.push(Lane { name, ops, reach_ns, ..Lane::empty(index, LaneKind::Stream(stream)) });
    }
}

impl Lane {
    fn empty(process: u32, kind: LaneKind) -> Self {
        Self {
            process,
            kind,
            name: String::new(),
            waits: WaitRow::default(),
            ranges: Vec::new(),
            ops: Vec::new(),
            reach_ns: Vec::new(),
        }
    }
}

/// What a piece of device work is, in words.
#[must_use]
pub fn op_words(trace: &Trace, op: &DeviceOp) -> String {
    let name = trace.str(op.name);
    match (op.kind, op.direction) {
        (DeviceOpKind::Copy, CopyDirection::DeviceToHost) => "copy to the host".to_owned(),
        (DeviceOpKind::Copy, CopyDirection::HostToDevice) => "copy to the device".to_owned(),
        (DeviceOpKind::Copy, _) => "copy".to_owned(),
        (DeviceOpKind::Memset, _) => "memset".to_owned(),
        (DeviceOpKind::StreamWait, _) => "wait for another stream".to_owned(),
        (DeviceOpKind::Kernel, _) if !name.is_empty() => name.to_owned(),
        (DeviceOpKind::Kernel, _) => "kernel".to_owned(),
        (DeviceOpKind::Graph, _) => "graph".to_owned(),
        (DeviceOpKind::Sync | DeviceOpKind::Other, _) if name.is_empty() => "work".to_owned(),
        (DeviceOpKind::Sync | DeviceOpKind::Other, _) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_found_by_its_correlation_whether_the_numbers_are_dense_or_not() {
        let op = |correlation, kind| DeviceOp { correlation, kind, ..DeviceOp::default() };
        for step in [1, 1_000_000] {
            let ops: Vec<DeviceOp> = (0..10).map(|at| op(7 + at * step, DeviceOpKind::Kernel)).collect();
            let map = ByCorrelation::of(&ops);
            assert_eq!(matches!(map, ByCorrelation::Dense { .. }), step == 1);
            assert!((0..10).all(|at| map.get(7 + at * step) == Some(at)));
            assert_eq!((map.get(0), map.get(6), map.get(7 + 10 * step)), (None, None, None));
        }
        let sync = ByCorrelation::of(&[op(3, DeviceOpKind::Sync)]);
        assert_eq!(sync.get(3), None);
    }
}
