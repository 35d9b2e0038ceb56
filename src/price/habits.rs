//! How long things take on this machine when nothing holds them up: from a launch to its work, from one piece of work to the next, a
//! synchronise with nothing to wait for.
//!
//! In: a timeline. Out: typical numbers, each the median (or lower quartile, where anything unknown can only make it longer) of what was recorded. And what
//! the trace shows of rules that no trace states: whether a stream is ordered with the legacy default stream, whether copies share an engine.

use rustc_hash::FxHashMap as HashMap;

use super::timeline::{HostCall, NONE, Op, Timeline, WorkKind};
use crate::model::ApiClass;

/// Where nothing was recorded to learn from. A launch reaches an idle GPU within some microseconds.
const ISSUE_NS: i64 = 5_000;
/// As above: the work after it on a stream.
const QUEUED_NS: i64 = 1_000;
/// As above: a call that has nothing to wait for.
const CALL_NS: i64 = 5_000;
/// Something that begins so soon after something else may have waited for it.
pub(super) const NEAR_NS: i64 = 20_000;
/// Work of one stream may begin a little before the work before it has ended (programmatic dependent launch).
const MOST_OVERLAP_NS: i64 = 20_000;
/// Two clocks that were brought together differ by so much.
pub(super) const CLOCK_NS: u64 = 2_000;
/// Launches that a stream takes before the next one waits for space, at the least.
const QUEUE_DEPTH: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Habits {
    issue: HashMap<(WorkKind, bool), i64>,
    queued: HashMap<WorkKind, i64>,
    idle_call: HashMap<ApiClass, i64>,
    lag: HashMap<ApiClass, i64>,
    /// A call that puts work on a stream and does not wait.
    pub enqueue_ns: i64,
    /// Launches that may be outstanding on a stream.
    pub queue_depth: usize,
    /// Streams that take turns with the legacy default stream of their process.
    pub blocking: Vec<bool>,
    /// Devices on which two copies of one direction never ran at once although they could have.
    pub one_engine: HashMap<(u32, WorkKind), bool>,
}

impl Habits {
    pub fn of(timeline: &Timeline<'_>) -> Self {
        let mut habits = Self {
            issue: HashMap::default(),
            queued: HashMap::default(),
            idle_call: HashMap::default(),
            lag: HashMap::default(),
            enqueue_ns: CALL_NS,
            queue_depth: QUEUE_DEPTH,
            blocking: vec![false; timeline.streams.len()],
            one_engine: HashMap::default(),
        };
        habits.latencies(timeline);
        habits.calls(timeline);
        habits.depth(timeline);
        habits.turns(timeline);
        habits.engines(timeline);
        habits
    }

    /// From the start of a call to the start of its work on an idle stream.
    pub fn issue_ns(&self, kind: WorkKind, by_wait: bool) -> i64 {
        let known = |key| self.issue.get(&key).copied();
        known((kind, by_wait))
            .or_else(|| known((kind, !by_wait)))
            .or_else(|| known((WorkKind::Kernel, false)))
            .unwrap_or(ISSUE_NS)
    }

    /// From the end of the work before it to the start of queued work.
    pub fn queued_ns(&self, kind: WorkKind) -> i64 {
        let known = |kind| self.queued.get(&kind).copied();
        known(kind).or_else(|| known(WorkKind::Kernel)).unwrap_or(QUEUED_NS)
    }

    /// A call that may wait, with nothing to wait for.
    pub fn idle_call_ns(&self, class: ApiClass) -> i64 {
        self.idle_call.get(&class).copied().unwrap_or(self.enqueue_ns.min(CALL_NS))
    }

    /// From the end of the work to the return of the call that waited for it.
    pub fn lag_ns(&self, class: ApiClass) -> i64 {
        self.lag.get(&class).copied().unwrap_or(CALL_NS)
    }

    fn latencies(&mut self, timeline: &Timeline<'_>) {
        let mut issue: HashMap<(WorkKind, bool), Vec<i64>> = HashMap::default();
        let mut behind: HashMap<WorkKind, Vec<(i64, i64)>> = HashMap::default();
        let mut last: Vec<u64> = vec![0; timeline.streams.len()];
        for op in &timeline.ops {
            let Some(before) = last.get_mut(op.stream as usize) else { continue };
            let before_ns = std::mem::replace(before, (*before).max(op.end_ns));
            let Some(call) = timeline.calls.get(op.call as usize).filter(|_| !op.in_graph) else { continue };
            // Began as work of another stream ended: that is no latency.
            let held_up = |(at, &end_ns): (usize, &u64)| {
                at != op.stream as usize
                    && end_ns > call.start_ns.max(before_ns)
                    && end_ns <= op.start_ns + CLOCK_NS
                    && signed(op.start_ns, end_ns) <= NEAR_NS
            };
            if last.iter().enumerate().any(held_up) {
                continue;
            }
            let key = (op.kind, call.wait != NONE);
            if before_ns + CLOCK_NS < call.start_ns || before_ns == 0 {
                issue.entry(key).or_default().push(signed(op.start_ns, call.start_ns));
            } else {
                let slack = signed(before_ns, call.start_ns);
                behind.entry(op.kind).or_default().push((slack, signed(op.start_ns, before_ns)));
            }
        }
        self.issue = issue.into_iter().map(|(key, list)| (key, quantile(list, 1, 4).max(0))).collect();
        for (kind, list) in behind {
            let issue_ns = self.issue_ns(kind, false);
            let gaps: Vec<i64> =
                list.into_iter().filter(|(slack, _)| *slack > issue_ns).map(|(_, gap)| gap).collect();
            if !gaps.is_empty() {
                self.queued.insert(kind, quantile(gaps, 1, 2).max(-MOST_OVERLAP_NS));
            }
        }
    }

    fn calls(&mut self, timeline: &Timeline<'_>) {
        let free = timeline.calls.iter().filter(|call| call.wait == NONE && call.ops > 0);
        let durations: Vec<i64> = free.map(|call| signed(call.end_ns, call.start_ns)).collect();
        if !durations.is_empty() {
            self.enqueue_ns = quantile(durations, 1, 2);
        }
        let mut idle: HashMap<ApiClass, Vec<i64>> = HashMap::default();
        let mut lags: HashMap<ApiClass, Vec<i64>> = HashMap::default();
        let mut last = LastWork::new(timeline);
        for call in &timeline.calls {
            last.issue(timeline, call);
            if call.wait == NONE {
                continue;
            }
            let until_ns = last.awaited_ns(timeline, call);
            if until_ns > call.end_ns + CLOCK_NS {
                continue;
            }
            if until_ns <= call.start_ns {
                idle.entry(call.class).or_default().push(signed(call.end_ns, call.start_ns));
            } else {
                lags.entry(call.class).or_default().push(signed(call.end_ns.max(until_ns), until_ns));
            }
        }
        self.idle_call = idle.into_iter().map(|(class, list)| (class, quantile(list, 1, 2))).collect();
        self.lag = lags.into_iter().map(|(class, list)| (class, quantile(list, 1, 2))).collect();
    }

    /// A trace that shows more launches outstanding than the usual depth has a deeper queue.
    fn depth(&mut self, timeline: &Timeline<'_>) {
        let mut ends: Vec<Vec<u64>> = vec![Vec::new(); timeline.streams.len()];
        for op in timeline.ops.iter().filter(|op| op.call != NONE && !op.in_graph) {
            let Some(list) = ends.get_mut(op.stream as usize) else { continue };
            list.push(op.end_ns);
            let issued_ns = timeline.issued_ns(op);
            let at = list.len() - 1;
            if at >= self.queue_depth && list[at - self.queue_depth] > issued_ns + CLOCK_NS {
                let done = list.partition_point(|&end_ns| end_ns <= issued_ns);
                self.queue_depth = self.queue_depth.max(at - done + 1);
            }
        }
    }

    /// Which streams take turns with the legacy default stream: work that was ready began when the other's ended, and never before.
    fn turns(&mut self, timeline: &Timeline<'_>) {
        let mut legacy_of: HashMap<u32, usize> = HashMap::default();
        for (at, stream) in timeline.streams.iter().enumerate().filter(|(_, stream)| stream.legacy) {
            legacy_of.insert(stream.process, at);
        }
        let mut seen = vec![(0u32, 0u32); timeline.streams.len()];
        let mut last: Vec<u64> = vec![0; timeline.streams.len()];
        for op in &timeline.ops {
            let Some(stream) = timeline.streams.get(op.stream as usize) else { continue };
            if let Some(&legacy) = legacy_of.get(&stream.process) {
                let ready_ns = timeline.issued_ns(op).max(last[op.stream as usize]);
                let mut meet = |other: usize, about: usize| {
                    let other_ns = last[other];
                    if other_ns > op.start_ns + CLOCK_NS {
                        seen[about].1 += 1;
                    } else if other_ns > ready_ns + 2 * ISSUE_NS as u64
                        && op.start_ns - other_ns.min(op.start_ns) < 4 * ISSUE_NS as u64
                    {
                        seen[about].0 += 1;
                    }
                };
                if op.stream as usize == legacy {
                    let same = |row: usize| timeline.streams[row].process == stream.process && row != legacy;
                    (0..last.len()).filter(|&row| same(row)).for_each(|row| meet(row, row));
                } else {
                    meet(legacy, op.stream as usize);
                }
            }
            last[op.stream as usize] = last[op.stream as usize].max(op.end_ns);
        }
        for (at, (turns, at_once)) in seen.into_iter().enumerate() {
            self.blocking[at] = turns > 0 && at_once == 0;
        }
    }

    /// Copies of one direction that were never seen to run at once, and once waited for each other, share an engine.
    fn engines(&mut self, timeline: &Timeline<'_>) {
        let mut last: HashMap<(u32, WorkKind), (u64, u32)> = HashMap::default();
        let mut seen: HashMap<(u32, WorkKind), (u32, u32)> = HashMap::default();
        let mut on_stream: Vec<u64> = vec![0; timeline.streams.len()];
        for op in &timeline.ops {
            let Some(stream) = timeline.streams.get(op.stream as usize) else { continue };
            if matches!(op.kind, WorkKind::Upload | WorkKind::Download) {
                let key = (stream.device, op.kind);
                if let Some(&(end_ns, other)) = last.get(&key).filter(|(_, other)| *other != op.stream) {
                    let seen = seen.entry(key).or_default();
                    let ready_ns = timeline.issued_ns(op).max(on_stream[op.stream as usize]);
                    debug_assert_ne!(other, op.stream);
                    if op.start_ns + CLOCK_NS < end_ns {
                        seen.1 += 1;
                    } else if end_ns > ready_ns + 2 * ISSUE_NS as u64
                        && op.start_ns.saturating_sub(end_ns) < 4 * ISSUE_NS as u64
                    {
                        seen.0 += 1;
                    }
                }
                let entry = last.entry(key).or_insert((0, op.stream));
                if op.end_ns > entry.0 {
                    *entry = (op.end_ns, op.stream);
                }
            }
            on_stream[op.stream as usize] = on_stream[op.stream as usize].max(op.end_ns);
        }
        self.one_engine =
            seen.into_iter().map(|(key, (turns, at_once))| (key, turns > 0 && at_once == 0)).collect();
    }
}

/// The work issued last on each stream, as calls go by.
pub(super) struct LastWork {
    /// Per stream: the piece of work, in the order of issue, and the time by which everything on the stream was done.
    pub on_stream: Vec<(u32, u64)>,
    /// Per event: the streams' work that it stands behind.
    events: HashMap<(u32, u64), (u32, u64)>,
}

impl LastWork {
    pub fn new(timeline: &Timeline<'_>) -> Self {
        Self { on_stream: vec![(NONE, 0); timeline.streams.len()], events: HashMap::default() }
    }

    /// A call begins: what it issues is the last work of its stream.
    pub fn issue(&mut self, timeline: &Timeline<'_>, call: &HostCall) {
        for at in timeline.work(call) {
            let op = &timeline.ops[at];
            self.add(op, super::timeline::index_u32(at));
        }
        if call.class == ApiClass::EventRecord && call.object != 0 {
            let process = timeline.lanes[call.lane as usize].process;
            let behind = self.on_stream.get(call.stream as usize).copied().unwrap_or((NONE, 0));
            self.events.insert((process, call.object), behind);
        }
    }

    fn add(&mut self, op: &Op, at: u32) {
        if let Some(last) = self.on_stream.get_mut(op.stream as usize) {
            *last = (at, last.1.max(op.end_ns));
        }
    }

    /// The work that an event stands behind and when it was done; `None` for an event that was not seen recorded.
    pub fn event(&self, process: u32, object: u64) -> Option<(u32, u64)> {
        self.events.get(&(process, object)).copied()
    }

    /// When what the call waits for by its form was done; 0 if that was nothing.
    fn awaited_ns(&self, timeline: &Timeline<'_>, call: &HostCall) -> u64 {
        let done = |&(_, done_ns): &(u32, u64)| done_ns;
        let own = timeline.work(call).map(|at| timeline.ops[at].end_ns).max();
        match call.class {
            _ if own.is_some() => own.unwrap_or(0),
            ApiClass::StreamSync => self.on_stream.get(call.stream as usize).map_or(0, done),
            ApiClass::EventSync => {
                self.event(timeline.lanes[call.lane as usize].process, call.object).map_or(0, |(_, ns)| ns)
            }
            _ => {
                let process = timeline.lanes[call.lane as usize].process;
                let rows = timeline.streams.iter().zip(&self.on_stream);
                rows.filter(|(row, _)| row.process == process).map(|(_, last)| done(last)).max().unwrap_or(0)
            }
        }
    }
}

/// `a - b`.
pub(super) fn signed(a: u64, b: u64) -> i64 {
    i64::try_from(i128::from(a) - i128::from(b)).unwrap_or(0)
}

/// The value below which so large a part lies; 0 for an empty list.
pub(super) fn quantile(mut list: Vec<i64>, part: usize, of: usize) -> i64 {
    if list.is_empty() {
        return 0;
    }
    let at = (list.len() - 1) * part / of;
    *list.select_nth_unstable(at).1
}
