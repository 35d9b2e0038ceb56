//! From events to the trace model.
//!
//! In: the events and top-level members of one file, in any order. Out: processes in a [`TraceBuilder`], and the facts about
//! the file that concern the job as a whole. It keeps what waits, steps, sites and timelines need; an event that it can't
//! use is counted.
//!
//! What runs on a device belongs to the process whose calls have the same correlation ids. Profilers number devices and
//! processes alike, so that an event's `pid` can be either; its category tells.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::event::{Args, Event, FORWARD_TO_BACKWARD, Id};
use super::json::{Text, integer, unescape};
use super::names::{self, Category};
use super::own;
use super::places::Places;
use super::reader::Sink;
use crate::model::{
    ApiId, CallData, CallEffect, DeviceOp, DeviceOpKind, OPEN, Overhead, Span, SpanKind, StrId, StreamId,
    TraceBuilder,
};

/// What one file says about the job that it is a part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileFacts {
    pub rank: Option<u32>,
    pub world_size: Option<u32>,
    pub host: Option<String>,
    /// What has to be added to the file's times to have them on the clock of other files.
    pub base_ns: i64,
    pub devices: Vec<String>,
    pub versions: Vec<(String, String)>,
}

/// Events that were read but could not be used, by reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Unused {
    /// No phase, name or time.
    pub incomplete: u64,
    /// A time before the recording's zero.
    pub negative_time: u64,
    /// An end of something that never began.
    pub lone_end: u64,
    /// Calls, steps, operators and device work without a duration; used as if it were 0.
    pub no_duration: u64,
    /// The same of Python functions and what else decides on no wait.
    pub no_duration_beside: u64,
    /// Complete events by categories that mean nothing to us.
    pub unknown_categories: Vec<(Vec<u8>, u64)>,
    /// The same, of categories beyond the first few.
    pub further_categories: u64,
}

/// A file with more unknown categories is no profiler's; a few names are enough to say so.
const MOST_CATEGORIES: usize = 16;

/// Takes the events of one file.
pub(super) struct FileBuilder<'t, 'p> {
    pub(super) trace: &'t mut TraceBuilder,
    progress: &'p mut dyn FnMut(),
    first_process: usize,
    /// Process ids of the file's processes, in order of appearance.
    pids: Vec<i64>,
    /// Ids that are texts, by text.
    text_ids: HashMap<Vec<u8>, i64>,
    pub(super) facts: FileFacts,
    pub(super) unused: Unused,
    /// Begin and end events by thread, paired at the end because they may be out of order.
    begun: HashMap<(usize, u64), Vec<Edge>>,
    pub(super) places: Places,
    /// Ends of flows from forward to backward operators.
    flows: Vec<FlowEnd>,
    thread_names: Vec<(Option<i64>, i64, String)>,
    process_names: Vec<(i64, String)>,
    copy_names: FxHashMap<StrId, CopyName>,
    apis: FxHashMap<StrId, ApiId>,
    /// Names seen lately, by [`recent_slot`]: a trace has few names and millions of events, and comparing a name with the
    /// one at hand is cheaper than looking it up.
    recent: Box<[StrId; RECENT]>,
    /// End of the recording by its own word.
    pub(super) recording_end_ns: Option<u64>,
    pub(super) calls: u64,
    pub(super) device_events: u64,
    pub(super) events: u64,
}

type CopyName = (crate::model::CopyDirection, crate::model::MemoryKind, crate::model::MemoryKind);

/// Where a flow starts or finishes.
struct FlowEnd {
    flow: i64,
    starts: bool,
    pid: i64,
    tid: i64,
    time_ns: u64,
}

struct Edge {
    time_ns: u64,
    /// `None` for an end.
    begin: Option<Begin>,
}

/// What a begin event begins.
#[derive(Clone, Copy)]
enum Begin {
    Span(SpanKind, StrId),
    Call(ApiId),
    /// Counted elsewhere, but its end must not end something else.
    Unused,
}

/// Thread ids that are texts get numbers from here on: no operating system gives these.
const FIRST_TEXT_ID: i64 = 1 << 48;

impl<'t, 'p> FileBuilder<'t, 'p> {
    pub(super) fn new(trace: &'t mut TraceBuilder, progress: &'p mut dyn FnMut()) -> Self {
        let first_process = trace.process_count();
        Self {
            trace,
            progress,
            first_process,
            pids: Vec::new(),
            text_ids: HashMap::new(),
            facts: FileFacts::default(),
            unused: Unused::default(),
            begun: HashMap::new(),
            places: Places::default(),
            flows: Vec::new(),
            thread_names: Vec::new(),
            process_names: Vec::new(),
            apis: FxHashMap::default(),
            recent: Box::new([StrId::NONE; RECENT]),
            copy_names: HashMap::default(),
            recording_end_ns: None,
            calls: 0,
            device_events: 0,
            events: 0,
        }
    }

    /// Index of the first of this file's processes in the trace; there is at least one once an event was used.
    pub(super) fn processes(&self) -> std::ops::Range<usize> {
        self.first_process..self.trace.process_count()
    }

    fn id(&mut self, id: Id<'_>) -> Option<i64> {
        match id {
            Id::None => None,
            Id::Number(number) => Some(number),
            Id::Text(text) => {
                if let Some(&known) = self.text_ids.get(text.raw) {
                    return Some(known);
                }
                let number = FIRST_TEXT_ID + i64::try_from(self.text_ids.len()).unwrap_or(0);
                self.text_ids.insert(text.raw.to_vec(), number);
                self.thread_names.push((None, number, unescape(text)));
                Some(number)
            }
        }
    }

    /// The process that host events with this pid belong to. Events of threads that the profiler could not place have
    /// pid 0, which is no process: they belong to the one that is recorded.
    fn host_process(&mut self, pid: i64) -> usize {
        if pid == 0 {
            return self.device_process();
        }
        if let Some(index) = self.pids.iter().position(|&known| known == pid) {
            return self.first_process + index;
        }
        // The process that was made for device events that came first has no pid yet.
        if self.pids.is_empty() && self.trace.process_count() > self.first_process {
            self.trace.process_at(self.first_process).data().pid = pid.cast_unsigned();
        } else {
            self.trace.process(pid.cast_unsigned());
        }
        self.pids.push(pid);
        self.first_process + self.pids.len() - 1
    }

    /// The file's first process.
    fn device_process(&mut self) -> usize {
        if self.trace.process_count() == self.first_process {
            self.trace.process(0);
        }
        self.first_process
    }

    fn intern(&mut self, text: Text<'_>) -> StrId {
        let slot = recent_slot(text.raw);
        let recent = self.recent[slot];
        if !text.escaped && recent != StrId::NONE && self.trace.strings.get(recent).as_bytes() == text.raw {
            return recent;
        }
        let id = match std::str::from_utf8(text.raw) {
            Ok(plain) if !text.escaped => self.trace.intern(plain),
            _ => self.trace.intern(&unescape(text)),
        };
        self.recent[slot] = id;
        id
    }

    fn complete(&mut self, event: &Event<'_>) {
        let category = names::category(event.category);
        if matches!(category, Category::Repeated) {
            return;
        }
        let Some(start_ns) = self.start(event) else { return };
        let duration_ns = event.duration_ns.and_then(|ns| u64::try_from(ns).ok()).unwrap_or_else(|| {
            match category {
                Category::Python | Category::Overhead | Category::Recording => {
                    self.unused.no_duration_beside += 1
                }
                Category::Unknown => {}
                _ => self.unused.no_duration += 1,
            }
            0
        });
        let end_ns = start_ns.saturating_add(duration_ns).min(OPEN - 1);
        match category {
            Category::Op | Category::Annotation | Category::Python => {
                self.span(event, category, start_ns, end_ns)
            }
            Category::Call => self.call(event, start_ns, end_ns),
            Category::Kernel | Category::Copy | Category::Memset | Category::Sync => {
                self.device_op(event, category, start_ns, end_ns);
            }
            Category::Overhead => {
                let name = unescape(event.name);
                let tid = match event.tid {
                    Id::Number(tid) => tid.cast_unsigned(),
                    _ => 0,
                };
                let process = self.device_process();
                self.trace.process_at(process).overhead(Overhead {
                    start_ns,
                    end_ns,
                    tid,
                    correlation: correlation(&event.args),
                    kind: names::overhead(&name),
                });
            }
            Category::Recording => {
                self.recording_end_ns = Some(self.recording_end_ns.unwrap_or(0).max(end_ns));
            }
            Category::Repeated => {}
            Category::Unknown => self.unknown_category(event.category),
        }
    }

    fn start(&mut self, event: &Event<'_>) -> Option<u64> {
        match event.start_ns {
            Some(ns) => u64::try_from(ns).ok().or_else(|| {
                self.unused.negative_time += 1;
                None
            }),
            None => {
                self.unused.incomplete += 1;
                None
            }
        }
    }

    fn unknown_category(&mut self, category: &[u8]) {
        let known = &mut self.unused.unknown_categories;
        match known.iter().position(|(name, _)| name == category) {
            Some(index) => known[index].1 += 1,
            None if known.len() < MOST_CATEGORIES => known.push((category.to_vec(), 1)),
            None => self.unused.further_categories += 1,
        }
    }

    /// Process and thread of a host event.
    fn place(&mut self, event: &Event<'_>) -> (usize, u64) {
        let tid = self.id(event.tid).unwrap_or(0);
        let pid = self.id(event.pid).unwrap_or(0);
        (self.host_process(pid), thread_id(tid))
    }

    fn span(&mut self, event: &Event<'_>, category: Category, start_ns: u64, end_ns: u64) {
        let (process, tid) = self.place(event);
        let (kind, name) = self.span_name(event, category);
        let args = &event.args;
        let sequence = args.sequence.filter(|&sequence| kind == SpanKind::Op && sequence >= 0);
        match kind {
            SpanKind::PythonFrame => {
                self.places.python(
                    (process, tid),
                    start_ns,
                    end_ns,
                    args.python_id,
                    args.python_parent,
                    name,
                );
            }
            SpanKind::Op | SpanKind::Range => {
                if !args.call_stack.raw.is_empty() {
                    self.places.call_stack((process, tid), start_ns, end_ns, args.call_stack, self.trace);
                }
                if let Some(sequence) = sequence {
                    self.places.sequence(
                        (process, tid),
                        start_ns,
                        end_ns,
                        sequence,
                        args.forward_thread,
                        name,
                    );
                }
            }
        }
        self.trace.process_at(process).thread(tid).span(Span {
            start_ns,
            end_ns,
            payload: sequence.unwrap_or(0),
            has_payload: sequence.is_some(),
            name,
            kind,
            ..Span::default()
        });
    }

    fn span_name(&mut self, event: &Event<'_>, category: Category) -> (SpanKind, StrId) {
        match category {
            Category::Op if !names::is_annotation(event.name.raw) => (SpanKind::Op, self.intern(event.name)),
            Category::Python => {
                // Builtins are named with the address of their object: a new name per object, of which nothing is kept.
                let whole = unescape(event.name);
                let name = match names::without_address(&whole) {
                    Some(short) => self.trace.intern(&short),
                    None => self.trace.intern(&whole),
                };
                (SpanKind::PythonFrame, name)
            }
            _ => (SpanKind::Range, self.intern(event.name)),
        }
    }

    fn call(&mut self, event: &Event<'_>, start_ns: u64, end_ns: u64) {
        let (process, tid) = self.place(event);
        self.calls += 1;
        let args = &event.args;
        let data = CallData {
            bytes: unsigned(args.bytes),
            object: unsigned(args.event),
            correlation: correlation(args),
            effect: CallEffect::Ok,
            ..CallData::default()
        };
        let api = self.api(event.name);
        self.trace.process_at(process).thread(tid).call_of(api, start_ns, end_ns, data);
    }

    fn api(&mut self, name: Text<'_>) -> ApiId {
        let name = self.intern(name);
        if let Some(&api) = self.apis.get(&name) {
            return api;
        }
        let text = self.trace.strings.get(name).to_owned();
        let api = self.trace.api(&text);
        self.apis.insert(name, api);
        api
    }

    fn device_op(&mut self, event: &Event<'_>, category: Category, start_ns: u64, end_ns: u64) {
        self.device_events += 1;
        let args = &event.args;
        let name = self.intern(event.name);
        let device = args.device.or(match event.pid {
            Id::Number(pid) => Some(pid),
            _ => None,
        });
        let device = u32::try_from(device.unwrap_or(0)).unwrap_or(0);
        let process = self.device_process();
        let stream = self.stream(event, process, device);
        let mut op = DeviceOp {
            start_ns,
            end_ns,
            bytes: unsigned(args.bytes),
            graph_node: unsigned(args.graph_node),
            name,
            correlation: correlation(args),
            stream,
            device,
            kind: match category {
                Category::Kernel => DeviceOpKind::Kernel,
                Category::Copy => DeviceOpKind::Copy,
                Category::Memset => DeviceOpKind::Memset,
                _ if event.name.raw.starts_with(b"Stream Wait") => DeviceOpKind::StreamWait,
                _ => DeviceOpKind::Sync,
            },
            ..DeviceOp::default()
        };
        if category == Category::Copy {
            let text = self.trace.strings.get(name);
            (op.direction, op.from, op.to) =
                *self.copy_names.entry(name).or_insert_with(|| names::copy(text));
        }
        self.trace.process_at(process).device_op(op);
    }

    /// The stream of device work: by its argument, else by the thread that it is drawn on.
    fn stream(&mut self, event: &Event<'_>, process: usize, device: u32) -> StreamId {
        let drawn = match event.tid {
            Id::Number(number) => Some(number),
            Id::Text(text) => text.raw.strip_prefix(b"stream ").and_then(integer),
            Id::None => None,
        };
        // All ones, or -1: a synchronise of the whole context or of an event, on no stream.
        let number = event.args.stream.or(drawn).and_then(|number| u32::try_from(number).ok());
        match number {
            Some(u32::MAX) | None => StreamId::NONE,
            Some(number) => self.trace.process_at(process).stream(0, Some(number), device),
        }
    }

    fn metadata(&mut self, event: &Event<'_>) {
        let (Some(pid), tid) = (self.id(event.pid), self.id(event.tid)) else { return };
        let name = event.args.name;
        if name.raw.is_empty() {
            return;
        }
        match event.name.raw {
            b"process_name" => self.process_names.push((pid, unescape(name))),
            b"thread_name" => {
                if let Some(tid) = tid {
                    self.thread_names.push((Some(pid), tid, unescape(name)));
                }
            }
            _ => {}
        }
    }

    fn edge(&mut self, event: &Event<'_>) {
        let category = names::category(event.category);
        if matches!(category, Category::Repeated | Category::Recording) {
            return;
        }
        let Some(time_ns) = self.start(event) else { return };
        let begin = (event.phase == b'B').then(|| match category {
            Category::Op | Category::Annotation | Category::Python => {
                let (kind, name) = self.span_name(event, category);
                Begin::Span(kind, name)
            }
            Category::Call => {
                self.calls += 1;
                Begin::Call(self.api(event.name))
            }
            _ => {
                self.unknown_category(event.category);
                Begin::Unused
            }
        });
        let place = self.place(event);
        self.begun.entry(place).or_default().push(Edge { time_ns, begin });
    }

    fn flow(&mut self, event: &Event<'_>) {
        let (Id::Number(flow), Some(pid), Some(tid)) = (event.flow, self.id(event.pid), self.id(event.tid))
        else {
            return;
        };
        if let Some(time_ns) = self.start(event) {
            self.flows.push(FlowEnd { flow, starts: event.phase == b's', pid, tid, time_ns });
        }
    }

    /// Hands the flows from forward to backward operators on. One number may come again: a flow comes from its last start.
    fn pair_flows(&mut self) {
        let mut flows = std::mem::take(&mut self.flows);
        flows.sort_by_key(|end| (end.flow, end.time_ns, !end.starts));
        let mut begun: Option<FlowEnd> = None;
        for end in flows {
            if end.starts {
                begun = Some(end);
                continue;
            }
            let Some(begin) = begun.as_ref().filter(|begin| begin.flow == end.flow) else { continue };
            let place = |end: &FlowEnd| {
                let index = self.pids.iter().position(|&pid| pid == end.pid)?;
                Some((self.first_process + index, thread_id(end.tid)))
            };
            if let (Some(forward), Some(backward)) = (place(begin), place(&end)) {
                self.places.flow((forward, begin.time_ns), (backward, end.time_ns));
            }
        }
    }

    /// Pairs begins with ends, names threads and processes, gives device work to its process.
    pub(super) fn finish(&mut self) {
        self.pair_edges();
        for (pid, tid, name) in std::mem::take(&mut self.thread_names) {
            for process in self.processes() {
                let mut process = self.trace.process_at(process);
                let data = process.data();
                let same_process = pid.is_none_or(|pid| data.pid == pid.cast_unsigned());
                if same_process && data.threads.iter().any(|thread| thread.tid == thread_id(tid)) {
                    process.thread(thread_id(tid)).name(thread_name(&name));
                }
            }
        }
        for (pid, name) in std::mem::take(&mut self.process_names) {
            for process in self.processes() {
                if self.trace.process_at(process).data().pid == pid.cast_unsigned() {
                    let name = self.trace.intern(&name);
                    self.trace.process_at(process).data().name = name;
                }
            }
        }
        self.share_device_work();
        self.pair_flows();
        let places = std::mem::take(&mut self.places);
        places.finish(self.trace);
        for process in self.processes() {
            own::mark(self.trace, process, self.recording_end_ns);
        }
    }

    fn pair_edges(&mut self) {
        let mut all: Vec<((usize, u64), Vec<Edge>)> = self.begun.drain().collect();
        all.sort_by_key(|(place, _)| *place);
        for ((process, tid), mut edges) in all {
            edges.sort_by_key(|edge| edge.time_ns);
            let mut open: Vec<(u64, Begin)> = Vec::new();
            for edge in edges {
                match edge.begin {
                    Some(begin) => open.push((edge.time_ns, begin)),
                    None => match open.pop() {
                        Some((start_ns, begin)) => {
                            self.edge_pair(process, tid, start_ns, edge.time_ns, begin)
                        }
                        None => self.unused.lone_end += 1,
                    },
                }
            }
            for (start_ns, begin) in open {
                self.edge_pair(process, tid, start_ns, OPEN, begin);
            }
        }
    }

    fn edge_pair(&mut self, process: usize, tid: u64, start_ns: u64, end_ns: u64, begin: Begin) {
        let mut process = self.trace.process_at(process);
        let mut thread = process.thread(tid);
        match begin {
            Begin::Span(kind, name) => thread.span(Span { start_ns, end_ns, name, kind, ..Span::default() }),
            Begin::Call(api) => thread.call_of(api, start_ns, end_ns, CallData::default()),
            Begin::Unused => {}
        }
    }

    /// With several host processes in one file, device work goes to the one that has the call.
    fn share_device_work(&mut self) {
        let processes = self.processes();
        if processes.len() < 2 {
            return;
        }
        let mut owner: HashMap<u32, usize> = HashMap::new();
        for process in processes.clone() {
            for call in self.trace.process_at(process).data().threads.iter().flat_map(|thread| &thread.calls)
            {
                if call.correlation != 0 {
                    owner.entry(call.correlation).or_insert(process);
                }
            }
        }
        let first = processes.start;
        let streams = self.trace.process_at(first).data().streams.clone();
        let ops = std::mem::take(&mut self.trace.process_at(first).data().device_ops);
        for mut op in ops {
            let process = owner.get(&op.correlation).copied().unwrap_or(first);
            if process != first
                && let Some(stream) = op.stream.get().and_then(|index| streams.get(index))
            {
                op.stream =
                    self.trace.process_at(process).stream(stream.handle, stream.number, stream.device);
            }
            self.trace.process_at(process).device_op(op);
        }
    }
}

impl Sink for FileBuilder<'_, '_> {
    #[inline]
    fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        match event.phase {
            b'X' => self.complete(event),
            b'M' => self.metadata(event),
            b'B' | b'E' => self.edge(event),
            0 => self.unused.incomplete += 1,
            b's' | b'f' if FORWARD_TO_BACKWARD.contains(&event.category) => self.flow(event),
            // Other flows, marks and counters: correlation ids say the same, or nothing here needs it.
            _ => {}
        }
    }

    fn member(&mut self, key: &str, value: &[u8]) {
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(value) else { return };
        match key {
            "distributedInfo" => {
                let number = |key: &str| value.get(key).and_then(serde_json::Value::as_u64);
                self.facts.rank = number("rank").and_then(|n| u32::try_from(n).ok());
                self.facts.world_size = number("world_size").and_then(|n| u32::try_from(n).ok());
            }
            "deviceProperties" => {
                let devices = value.as_array().map(Vec::as_slice).unwrap_or_default();
                self.facts.devices = devices
                    .iter()
                    .filter_map(|device| device.get("name").and_then(serde_json::Value::as_str))
                    .map(str::to_owned)
                    .collect();
            }
            "baseTimeNanoseconds" => self.facts.base_ns = value.as_i64().unwrap_or(0),
            "host_name" => self.facts.host = value.as_str().map(str::to_owned),
            _ => {
                let name = match key {
                    "cuda_runtime_version" => "cuda runtime",
                    "cuda_driver_version" => "cuda driver",
                    "cupti_version" => "cupti",
                    "hip_runtime_version" => "hip runtime",
                    "hip_driver_version" => "hip driver",
                    "pytorch_version" => "torch",
                    _ => return,
                };
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.facts.versions.push((name.to_owned(), text));
            }
        }
    }

    fn position(&mut self, _offset: u64) {
        (self.progress)();
    }
}

const RECENT: usize = 4096;

/// Where a name is kept among the recent ones: by its length and pieces of it. Different names may share a place.
#[inline]
fn recent_slot(name: &[u8]) -> usize {
    let piece = |at: usize| {
        name.get(at..at + 8)
            .map_or(0, |bytes| bytes.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte)))
    };
    let length = name.len();
    let mixed =
        piece(0) ^ piece(length / 2).rotate_left(17) ^ piece(length.saturating_sub(8)).rotate_left(31);
    let mixed = (mixed ^ length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 52) as usize % RECENT
}

fn unsigned(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}

/// Threads without a number of the operating system have their handle's lower half, as a signed number.
fn thread_id(tid: i64) -> u64 {
    match i32::try_from(tid) {
        Ok(negative @ ..0) => u64::from(negative.cast_unsigned()),
        _ => tid.cast_unsigned(),
    }
}

fn correlation(args: &Args<'_>) -> u32 {
    args.correlation.and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
}

/// `thread 3113936 (python3.8)` -> `python3.8`; other names stay.
fn thread_name(name: &str) -> &str {
    name.strip_prefix("thread ")
        .and_then(|rest| rest.split_once(" (")?.1.strip_suffix(')'))
        .filter(|name| !name.is_empty())
        .unwrap_or(name)
}
