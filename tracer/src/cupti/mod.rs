//! CUPTI: subscribing to the calls of the table, collecting activity records.
//!
//! In: a process with a driver in it. Out: calls to [`crate::calls`], records in the log. Must never call into CUDA from a
//! callback, never call `cuptiFinalize`, never go on when another tool holds the subscription: NVTX is recorded
//! then, and the reason is said once.

#![allow(unsafe_code)]

mod buffers;
mod records;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use cupti_sys::{
    CallbackData, Class, CuptiResult, FLAG_FLUSH_FORCED, Library, Subscriber, cbid, domain, kind,
};
use syncaudit_eventlog::{LossReason, NoteLevel, Record, meta};

use crate::boundary::guard;
use crate::session::{self, Session, problem};
use crate::{calls, clock, thread};

/// Which CUPTI to use, before any other.
const VARIABLE_LIBRARY: &str = "SYNCAUDIT_CUPTI";
/// `1`: kernel records too, and the calls that issue them or order streams.
const VARIABLE_TIMELINE: &str = "SYNCAUDIT_GPU_TIMELINE";

static LIBRARY: OnceLock<Library> = OnceLock::new();
/// The process in which CUPTI was set up. A child of it must leave CUPTI alone.
static ACTIVE_IN: AtomicU32 = AtomicU32::new(0);
/// Calls that only a timeline needs are looked at.
static TIMELINE: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicBool = AtomicBool::new(false);
static NEXT_FLUSH_NS: AtomicU64 = AtomicU64::new(0);

/// How often records are asked for while the program runs: what a killed program loses at most.
const FLUSH_INTERVAL_NS: u64 = 1_000_000_000;

/// Sets CUPTI up, once per process. Whatever goes wrong is said and noted, and the program goes on.
pub fn start(session: &'static Session) {
    if STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    let explicit = std::env::var_os(VARIABLE_LIBRARY).map(PathBuf::from);
    let library = match Library::find(explicit.as_deref()) {
        Ok(library) => LIBRARY.get_or_init(|| library),
        Err(error) => {
            return problem(
                NoteLevel::Problem,
                &format!(
                    "CUDA calls are not recorded: {error}; install nvidia-cuda-cupti or set {VARIABLE_LIBRARY}"
                ),
            );
        }
    };
    TIMELINE.store(with_timeline(), Ordering::Relaxed);
    match subscribe(library) {
        Ok(()) => ACTIVE_IN.store(std::process::id(), Ordering::Release),
        Err(reason) => return problem(NoteLevel::Problem, &format!("CUDA calls are not recorded: {reason}")),
    }
    if let Err((what, result)) = collect_records(library) {
        problem(
            NoteLevel::Warning,
            &format!("pinned and pageable copies can't be told apart: {what} answered {result}"),
        );
    }
    if let Ok(version) = library.version() {
        session.tell("cupti", &version.to_string());
        thread::with(|thread| {
            if let Some(log) = thread.log() {
                log.write(&Record::Meta { key: meta::CUPTI, value: version.to_string().as_bytes() });
                log.write(&Record::Clock(clock::pair(timestamp_ns)));
            }
        });
    }
}

/// Whether kernels are to be recorded too.
fn with_timeline() -> bool {
    std::env::var_os(VARIABLE_TIMELINE).is_some_and(|value| value == "1")
}

/// CUPTI reports what it was asked for; another client of the library may have asked for more.
fn is_listed(function: &cupti_sys::Call) -> bool {
    !matches!(function.class, Class::Launch | Class::MemsetAsync | Class::StreamWaitEvent)
        || TIMELINE.load(Ordering::Relaxed)
}

/// The calls that are looked at. A timeline needs to know when each piece of work was issued.
fn listed() -> impl Iterator<Item = &'static cupti_sys::Call> {
    cbid::all().chain(cbid::timeline().filter(|_| with_timeline()))
}

fn subscribe(library: &Library) -> Result<(), String> {
    let path = library.path().display();
    let mut subscriber: Subscriber = std::ptr::null_mut();
    // SAFETY: CUPTI writes the handle and keeps the callback, which stays mapped.
    let result = unsafe { (library.subscribe)(&mut subscriber, on_call, std::ptr::null_mut()) };
    match result {
        CuptiResult::SUCCESS => {}
        CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
            return Err(format!(
                "another tool (Nsight, a debugger, a profiler) holds the CUPTI subscription of this process ({result} \
                 of {path}); run without it"
            ));
        }
        _ => return Err(format!("cuptiSubscribe of {path} answered {result}")),
    }
    let mut refused = Vec::new();
    for call in listed() {
        // SAFETY: a live subscription; an id that the library doesn't know is answered, not acted on.
        let result = unsafe { (library.enable_callback)(1, subscriber, call.domain, call.cbid) };
        // Ids newer than the library are INVALID_PARAMETER; there are no such calls then.
        if !result.is_ok() && result != CuptiResult::INVALID_PARAMETER {
            refused.push(format!("{} ({result})", call.name));
        }
    }
    match refused.first() {
        None => Ok(()),
        Some(first) => {
            // SAFETY: the subscription made above.
            let _ = unsafe { (library.unsubscribe)(subscriber) };
            Err(format!("{} of {path} can't be followed: {first} ...", refused.len()))
        }
    }
}

/// Activity records: what the callbacks can't tell (pinned or pageable, GPU times, copies inside of graphs).
fn collect_records(library: &'static Library) -> Result<(), (&'static str, CuptiResult)> {
    let ok = |what, result: CuptiResult| if result.is_ok() { Ok(()) } else { Err((what, result)) };
    buffers::prepare();
    // SAFETY: plain integers and functions that stay mapped, here and below.
    unsafe {
        ok(
            "cuptiActivityRegisterCallbacks",
            (library.activity_register_callbacks)(buffers::requested, buffers::completed),
        )?;
        enable_correlation(library)?;
        for (kind, what) in [
            (kind::MEMCPY, "cuptiActivityEnable(MEMCPY)"),
            (kind::MEMSET, "cuptiActivityEnable(MEMSET)"),
            (kind::SYNCHRONIZATION, "cuptiActivityEnable(SYNCHRONIZATION)"),
            (kind::OVERHEAD, "cuptiActivityEnable(OVERHEAD)"),
        ] {
            ok(what, (library.activity_enable)(kind))?;
        }
        // Also the ones that failed; missing before 12.8, and nothing depends on it.
        if let Some(enable_all) = library.activity_enable_all_sync_records {
            let _ = enable_all(1);
        }
        if with_timeline() {
            ok("cuptiActivityEnable(CONCURRENT_KERNEL)", (library.activity_enable)(kind::CONCURRENT_KERNEL))?;
        }
    }
    Ok(())
}

/// Records carry correlation ids only while API records are made. Where CUPTI can restrict those to the calls of the
/// table (since 12.6), it does: a record of every launch would cost more than all the rest.
fn enable_correlation(library: &Library) -> Result<(), (&'static str, CuptiResult)> {
    // SAFETY: plain integers.
    unsafe {
        let (Some(runtime), Some(driver)) =
            (library.activity_enable_runtime_api, library.activity_enable_driver_api)
        else {
            for kind in [kind::RUNTIME, kind::DRIVER] {
                let result = (library.activity_enable)(kind);
                if !result.is_ok() {
                    return Err(("cuptiActivityEnable(RUNTIME, DRIVER)", result));
                }
            }
            return Ok(());
        };
        for call in listed() {
            let enable = if call.domain == domain::RUNTIME_API { runtime } else { driver };
            let result = enable(call.cbid, 1);
            if !result.is_ok() && result != CuptiResult::INVALID_PARAMETER {
                return Err(("cuptiActivityEnableRuntimeApi or DriverApi", result));
            }
        }
    }
    Ok(())
}

/// Every driver and runtime call of the table comes here, twice, on the thread that makes it.
unsafe extern "C" fn on_call(_user: *mut c_void, domain: u32, cbid: u32, data: *const CallbackData) {
    guard((), || {
        let Some(function) = cbid::find(domain, cbid).filter(|function| is_listed(function)) else { return };
        // SAFETY: CUPTI passes the data of the call under way for these two domains.
        let Some(data) = (unsafe { data.as_ref() }) else { return };
        // SAFETY: as above.
        let may_have_waited = thread::with(|thread| unsafe { calls::callback(thread, function, data) });
        // Outside of the thread's state: delivering records enters it again.
        if may_have_waited == Some(true) {
            flush_if_due();
        }
    });
}

/// Asks for the finished records once in a while, from the end of a call that may have waited: the host was idle
/// anyway, and a driver or runtime callback is a place where CUPTI allows it.
fn flush_if_due() {
    let now_ns = clock::monotonic_ns();
    let due_ns = NEXT_FLUSH_NS.load(Ordering::Relaxed);
    if now_ns < due_ns || !is_active() {
        return;
    }
    let next_ns = now_ns + FLUSH_INTERVAL_NS;
    // One thread does it.
    if NEXT_FLUSH_NS.compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed).is_err()
        || due_ns == 0
    {
        return;
    }
    flush(0);
}

fn flush(flag: u32) {
    let Some(library) = LIBRARY.get() else { return };
    // SAFETY: plain integer; the callers are where CUPTI allows it.
    let _ = unsafe { (library.activity_flush_all)(flag) };
    thread::with(|thread| {
        if let Some(log) = thread.log() {
            log.write(&Record::Clock(clock::pair(timestamp_ns)));
        }
    });
}

/// The last chance for records. Unfinished ones come too, without an end.
pub fn flush_at_exit() {
    if is_active() {
        flush(FLAG_FLUSH_FORCED);
        count_drops();
    }
}

/// Counts what CUPTI says it dropped. Only once records were delivered: on a library that never came up, asking
/// crashes (13.2 and 13.5 with a driver but no device).
fn count_drops() {
    let (Some(library), Some(session)) = (LIBRARY.get(), session::current()) else { return };
    if !buffers::any_delivered() {
        return;
    }
    let mut dropped = 0usize;
    // SAFETY: the global queue of a library that works; writes one integer.
    let result = unsafe { (library.activity_get_num_dropped_records)(std::ptr::null_mut(), 0, &mut dropped) };
    if result.is_ok() && dropped > 0 {
        session.writer.count_loss(LossReason::CuptiDropped, dropped as u64);
    }
}

/// CUPTI's clock, where it works.
pub fn timestamp_ns() -> Option<u64> {
    if !is_active() {
        return None;
    }
    LIBRARY.get()?.timestamp_ns().ok()
}

fn is_active() -> bool {
    ACTIVE_IN.load(Ordering::Acquire) == std::process::id()
}

fn library() -> Option<&'static Library> {
    LIBRARY.get()
}
