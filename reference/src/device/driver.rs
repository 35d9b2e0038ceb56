//! The C boundary to the driver: each function makes one driver call and turns its result code into a [`Result`].
//!
//! In: raw handles owned by the types of the sibling modules. Never: a decision, or a second call behind the first.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys;

use super::error::{Error, Result};

/// A function of a loaded module.
#[derive(Debug, Clone, Copy)]
pub struct Function(pub sys::CUfunction);

// SAFETY: driver handles are plain identifiers which the driver allows to be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above; the driver serialises what it has to.
unsafe impl Sync for Function {}

fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: the driver writes a pointer to a static string, or null for a code that it does not know.
    let known = unsafe { sys::cuGetErrorName(result, &raw mut name) } == sys::CUresult::CUDA_SUCCESS;
    let name = if known && !name.is_null() {
        // SAFETY: not null, and a static NUL-terminated string by the driver's documentation.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    } else {
        "an unknown error".to_owned()
    };
    Err(Error::Driver { call, code: result as u32, name })
}

/// A retained primary context.
#[derive(Debug)]
pub struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
}

// SAFETY: a context handle may be made current on any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub fn open(ordinal: i32) -> Result<Self> {
        // SAFETY: only asks the dynamic loader; cudarc panics later if the library is missing, hence this check first.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver);
        }
        let mut device: sys::CUdevice = 0;
        let mut handle: sys::CUcontext = null_mut();
        // SAFETY: cuInit takes no pointers; the other two write to live locals.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            check("cuDeviceGet", sys::cuDeviceGet(&raw mut device, ordinal))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&raw mut handle, device))?;
        }
        let context = Self { device, handle };
        context.bind_to_thread()?;
        Ok(context)
    }

    pub fn bind_to_thread(&self) -> Result<()> {
        // SAFETY: the context is retained for as long as `self` lives.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.handle) })
    }

    pub fn name(&self) -> Result<String> {
        let mut text = [0 as c_char; 256];
        // SAFETY: the driver writes at most 256 bytes, NUL-terminated.
        check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), 256, self.device) })?;
        // SAFETY: NUL-terminated by the call above.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Compute capability as NVRTC wants it: 90 for 9.0.
    pub fn compute_capability(&self) -> Result<i32> {
        use sys::CUdevice_attribute_enum::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        Ok(self.attribute(MAJOR)? * 10 + self.attribute(MINOR)?)
    }

    fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: writes one int to a live local.
        let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, self.device) };
        check("cuDeviceGetAttribute", result)?;
        Ok(value)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`, released once here. A failure at exit has no one to report to.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// How many devices there are. Initialises the driver.
pub fn device_count() -> Result<usize> {
    // SAFETY: only asks the dynamic loader; cudarc panics later if the library is missing, hence this check first.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::NoDriver);
    }
    let mut count: c_int = 0;
    // SAFETY: cuInit takes no pointers; the other writes one number to a live local.
    unsafe {
        check("cuInit", sys::cuInit(0))?;
        check("cuDeviceGetCount", sys::cuDeviceGetCount(&raw mut count))?;
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

pub fn mem_alloc(bytes: usize) -> Result<u64> {
    let mut address = 0;
    // SAFETY: writes one address to a live local.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) })?;
    Ok(address)
}

pub fn mem_free(address: u64) {
    // SAFETY: the address came from `mem_alloc`, its owner is being dropped.
    let _ = unsafe { sys::cuMemFree_v2(address) };
}

pub fn host_alloc(bytes: usize) -> Result<*mut c_void> {
    let mut pointer = null_mut();
    // SAFETY: writes one pointer to a live local.
    check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut pointer, bytes, 0) })?;
    Ok(pointer)
}

pub fn host_free(pointer: *mut c_void) {
    // SAFETY: the pointer came from `host_alloc`, its owner is being dropped.
    let _ = unsafe { sys::cuMemFreeHost(pointer) };
}

/// A stream handle that does not synchronise with the legacy default stream.
#[derive(Debug)]
pub struct StreamHandle(pub sys::CUstream);

// SAFETY: stream handles may be used from any thread.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Sync for StreamHandle {}

impl StreamHandle {
    pub fn new() -> Result<Self> {
        let mut handle = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: writes one handle to a live local.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut handle, flags) })?;
        Ok(Self(handle))
    }

    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle lives as long as `self`.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.0) })
    }

    pub fn wait(&self, event: &EventHandle) -> Result<()> {
        // SAFETY: both handles are alive.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.0, event.0, 0) })
    }

    /// # Safety
    /// `source` must stay valid and unchanged until the copy has run.
    pub unsafe fn upload(&self, target: u64, source: *const c_void, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for `source`; the driver checks `target`.
        check("cuMemcpyHtoDAsync", unsafe { sys::cuMemcpyHtoDAsync_v2(target, source, bytes, self.0) })
    }

    /// # Safety
    /// `target` must stay valid and unread until the copy has run.
    pub unsafe fn download(&self, target: *mut c_void, source: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for `target`; the driver checks `source`.
        check("cuMemcpyDtoHAsync", unsafe { sys::cuMemcpyDtoHAsync_v2(target, source, bytes, self.0) })
    }

    pub fn copy(&self, target: u64, source: u64, bytes: usize) -> Result<()> {
        // SAFETY: device addresses only; the driver checks them.
        check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(target, source, bytes, self.0) })
    }

    pub fn memset_zero(&self, target: u64, bytes: usize) -> Result<()> {
        // SAFETY: a device address; the driver checks it.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(target, 0, bytes, self.0) })
    }

    /// # Safety
    /// `params` must point at one value per parameter of `function`, of the size that it declares.
    pub unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: u32,
        shared_bytes: u32,
        params: &mut [*mut c_void],
    ) -> Result<()> {
        let [x, y, z] = grid;
        // SAFETY: handles are alive, the caller vouches for the parameters, which the driver copies before it returns.
        let result = unsafe {
            sys::cuLaunchKernel(
                function.0,
                x,
                y,
                z,
                block,
                1,
                1,
                shared_bytes,
                self.0,
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        check("cuLaunchKernel", result)
    }

    pub fn host_function(&self, function: Box<dyn FnOnce() + Send>) -> Result<()> {
        unsafe extern "C" fn call(user: *mut c_void) {
            // SAFETY: `user` is the box leaked below; the driver calls once.
            let function = unsafe { Box::from_raw(user.cast::<Box<dyn FnOnce() + Send>>()) };
            // A panic must not cross into the driver; the closure reports failures by its own means.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(function));
        }
        let user = Box::into_raw(Box::new(function)).cast::<c_void>();
        // SAFETY: `call` matches CUhostFn and owns `user` from here on.
        let outcome = check("cuLaunchHostFunc", unsafe { sys::cuLaunchHostFunc(self.0, Some(call), user) });
        if outcome.is_err() {
            // SAFETY: the driver refused, so `call` never runs and the box is still ours.
            drop(unsafe { Box::from_raw(user.cast::<Box<dyn FnOnce() + Send>>()) });
        }
        outcome
    }

    pub fn begin_capture(&self) -> Result<()> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is alive.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.0, mode) })
    }

    pub fn end_capture(&self) -> Result<GraphHandle> {
        let mut graph = null_mut();
        let mut executable = null_mut();
        let mut nodes = 0;
        // SAFETY: the handle is alive; the calls write to live locals. The graph itself is not needed once instantiated.
        unsafe {
            check("cuStreamEndCapture", sys::cuStreamEndCapture(self.0, &raw mut graph))?;
            let counted = sys::cuGraphGetNodes(graph, null_mut(), &raw mut nodes);
            let instantiated = sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0);
            let _ = sys::cuGraphDestroy(graph);
            check("cuGraphInstantiate", instantiated)?;
            check("cuGraphGetNodes", counted)?;
        }
        Ok(GraphHandle { executable, nodes })
    }

    pub fn launch_graph(&self, graph: &GraphHandle) -> Result<()> {
        // SAFETY: both handles are alive.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(graph.executable, self.0) })
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once; pending work still runs.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

#[derive(Debug)]
pub struct EventHandle(pub sys::CUevent);

// SAFETY: event handles may be used from any thread.
unsafe impl Send for EventHandle {}
// SAFETY: as above.
unsafe impl Sync for EventHandle {}

impl EventHandle {
    /// An event that the device notes the time of.
    pub fn timed() -> Result<Self> {
        let mut handle = null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint;
        // SAFETY: writes one handle to a live local.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut handle, flags) })?;
        Ok(Self(handle))
    }

    pub fn milliseconds_since(&self, earlier: &EventHandle) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both handles are alive; writes one float to a live local.
        let result = unsafe { sys::cuEventElapsedTime(&raw mut milliseconds, earlier.0, self.0) };
        check("cuEventElapsedTime", result)?;
        Ok(milliseconds)
    }

    pub fn new() -> Result<Self> {
        let mut handle = null_mut();
        // Timing is off: it costs on the device and nothing here reads it. A thread that waits for one sleeps, not spins.
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint
            | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint;
        // SAFETY: writes one handle to a live local.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut handle, flags) })?;
        Ok(Self(handle))
    }

    pub fn record(&self, stream: &StreamHandle) -> Result<()> {
        // SAFETY: both handles are alive.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.0, stream.0) })
    }

    pub fn query(&self) -> Result<bool> {
        // SAFETY: the handle is alive.
        match unsafe { sys::cuEventQuery(self.0) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check("cuEventQuery", other).map(|()| true),
        }
    }

    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.0) })
    }
}

impl Drop for EventHandle {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once; the driver defers the release until the event has completed.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

#[derive(Debug)]
pub struct GraphHandle {
    executable: sys::CUgraphExec,
    /// Nodes of the graph it was made from.
    pub nodes: usize,
}

// SAFETY: an executable graph may be launched from any thread, one at a time, which `&self` callers ensure by stream order.
unsafe impl Send for GraphHandle {}

impl Drop for GraphHandle {
    fn drop(&mut self) {
        // SAFETY: instantiated once, destroyed once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
    }
}

#[derive(Debug)]
pub struct ModuleHandle(sys::CUmodule);

// SAFETY: module handles may be used from any thread.
unsafe impl Send for ModuleHandle {}
// SAFETY: as above.
unsafe impl Sync for ModuleHandle {}

impl ModuleHandle {
    /// Loads PTX text. The context must be current.
    pub fn load_ptx(ptx: &CStr) -> Result<Self> {
        // SAFETY: PTX text is NUL-terminated, which is all the driver needs to find its end.
        unsafe { Self::load(ptx.as_ptr().cast()) }
    }

    /// Loads machine code as NVRTC made it. The context must be current.
    pub fn load_machine_code(elf: &[u8]) -> Result<Self> {
        // SAFETY: a complete ELF image, whose header tells the driver its length.
        unsafe { Self::load(elf.as_ptr().cast()) }
    }

    /// # Safety
    /// `image` must be a complete PTX text or machine-code image.
    unsafe fn load(image: *const c_void) -> Result<Self> {
        let mut handle = null_mut();
        // SAFETY: the caller vouches for the image, which the driver copies.
        let result = unsafe { sys::cuModuleLoadData(&raw mut handle, image) };
        check("cuModuleLoadData", result)?;
        Ok(Self(handle))
    }

    pub fn function(&self, name: &str) -> Result<Function> {
        let c_name = CString::new(name).map_err(|_| Error::misuse("kernel name with a NUL"))?;
        let mut function = null_mut();
        // SAFETY: the module is alive, the name NUL-terminated.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut function, self.0, c_name.as_ptr()) };
        check("cuModuleGetFunction", result)?;
        Ok(Function(function))
    }
}
