//! Contexts: which one is current on a thread, the streams and errors that belong to one, and its end.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use cupti_sys::synchronization;

use crate::args::{In, Out};
use crate::blocking::{self, Call};
use crate::cupti::activity;
use crate::device::{self, PrimaryState};
use crate::error::{self, Error, Result};
use crate::handles::{self, Table, lock};
use crate::heap;
use crate::worker::{Role, Stream, Ticket};

/// A context.
pub struct Context {
    pub handle: usize,
    /// Unique number (cuCtxGetId, and the context id in CUPTI records).
    pub uid: u32,
    pub flags: AtomicU32,
    /// Streams with a worker or work, the default ones included.
    pub streams: Mutex<Vec<Arc<Stream>>>,
    legacy: OnceLock<Arc<Stream>>,
    sticky: AtomicU32,
    destroyed: AtomicBool,
    limits: Mutex<[usize; 10]>,
}

/// All live contexts.
pub static CONTEXTS: Table<Context> = Table::new();

thread_local! {
    /// The current context, 0 for none. A plain number: exit handlers run after a thread's destructors, and calls
    /// made there still have their context.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// Contexts beneath it on the thread's stack.
    static BENEATH: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn push_current(handle: usize) {
    let before = CURRENT.replace(handle);
    let _ = BENEATH.try_with(|stack| stack.borrow_mut().push(before));
}

fn pop_current() -> Option<usize> {
    let beneath = BENEATH.try_with(|stack| stack.borrow_mut().pop()).ok().flatten();
    Some(CURRENT.replace(beneath.unwrap_or(0))).filter(|handle| *handle != 0)
}

/// Limits at start, in the order of CUlimit (bytes or counts).
const LIMITS: [usize; 10] = [1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0, 0, 0];

impl Context {
    /// Makes a context under `handle`.
    pub fn new(handle: usize, flags: u32) -> Arc<Self> {
        static NEXT_UID: AtomicU32 = AtomicU32::new(1);
        let context = Arc::new(Self {
            handle,
            uid: NEXT_UID.fetch_add(1, Ordering::Relaxed),
            flags: AtomicU32::new(flags),
            streams: Mutex::default(),
            legacy: OnceLock::new(),
            sticky: AtomicU32::new(0),
            destroyed: AtomicBool::new(false),
            limits: Mutex::new(LIMITS),
        });
        CONTEXTS.insert(handle, context.clone());
        context
    }

    /// The legacy default stream.
    pub fn legacy(self: &Arc<Self>) -> Arc<Stream> {
        self.legacy.get_or_init(|| Stream::new(self, Role::Legacy, 0, 0)).clone()
    }

    /// Points that an operation enqueued on `stream` now comes after, by the rules of the legacy default stream.
    pub fn implicit_order(&self, stream: &Stream) -> Vec<Ticket> {
        if stream.role == Role::Legacy {
            let streams = lock(&self.streams);
            streams.iter().filter(|s| s.role != Role::Legacy && s.is_blocking()).map(Stream::last).collect()
        } else if stream.is_blocking() {
            self.legacy.get().map(Stream::last).into_iter().collect()
        } else {
            Vec::new()
        }
    }

    /// Points behind everything enqueued in this context.
    pub fn everything(&self) -> Vec<Ticket> {
        lock(&self.streams).iter().map(Stream::last).collect()
    }

    /// Blocks until everything enqueued in this context so far is done.
    pub fn drain(&self) {
        for ticket in self.everything() {
            ticket.wait();
        }
    }

    /// Takes a stream off the list: it has ended.
    pub fn forget_stream(&self, stream: &Stream) {
        lock(&self.streams).retain(|s| s.handle != stream.handle);
    }

    /// The error that this context is stuck with, if any.
    pub fn check(&self) -> Result {
        match self.sticky_code() {
            0 if self.destroyed.load(Ordering::Acquire) => Err(Error::CONTEXT_IS_DESTROYED),
            0 => Ok(()),
            code => Err(Error(code)),
        }
    }

    /// Code of the sticky error, 0 for none.
    pub fn sticky_code(&self) -> u32 {
        self.sticky.load(Ordering::Acquire)
    }

    /// Records the first error of the device; it stays.
    pub fn set_sticky(&self, error: Error) {
        let _ = self.sticky.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Waits for all work, ends the streams and frees the memory.
    pub fn destroy(self: &Arc<Self>) {
        blocking::rule(Call::CtxDestroy).wait(self, None, None);
        self.destroyed.store(true, Ordering::Release); // from here on nothing new runs
        CONTEXTS.remove(self.handle);
        let streams = std::mem::take(&mut *lock(&self.streams));
        for stream in streams {
            crate::stream::STREAMS.remove(stream.handle);
            stream.retire();
        }
        crate::event::EVENTS.remove_where(|e| e.context.uid == self.uid);
        crate::module::forget_context(self.uid);
        heap::free_all_of(self.uid);
    }
}

/// Handle of the thread's current context.
pub fn current_handle() -> Option<usize> {
    Some(CURRENT.get()).filter(|handle| *handle != 0)
}

/// The thread's current context, whatever its state.
pub fn current_any() -> Result<Arc<Context>> {
    let handle = current_handle().ok_or(Error::INVALID_CONTEXT)?;
    CONTEXTS.get(handle).ok_or(Error::CONTEXT_IS_DESTROYED)
}

/// The thread's current context, unless it is stuck with an error.
pub fn current() -> Result<Arc<Context>> {
    let context = current_any()?;
    context.check()?;
    Ok(context)
}

fn named(handle: usize) -> Result<Arc<Context>> {
    if handle == 0 {
        return current_any();
    }
    CONTEXTS.get(handle).ok_or(Error::INVALID_CONTEXT)
}

entry_points! {
    cuCtxCreate_v2(pctx: Out<usize>, flags: u32, dev: i32) => create(pctx, flags, dev);
    cuCtxCreate_v3(pctx: Out<usize>, params: In<[u32; 2]>, n_params: i32, flags: u32, dev: i32)
        => if n_params == 0 || params.is_null() { create(pctx, flags, dev) } else { Err(Error::NOT_SUPPORTED) };
    cuCtxCreate_v4(pctx: Out<usize>, params: In<[usize; 3]>, flags: u32, dev: i32)
        => if params.is_null() || params.get()?[0] == 0 && params.get()?[2] == 0 { create(pctx, flags, dev) } else { Err(Error::NOT_SUPPORTED) };
    cuCtxDestroy_v2(ctx: usize) => destroy(ctx);
    cuCtxAttach(pctx: Out<usize>, flags: u32) => attach(pctx, flags);
    cuCtxDetach(ctx: usize) => if Some(ctx) == current_handle() { Ok(()) } else { Err(Error::INVALID_CONTEXT) };
    cuCtxGetCurrent(pctx: Out<usize>) => pctx.set(current_handle().unwrap_or(0));
    cuCtxSetCurrent(ctx: usize) => set_current(ctx);
    cuCtxPushCurrent_v2(ctx: usize) => push(ctx);
    cuCtxPopCurrent_v2(pctx: Out<usize>) => pop(pctx);
    cuCtxGetDevice(device: Out<i32>) => current_any().and_then(|_| device.set(0));
    cuCtxGetId(ctx: usize, id: Out<u64>) => named(ctx).and_then(|c| id.set(c.uid.into()));
    cuCtxGetFlags(flags: Out<u32>) => current_any().and_then(|c| flags.set(c.flags.load(Ordering::Relaxed)));
    cuCtxSetFlags(flags: u32) => set_flags(flags);
    cuCtxGetApiVersion(ctx: usize, version: Out<u32>) => named(ctx).and_then(|_| version.set(3020));
    cuCtxGetLimit(pvalue: Out<usize>, limit: u32)
        => current()?.limits.lock().map_err(|_| Error::UNKNOWN)?.get(limit as usize).copied()
            .ok_or(Error::UNSUPPORTED_LIMIT).and_then(|v| pvalue.set(v));
    cuCtxSetLimit(limit: u32, value: usize) => set_limit(limit, value);
    cuCtxGetCacheConfig(config: Out<u32>) => current().and_then(|_| config.set(0));
    cuCtxSetCacheConfig(config: u32) => if config <= 3 { current().map(drop) } else { Err(Error::INVALID_VALUE) };
    cuCtxGetSharedMemConfig(config: Out<u32>) => current().and_then(|_| config.set(1));
    cuCtxSetSharedMemConfig(config: u32) => if config <= 2 { current().map(drop) } else { Err(Error::INVALID_VALUE) };
    cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) => priority_range(least, greatest);
    cuCtxResetPersistingL2Cache() => current().map(drop);
    cuCtxSynchronize() [not_while_capturing] => synchronize();
    cuCtxEnablePeerAccess(peer: usize, flags: u32)
        => if flags != 0 { Err(Error::INVALID_VALUE) } else { named(peer).and(Err(Error(217))) };
    cuCtxDisablePeerAccess(peer: usize) => named(peer).and(Err(Error::PEER_ACCESS_NOT_ENABLED));
    cuDevicePrimaryCtxRetain(pctx: Out<usize>, dev: i32) => device::check(dev).and_then(|()| primary_retain(pctx));
    cuDevicePrimaryCtxRelease_v2(dev: i32) => device::check(dev).and_then(|()| primary_release());
    cuDevicePrimaryCtxRelease(dev: i32) => device::check(dev).and_then(|()| primary_release());
    cuDevicePrimaryCtxReset_v2(dev: i32) => device::check(dev).map(|()| primary_reset());
    cuDevicePrimaryCtxReset(dev: i32) => device::check(dev).map(|()| primary_reset());
    cuDevicePrimaryCtxGetState(dev: i32, flags: Out<u32>, active: Out<i32>)
        => device::check(dev).and_then(|()| primary_state(flags, active));
    cuDevicePrimaryCtxSetFlags_v2(dev: i32, flags: u32) => device::check(dev).and_then(|()| primary_flags(flags));
    cuDevicePrimaryCtxSetFlags(dev: i32, flags: u32) => device::check(dev).and_then(|()| primary_flags(flags));
    cuProfilerStart() => current().map(drop);
    cuProfilerStop() => current().map(drop);
}

/// Flags that exist: scheduling (0-2, 4), map host, LMEM resize, coredumps, SYNC_MEMOPS.
fn check_flags(flags: u32) -> Result {
    let known = flags & !0xff == 0 && matches!(flags & 7, 0 | 1 | 2 | 4);
    if known { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

fn create(pctx: Out<usize>, flags: u32, dev: i32) -> Result {
    pctx.check()?;
    device::check(dev)?;
    check_flags(flags)?;
    let context = Context::new(handles::fresh(), flags);
    push_current(context.handle);
    pctx.set(context.handle)
}

fn attach(pctx: Out<usize>, flags: u32) -> Result {
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    pctx.set(current_any()?.handle)
}

fn destroy(handle: usize) -> Result {
    let context = CONTEXTS.get(handle).ok_or(Error::INVALID_CONTEXT)?;
    if device::is_primary(handle) {
        return Err(Error::INVALID_CONTEXT);
    }
    context.destroy();
    if CURRENT.get() == handle {
        pop_current();
    }
    Ok(())
}

fn set_current(handle: usize) -> Result {
    if handle != 0 && CONTEXTS.get(handle).is_none() {
        return Err(Error::INVALID_CONTEXT);
    }
    if handle == 0 {
        pop_current(); // as documented
    } else {
        CURRENT.set(handle);
    }
    Ok(())
}

fn push(handle: usize) -> Result {
    CONTEXTS.get(handle).ok_or(Error::INVALID_CONTEXT)?;
    push_current(handle);
    Ok(())
}

fn pop(pctx: Out<usize>) -> Result {
    let handle = pop_current().ok_or(Error::INVALID_CONTEXT)?;
    pctx.set_if_wanted(handle);
    Ok(())
}

fn set_flags(flags: u32) -> Result {
    check_flags(flags)?;
    current()?.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

fn set_limit(limit: u32, value: usize) -> Result {
    let context = current()?;
    let mut limits = lock(&context.limits);
    *limits.get_mut(limit as usize).ok_or(Error::UNSUPPORTED_LIMIT)? = value;
    Ok(())
}

fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Result {
    current()?;
    least.set_if_wanted(0);
    greatest.set_if_wanted(-5);
    Ok(())
}

fn synchronize() -> Result {
    let context = current()?;
    let start_ns = activity::sync_start_ns();
    blocking::rule(Call::CtxSynchronize).wait(&context, None, None);
    let result = context.check();
    let code = error::code(result);
    activity::synchronised(synchronization::CONTEXT_SYNCHRONIZE, start_ns, context.uid, None, None, code);
    result
}

fn primary_retain(pctx: Out<usize>) -> Result {
    pctx.check()?;
    let mut primary = device::primary();
    if primary.context.is_none() {
        primary.context = Some(Context::new(primary.handle, primary.flags));
    }
    primary.references += 1;
    pctx.set(primary.handle)
}

fn primary_release() -> Result {
    let mut primary = device::primary();
    if primary.references == 0 {
        return Err(Error::INVALID_CONTEXT);
    }
    primary.references -= 1;
    let ended = if primary.references == 0 { primary.context.take() } else { None };
    drop(primary);
    if let Some(context) = ended {
        context.destroy();
    }
    Ok(())
}

fn primary_reset() {
    let ended = {
        let mut primary = device::primary();
        let PrimaryState { context, references, .. } = &mut *primary;
        *references = 0;
        context.take()
    };
    if let Some(context) = ended {
        context.destroy();
    }
}

fn primary_state(flags: Out<u32>, active: Out<i32>) -> Result {
    let primary = device::primary();
    flags.set(primary.flags)?;
    active.set(primary.context.is_some().into())
}

fn primary_flags(flags: u32) -> Result {
    check_flags(flags)?;
    let mut primary = device::primary();
    if let Some(context) = &primary.context {
        context.flags.store(flags, Ordering::Relaxed);
    }
    primary.flags = flags;
    Ok(())
}

/// A stream as a program names it.
pub fn stream(handle: usize, default: Role) -> Result<Arc<Stream>> {
    let role = match handle {
        0 => default,
        1 => Role::Legacy,
        2 => Role::PerThread,
        _ => return crate::stream::STREAMS.get(handle).ok_or(Error::INVALID_HANDLE),
    };
    let context = current_any()?;
    Ok(if role == Role::Legacy { context.legacy() } else { Stream::of_this_thread(&context) })
}
