//! The life of the driver in a process: initialisation with injection, fork, exit.
//!
//! What it must never do: keep the process alive, hang a forked child, or let a stream worker run a program's code
//! while the program's own statics are being torn down.

use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::args::Out;
use crate::error::{Error, Result};
use crate::handles::lock;

static READY: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static EXITING: AtomicBool = AtomicBool::new(false);

/// How long exit waits for an operation that a worker is in the middle of. Only a kernel or host function that hangs
/// uses it up; without a bound such a process could not end.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// CUDA 12.8, the version whose surface is emulated.
pub const DRIVER_VERSION: i32 = 12080;

entry_points! {
    cuInit(flags: u32) [anywhere] => initialise(flags);
    cuDriverGetVersion(version: Out<i32>) [anywhere] => version.set(DRIVER_VERSION);
}

/// What a call may rely on right now: `Err` after fork, during exit and before `cuInit`.
pub fn check_ready() -> Result {
    check_alive()?;
    if READY.load(SeqCst) { Ok(()) } else { Err(Error::NOT_INITIALIZED) }
}

/// As [`check_ready`], for calls that work before `cuInit`.
pub fn check_alive() -> Result {
    if FORKED.load(SeqCst) {
        Err(Error::NOT_INITIALIZED)
    } else if EXITING.load(SeqCst) {
        Err(Error::DEINITIALIZED)
    } else {
        Ok(())
    }
}

/// True in the child of a fork that came after `cuInit`.
pub fn forked() -> bool {
    FORKED.load(SeqCst)
}

fn initialise(flags: u32) -> Result {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    thread_local! {
        /// `cuInit` is on this thread's stack: an injected library may call it again.
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }
    if FORKED.load(SeqCst) {
        return Err(Error::OPERATING_SYSTEM); // as the real driver answers, measured
    }
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    if READY.load(SeqCst) || INSIDE.get() {
        return Ok(());
    }
    let _turn = lock(&ONE_AT_A_TIME);
    if READY.load(SeqCst) {
        return Ok(());
    }
    INSIDE.set(true);
    // SAFETY: both handlers are functions of this library, which is never unmapped (nodelete). They are registered
    // before the injected library registers its own, so that its exit handler runs first, as with the real driver.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_forked_child));
        libc::atexit(at_exit);
    }
    inject();
    READY.store(true, SeqCst);
    INSIDE.set(false);
    Ok(())
}

/// Loads the library that `CUDA_INJECTION64_PATH` names and calls its `InitializeInjection`. Failures are silent and
/// the answer is ignored, as with the real driver.
fn inject() {
    let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH").filter(|p| !p.is_empty()) else { return };
    let Ok(path) = CString::new(std::os::unix::ffi::OsStringExt::into_vec(path)) else { return };
    // SAFETY: loading the library runs its initialisers, which is what the variable asks for.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return;
    }
    // SAFETY: `library` is a live handle and the name is NUL-terminated.
    let function = unsafe { libc::dlsym(library, c"InitializeInjection".as_ptr()) };
    if function.is_null() {
        return;
    }
    // SAFETY: the injection contract: `int InitializeInjection(void)`.
    unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i32>(function)() };
}

extern "C" fn in_forked_child() {
    FORKED.store(true, SeqCst);
}

/// Operations that workers are in the middle of.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static EXIT_LOCK: Mutex<()> = Mutex::new(());
static EXIT_SIGNAL: Condvar = Condvar::new();

extern "C" fn at_exit() {
    if FORKED.load(SeqCst) {
        return;
    }
    EXITING.store(true, SeqCst);
    let guard = lock(&EXIT_LOCK);
    let _ = EXIT_SIGNAL.wait_timeout_while(guard, EXIT_PATIENCE, |()| RUNNING.load(SeqCst) > 0);
}

/// Runs one operation of a stream, unless the process is exiting: then the worker stops here for good.
pub fn run_unless_exiting<R>(operation: impl FnOnce() -> R) -> R {
    RUNNING.fetch_add(1, SeqCst);
    if EXITING.load(SeqCst) {
        operation_ended();
        loop {
            std::thread::park();
        }
    }
    let result = operation();
    operation_ended();
    result
}

fn operation_ended() {
    RUNNING.fetch_sub(1, SeqCst);
    if EXITING.load(SeqCst) {
        drop(lock(&EXIT_LOCK));
        EXIT_SIGNAL.notify_all();
    }
}
