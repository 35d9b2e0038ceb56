//! The program that `doctor` traces: four steps, one of which waits for the device, once.
//!
//! In: whatever `libcuda.so.1` the loader finds. Out: exit 0 after exactly one read of four bytes and the synchronise that
//! completes it, in one step; no other call in a step may wait. Uses the driver API alone, looked up at run time, so that
//! the command itself is linked with no CUDA library.

#![allow(unsafe_code)]

use crate::trouble::Trouble;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

/// What [`super::control`] looks for.
pub const STEPS: i64 = 4;
/// Neither of the two warm-up steps nor the last.
const STEP_THAT_WAITS: i64 = 2;
/// Name of the function from which the wait is made.
pub const WAITING_FUNCTION: &str = "read_that_waits";

type Result<T> = std::result::Result<T, Trouble>;

pub fn main() -> Result<u8> {
    let driver = Driver::open()?;
    driver.init()?;
    let stream = driver.new_stream()?;
    let memory = driver.allocate(size_of::<u32>())?;
    for step in 0..STEPS {
        nvtx_client::push_with_payload(c"step", step);
        let done = driver.fill(memory, 7, stream).and_then(|()| {
            if step == STEP_THAT_WAITS {
                read_that_waits(&driver, memory, stream).map(Some)
            } else {
                Ok(None)
            }
        });
        nvtx_client::pop();
        if let Some(value) = done?
            && value != 7
        {
            return Err(Trouble::new(
                "read back what was written to the device",
                format!("it is {value} and should be 7"),
                "the device or its driver is broken",
            ));
        }
    }
    Ok(0)
}

/// The wait. A function of its own, so that its name is in the stack.
#[inline(never)]
fn read_that_waits(driver: &Driver, memory: u64, stream: *mut c_void) -> Result<u32> {
    let mut value = [0u32; 1];
    driver.read(&mut value, memory, stream)?;
    Ok(value[0])
}

struct Driver {
    library: Library,
}

// The functions that are used, with the types of `cuda.h`.
type Init = unsafe extern "C" fn(c_uint) -> c_int;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type PrimaryCtxRetain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type CtxSetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type StreamCreate = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int;
type MemAlloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type MemsetD32Async = unsafe extern "C" fn(u64, c_uint, usize, *mut c_void) -> c_int;
type MemcpyDtoHAsync = unsafe extern "C" fn(*mut c_void, u64, usize, *mut c_void) -> c_int;
type StreamSynchronize = unsafe extern "C" fn(*mut c_void) -> c_int;
type GetErrorName = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

const STREAM_NON_BLOCKING: c_uint = 1;

impl Driver {
    fn open() -> Result<Driver> {
        // SAFETY: loading runs the library's constructors; it is the CUDA driver or our stand-in for it.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(|error| {
            Trouble::new(
                "load libcuda.so.1",
                error.to_string(),
                "install the driver, or use --device emulated",
            )
        })?;
        Ok(Driver { library })
    }

    /// The function of that name, which the caller knows to have type `F`.
    fn function<F: Copy>(&self, name: &'static str) -> Result<F> {
        // SAFETY: every caller below pairs a name with the type that cuda.h gives it.
        let symbol = unsafe { self.library.get::<F>(name.as_bytes()) };
        symbol.map(|symbol| *symbol).map_err(|error| {
            Trouble::new(format!("find {name} in libcuda.so.1"), error.to_string(), "update the driver")
        })
    }

    fn check(&self, call: &str, result: c_int) -> Result<()> {
        if result == 0 {
            return Ok(());
        }
        let name = self.function::<GetErrorName>("cuGetErrorName").ok().and_then(|get_name| {
            let mut name: *const c_char = ptr::null();
            // SAFETY: `name` is a valid place for a pointer.
            unsafe { get_name(result, &raw mut name) };
            // SAFETY: the driver answers with null or a constant string.
            (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
        });
        Err(Trouble::new(
            format!("do {call}"),
            name.unwrap_or_else(|| format!("CUDA error {result}")),
            "see whether nvidia-smi sees the GPU, or use --device emulated",
        ))
    }

    /// Driver, device 0, its primary context, current on this thread.
    fn init(&self) -> Result<()> {
        let (mut device, mut context) = (0, ptr::null_mut());
        let init = self.function::<Init>("cuInit")?;
        // SAFETY: cuInit takes a zero.
        self.check("cuInit", unsafe { init(0) })?;
        let get = self.function::<DeviceGet>("cuDeviceGet")?;
        // SAFETY: `device` is a valid place for a device number.
        self.check("cuDeviceGet", unsafe { get(&raw mut device, 0) })?;
        let retain = self.function::<PrimaryCtxRetain>("cuDevicePrimaryCtxRetain")?;
        // SAFETY: `context` is a valid place for a handle and `device` came from cuDeviceGet.
        self.check("cuDevicePrimaryCtxRetain", unsafe { retain(&raw mut context, device) })?;
        let set = self.function::<CtxSetCurrent>("cuCtxSetCurrent")?;
        // SAFETY: `context` came from cuDevicePrimaryCtxRetain and is kept to the end of the process.
        self.check("cuCtxSetCurrent", unsafe { set(context) })
    }

    fn new_stream(&self) -> Result<*mut c_void> {
        let mut stream = ptr::null_mut();
        let create = self.function::<StreamCreate>("cuStreamCreate")?;
        // SAFETY: `stream` is a valid place for a handle; a context is current.
        self.check("cuStreamCreate", unsafe { create(&raw mut stream, STREAM_NON_BLOCKING) })?;
        Ok(stream)
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut memory = 0;
        let allocate = self.function::<MemAlloc>("cuMemAlloc_v2")?;
        // SAFETY: `memory` is a valid place for a device pointer; a context is current.
        self.check("cuMemAlloc", unsafe { allocate(&raw mut memory, bytes) })?;
        Ok(memory)
    }

    /// Sets the word at `memory`, on the stream, without waiting.
    fn fill(&self, memory: u64, value: u32, stream: *mut c_void) -> Result<()> {
        let fill = self.function::<MemsetD32Async>("cuMemsetD32Async")?;
        // SAFETY: `memory` holds one word and `stream` is a stream of the current context.
        self.check("cuMemsetD32Async", unsafe { fill(memory, value, 1, stream) })
    }

    /// Copies to the host and waits for it: one wait made of two calls.
    fn read(&self, out: &mut [u32; 1], memory: u64, stream: *mut c_void) -> Result<()> {
        let copy = self.function::<MemcpyDtoHAsync>("cuMemcpyDtoHAsync_v2")?;
        let synchronize = self.function::<StreamSynchronize>("cuStreamSynchronize")?;
        // SAFETY: both sides hold the four bytes of `out`, which outlives the synchronise below.
        let copied = unsafe { copy(out.as_mut_ptr().cast(), memory, size_of_val(out), stream) };
        // SAFETY: `stream` is a stream of the current context.
        let synchronized = unsafe { synchronize(stream) };
        self.check("cuMemcpyDtoHAsync", copied)?;
        self.check("cuStreamSynchronize", synchronized)
    }
}
