//! Stream capture: operations become graph nodes instead of running, and calls that would not be captured fail.
//!
//! Everything that a program enqueues goes through [`submit`], which decides between the two. The error codes are
//! those of the driver API's chapter on stream capture (900 to 908).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::args::Out;
use crate::context::stream;
use crate::error::{Error, Result};
use crate::graph::{self, Graph, NodeKind};
use crate::handles::lock;
use crate::op::Op;
use crate::worker::{Role, Stream, Ticket};

use Role::{Legacy, PerThread};

/// CUstreamCaptureMode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

/// A capture in progress.
pub struct Capture {
    id: u64,
    mode: Mode,
    thread: ThreadId,
    context: u32,
    /// Handle of the stream that began it.
    origin: usize,
    graph: Arc<Graph>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    invalidated: bool,
    ended: bool,
    members: Vec<Arc<Stream>>,
}

/// A stream's part in a capture: the nodes that its next operation comes after.
#[derive(Clone)]
pub struct Membership {
    capture: Arc<Capture>,
    frontier: Vec<usize>,
}

/// Where in a capture an event was recorded.
#[derive(Clone)]
pub struct Point(Membership);

impl Point {
    /// False once its capture has ended.
    pub fn is_live(&self) -> bool {
        !lock(&self.0.capture.state).ended
    }
}

static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// Length of `ACTIVE`, so that calls outside any capture pay one load.
static ACTIVE_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's mode (cuThreadExchangeStreamCaptureMode).
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

entry_points! {
    cuStreamBeginCapture_v2(hStream: usize, mode: u32) => begin(stream(hStream, Legacy)?, mode);
    cuStreamBeginCapture_v2_ptsz(hStream: usize, mode: u32) => begin(stream(hStream, PerThread)?, mode);
    cuStreamEndCapture(hStream: usize, graph: Out<usize>) => end(stream(hStream, Legacy)?, graph);
    cuStreamEndCapture_ptsz(hStream: usize, graph: Out<usize>) => end(stream(hStream, PerThread)?, graph);
    cuStreamIsCapturing(hStream: usize, status: Out<u32>) => status.set(state_of(&*stream(hStream, Legacy)?)?.0);
    cuStreamIsCapturing_ptsz(hStream: usize, status: Out<u32>) => status.set(state_of(&*stream(hStream, PerThread)?)?.0);
    cuStreamGetCaptureInfo_v2(hStream: usize, status: Out<u32>, id: Out<u64>, graph: Out<usize>, deps: Out<*const usize>, n: Out<usize>)
        => info(stream(hStream, Legacy)?, status, id, graph, deps, n);
    cuStreamGetCaptureInfo_v2_ptsz(hStream: usize, status: Out<u32>, id: Out<u64>, graph: Out<usize>, deps: Out<*const usize>, n: Out<usize>)
        => info(stream(hStream, PerThread)?, status, id, graph, deps, n);
    cuStreamGetCaptureInfo_v3(hStream: usize, status: Out<u32>, id: Out<u64>, graph: Out<usize>, deps: Out<*const usize>, edges: Out<*const u8>, n: Out<usize>)
        => { edges.set_if_wanted(std::ptr::null()); info(stream(hStream, Legacy)?, status, id, graph, deps, n) };
    cuStreamGetCaptureInfo_v3_ptsz(hStream: usize, status: Out<u32>, id: Out<u64>, graph: Out<usize>, deps: Out<*const usize>, edges: Out<*const u8>, n: Out<usize>)
        => { edges.set_if_wanted(std::ptr::null()); info(stream(hStream, PerThread)?, status, id, graph, deps, n) };
    cuThreadExchangeStreamCaptureMode(mode: Out<u32>) => exchange_mode(mode);
}

fn mode(number: u32) -> Result<Mode> {
    match number {
        0 => Ok(Mode::Global),
        1 => Ok(Mode::ThreadLocal),
        2 => Ok(Mode::Relaxed),
        _ => Err(Error::INVALID_VALUE),
    }
}

fn active() -> Vec<Arc<Capture>> {
    if ACTIVE_COUNT.load(Ordering::Acquire) == 0 { Vec::new() } else { lock(&ACTIVE).clone() }
}

/// Enqueues an operation, or adds it to the graph that the stream is captured into (`None`).
pub fn submit(stream: &Arc<Stream>, op: Op) -> Result<Option<Ticket>> {
    submit_as(stream, op, NodeKind::Plain)
}

/// As [`submit`], for operations whose kind of graph node does not follow from the operation.
pub fn submit_as(stream: &Arc<Stream>, op: Op, kind: NodeKind) -> Result<Option<Ticket>> {
    put(stream, op, kind, Vec::new())
}

/// As [`submit`], for an operation that comes after points of other streams too. In a graph the capture's own order counts.
pub fn submit_after(stream: &Arc<Stream>, op: Op, after: Vec<Ticket>) -> Result<Option<Ticket>> {
    put(stream, op, NodeKind::Plain, after)
}

fn put(stream: &Arc<Stream>, op: Op, kind: NodeKind, after: Vec<Ticket>) -> Result<Option<Ticket>> {
    stream.context.check()?;
    if ACTIVE_COUNT.load(Ordering::Acquire) > 0 {
        let mut membership = lock(&stream.capture);
        if let Some(member) = membership.as_mut() {
            member.capture.check()?;
            let node = member.capture.graph.add(op, kind, member.frontier.clone());
            member.frontier = vec![node];
            return Ok(None);
        }
        drop(membership);
        check_implicit(stream)?;
    }
    stream.enqueue(op, after).map(Some)
}

/// The legacy default stream would depend on blocking streams that are being captured: prohibited.
fn check_implicit(stream: &Stream) -> Result {
    if stream.role != Role::Legacy {
        return Ok(());
    }
    let mut hit = false;
    for capture in active().iter().filter(|c| c.context == stream.context.uid) {
        let mut state = lock(&capture.state);
        if state.members.iter().any(|s| s.is_blocking()) {
            state.invalidated = true;
            hit = true;
        }
    }
    if hit { Err(Error::STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}

impl Capture {
    fn check(&self) -> Result {
        if lock(&self.state).invalidated { Err(Error::STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    fn invalidate(&self) {
        lock(&self.state).invalidated = true;
    }
}

/// True while the stream is being captured, invalidated captures included.
pub fn is_capturing(stream: &Stream) -> bool {
    ACTIVE_COUNT.load(Ordering::Acquire) > 0 && lock(&stream.capture).is_some()
}

/// Invalidates the stream's capture.
pub fn invalidate(stream: &Stream) {
    if let Some(member) = lock(&stream.capture).as_ref() {
        member.capture.invalidate();
    }
}

/// The stream is destroyed: its capture can't complete.
pub fn abandon(stream: &Arc<Stream>) {
    let Some(member) = lock(&stream.capture).take() else { return };
    let mut state = lock(&member.capture.state);
    state.invalidated = true;
    state.members.retain(|s| s.handle != stream.handle);
    let over = member.capture.origin == stream.handle;
    drop(state);
    if over {
        close(&member.capture);
    }
}

/// Calls that are unsafe while anyone captures: fails them and invalidates the captures that forbid them.
pub fn check_unsafe_call() -> Result {
    let me = std::thread::current().id();
    let thread_mode = THREAD_MODE.try_with(Cell::get).unwrap_or(Mode::Global);
    let mut hit = false;
    for capture in active() {
        let own = capture.thread == me && capture.mode != Mode::Relaxed;
        let forbids = match thread_mode {
            Mode::Global => own || capture.mode == Mode::Global,
            Mode::ThreadLocal => own,
            Mode::Relaxed => false,
        };
        if forbids {
            capture.invalidate();
            hit = true;
        }
    }
    if hit { Err(Error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Calls that ask for a stream's progress: prohibited on a captured stream whatever the mode, and unsafe otherwise.
pub fn check_stream_call(stream: &Stream) -> Result {
    if is_capturing(stream) {
        invalidate(stream);
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    check_implicit(stream)?;
    check_unsafe_call()
}

/// Where an event recorded now on a captured stream lies; `None` when the stream is not captured.
pub fn point(stream: &Stream) -> Result<Option<Point>> {
    match lock(&stream.capture).as_ref() {
        None => Ok(None),
        Some(member) => member.capture.check().map(|()| Some(Point(member.clone()))),
    }
}

/// Makes a stream's next operation come after a captured event; a stream outside joins the capture.
pub fn join(stream: &Arc<Stream>, point: &Point) -> Result {
    let Point(Membership { capture, frontier }) = point;
    capture.check()?;
    if stream.role == Role::Legacy {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_IMPLICIT);
    }
    let mut membership = lock(&stream.capture);
    match membership.as_mut() {
        Some(member) if member.capture.id != capture.id => {
            member.capture.invalidate();
            capture.invalidate();
            Err(Error::STREAM_CAPTURE_MERGE)
        }
        Some(member) => {
            for node in frontier {
                if !member.frontier.contains(node) {
                    member.frontier.push(*node);
                }
            }
            Ok(())
        }
        None => {
            *membership = Some(point.0.clone());
            lock(&capture.state).members.push(stream.clone());
            Ok(())
        }
    }
}

/// A captured stream would depend on work outside the capture.
pub fn isolated(stream: &Stream) -> Error {
    invalidate(stream);
    Error::STREAM_CAPTURE_ISOLATION
}

fn begin(stream: Arc<Stream>, number: u32) -> Result {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let mode = mode(number)?;
    stream.context.check()?;
    if stream.role == Role::Legacy {
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut membership = lock(&stream.capture);
    if membership.is_some() {
        return Err(Error::ILLEGAL_STATE);
    }
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        mode,
        thread: std::thread::current().id(),
        context: stream.context.uid,
        origin: stream.handle,
        graph: Graph::new(stream.context.uid),
        state: Mutex::new(State { members: vec![stream.clone()], ..State::default() }),
    });
    *membership = Some(Membership { capture: capture.clone(), frontier: Vec::new() });
    let mut active = lock(&ACTIVE);
    active.push(capture);
    ACTIVE_COUNT.store(active.len(), Ordering::Release);
    Ok(())
}

fn end(stream: Arc<Stream>, out: Out<usize>) -> Result {
    out.set(0)?;
    let member = lock(&stream.capture).clone().ok_or(Error::ILLEGAL_STATE)?;
    let capture = member.capture;
    if capture.origin != stream.handle {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
        return Err(Error::STREAM_CAPTURE_WRONG_THREAD);
    }
    let valid = capture.check();
    let joined = all_joined(&capture, &member.frontier);
    close(&capture);
    valid?;
    joined?;
    out.set(graph::publish(&capture.graph))
}

/// Every branch must have come back to the origin.
fn all_joined(capture: &Capture, frontier: &[usize]) -> Result {
    let reached = capture.graph.ancestors(frontier);
    let members = lock(&capture.state).members.clone();
    for stream in members.iter().filter(|s| s.handle != capture.origin) {
        let branch = lock(&stream.capture).as_ref().map(|m| m.frontier.clone()).unwrap_or_default();
        if branch.iter().any(|node| !reached.contains(node)) {
            return Err(Error::STREAM_CAPTURE_UNJOINED);
        }
    }
    Ok(())
}

fn close(capture: &Arc<Capture>) {
    let members = {
        let mut state = lock(&capture.state);
        state.ended = true;
        std::mem::take(&mut state.members)
    };
    for stream in members {
        *lock(&stream.capture) = None;
    }
    let mut active = lock(&ACTIVE);
    active.retain(|c| c.id != capture.id);
    ACTIVE_COUNT.store(active.len(), Ordering::Release);
}

/// Status (0 none, 1 active, 2 invalidated) and, while active, the membership.
fn state_of(stream: &Stream) -> Result<(u32, Option<Membership>)> {
    check_implicit(stream)?;
    let member = lock(&stream.capture).clone();
    Ok(match member {
        None => (0, None),
        Some(member) if member.capture.check().is_err() => (2, None),
        Some(member) => (1, Some(member)),
    })
}

thread_local! {
    /// What the last cuStreamGetCaptureInfo of this thread pointed to; valid until its next call, as documented.
    static LAST_DEPENDENCIES: Cell<Vec<usize>> = const { Cell::new(Vec::new()) };
}

fn info(
    stream: Arc<Stream>,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    deps: Out<*const usize>,
    n: Out<usize>,
) -> Result {
    let (number, member) = state_of(&stream)?;
    status.set(number)?;
    let Some(member) = member else { return Ok(()) };
    id.set_if_wanted(member.capture.id);
    if !graph.is_null() {
        graph.set(graph::publish(&member.capture.graph))?;
    }
    n.set_if_wanted(member.frontier.len());
    if !deps.is_null() {
        deps.set(member.frontier.as_ptr())?;
        LAST_DEPENDENCIES.set(member.frontier); // moving a Vec does not move its elements
    }
    Ok(())
}

fn exchange_mode(inout: Out<u32>) -> Result {
    let wanted = mode(inout.get()?)?;
    let before = THREAD_MODE.replace(wanted);
    inout.set(before as u32)
}
