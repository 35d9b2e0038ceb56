//! The trace as Perfetto's protobuf track events, with a flow between each wait and what it waited for.
//!
//! In: a recording, and the part of it that is wanted. Out: packets of `perfetto.protos.Trace`; field numbers from `protos/perfetto/trace/` of the Perfetto sources
//! (checked against the Python package `perfetto`, see `docs/tui.md`). Tracks: process > thread (ranges and calls), process > waits of
//! a thread, process > stream. A flow runs from whichever of the two began first: Perfetto knows none back in time. Where times mean nothing, a position is a microsecond and the process' name says so.

use std::io::{self, Write};

use prost::Message;
use rustc_hash::FxHashMap as HashMap;

use crate::model::{OPEN, SpanKind};
use crate::report::words::place_text;
use crate::view::axis::Window;
use crate::view::lod::Intervals;
use crate::view::recording::{LaneKind, Recording, op_words};

/// Reads as "the state of this sequence begins here" and "needs that state" (`TracePacket.SequenceFlags`).
const CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
/// The one sequence that all packets belong to.
const SEQUENCE: u32 = 1;
/// Number of `Trace.packet`.
const PACKET_FIELD: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    sequence: Option<u32>,
    #[prost(uint32, optional, tag = "13")]
    flags: Option<u32>,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
    #[prost(message, optional, tag = "12")]
    interned: Option<Interned>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
struct Track {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessTrack>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadTrack>,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessTrack {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadTrack {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    name: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flows: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    ending_flows: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    notes: Vec<Note>,
}

#[derive(Clone, PartialEq, Message)]
struct Note {
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
    #[prost(string, optional, tag = "6")]
    text: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    number: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(message, repeated, tag = "2")]
    names: Vec<Name>,
}

#[derive(Clone, PartialEq, Message)]
struct Name {
    #[prost(uint64, optional, tag = "1")]
    id: Option<u64>,
    #[prost(string, optional, tag = "2")]
    text: Option<String>,
}

/// Waits by process and device work.
type Flows = HashMap<(u32, u32), Vec<usize>>;

/// A slice to be written: where, from when to when, what.
struct Slice {
    start: u64,
    end: u64,
    name: u64,
    category: &'static str,
    flows: Vec<u64>,
    ending_flows: Vec<u64>,
    notes: Vec<Note>,
}

/// The time that is wanted. What reaches into it is written with its true length.
#[derive(Clone, Copy)]
struct Wanted {
    from_ns: u64,
    to_ns: u64,
}

impl Wanted {
    fn of(rec: &Recording, window: Window) -> Self {
        let end = window.start + window.len;
        let to_ns = if end >= rec.axis.len() { OPEN } else { rec.axis.time_ns(end) };
        Self { from_ns: rec.axis.time_ns(window.start), to_ns }
    }

    fn has(self, start_ns: u64, end_ns: u64) -> bool {
        (start_ns < self.to_ns || self.to_ns == OPEN) && (end_ns > self.from_ns || start_ns >= self.from_ns)
    }
}

/// Writes what reaches into a window; that of the axis' whole is the trace.
///
/// # Errors
/// What `out` says.
pub fn perfetto(rec: &Recording, window: Window, out: &mut dyn Write) -> io::Result<()> {
    let wanted = Wanted::of(rec, window);
    let mut writer = Writer { out, names: HashMap::default(), first: true };
    // The waits that waited for a piece of device work; a flow has the number of its wait, and both of its ends are written.
    let mut flows: Flows = HashMap::default();
    for wait in 0..rec.judged.audit.waits.len() {
        if wanted.has(rec.judged.audit.waits[wait].start_ns, rec.wait_end_ns(wait))
            && let Some(cause) = rec.cause(wait)
            && rec.op(cause).is_some_and(|op| wanted.has(op.start_ns, op.end_ns))
        {
            flows.entry((cause.process, cause.op)).or_default().push(wait);
        }
    }
    for (index, process) in (0u32..).zip(&rec.trace.processes) {
        let pid = Some(i32::try_from(process.pid).unwrap_or(i32::MAX));
        let name = match rec.axis.measured() {
            true => rec.process_name(index),
            false => format!("{} (emulated: order of events, not time)", rec.process_name(index)),
        };
        let track = ProcessTrack { pid, name: Some(name) };
        writer.track(Track { uuid: Some(process_track(index)), process: Some(track), ..Track::default() })?;
    }
    for (at, lane) in rec.lanes.iter().enumerate() {
        let process = &rec.trace.processes[lane.process as usize];
        let (uuid, parent) = (lane_track(at), Some(process_track(lane.process)));
        let LaneKind::Thread(thread) = lane.kind else {
            writer.track(Track {
                uuid: Some(uuid),
                name: Some(lane.name.clone()),
                parent,
                ..Track::default()
            })?;
            device_work(rec, wanted, at, &flows, &mut writer)?;
            continue;
        };
        let track = ThreadTrack {
            pid: Some(i32::try_from(process.pid).unwrap_or(i32::MAX)),
            tid: Some(i64::try_from(process.threads[thread as usize].tid).unwrap_or(i64::MAX)),
            name: Some(lane.name.clone()),
        };
        writer.track(Track { uuid: Some(uuid), thread: Some(track), ..Track::default() })?;
        host_work(rec, wanted, at, thread, &mut writer)?;
        if !lane.waits.is_empty() {
            let name = Some(format!("waits of {}", lane.name));
            writer.track(Track { uuid: Some(uuid + 1), name, parent, ..Track::default() })?;
            waits(rec, wanted, at, &mut writer)?;
        }
    }
    Ok(())
}

fn flow_of(wait: usize) -> u64 {
    wait as u64 + 1
}

fn process_track(index: u32) -> u64 {
    1 + u64::from(index)
}

/// Two numbers per lane: its own, and that of its waits.
fn lane_track(at: usize) -> u64 {
    (1 << 32) + 2 * at as u64
}

/// Where on Perfetto's time line something begins and ends. Order becomes microseconds, which the viewer can zoom to.
fn range(rec: &Recording, start_ns: u64, end_ns: u64) -> (u64, u64) {
    let scale = if rec.axis.measured() { 1 } else { 1_000 };
    let start = rec.axis.position(start_ns) * scale;
    let end = if end_ns == OPEN { rec.axis.len() } else { rec.axis.position(end_ns) } * scale;
    (start, end.max(if rec.axis.measured() { start } else { start + scale }))
}

fn host_work(
    rec: &Recording,
    wanted: Wanted,
    at: usize,
    thread: u32,
    writer: &mut Writer<'_>,
) -> io::Result<()> {
    let process = &rec.trace.processes[rec.lanes[at].process as usize];
    let thread = &process.threads[thread as usize];
    let mut slices = Vec::new();
    for span in thread.spans.iter().filter(|span| wanted.has(span.start_ns, span.end_ns)) {
        let category = match span.kind {
            SpanKind::Range => "range",
            SpanKind::Op => "operator",
            SpanKind::PythonFrame => "python",
        };
        let (start, end) = range(rec, span.start_ns, span.end_ns);
        slices.push(Slice::new(start, end, writer.name(rec.trace.str(span.name))?, category));
    }
    for call in thread.calls.iter().filter(|call| wanted.has(call.start_ns, call.end_ns)) {
        let (start, end) = range(rec, call.start_ns, call.end_ns);
        slices.push(Slice::new(start, end, writer.name(&rec.trace.api(call.api).name)?, "call"));
    }
    writer.slices(lane_track(at), slices)
}

fn device_work(
    rec: &Recording,
    wanted: Wanted,
    at: usize,
    flows: &Flows,
    writer: &mut Writer<'_>,
) -> io::Result<()> {
    let lane = &rec.lanes[at];
    let ops = &rec.trace.processes[lane.process as usize].device_ops;
    let mut slices = Vec::new();
    for &id in &lane.ops {
        let op = &ops[id as usize];
        if !wanted.has(op.start_ns, op.end_ns) {
            continue;
        }
        let (start, end) = range(rec, op.start_ns, op.end_ns);
        let mut slice = Slice::new(start, end, writer.name(&op_words(&rec.trace, op))?, "device");
        for &wait in flows.get(&(lane.process, id)).into_iter().flatten() {
            let first = op.start_ns <= rec.judged.audit.waits[wait].start_ns;
            if first { &mut slice.flows } else { &mut slice.ending_flows }.push(flow_of(wait));
        }
        if op.bytes > 0 {
            slice.notes.push(Note {
                name: Some("bytes".to_owned()),
                number: Some(op.bytes),
                ..Note::default()
            });
        }
        slices.push(slice);
    }
    writer.slices(lane_track(at), slices)
}

fn waits(rec: &Recording, wanted: Wanted, at: usize, writer: &mut Writer<'_>) -> io::Result<()> {
    let mut slices = Vec::new();
    for &id in &rec.lanes[at].waits.ids {
        let wait = &rec.judged.audit.waits[id as usize];
        if !wanted.has(wait.start_ns, rec.wait_end_ns(id as usize)) {
            continue;
        }
        let site = &rec.judged.audit.sites[wait.site as usize];
        let (start, end) = range(rec, wait.start_ns, rec.wait_end_ns(id as usize));
        let mut slice = Slice::new(start, end, writer.name(wait.kind.id())?, "wait");
        let op = rec.cause(id as usize).and_then(|cause| rec.op(cause));
        if let Some(op) = op.filter(|op| wanted.has(op.start_ns, op.end_ns)) {
            let second = op.start_ns <= wait.start_ns;
            if second { &mut slice.ending_flows } else { &mut slice.flows }.push(flow_of(id as usize));
        }
        slice.notes = vec![
            note("place", place_text(site)),
            note("site", site.fingerprint.clone()),
            note("rule", site.rule.to_owned()),
            note("status", site.status.id().to_owned()),
        ];
        slices.push(slice);
    }
    writer.slices(lane_track(at) + 1, slices)
}

impl Slice {
    fn new(start: u64, end: u64, name: u64, category: &'static str) -> Self {
        Self { start, end, name, category, flows: Vec::new(), ending_flows: Vec::new(), notes: Vec::new() }
    }
}

fn note(name: &str, text: String) -> Note {
    Note { name: Some(name.to_owned()), text: Some(text), number: None }
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    /// Numbers of the names written so far.
    names: HashMap<String, u64>,
    first: bool,
}

impl Writer<'_> {
    fn packet(&mut self, packet: Packet) -> io::Result<()> {
        let flags = if std::mem::take(&mut self.first) { CLEARED | NEEDS_STATE } else { NEEDS_STATE };
        let packet = Packet { sequence: Some(SEQUENCE), flags: Some(flags), ..packet };
        let mut bytes = Vec::with_capacity(packet.encoded_len() + 8);
        prost::encoding::message::encode(PACKET_FIELD, &packet, &mut bytes);
        self.out.write_all(&bytes)
    }

    fn track(&mut self, track: Track) -> io::Result<()> {
        self.packet(Packet { track: Some(track), ..Packet::default() })
    }

    /// The number of a name; the first time, its text is written.
    fn name(&mut self, text: &str) -> io::Result<u64> {
        if let Some(&id) = self.names.get(text) {
            return Ok(id);
        }
        let id = self.names.len() as u64 + 1;
        self.names.insert(text.to_owned(), id);
        let name = Name { id: Some(id), text: Some(text.to_owned()) };
        self.packet(Packet { interned: Some(Interned { names: vec![name] }), ..Packet::default() })?;
        Ok(id)
    }

    /// Writes slices of one track so that they nest: a slice that would end after the one around it ends with it, as the viewer
    /// closes slices in the order of a stack.
    fn slices(&mut self, track: u64, mut slices: Vec<Slice>) -> io::Result<()> {
        slices.sort_by_key(|slice| (slice.start, std::cmp::Reverse(slice.end)));
        let mut open: Vec<u64> = Vec::new();
        for slice in slices {
            while open.last().is_some_and(|&end| end <= slice.start) {
                self.end(track, open.pop().unwrap_or_default())?;
            }
            let end = open.last().map_or(slice.end, |&outer| slice.end.min(outer));
            let event = Event {
                kind: Some(SLICE_BEGIN),
                track: Some(track),
                name: Some(slice.name),
                categories: vec![slice.category.to_owned()],
                flows: slice.flows,
                ending_flows: slice.ending_flows,
                notes: slice.notes,
            };
            self.packet(Packet { timestamp: Some(slice.start), event: Some(event), ..Packet::default() })?;
            open.push(end);
        }
        while let Some(end) = open.pop() {
            self.end(track, end)?;
        }
        Ok(())
    }

    fn end(&mut self, track: u64, at: u64) -> io::Result<()> {
        let event = Event { kind: Some(SLICE_END), track: Some(track), ..Event::default() };
        self.packet(Packet { timestamp: Some(at), event: Some(event), ..Packet::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Trace {
        #[prost(message, repeated, tag = "1")]
        packets: Vec<Packet>,
    }

    #[test]
    fn slices_of_a_track_nest_whatever_their_ends_are() {
        let mut bytes = Vec::new();
        let mut writer = Writer { out: &mut bytes, names: HashMap::default(), first: true };
        let slices = [(0, 10), (2, 12), (10, 20), (10, 10), (15, 16)];
        let slices = slices.iter().map(|&(start, end)| Slice::new(start, end, 1, "x")).collect();
        writer.slices(7, slices).unwrap();
        let trace = Trace::decode(bytes.as_slice()).expect("what was written can be read");
        let (mut depth, mut last) = (0, 0);
        for packet in &trace.packets {
            let event = packet.event.as_ref().expect("only events");
            depth += if event.kind == Some(SLICE_BEGIN) { 1 } else { -1 };
            assert!(depth >= 0 && packet.timestamp >= Some(last));
            last = packet.timestamp.unwrap_or_default();
        }
        assert_eq!((depth, trace.packets.len()), (0, 10));
        assert_eq!(trace.packets[0].flags, Some(CLEARED | NEEDS_STATE));
    }
}
