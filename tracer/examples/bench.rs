//! What the tracer costs the program, per event: `cargo run --release -p syncaudit-tracer --example bench`.
//!
//! In: the built tracer, a mock driver and CUPTI (compiled here, needs a C compiler). Out: a table in nanoseconds: the best and
//! the median of many short rounds, so that a busy machine shows as a gap between the two. Nothing is asserted: a number is for reading, not for a test.

#![allow(unsafe_code)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

type MockCallback = unsafe extern "C" fn(u32, u32, u32, *const c_void, u32, c_int);
type Slot = *const c_void;
type Push = extern "C" fn(*const c_char) -> c_int;
type Pop = extern "C" fn() -> c_int;

const ROUNDS: u32 = 100;
const EVENTS: u32 = 1_000;

const ENTER: u32 = 0;
const EXIT: u32 = 1;
const DRIVER: u32 = 1;
const RUNTIME: u32 = 2;

fn main() {
    let scratch = support::private_directory();
    let mock = scratch.path().join("libcuda.so.1");
    support::compile("mock_cuda.c", &mock, &["-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    // SAFETY: no other thread yet.
    unsafe {
        std::env::set_var("SYNCAUDIT_TRACE_DIR", scratch.path());
        std::env::set_var("SYNCAUDIT_CUPTI", &mock);
        std::env::set_var("CUDA_INJECTION64_PATH", support::tracer());
    }
    // Before the driver comes up: that is when the tracer looks for it.
    let python = Python::start();
    let driver = open(&mock);
    let tracer = open(&support::tracer());
    // SAFETY: the mock's own functions, see mock_cuda.c; the tracer's entry point.
    let (callback, nvtx) = unsafe {
        let init: unsafe extern "C" fn(c_uint) -> c_int = std::mem::transmute(symbol(driver, c"cuInit"));
        assert_eq!(init(0), 0);
        let nvtx: unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int =
            std::mem::transmute(symbol(tracer, c"InitializeInjectionNvtx2"));
        let callback: MockCallback = std::mem::transmute(symbol(driver, c"mock_callback"));
        (callback, nvtx)
    };
    let (push, pop) = nvtx_functions(nvtx);

    println!("{:<64} {:>8} {:>8}", "nanoseconds per event", "best", "median");
    let call = |name: &str, domain: u32, cbid: u32, block: &[u64], result: c_int| {
        let block = block.as_ptr().cast();
        // SAFETY: the block has the layout of this call's arguments.
        report(name, || unsafe {
            callback(ENTER, domain, cbid, block, 1, 0);
            callback(EXIT, domain, cbid, block, 1, result);
        });
    };
    call("call that is no wait: cuMemAllocAsync", DRIVER, 598, &[1, 4096, 7], 0);
    call("call that is no wait: copy on the device", DRIVER, 281, &[1, 2, 4096, 7], 0);
    call("query that is not ready, in a loop", DRIVER, 120, &[7], 600);
    call("query that is ready", DRIVER, 120, &[7], 0);
    call("wait: cuStreamSynchronize, native stack", DRIVER, 126, &[7], 0);
    let copy = [1u64, 2, 4096, 2, 7];
    // SAFETY: as above; 41 is cudaMemcpyAsync, 279 cuMemcpyDtoHAsync_v2.
    report("copy to the host, driver call inside runtime call, native stack", || unsafe {
        let inner = [1u64, 2, 4096, 7];
        callback(ENTER, RUNTIME, 41, copy.as_ptr().cast(), 1, 0);
        callback(ENTER, DRIVER, 279, inner.as_ptr().cast(), 1, 0);
        callback(EXIT, DRIVER, 279, inner.as_ptr().cast(), 1, 0);
        callback(EXIT, RUNTIME, 41, copy.as_ptr().cast(), 1, 0);
    });
    deep(20, &mut || call("the same wait, 20 frames deeper", DRIVER, 126, &[7], 0));
    match &python {
        // The C stack is the same in both from 3.11 on: the difference is what 30 Python frames cost.
        Some(python) => {
            let wait = || call("the same wait, called from 1 Python frame", DRIVER, 126, &[7], 0);
            python.call_at_depth(1, &wait);
            let wait = || call("the same wait, called from 31 Python frames", DRIVER, 126, &[7], 0);
            python.call_at_depth(31, &wait);
        }
        None => println!("no libpython3.9 to 3.14: no rows with Python frames"),
    }
    report("NVTX push + pop", || {
        push(c"forward".as_ptr());
        pop();
    });
    let names: Vec<CString> = (0..100).map(|i| CString::new(format!("aten::op_{i}")).unwrap()).collect();
    let mut next = names.iter().cycle();
    report("NVTX push + pop, 100 names", || {
        push(next.next().unwrap().as_ptr());
        pop();
    });
}

/// An interpreter in this process.
struct Python {
    run: unsafe extern "C" fn(*const c_char) -> c_int,
}

impl Python {
    fn start() -> Option<Self> {
        let name = |minor| CString::new(format!("libpython3.{minor}.so.1.0")).unwrap();
        // SAFETY: loads a library that the system has; its names are then there for all, as in a `python` executable.
        let library = (9..=14)
            .rev()
            .map(|minor| unsafe { libc::dlopen(name(minor).as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) })
            .find(|library| !library.is_null())?;
        // SAFETY: CPython's functions of these names have these types; single thread.
        unsafe {
            let initialize: unsafe extern "C" fn(c_int) =
                std::mem::transmute(symbol(library, c"Py_InitializeEx"));
            initialize(0);
            Some(Self {
                run: std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn(*const std::ffi::c_char) -> std::ffi::c_int,
                >(symbol(library, c"PyRun_SimpleString")),
            })
        }
    }

    /// Calls `body` from that many Python frames, through ctypes, without the GIL.
    fn call_at_depth(&self, frames: u32, body: &dyn Fn()) {
        thread_local!(static BODY: std::cell::Cell<*const (dyn Fn() + 'static)> = const { std::cell::Cell::new(&|| ()) });
        unsafe extern "C" fn call() {
            // SAFETY: set below for as long as the script runs.
            BODY.with(|body| unsafe { (*body.get())() });
        }
        // SAFETY: only the lifetime changes; the pointer is used until the script returns.
        BODY.set(unsafe { std::mem::transmute::<*const dyn Fn(), *const (dyn Fn() + 'static)>(body) });
        let script = format!(
            "import ctypes\nrun = ctypes.CFUNCTYPE(None)({})\ndef deep(n):\n  if n: deep(n - 1)\n  else: run()\ndeep({}) if {frames} > 1 else run()\n",
            call as *const () as usize,
            frames.saturating_sub(2),
        );
        let script = CString::new(script).unwrap();
        // SAFETY: an initialised interpreter, whose GIL this thread has.
        assert_eq!(unsafe { (self.run)(script.as_ptr()) }, 0);
    }
}

/// Frames between the call and the outer end of the stack.
#[inline(never)]
fn deep(levels: u32, body: &mut dyn FnMut()) {
    if levels == 0 {
        body()
    } else {
        deep(levels - 1, body)
    }
    black_box(());
}

fn report(name: &str, mut event: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..EVENTS {
                event();
            }
            start.elapsed().as_nanos() as f64 / f64::from(EVENTS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<64} {:>8.0} {:>8.0}", rounds[0], rounds[rounds.len() / 2]);
}

fn open(path: &std::path::Path) -> *mut c_void {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: loading our own libraries.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{} could not be loaded", path.display());
    handle
}

fn symbol(library: *mut c_void, name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: an open library.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!symbol.is_null(), "{name:?}");
    symbol
}

/// Runs the injection protocol with a CORE table and gives its push and pop.
fn nvtx_functions(
    init: unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int,
) -> (Push, Pop) {
    static mut SLOTS: [Slot; 16] = [std::ptr::null(); 16];
    static mut TABLE: [*mut Slot; 16] = [std::ptr::null_mut(); 16];
    #[repr(C)]
    struct Callbacks {
        size: usize,
        get: unsafe extern "C" fn(c_int, *mut *mut *mut Slot, *mut c_uint) -> c_int,
    }
    unsafe extern "C" fn get(module: c_int, table: *mut *mut *mut Slot, size: *mut c_uint) -> c_int {
        if module == 1 {
            // SAFETY: the tracer passes two places to write to.
            unsafe {
                *table = (&raw mut TABLE).cast();
                *size = 16;
            }
        }
        c_int::from(module == 1)
    }
    unsafe extern "C" fn export(id: u32) -> *const c_void {
        static CALLBACKS: Callbacks = Callbacks { size: 16, get };
        if id == 1 { (&raw const CALLBACKS).cast() } else { std::ptr::null() }
    }
    // SAFETY: single thread; slots 9 and 11 are nvtxRangePushA and nvtxRangePop.
    unsafe {
        let (slots, table) = ((&raw mut SLOTS).cast::<Slot>(), (&raw mut TABLE).cast::<*mut Slot>());
        for slot in 1..16 {
            *table.add(slot) = slots.add(slot);
        }
        assert_eq!(init(export), 1);
        (std::mem::transmute::<Slot, Push>(*slots.add(9)), std::mem::transmute::<Slot, Pop>(*slots.add(11)))
    }
}
