//! The recording of this process image: opened by the first sign of NVTX or CUDA, given up by a forked child, closed
//! when the program exits.
//!
//! In: the environment, once. Out: the one [`Session`] that everything is written to, or none (tracing is off). Must
//! never make a thread of the program wait for another one for longer than creating a file takes, and never take a
//! lock that a fork could leave behind locked.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use syncaudit_eventlog::{EndReason, LogWriter, ModuleId, NoteLevel, Options, Record, ThreadLog, meta};

use crate::boundary::{guard, say};
use crate::stacks::modules::Snapshot;
use crate::trace_dir::{self, Handshake};
use crate::{clock, cupti, thread};

/// One recording. Lives for ever, since threads may still be writing when the program exits.
pub struct Session {
    pub writer: LogWriter,
    /// Tells recordings of one process apart (a child opens its own); never 0.
    pub number: u32,
    handshake: Option<Handshake>,
    modules: Mutex<Option<Arc<Snapshot>>>,
    modules_defined: AtomicU32,
    nvtx_seen: AtomicBool,
}

const UNOPENED: u8 = 0;
const OPENING: u8 = 1;
const OPEN: u8 = 2;
/// No directory, a refused one, or the program is past its end.
const OFF: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(UNOPENED);
static CURRENT: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// The open recording, opening it if this is the first event of the process (or of a forked child).
#[inline]
pub fn current() -> Option<&'static Session> {
    already_open().or_else(open)
}

/// The open recording of this process, if there is one.
#[inline]
pub fn already_open() -> Option<&'static Session> {
    // SAFETY: null or a leaked `Session`.
    let session = unsafe { CURRENT.load(Ordering::Acquire).as_ref() };
    session.filter(|session| session.writer.is_alive())
}

#[cold]
fn open() -> Option<&'static Session> {
    // SAFETY: as in `already_open`.
    if let Some(stale) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
        && !stale.writer.is_alive()
    {
        // A child that was made without running fork handlers.
        forget_parent();
    }
    // Creating a file takes microseconds; the bound is for a child forked in the middle of it.
    for _ in 0..100_000 {
        match STATE.compare_exchange(UNOPENED, OPENING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let session = guard(None, create);
                let state = if session.is_some() { OPEN } else { OFF };
                let pointer =
                    session.map_or(std::ptr::null_mut(), |session| std::ptr::from_ref(session).cast_mut());
                CURRENT.store(pointer, Ordering::Release);
                STATE.store(state, Ordering::Release);
                if let Some(session) = session {
                    describe_process(session);
                }
                return session;
            }
            // SAFETY: as in `already_open`.
            Err(OPEN) => return unsafe { CURRENT.load(Ordering::Acquire).as_ref() },
            Err(OPENING) => std::thread::yield_now(),
            Err(_) => return None,
        }
    }
    None
}

fn create() -> Option<&'static Session> {
    let directory = PathBuf::from(std::env::var_os(trace_dir::VARIABLE)?);
    if let Err(reason) = trace_dir::check(&directory) {
        say(&reason);
        return None;
    }
    let writer = match LogWriter::create(&directory, Options::default()) {
        Ok(writer) => writer,
        Err(error) => {
            say(&format!("not tracing: {error}; free some space or choose another directory"));
            return None;
        }
    };
    let handshake = Handshake::create(writer.path())
        .inspect_err(|error| say(&format!("the handshake file could not be written: {error}")))
        .ok();
    let session = Box::leak(Box::new(Session {
        writer,
        number: SESSIONS.fetch_add(1, Ordering::Relaxed) + 1,
        handshake,
        modules: Mutex::new(None),
        modules_defined: AtomicU32::new(0),
        nvtx_seen: AtomicBool::new(false),
    }));
    session.tell("tracer", env!("CARGO_PKG_VERSION"));
    watch_for_fork();
    at_exit();
    Some(session)
}

/// What a report needs to know about the process: its own command line, its rank, nothing else of the environment.
fn describe_process(session: &'static Session) {
    thread::with(|thread| {
        let Some(log) = thread.log() else { return };
        let program = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        log.write(&Record::Meta { key: meta::PROGRAM, value: &program });
        log.write(&Record::Meta { key: meta::TRACER, value: env!("CARGO_PKG_VERSION").as_bytes() });
        log.write(&Record::Meta { key: meta::ARCH, value: std::env::consts::ARCH.as_bytes() });
        for (variable, key) in
            [("RANK", meta::RANK), ("LOCAL_RANK", meta::LOCAL_RANK), ("WORLD_SIZE", meta::WORLD_SIZE)]
        {
            // Numbers only: whatever else stands there is the program's business.
            if let Some(number) = std::env::var(variable).ok().and_then(|value| value.parse::<u32>().ok()) {
                log.write(&Record::Meta { key, value: number.to_string().as_bytes() });
            }
        }
        log.write(&Record::Clock(clock::pair(|| None)));
        session.refresh_modules(log);
    });
}

impl Session {
    /// A line of the handshake.
    pub fn tell(&self, key: &str, value: &str) {
        if let Some(handshake) = &self.handshake {
            handshake.add(key, value);
        }
    }

    /// Says once in the handshake that NVTX reached the tracer.
    pub fn nvtx_came_up(&self) {
        if !self.nvtx_seen.swap(true, Ordering::Relaxed) {
            self.tell("nvtx", "1");
        }
    }

    /// The modules as they are now; new ones are defined in the log. `None` while another thread is at it.
    pub fn refresh_modules(&self, log: &mut ThreadLog<'static>) -> Option<Arc<Snapshot>> {
        // Never waits: a stack with a slightly older table beats a thread that waits.
        let mut known = match self.modules.try_lock() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if let Some(known) = known.as_ref().filter(|known| known.is_current()) {
            return Some(known.clone());
        }
        let snapshot = Snapshot::take(known.as_deref());
        let loaded_ns = clock::monotonic_ns();
        for module in &snapshot.modules {
            if known.as_ref().is_some_and(|known| known.modules.contains(module)) {
                continue;
            }
            let path = log.str(std::os::unix::ffi::OsStrExt::as_bytes(module.path.as_os_str()));
            log.write(&Record::Module {
                id: self.next_module(),
                loaded_ns,
                base: module.range.start,
                end: module.range.end,
                bias: module.bias,
                path,
                build_id: &module.build_id,
            });
        }
        *known = Some(snapshot.clone());
        Some(snapshot)
    }
}

impl Session {
    fn next_module(&self) -> ModuleId {
        ModuleId(self.modules_defined.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// Something is missing from the recording: one line on stderr, a line in the handshake, a note in the log.
pub fn problem(level: NoteLevel, text: &str) {
    say(text);
    if let Some(session) = current() {
        session.tell("problem", text);
        thread::with(|thread| {
            if let Some(log) = thread.log() {
                log.write(&Record::Note { t_ns: clock::monotonic_ns(), level, text: text.as_bytes() });
            }
        });
    }
}

/// The recording is over: what comes now is the program's own end. Only the first call does anything.
fn close(code: u32) {
    // A child in which nothing happened has no recording, and needs none now.
    let Some(session) = already_open() else { return };
    cupti::flush_at_exit();
    let end = |log: &mut ThreadLog<'static>| {
        log.write(&Record::Clock(clock::pair(cupti::timestamp_ns)));
        // From here on no thread starts a record.
        STATE.store(OFF, Ordering::Release);
        CURRENT.store(std::ptr::null_mut(), Ordering::Release);
        log.end(EndReason::Exit, code);
    };
    let ended = thread::with(|thread| {
        thread.end_query_run();
        thread.log().map(end)
    });
    if ended.flatten().is_none() {
        // `exit` was called from inside of the tracer, by a signal handler.
        end(&mut session.writer.thread());
    }
}

/// Asks to be called when the program exits. Handlers run in the reverse order of registration, so each call puts
/// the recording's end before the ends of everything that was registered until now (libcuda's, libcupti's).
pub fn at_exit() {
    extern "C" fn handler(status: c_int, _: *mut c_void) {
        guard((), || close(status as u32));
    }
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        }
        // SAFETY: glibc's `on_exit` keeps the function, which stays mapped (`-z nodelete`).
        unsafe { on_exit(handler, std::ptr::null_mut()) };
    }
    #[cfg(not(target_env = "gnu"))]
    {
        extern "C" fn without_status() {
            handler(0, std::ptr::null_mut());
        }
        // SAFETY: as above.
        unsafe { libc::atexit(without_status) };
    }
}

/// Has a forked child start over.
fn watch_for_fork() {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn child() {
        forget_parent();
    }
    if !WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler only stores to atomics and stays mapped (`-z nodelete`).
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    }
}

/// In a child: the parent's recording is left alone, the next event opens one of the child's own.
fn forget_parent() {
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
    // A parent without tracing has children without.
    if STATE.load(Ordering::Acquire) != OFF {
        STATE.store(UNOPENED, Ordering::Release);
    }
}
