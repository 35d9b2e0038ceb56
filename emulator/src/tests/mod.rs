//! Tests of the device as a whole, through its exported functions.

mod blocking;
mod capture;
mod misuse;
mod programs;

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use syncaudit_emulator_api::{Emulator, KernelError, LaunchArgs};

use crate::args::{In, Out, Text};
use crate::context::{CONTEXTS, Context, cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxSetCurrent};
use crate::handles::lock;
use crate::launch::cuLaunchKernel;
use crate::memory::{cuMemAlloc_v2, cuMemHostAlloc};
use crate::module::{cuModuleGetFunction, cuModuleLoadData};
use crate::process::cuInit;
use crate::stream::cuStreamCreate;

/// A capture in global mode forbids calls on every thread of the process: its tests run alone.
static ALONE: RwLock<()> = RwLock::new(());

enum Turn {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

/// A context of the test's own, current on its thread.
pub struct Device {
    pub context: usize,
    _turn: Turn,
}

impl Device {
    pub fn new() -> Self {
        Self::with(Turn::Shared { _guard: ALONE.read().unwrap_or_else(|e| e.into_inner()) })
    }

    pub fn alone() -> Self {
        Self::with(Turn::Alone { _guard: ALONE.write().unwrap_or_else(|e| e.into_inner()) })
    }

    fn with(turn: Turn) -> Self {
        assert_eq!(cuInit(0), 0);
        Self { context: get(|out| cuCtxCreate_v2(out, 0, 0)), _turn: turn }
    }

    pub fn object(&self) -> Arc<Context> {
        CONTEXTS.get(self.context).expect("the test's context lives")
    }

    pub fn make_current(&self) {
        assert_eq!(cuCtxSetCurrent(self.context), 0);
    }

    pub fn stream(&self, flags: u32) -> usize {
        get(|out| cuStreamCreate(out, flags))
    }

    pub fn alloc(&self, bytes: usize) -> u64 {
        get(|out| cuMemAlloc_v2(out, bytes))
    }

    /// Pinned host memory, as an address.
    pub fn pinned(&self, bytes: usize) -> usize {
        get::<usize>(|out| cuMemHostAlloc(Out(out.0.cast()), bytes, 0))
    }

    /// A function whose host implementation is `kernel`.
    pub fn kernel(
        &self,
        sizes: &[usize],
        kernel: impl Fn(&LaunchArgs<'_>) -> Result<(), KernelError> + Send + Sync + 'static,
    ) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_kernel_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        emulator().register(&name, sizes, kernel).unwrap();
        function(&name)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        cuCtxDestroy_v2(self.context);
    }
}

pub fn emulator() -> Emulator {
    // SAFETY: both functions are this library's own, with the types that `emulator/api` gives them.
    unsafe {
        Emulator::from_parts(
            std::mem::transmute::<*const (), syncaudit_emulator_api::RegisterFunction>(
                crate::kernels::syncauditEmuRegisterKernel as *const (),
            ),
            std::mem::transmute::<*const (), syncaudit_emulator_api::TranslateFunction>(
                crate::kernels::syncauditEmuTranslate as *const (),
            ),
        )
    }
}

pub fn function(name: &str) -> usize {
    let image = c"a binary image, taken at its word";
    let module: usize = get(|out| cuModuleLoadData(out, image.as_ptr().cast_mut().cast()));
    let name = CString::new(name).unwrap();
    get(|out| cuModuleGetFunction(out, module, Text(name.as_ptr())))
}

/// The output of a call that must succeed.
pub fn get<T: Default>(call: impl FnOnce(Out<T>) -> u32) -> T {
    let mut value = T::default();
    assert_eq!(call(Out(&mut value)), 0);
    value
}

/// Launches one thread block; `params` are pointers to the parameters.
pub fn launch(function: usize, stream: usize, params: &[*const c_void]) -> u32 {
    let none = In(std::ptr::null());
    let pointers = if params.is_empty() { none } else { In(params.as_ptr()) };
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, none)
}

pub fn pointer<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

/// A kernel that holds its stream until the gate opens.
pub struct Gate {
    function: usize,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    pub fn new(device: &Device) -> Self {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let inside = open.clone();
        let function = device.kernel(&[], move |_| {
            let mut is_open = lock(&inside.0);
            while !*is_open {
                is_open = inside.1.wait(is_open).unwrap();
            }
            Ok(())
        });
        Self { function, open }
    }

    /// Puts the gate on a stream.
    pub fn hold(&self, stream: usize) {
        assert_eq!(launch(self.function, stream, &[]), 0);
    }

    /// Tells whether the gate is open.
    pub fn watch(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let open = self.open.clone();
        move || *lock(&open.0)
    }

    pub fn open(&self) {
        *lock(&self.open.0) = true;
        self.open.1.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open(); // also when a test fails: the context could not be destroyed otherwise
    }
}
