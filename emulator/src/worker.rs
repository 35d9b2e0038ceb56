//! Streams as they execute: an in-order queue with a worker thread of its own, started at the first operation.
//!
//! What comes in: operations with the tickets they depend on. What goes out: completed tickets, in order. The host
//! runs ahead: enqueuing returns at once (unless [`QUEUE_LIMIT`] operations are outstanding, as a full command buffer
//! holds a host up). Waiting, by the host or by another stream, is waiting for a ticket on a condition variable.
//!
//! Why this can't deadlock: an operation depends only on operations enqueued before it, on any stream.
//!
//! What it must never do: hold a lock while an operation runs, spin, or run an operation of a destroyed context.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::capture::Membership;
use crate::clock;
use crate::context::Context;
use crate::cupti::{self, activity::Slot};
use crate::error::{Error, Result};
use crate::handles::{self, lock};
use crate::op::Op;
use crate::{process, time_model};

/// Operations a stream holds before the host has to wait for space (launch queue of a real device: about a thousand).
pub const QUEUE_LIMIT: u64 = 1024;

/// Which stream of a context a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The legacy default stream: waits for all blocking streams and they for it.
    Legacy,
    /// A thread's default stream.
    PerThread,
    /// Made by the program.
    Created,
}

/// A stream.
pub struct Stream {
    pub handle: usize,
    /// Number of the stream in CUPTI records.
    pub id: u32,
    pub role: Role,
    /// CU_STREAM_NON_BLOCKING is bit 0.
    pub flags: u32,
    pub priority: i32,
    pub context: Arc<Context>,
    /// The capture this stream takes part in.
    pub capture: Mutex<Option<Membership>>,
    /// Threads of the program that wait for this stream right now.
    pub hosts_waiting: AtomicU32,
    queue: Mutex<Queue>,
    /// An operation was added, or the stream was closed.
    added: Condvar,
    /// An operation completed.
    completed_signal: Condvar,
    completed: AtomicU64,
}

#[derive(Default)]
struct Queue {
    operations: VecDeque<Queued>,
    enqueued: u64,
    /// Where the clock is virtual: when each operation ended.
    ends_ns: Vec<u64>,
    waiters: u32,
    has_worker: bool,
    closed: bool,
}

struct Queued {
    op: Op,
    /// Time of the program's thread, where the clock is virtual.
    issued_ns: u64,
    slots: Vec<Option<Slot>>,
    after: Vec<Ticket>,
    issued: Instant,
}

/// A point in a stream: all operations up to `seq`.
#[derive(Clone)]
pub struct Ticket {
    stream: Arc<Stream>,
    seq: u64,
}

impl Ticket {
    /// True once the stream got there.
    pub fn is_complete(&self) -> bool {
        self.stream.completed.load(Ordering::Acquire) >= self.seq
    }

    /// Number of the ticket's stream in CUPTI records.
    pub fn stream_id(&self) -> u32 {
        self.stream.id
    }

    /// Blocks the program's thread until the stream got there.
    pub fn wait(&self) {
        if !self.is_complete() {
            let waiting = &self.stream.hosts_waiting;
            waiting.fetch_add(1, Ordering::SeqCst);
            self.stream.wait_for(self.seq);
            waiting.fetch_sub(1, Ordering::SeqCst);
        }
        if clock::is_virtual()
            && let Some(end_ns) = self.stream.end_ns(self.seq)
        {
            clock::waited_for(end_ns);
        }
    }
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// Default streams of this thread, by context.
    static OWN_DEFAULT: RefCell<Vec<OwnDefault>> = const { RefCell::new(Vec::new()) };
}

/// A thread's default stream: it ends with the thread, behind its last operation.
struct OwnDefault(Arc<Stream>);

impl Drop for OwnDefault {
    fn drop(&mut self) {
        self.0.retire();
    }
}

/// True on a worker that is running a host function: CUDA calls are not permitted there.
pub fn in_host_function() -> bool {
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

/// Runs code of the program on a worker.
pub fn as_host_function<R>(f: impl FnOnce() -> R) -> R {
    IN_HOST_FUNCTION.set(true);
    let result = f();
    IN_HOST_FUNCTION.set(false);
    result
}

impl Stream {
    pub fn new(context: &Arc<Context>, role: Role, flags: u32, priority: i32) -> Arc<Self> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(13);
        let id = if role == Role::Legacy { 7 } else { NEXT_ID.fetch_add(1, Ordering::Relaxed) };
        let stream = Arc::new(Self {
            handle: handles::fresh(),
            id,
            role,
            flags,
            priority,
            context: context.clone(),
            capture: Mutex::new(None),
            hosts_waiting: AtomicU32::new(0),
            queue: Mutex::default(),
            added: Condvar::new(),
            completed_signal: Condvar::new(),
            completed: AtomicU64::new(0),
        });
        lock(&context.streams).push(stream.clone());
        stream
    }

    /// The calling thread's own default stream in `context`.
    pub fn of_this_thread(context: &Arc<Context>) -> Arc<Self> {
        let found = OWN_DEFAULT.try_with(|own| {
            own.borrow().iter().map(|o| &o.0).find(|s| s.context.uid == context.uid).cloned()
        });
        if let Ok(Some(stream)) = found {
            return stream;
        }
        let stream = Self::new(context, Role::PerThread, 0, 0);
        let _ = OWN_DEFAULT.try_with(|own| own.borrow_mut().push(OwnDefault(stream.clone())));
        stream
    }

    /// True for streams that take part in the implicit order of the legacy default stream.
    pub fn is_blocking(&self) -> bool {
        self.flags & 1 == 0
    }

    /// The point behind everything enqueued so far.
    pub fn last(self: &Arc<Self>) -> Ticket {
        Ticket { stream: self.clone(), seq: lock(&self.queue).enqueued }
    }

    /// True when nothing is outstanding.
    pub fn is_idle(self: &Arc<Self>) -> bool {
        self.last().is_complete()
    }

    /// Adds an operation behind everything on this stream, behind `after`, and behind what the legacy default stream
    /// orders it after. Blocks only while the queue is full.
    pub fn enqueue(self: &Arc<Self>, op: Op, mut after: Vec<Ticket>) -> Result<Ticket> {
        after.extend(self.context.implicit_order(self));
        // What is done here may still be to come on the virtual clock.
        after.retain(|ticket| clock::is_virtual() || !ticket.is_complete());
        let slots = cupti::activity::reserve(&op, self);
        let mut queue = lock(&self.queue);
        let mut full_since_ns = None;
        while queue.enqueued - self.completed.load(Ordering::Acquire) >= QUEUE_LIMIT {
            full_since_ns.get_or_insert_with(cupti::now_ns);
            self.hosts_waiting.fetch_add(1, Ordering::SeqCst);
            queue.waiters += 1;
            queue = self.completed_signal.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiters -= 1;
            self.hosts_waiting.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(start_ns) = full_since_ns {
            drop(queue);
            cupti::activity::queue_was_full(start_ns); // may call the tool: not with a lock
            queue = lock(&self.queue);
        }
        if queue.closed {
            return Err(Error::INVALID_HANDLE);
        }
        if !queue.has_worker {
            let me = self.clone();
            let name = format!("emu-stream-{}", self.id);
            std::thread::Builder::new()
                .name(name)
                .spawn(move || me.work())
                .map_err(|_| Error::OPERATING_SYSTEM)?;
            queue.has_worker = true;
        }
        queue.enqueued += 1;
        if clock::is_virtual()
            && let Some(place) = queue.enqueued.checked_sub(QUEUE_LIMIT + 1)
            && let Some(&end_ns) = queue.ends_ns.get(place as usize)
        {
            clock::not_before(end_ns);
        }
        queue.operations.push_back(Queued {
            op,
            issued_ns: clock::host_ns(),
            slots,
            after,
            issued: Instant::now(),
        });
        let seq = queue.enqueued;
        drop(queue);
        self.added.notify_one();
        Ok(Ticket { stream: self.clone(), seq })
    }

    /// No more operations: the stream goes once the last one has completed.
    pub fn retire(self: &Arc<Self>) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        let has_worker = queue.has_worker;
        drop(queue);
        self.added.notify_one();
        if !has_worker {
            self.context.forget_stream(self);
        }
    }

    /// When the operation of that number ended on the virtual clock; `None` if there is none.
    fn end_ns(&self, seq: u64) -> Option<u64> {
        lock(&self.queue).ends_ns.get(seq.checked_sub(1)? as usize).copied()
    }

    fn wait_for(&self, seq: u64) {
        if self.completed.load(Ordering::Acquire) >= seq {
            return;
        }
        let mut queue = lock(&self.queue);
        queue.waiters += 1;
        while self.completed.load(Ordering::Acquire) < seq {
            queue = self.completed_signal.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.waiters -= 1;
    }

    fn next(&self) -> Option<Queued> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(queued) = queue.operations.pop_front() {
                return Some(queued);
            }
            if queue.closed {
                return None;
            }
            queue = self.added.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(self: Arc<Self>) {
        block_signals();
        let mut end_ns = 0;
        while let Some(Queued { op, issued_ns, slots, after, issued }) = self.next() {
            let mut free = None;
            for ticket in &after {
                if !ticket.is_complete() {
                    ticket.stream.wait_for(ticket.seq);
                    free = Some(Instant::now());
                }
                if clock::is_virtual() {
                    end_ns = end_ns.max(ticket.stream.end_ns(ticket.seq).unwrap_or(0));
                }
            }
            clock::begin(issued_ns, end_ns);
            drop(after);
            time_model::begin(issued, free);
            process::run_unless_exiting(|| {
                let mut slots = slots.into_iter();
                op.run(&self, &mut slots);
            });
            drop(op);
            let mut queue = lock(&self.queue);
            if clock::is_virtual() {
                end_ns = clock::end();
                queue.ends_ns.push(end_ns);
            }
            self.completed.fetch_add(1, Ordering::Release);
            if queue.waiters > 0 {
                self.completed_signal.notify_all();
            }
        }
        self.context.forget_stream(&self);
    }
}

/// The program's signal handlers run on its own threads, as with a driver's threads.
fn block_signals() {
    // SAFETY: both calls only write the signal set, which lives here, and this thread's mask.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
