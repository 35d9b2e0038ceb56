//! The program that `bench` runs with and without the tracer.
//!
//! In: what to do. Out, for `costs`: nanoseconds per call, per range and per wait as JSON on stdout; for `million`: nothing but the
//! trace, which then holds a million events of a plausible mix. Uses the driver API alone, looked up at run time.

#![allow(unsafe_code)]

use libloading::Library;
use serde_json::{Value, json};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::time::Instant;

/// What one process measured; wall-clock nanoseconds each, the tracer's part included if it was there.
pub struct Costs {
    pub call_ns: f64,
    pub range_ns: f64,
    pub wait_ns: f64,
}

impl Costs {
    pub fn from_json(value: &Value) -> Option<Costs> {
        let of = |key: &str| value[key].as_f64();
        Some(Costs { call_ns: of("call_ns")?, range_ns: of("range_ns")?, wait_ns: of("wait_ns")? })
    }
}

pub fn main(what: &str) -> Result<(), String> {
    let device = Device::start()?;
    match what {
        "costs" => {
            let costs = json!({
                "call_ns": best(20_000, || device.query()),
                "range_ns": best(20_000, || {
                    nvtx_client::push(c"range");
                    nvtx_client::pop();
                    0
                }),
                "wait_ns": best(5_000, || device.synchronize()),
            });
            println!("{costs}");
            Ok(())
        }
        "million" => device.million(),
        other => Err(format!("no such measurement: {other}")),
    }
}

/// The best of several rounds, per repetition: other work on the machine only ever adds.
fn best(repetitions: u32, mut act: impl FnMut() -> c_int) -> f64 {
    (0..9)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..repetitions {
                std::hint::black_box(act());
            }
            start.elapsed().as_nanos() as f64 / f64::from(repetitions)
        })
        .fold(f64::INFINITY, f64::min)
}

// With the types of `cuda.h`.
type Init = unsafe extern "C" fn(c_uint) -> c_int;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type PrimaryCtxRetain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type CtxSetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type StreamCreate = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int;
type MemAlloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type MemHostAlloc = unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_int;
type OnStream = unsafe extern "C" fn(*mut c_void) -> c_int;
type MemcpyHtoDAsync = unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> c_int;
type MemcpyDtoHAsync = unsafe extern "C" fn(*mut c_void, u64, usize, *mut c_void) -> c_int;

struct Device {
    stream: *mut c_void,
    memory: u64,
    pinned: *mut c_void,
    stream_query: OnStream,
    stream_synchronize: OnStream,
    upload: MemcpyHtoDAsync,
    download: MemcpyDtoHAsync,
}

impl Device {
    fn start() -> Result<Device, String> {
        // SAFETY: loading runs the constructors of the CUDA driver or of our stand-in for it.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        // The functions are used to the end of the process.
        let library: &'static Library = Box::leak(Box::new(library));
        fn find<F: Copy>(library: &'static Library, name: &str) -> Result<F, String> {
            // SAFETY: every caller below pairs a name with the type that cuda.h gives it.
            let symbol = unsafe { library.get::<F>(name.as_bytes()) };
            symbol.map(|symbol| *symbol).map_err(|error| error.to_string())
        }
        let done = |call: &str, result: c_int| match result {
            0 => Ok(()),
            code => Err(format!("{call}: CUDA error {code}")),
        };
        let (mut device, mut context, mut stream, mut memory, mut pinned) =
            (0, ptr::null_mut(), ptr::null_mut(), 0, ptr::null_mut());
        let init = find::<Init>(library, "cuInit")?;
        let get = find::<DeviceGet>(library, "cuDeviceGet")?;
        let retain = find::<PrimaryCtxRetain>(library, "cuDevicePrimaryCtxRetain")?;
        let set = find::<CtxSetCurrent>(library, "cuCtxSetCurrent")?;
        let create = find::<StreamCreate>(library, "cuStreamCreate")?;
        let allocate = find::<MemAlloc>(library, "cuMemAlloc_v2")?;
        let allocate_pinned = find::<MemHostAlloc>(library, "cuMemHostAlloc")?;
        // SAFETY: every out-parameter is a valid place of its type, and every handle comes from the call before.
        unsafe {
            done("cuInit", init(0))?;
            done("cuDeviceGet", get(&raw mut device, 0))?;
            done("cuDevicePrimaryCtxRetain", retain(&raw mut context, device))?;
            done("cuCtxSetCurrent", set(context))?;
            done("cuStreamCreate", create(&raw mut stream, 1))?;
            done("cuMemAlloc", allocate(&raw mut memory, 4))?;
            done("cuMemHostAlloc", allocate_pinned(&raw mut pinned, 4, 0))?;
        }
        Ok(Device {
            stream,
            memory,
            pinned,
            stream_query: find(library, "cuStreamQuery")?,
            stream_synchronize: find(library, "cuStreamSynchronize")?,
            upload: find(library, "cuMemcpyHtoDAsync_v2")?,
            download: find(library, "cuMemcpyDtoHAsync_v2")?,
        })
    }

    fn query(&self) -> c_int {
        // SAFETY: the stream is a stream of the current context.
        unsafe { (self.stream_query)(self.stream) }
    }

    fn synchronize(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (self.stream_synchronize)(self.stream) }
    }

    fn upload(&self) -> c_int {
        // SAFETY: both sides hold four bytes and live to the end of the process.
        unsafe { (self.upload)(self.memory, self.pinned, 4, self.stream) }
    }

    fn download(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (self.download)(self.pinned, self.memory, 4, self.stream) }
    }

    /// Ten thousand steps of a hundred and one events: ranges, an upload in each eighth of them, nine reads.
    fn million(&self) -> Result<(), String> {
        for step in 0..10_000 {
            nvtx_client::push_with_payload(c"step", step);
            for range in 0..38 {
                nvtx_client::push(c"part of a step");
                if range % 8 == 0 && self.upload() != 0 {
                    return Err("an upload failed".to_owned());
                }
                nvtx_client::pop();
            }
            for _ in 0..9 {
                if self.download() != 0 || self.synchronize() != 0 {
                    return Err("a read failed".to_owned());
                }
            }
            nvtx_client::pop();
        }
        Ok(())
    }
}
