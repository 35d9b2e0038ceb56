//! From a timeline to a graph of moments that can be replayed with any set of waits taken out.
//!
//! In: a timeline. Out: a [`Plan`]. The rules, with their reasons, stand in `docs/pricing.md`; each is a few lines here:
//! threads work between calls as they did; a wait ends when what it waited for is done; work begins when it is issued, its stream is free, and
//! what its stream was told to wait for is done; a stream takes so many launches and no more.

use rustc_hash::FxHashMap as HashMap;

use super::graph::{Circle, FIXED, Graph, Node, Removal, START};
use super::habits::{CLOCK_NS, Habits, LastWork, signed};
use super::handover::Pause;
use super::rendezvous::Meetings;
use super::timeline::{HostCall, NONE, Op, StepRow, Timeline, WorkKind, index_u32};
use crate::audit::WaitKind;
use crate::model::ApiClass;

/// Work that began so much later than everything it is known to depend on waited for something unknown.
const LATE_NS: i64 = 20_000;
/// Launches between two looks at the depth of a queue.
const LOOK_EVERY: usize = 32;

/// A moment some time after a node.
#[derive(Clone, Copy, Debug)]
struct Moment {
    node: Node,
    after_ns: i64,
}

impl Moment {
    fn at(self, times: &[i64]) -> i64 {
        times[self.node as usize] + self.after_ns
    }
}

/// Where a host thread is.
#[derive(Clone, Copy, Debug)]
struct Position {
    node: Node,
    /// When the node was, in the recording.
    recorded_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Track {
    now: Position,
    /// Before its last wait.
    before: Position,
}

impl Track {
    fn at(&self, time_ns: u64) -> Moment {
        let from = if time_ns < self.now.recorded_ns { self.before } else { self.now };
        Moment { node: from.node, after_ns: signed(time_ns, from.recorded_ns) }
    }
}

/// One end of a step: where the host is, and the work issued until then.
#[derive(Clone, Debug, Default)]
struct Edge {
    host: Vec<Moment>,
    device: Vec<Moment>,
    /// When they were there, in the recording.
    host_ns: u64,
    device_ns: u64,
}

impl Edge {
    fn host_at(&self, times: &[i64]) -> i64 {
        self.host.iter().map(|moment| moment.at(times)).max().unwrap_or(0)
    }

    /// Where there is no work yet, the host's.
    fn device_at(&self, times: &[i64]) -> i64 {
        self.device.iter().map(|moment| moment.at(times)).max().unwrap_or_else(|| self.host_at(times))
    }

    fn both_at(&self, times: &[i64]) -> i64 {
        self.host_at(times).max(self.device_at(times))
    }
}

/// A stretch of time whose length is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Stretch {
    pub process: u32,
    pub counted: bool,
    begin: Edge,
    end: Edge,
    /// Device work issued in it, by stream.
    busy_ns: HashMap<u32, u64>,
}

impl Stretch {
    /// From when everything before it was done to when everything in it was.
    pub fn recorded_ns(&self) -> i64 {
        let both = |edge: &Edge| edge.host_ns.max(edge.device_ns);
        signed(both(&self.end), both(&self.begin))
    }

    /// The same, replayed.
    pub fn length_ns(&self, times: &[i64]) -> i64 {
        self.end.both_at(times) - self.begin.both_at(times)
    }

    /// How far the host got, in time.
    pub fn host_ns(&self, times: &[i64]) -> i64 {
        self.end.host_at(times) - self.begin.host_at(times)
    }

    /// How far the device got.
    pub fn device_ns(&self, times: &[i64]) -> i64 {
        self.end.device_at(times) - self.begin.device_at(times)
    }

    /// Whether the device still works on it when the host is through.
    pub fn device_is_last(&self, times: &[i64]) -> bool {
        self.end.device_at(times) > self.end.host_at(times)
    }

    /// How far the host and the device got in the recording, and whether the device was last.
    pub fn recorded(&self) -> (i64, i64, bool) {
        (
            signed(self.end.host_ns, self.begin.host_ns),
            signed(self.end.device_ns, self.begin.device_ns),
            self.end.device_ns > self.end.host_ns,
        )
    }

    pub fn busiest_stream_ns(&self) -> u64 {
        self.busy_ns.values().copied().max().unwrap_or(0)
    }
}

/// A wait as the replay sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub site: u32,
    pub counted: bool,
    from: Moment,
    until: Node,
}

impl Held {
    /// How long it holds the host, beyond what its calls cost without it.
    pub fn blocked_ns(&self, times: &[i64]) -> i64 {
        times[self.until as usize] - self.from.at(times)
    }
}

/// What the model had to guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Guesses {
    /// Orders between streams that no record states: work began just when work of another stream had ended.
    pub inferred: u64,
    /// Work that began late for no reason in the trace, and by how much in all.
    pub late: u64,
    pub late_ns: u64,
    /// Waits that were not for any work in the trace, and how long they were.
    pub causeless: u64,
    pub causeless_ns: u64,
    pub meetings: u64,
    pub lone_collectives: u64,
}

/// See the module.
pub(super) struct Plan {
    graph: Graph,
    /// Sites that edges can belong to.
    sites: usize,
    pub stretches: Vec<Stretch>,
    pub held: Vec<Held>,
    pub guesses: Guesses,
}

impl Plan {
    /// # Errors
    /// When the recorded times contradict each other.
    pub fn of(timeline: &Timeline<'_>) -> Result<Self, Circle> {
        let habits = Habits::of(timeline);
        let meetings = Meetings::find(timeline);
        let mut builder = Builder::new(timeline, &habits, &meetings);
        builder.run();
        builder.finish()
    }

    /// A set of removals, of none so far.
    pub fn removal(&self) -> Removal {
        Removal::none(self.sites + 2)
    }

    /// Lets the host go on whatever its launch queues hold.
    pub fn lift_queues(&self, removal: &mut Removal) {
        removal.take_out(self.sites + 1);
    }

    /// Lets the device have all of its work from the start.
    pub fn lift_issue(&self, removal: &mut Removal) {
        removal.take_out(self.sites);
    }

    /// What one pass looks at.
    pub fn edges(&self) -> usize {
        self.graph.edges()
    }

    pub fn run(&self, removal: &Removal, times: &mut Vec<i64>) {
        self.graph.run(removal, times);
    }
}

struct Builder<'t, 'a> {
    timeline: &'t Timeline<'a>,
    habits: &'t Habits,
    meetings: &'t Meetings,
    graph: Graph,
    tracks: Vec<Track>,
    last: LastWork,
    node_of_op: Vec<Node>,
    /// Per stream: end in the recording and node of each piece of work, as issued.
    issued: Vec<Vec<(u64, Node)>>,
    /// Per stream: what its next work has to wait for.
    pending: Vec<Vec<u32>>,
    /// Per device and direction: the last copy.
    engines: HashMap<(u32, WorkKind), u32>,
    /// Per collective.
    meeting_nodes: Vec<Node>,
    /// Used for each piece of work anew.
    scratch: Vec<u32>,
    streams_of: Vec<Vec<u32>>,
    boundaries: Vec<(u64, usize, bool)>,
    next_boundary: usize,
    stretches: Vec<Stretch>,
    open: Vec<Vec<usize>>,
    held: Vec<Held>,
    guesses: Guesses,
    issue_tag: u16,
    queue_tag: u16,
}

impl<'t, 'a> Builder<'t, 'a> {
    fn new(timeline: &'t Timeline<'a>, habits: &'t Habits, meetings: &'t Meetings) -> Self {
        let sites = timeline.audit.sites.len();
        let start = Position { node: START, recorded_ns: timeline.from_ns };
        let mut streams_of = vec![Vec::new(); timeline.trace.processes.len()];
        for (at, stream) in timeline.streams.iter().enumerate() {
            streams_of[stream.process as usize].push(index_u32(at));
        }
        let (stretches, boundaries) = stretches(timeline);
        Self {
            timeline,
            habits,
            meetings,
            graph: Graph::new(),
            tracks: vec![Track { now: start, before: start }; timeline.lanes.len()],
            last: LastWork::new(timeline),
            node_of_op: vec![START; timeline.ops.len()],
            issued: vec![Vec::new(); timeline.streams.len()],
            pending: vec![Vec::new(); timeline.streams.len()],
            engines: HashMap::default(),
            meeting_nodes: vec![NONE; meetings.met_ns.len()],
            scratch: Vec::new(),
            streams_of,
            boundaries,
            next_boundary: 0,
            stretches,
            open: vec![Vec::new(); timeline.trace.processes.len()],
            held: Vec::new(),
            guesses: Guesses {
                meetings: meetings.met_ns.len() as u64,
                lone_collectives: meetings.alone,
                ..Guesses::default()
            },
            issue_tag: tag(sites),
            queue_tag: tag(sites + 1),
        }
    }

    fn run(&mut self) {
        let timeline = self.timeline;
        let mut ops = 0;
        for (at, call) in timeline.calls.iter().enumerate() {
            // Work that was issued before the recording began.
            while timeline.ops.get(ops).is_some_and(|op| op.call == NONE && op.start_ns <= call.start_ns) {
                self.early_work(ops);
                ops += 1;
            }
            self.pass_boundaries(call.start_ns);
            if let Some(&pause) = timeline.pauses.get(&index_u32(at)) {
                self.end_pause(call, pause);
            }
            self.call(call);
            ops = ops.max(timeline.work(call).end);
        }
        for at in ops..timeline.ops.len() {
            if timeline.ops[at].call == NONE {
                self.early_work(at);
            }
        }
        self.pass_boundaries(u64::MAX);
    }

    fn finish(mut self) -> Result<Plan, Circle> {
        self.graph.seal()?;
        Ok(Plan {
            graph: self.graph,
            sites: self.timeline.audit.sites.len(),
            stretches: self.stretches,
            held: self.held,
            guesses: self.guesses,
        })
    }

    fn pass_boundaries(&mut self, now_ns: u64) {
        while let Some(&(time_ns, stretch, is_end)) =
            self.boundaries.get(self.next_boundary).filter(|(time_ns, ..)| *time_ns <= now_ns)
        {
            self.next_boundary += 1;
            let process = self.timeline.steps[stretch].process;
            let edge = self.edge(process, time_ns);
            if is_end {
                self.stretches[stretch].end = edge;
                self.open.iter_mut().for_each(|open| open.retain(|&other| other != stretch));
                continue;
            }
            self.stretches[stretch].begin = edge;
            match self.open.get_mut(process as usize) {
                Some(open) => open.push(stretch),
                None => self.open.iter_mut().for_each(|open| open.push(stretch)),
            }
        }
    }

    /// Where everything is, of one process or of all.
    fn edge(&self, process: u32, time_ns: u64) -> Edge {
        let at = |lane: u32, time_ns: u64| self.tracks[lane as usize].at(time_ns);
        let mut edge = Edge { host_ns: time_ns, ..Edge::default() };
        let streams: Vec<u32> = if process == NONE {
            // The recording begins with its first event and ends with the last one of each thread.
            if time_ns != self.timeline.from_ns {
                edge.host_ns = 0;
                for (index, lane) in self.timeline.lanes.iter().enumerate() {
                    let ends = lane.calls.iter().map(|&call| self.timeline.calls[call as usize].end_ns);
                    let end_ns = ends.max().unwrap_or(self.timeline.from_ns);
                    edge.host_ns = edge.host_ns.max(end_ns);
                    edge.host.push(at(index_u32(index), end_ns));
                }
            }
            self.streams_of.iter().flatten().copied().collect()
        } else {
            let lane = self.timeline.step_lane[process as usize];
            edge.host.extend((lane != NONE).then(|| at(lane, time_ns)));
            self.streams_of[process as usize].clone()
        };
        edge.device_ns = 0;
        for stream in streams {
            if let Some(&(end_ns, node)) = self.issued[stream as usize].last() {
                edge.device.push(Moment { node, after_ns: 0 });
                edge.device_ns = edge.device_ns.max(end_ns);
            }
        }
        if edge.device.is_empty() {
            edge.device_ns = edge.host_ns;
        }
        edge
    }

    fn end_pause(&mut self, call: &HostCall, pause: Pause) {
        let track = self.tracks[call.lane as usize];
        match pause {
            Pause::Until { lane, since_ns, own_work_ns } => {
                let there = self.tracks[lane as usize].at(call.start_ns);
                self.graph.edge(there.node, there.after_ns, FIXED);
                let own = track.at(since_ns);
                self.graph.edge(own.node, own.after_ns + signed(own_work_ns, 0), FIXED);
            }
            Pause::For { lane } => {
                let there = self.tracks[lane as usize].at(call.start_ns);
                self.graph.edge(there.node, there.after_ns, FIXED);
            }
        }
        let node = self.graph.finish_node();
        let now = Position { node, recorded_ns: call.start_ns };
        self.tracks[call.lane as usize] = Track { now, before: track.now };
    }

    fn call(&mut self, call: &HostCall) {
        let timeline = self.timeline;
        self.look_at_queue(call);
        let from = self.tracks[call.lane as usize].at(call.start_ns);
        let work = timeline.work(call);
        for at in work.clone() {
            self.work(at, work.start, Some(from));
        }
        // What the call itself issues may be what it waits for.
        self.last.issue(timeline, call);
        if call.class == ApiClass::StreamWaitEvent && call.object != 0 {
            let process = timeline.lanes[call.lane as usize].process;
            if let Some((op, _)) = self.last.event(process, call.object).filter(|(op, _)| *op != NONE)
                && let Some(pending) = self.pending.get_mut(call.stream as usize)
            {
                pending.push(op);
            }
        }
        if call.wait != NONE {
            self.wait(call, from);
        }
    }

    /// A stream whose queue is full takes no launch.
    fn look_at_queue(&mut self, call: &HostCall) {
        if call.ops == 0 {
            return;
        }
        let stream = self.timeline.ops[call.first_op as usize].stream;
        let Some(issued) = self.issued.get(stream as usize) else { return };
        let count = issued.len();
        if count < self.habits.queue_depth || !count.is_multiple_of(LOOK_EVERY) {
            return;
        }
        let (_, node) = issued[count - self.habits.queue_depth];
        let track = self.tracks[call.lane as usize];
        let from = track.at(call.start_ns);
        self.graph.edge(from.node, from.after_ns, FIXED);
        self.graph.edge(node, 0, self.queue_tag);
        let node = self.graph.finish_node();
        self.tracks[call.lane as usize].now = Position { node, recorded_ns: call.start_ns };
    }

    /// Work whose call came before the recording: it is there when it was.
    fn early_work(&mut self, at: usize) {
        let op = &self.timeline.ops[at];
        self.graph.edge(START, signed(op.end_ns, self.timeline.from_ns), FIXED);
        let node = self.graph.finish_node();
        self.done(at, node);
        if let Some(last) = self.last.on_stream.get_mut(op.stream as usize) {
            *last = (index_u32(at), last.1.max(op.end_ns));
        }
    }

    fn done(&mut self, at: usize, node: Node) {
        let op = &self.timeline.ops[at];
        self.node_of_op[at] = node;
        let Some(row) = self.timeline.streams.get(op.stream as usize) else { return };
        let issued = &mut self.issued[op.stream as usize];
        let end_ns = issued.last().map_or(0, |&(end_ns, _)| end_ns).max(op.end_ns);
        issued.push((end_ns, node));
        for &stretch in &self.open[row.process as usize] {
            *self.stretches[stretch].busy_ns.entry(op.stream).or_default() += op.end_ns - op.start_ns;
        }
    }

    /// A piece of work: begins after the call, after the work before it, and after what its stream was told to wait for.
    fn work(&mut self, at: usize, first: usize, from: Option<Moment>) {
        let timeline = self.timeline;
        let op = &timeline.ops[at];
        let duration_ns = signed(op.end_ns, op.start_ns);
        if op.in_graph && at > first {
            // The parts of a graph keep their places.
            let head = &timeline.ops[first];
            let after_ns = signed(op.end_ns, head.end_ns);
            self.graph.edge(self.node_of_op[first], after_ns, FIXED);
            let node = self.graph.finish_node();
            self.done(at, node);
            return;
        }
        // (node, time to the start, when that was in the recording, tag)
        let mut edges: Vec<(Node, i64, i64, u16)> = Vec::with_capacity(4);
        let recorded = |time_ns: u64| signed(time_ns, timeline.from_ns);
        if let (Some(from), Some(call)) = (from, timeline.calls.get(op.call as usize)) {
            let issue_ns = self.habits.issue_ns(op.kind, call.wait != NONE);
            let due = recorded(call.start_ns) + issue_ns;
            edges.push((from.node, from.after_ns + issue_ns, due, self.issue_tag));
        }
        let queued_ns = self.habits.queued_ns(op.kind);
        let mut behind = std::mem::take(&mut self.scratch);
        self.behind(op, &mut behind);
        for &other in &behind {
            let end_ns = recorded(timeline.ops[other as usize].end_ns);
            edges.push((self.node_of_op[other as usize], queued_ns, end_ns + queued_ns, FIXED));
        }
        self.scratch = behind;
        let start_ns = recorded(op.start_ns);
        let due_ns = edges.iter().map(|(_, _, due, _)| *due).max().unwrap_or(start_ns);
        let mut late_ns = 0;
        if start_ns - due_ns > LATE_NS {
            match self.ended_just_before(op) {
                Some((node, end_ns)) => {
                    edges.push((node, signed(op.start_ns, end_ns), start_ns, FIXED));
                    self.guesses.inferred += 1;
                }
                None => {
                    late_ns = start_ns - due_ns;
                    self.guesses.late += 1;
                    self.guesses.late_ns += late_ns.unsigned_abs();
                }
            }
        }
        let node = match self.meetings.of(timeline, at) {
            None => {
                for (node, after_ns, _, tag) in edges {
                    self.graph.edge(node, after_ns + late_ns + duration_ns, tag);
                }
                self.graph.finish_node()
            }
            Some((meeting, rest_ns)) => {
                let known = self.meeting_nodes[meeting as usize];
                let meeting_node = if known == NONE { self.graph.finish_node() } else { known };
                self.meeting_nodes[meeting as usize] = meeting_node;
                for (node, after_ns, _, tag) in edges {
                    self.graph.late_edge(meeting_node, node, after_ns + late_ns, tag);
                }
                self.graph.edge(meeting_node, rest_ns, FIXED);
                self.graph.finish_node()
            }
        };
        self.done(at, node);
        if let Some(row) = timeline.streams.get(op.stream as usize) {
            self.engines.insert((row.device, op.kind), index_u32(at));
        }
    }

    /// The work that a piece of work comes after, by what its stream is and was told.
    fn behind(&mut self, op: &Op, behind: &mut Vec<u32>) {
        behind.clear();
        let Some(row) = self.timeline.streams.get(op.stream as usize) else { return };
        let last = |stream: usize| Some(self.last.on_stream[stream].0).filter(|&at| at != NONE);
        // Calls with several pieces of work put them one behind the other.
        behind.extend(last(op.stream as usize));
        if row.legacy {
            for &other in &self.streams_of[row.process as usize] {
                if other != op.stream && self.habits.blocking[other as usize] {
                    behind.extend(last(other as usize));
                }
            }
        } else if self.habits.blocking[op.stream as usize] {
            let same = |other: &&u32| self.timeline.streams[**other as usize].legacy;
            behind.extend(
                self.streams_of[row.process as usize]
                    .iter()
                    .filter(same)
                    .filter_map(|&other| last(other as usize)),
            );
        }
        if self.habits.one_engine.get(&(row.device, op.kind)) == Some(&true) {
            behind.extend(self.engines.get(&(row.device, op.kind)));
        }
        behind.append(&mut self.pending[op.stream as usize]);
        behind.sort_unstable();
        behind.dedup();
    }

    /// Work of another stream of the process that ended just before this began.
    fn ended_just_before(&self, op: &Op) -> Option<(Node, u64)> {
        let row = self.timeline.streams.get(op.stream as usize)?;
        let found = self.streams_of[row.process as usize]
            .iter()
            .filter(|&&other| other != op.stream)
            .filter_map(|&other| {
                let issued = &self.issued[other as usize];
                let until = issued.partition_point(|(end_ns, _)| *end_ns <= op.start_ns + CLOCK_NS);
                let &(end_ns, node) = issued.get(until.checked_sub(1)?)?;
                (signed(op.start_ns, end_ns) <= LATE_NS).then_some((node, end_ns))
            });
        found.max_by_key(|(_, end_ns)| *end_ns)
    }

    fn wait(&mut self, call: &HostCall, from: Moment) {
        let wait = &self.timeline.audit.waits[call.wait as usize];
        let site_tag = match wait.kind {
            // Nothing can be taken out: the host is as far ahead as it can be.
            WaitKind::LaunchQueueFull => FIXED,
            _ => tag(wait.site as usize),
        };
        let host_ns = signed(call.end_ns, call.start_ns);
        let cause = self.cause(call);
        let (own_ns, lag_ns) = match &cause {
            Some(cause) if cause.until_ns > call.start_ns => (
                host_ns.min(self.habits.idle_call_ns(call.class)),
                signed(call.end_ns, cause.until_ns).max(0),
            ),
            Some(_) => (host_ns, self.habits.lag_ns(call.class)),
            None => {
                self.guesses.causeless += 1;
                self.guesses.causeless_ns += host_ns.unsigned_abs();
                (host_ns, 0)
            }
        };
        // Without the wait: a copy is still put on its stream, everything else is gone.
        let rest_ns = if call.ops > 0 { own_ns.min(self.habits.enqueue_ns) } else { 0 };
        self.graph.edge(from.node, from.after_ns + rest_ns, FIXED);
        self.graph.edge(from.node, from.after_ns + own_ns, site_tag);
        for (node, after_ns) in cause.into_iter().flat_map(|cause| cause.nodes) {
            self.graph.edge(node, after_ns + lag_ns, site_tag);
        }
        let node = self.graph.finish_node();
        self.held.push(Held {
            site: wait.site,
            counted: call.counted,
            from: Moment { node: from.node, after_ns: from.after_ns + rest_ns },
            until: node,
        });
        let track = &mut self.tracks[call.lane as usize];
        *track = Track { now: Position { node, recorded_ns: call.end_ns }, before: track.now };
    }

    /// What a call waited for, as its form says and the recorded times allow.
    fn cause(&self, call: &HostCall) -> Option<Cause> {
        let timeline = self.timeline;
        let process = timeline.lanes[call.lane as usize].process;
        let of_streams = |streams: &mut dyn Iterator<Item = u32>| {
            let mut cause = Cause { nodes: Vec::new(), until_ns: 0 };
            for stream in streams {
                if let Some(&(end_ns, node)) = self.issued.get(stream as usize).and_then(|list| list.last()) {
                    cause.nodes.push((node, 0));
                    cause.until_ns = cause.until_ns.max(end_ns);
                }
            }
            Some(cause)
        };
        let all = || self.streams_of[process as usize].iter().copied();
        let by_form = match call.class {
            _ if call.blocks && call.ops > 0 => self.own_work(call),
            _ if call.ops > 0 => None,
            ApiClass::StreamSync => {
                let legacy = timeline.streams.get(call.stream as usize).is_some_and(|row| row.legacy);
                let turns = all().filter(|&other| legacy && self.habits.blocking[other as usize]);
                of_streams(&mut std::iter::once(call.stream).chain(turns))
            }
            ApiClass::EventSync | ApiClass::EventQuery => {
                self.last.event(process, call.object).map(|(op, until_ns)| Cause {
                    nodes: if op == NONE { Vec::new() } else { vec![(self.node_of_op[op as usize], 0)] },
                    until_ns,
                })
            }
            ApiClass::StreamQuery if call.stream != NONE => of_streams(&mut std::iter::once(call.stream)),
            _ => of_streams(&mut all()),
        };
        by_form.filter(|cause| cause.until_ns <= call.end_ns + CLOCK_NS).or_else(|| self.seen_cause(call))
    }

    /// A copy that returns when it is done, or when its source has been read.
    fn own_work(&self, call: &HostCall) -> Option<Cause> {
        let last = self.timeline.work(call).max_by_key(|&at| self.timeline.ops[at].end_ns)?;
        let op = &self.timeline.ops[last];
        let node = self.node_of_op[last];
        if op.end_ns <= call.end_ns + CLOCK_NS {
            return Some(Cause { nodes: vec![(node, 0)], until_ns: op.end_ns });
        }
        let begun = op.start_ns > call.start_ns && op.start_ns <= call.end_ns + CLOCK_NS;
        begun.then(|| Cause { nodes: vec![(node, -signed(op.end_ns, op.start_ns))], until_ns: op.start_ns })
    }

    /// What ended just before the call returned, if it was under way when it began.
    fn seen_cause(&self, call: &HostCall) -> Option<Cause> {
        let process = self.timeline.lanes[call.lane as usize].process;
        let host_ns = call.end_ns - call.start_ns;
        let ended = self.streams_of[process as usize].iter().filter_map(|&stream| {
            let issued = &self.issued[stream as usize];
            let until = issued.partition_point(|(end_ns, _)| *end_ns <= call.end_ns + CLOCK_NS);
            issued.get(until.checked_sub(1)?).copied()
        });
        let (end_ns, node) = ended.max_by_key(|(end_ns, _)| *end_ns)?;
        let near_ns = (host_ns / 5).max(LATE_NS.unsigned_abs());
        (end_ns > call.start_ns && call.end_ns.saturating_sub(end_ns) <= near_ns)
            .then(|| Cause { nodes: vec![(node, 0)], until_ns: end_ns })
    }
}

struct Cause {
    nodes: Vec<(Node, i64)>,
    /// When all of it was there, in the recording.
    until_ns: u64,
}

/// The tag of a site; one too many for a tag is never taken out.
fn tag(site: usize) -> u16 {
    u16::try_from(site + 1).unwrap_or(FIXED)
}

/// What is measured, and the times at which it begins and ends, in order.
fn stretches(timeline: &Timeline<'_>) -> (Vec<Stretch>, Vec<(u64, usize, bool)>) {
    let mut boundaries = Vec::with_capacity(2 * timeline.steps.len());
    for (at, step) in timeline.steps.iter().enumerate() {
        boundaries.push((step.start_ns, at, false));
        boundaries.push((step.end_ns, at, true));
    }
    // Of steps that touch, the end of one comes before the start of the next.
    boundaries.sort_by_key(|&(time_ns, stretch, is_end)| (time_ns, !is_end, stretch));
    let of = |step: &StepRow| Stretch { process: step.process, counted: step.counted, ..Stretch::default() };
    (timeline.steps.iter().map(of).collect(), boundaries)
}
