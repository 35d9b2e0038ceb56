//! Events: points in streams that hosts and other streams wait for, and the times between them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use cupti_sys::synchronization;

use crate::args::Out;
use crate::blocking::{self, Call};
use crate::capture::{self, Point};
use crate::context::{Context, current, stream};
use crate::cupti::activity;
use crate::error::{self, Error, Result};
use crate::handles::{self, Table, lock};
use crate::op::Op;
use crate::worker::{Role, Stream, Ticket};

use Role::{Legacy, PerThread};

/// All live events.
pub static EVENTS: Table<Event> = Table::new();

/// When an event happened: nanoseconds since the process's first event plus one; 0 while it has not.
#[derive(Default)]
pub struct Stamp(AtomicU64);

/// An event.
pub struct Event {
    pub handle: usize,
    /// Number of the event in CUPTI records.
    id: u32,
    /// Bit 0 blocking sync, 1 no timing, 2 interprocess.
    flags: u32,
    pub context: Arc<Context>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where it was last recorded.
    ticket: Option<Ticket>,
    stamp: Option<Arc<Stamp>>,
    /// Recorded in a stream that is being captured.
    captured: Option<Point>,
}

entry_points! {
    cuEventCreate(out: Out<usize>, flags: u32) => create(out, flags);
    cuEventDestroy_v2(hEvent: usize) => destroy(hEvent);
    cuEventRecord(hEvent: usize, hStream: usize) => record(hEvent, stream(hStream, Legacy)?, 0);
    cuEventRecord_ptsz(hEvent: usize, hStream: usize) => record(hEvent, stream(hStream, PerThread)?, 0);
    cuEventRecordWithFlags(hEvent: usize, hStream: usize, flags: u32) => record(hEvent, stream(hStream, Legacy)?, flags);
    cuEventRecordWithFlags_ptsz(hEvent: usize, hStream: usize, flags: u32) => record(hEvent, stream(hStream, PerThread)?, flags);
    cuEventQuery(hEvent: usize) [not_while_capturing] => query(hEvent);
    cuEventSynchronize(hEvent: usize) [not_while_capturing] => synchronize(hEvent);
    cuEventElapsedTime(ms: Out<f32>, start: usize, end: usize) => elapsed(ms, start, end);
    cuEventElapsedTime_v2(ms: Out<f32>, start: usize, end: usize) => elapsed(ms, start, end);
    cuStreamWaitEvent(hStream: usize, hEvent: usize, flags: u32) => wait(stream(hStream, Legacy)?, hEvent, flags);
    cuStreamWaitEvent_ptsz(hStream: usize, hEvent: usize, flags: u32) => wait(stream(hStream, PerThread)?, hEvent, flags);
}

/// The event behind a handle.
pub fn event(handle: usize) -> Result<Arc<Event>> {
    EVENTS.get(handle).ok_or(Error::INVALID_HANDLE)
}

/// Zero of all stamps: before the first event can have been recorded.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Stamp {
    fn ns(&self) -> Option<u64> {
        self.0.load(Ordering::Acquire).checked_sub(1)
    }

    /// Stamps it with the time on the clock of the stream whose worker calls.
    fn set_now(&self) {
        let now = crate::time_model::now().saturating_duration_since(*START);
        self.0.store(now.as_nanos() as u64 + 1, Ordering::Release);
    }
}

impl Event {
    /// The device got to the event; called on the stream's worker.
    pub fn happened(&self, stamp: &Arc<Stamp>) {
        stamp.set_now();
    }

    /// A graph with a record node for this event was launched: it happens when that launch is done.
    pub fn recorded_by_graph(&self, ticket: &Ticket, stamp: &Arc<Stamp>) {
        let mut state = lock(&self.state);
        state.ticket = Some(ticket.clone());
        state.stamp = Some(stamp.clone());
        state.captured = None;
    }

    /// Where the event was last recorded.
    pub fn ticket(&self) -> Option<Ticket> {
        lock(&self.state).ticket.clone()
    }
}

fn create(out: Out<usize>, flags: u32) -> Result {
    out.check()?;
    let context = current()?;
    // Interprocess events need no timing, and processes can't share them here.
    if flags & !7 != 0 || (flags & 4 != 0 && flags & 2 == 0) {
        return Err(Error::INVALID_VALUE);
    }
    if flags & 4 != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    LazyLock::force(&START);
    let handle = handles::fresh();
    static NEXT_ID: AtomicU32 = AtomicU32::new(1);
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    EVENTS.insert(handle, Arc::new(Event { handle, id, flags, context, state: Mutex::default() }));
    out.set(handle)
}

fn destroy(handle: usize) -> Result {
    let event = EVENTS.remove(handle).ok_or(Error::INVALID_HANDLE)?;
    blocking::rule(Call::EventDestroy).wait(&event.context, None, None);
    Ok(())
}

fn record(handle: usize, stream: Arc<Stream>, flags: u32) -> Result {
    let event = event(handle)?;
    if flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    if event.context.uid != stream.context.uid {
        return Err(Error::INVALID_HANDLE);
    }
    let stamp = Arc::new(Stamp::default());
    let op = Op::Record(event.clone(), stamp.clone());
    let mut state = lock(&event.state);
    if let Some(point) = capture::point(&stream)? {
        if flags == 1 {
            drop(state);
            return capture::submit(&stream, op).map(drop); // external: a node that records at every replay
        }
        state.captured = Some(point);
        return Ok(());
    }
    state.ticket = capture::submit(&stream, op)?;
    state.stamp = Some(stamp);
    state.captured = None;
    drop(state);
    blocking::rule(Call::EventRecord).wait(&stream.context, Some(&stream), None);
    Ok(())
}

/// The ticket that calls about an event outside a capture act on.
fn outside_capture(event: &Event) -> Result<Option<Ticket>> {
    let state = lock(&event.state);
    match &state.captured {
        Some(point) if point.is_live() => Err(Error::CAPTURED_EVENT),
        _ => Ok(state.ticket.clone()),
    }
}

fn query(handle: usize) -> Result {
    let event = event(handle)?;
    event.context.check()?;
    let ticket = outside_capture(&event)?;
    blocking::rule(Call::Query).wait(&event.context, None, ticket.as_ref());
    if ticket.is_none_or(|t| t.is_complete()) { event.context.check() } else { Err(Error::NOT_READY) }
}

fn synchronize(handle: usize) -> Result {
    let event = event(handle)?;
    event.context.check()?;
    let ticket = outside_capture(&event)?;
    let start_ns = activity::sync_start_ns();
    blocking::rule(Call::EventSynchronize).wait(&event.context, None, ticket.as_ref());
    let result = event.context.check();
    let (context, code, stream) = (event.context.uid, error::code(result), ticket.map(|t| t.stream_id()));
    activity::synchronised(
        synchronization::EVENT_SYNCHRONIZE,
        start_ns,
        context,
        stream,
        Some(event.id),
        code,
    );
    result
}

fn elapsed(ms: Out<f32>, start: usize, end: usize) -> Result {
    ms.check()?;
    let (start, end) = (event(start)?, event(end)?);
    if (start.flags | end.flags) & 2 != 0 {
        return Err(Error::INVALID_HANDLE);
    }
    let stamp = |e: &Event| lock(&e.state).stamp.clone().ok_or(Error::INVALID_HANDLE);
    let (from, to) = (stamp(&start)?, stamp(&end)?);
    start.context.check()?;
    let (from, to) = (from.ns().ok_or(Error::NOT_READY)?, to.ns().ok_or(Error::NOT_READY)?);
    ms.set((to as f64 - from as f64) as f32 / 1e6)
}

fn wait(stream: Arc<Stream>, handle: usize, flags: u32) -> Result {
    let event = event(handle)?;
    if flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    stream.context.check()?;
    let (ticket, captured) = {
        let state = lock(&event.state);
        (state.ticket.clone(), state.captured.clone().filter(Point::is_live))
    };
    if let Some(point) = captured {
        return capture::join(&stream, &point);
    }
    if capture::is_capturing(&stream) {
        if flags == 1 {
            return Err(Error::NOT_SUPPORTED); // wait nodes for events outside the graph
        }
        return if ticket.is_some() { Err(capture::isolated(&stream)) } else { Ok(()) };
    }
    let start_ns = activity::sync_start_ns();
    if let Some(ticket) = ticket {
        stream.enqueue(Op::Nothing, vec![ticket])?;
    }
    blocking::rule(Call::StreamWaitEvent).wait(&stream.context, Some(&stream), None);
    let (type_, context) = (synchronization::STREAM_WAIT_EVENT, stream.context.uid);
    activity::synchronised(type_, start_ns, context, Some(stream.id), Some(event.id), 0);
    Ok(())
}
