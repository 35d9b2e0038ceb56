//! Finds the emulated device in this process and registers kernels with it.

use std::ffi::{CString, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libloading::os::unix::Library;

use crate::abi::{ABI_VERSION, RawLaunch, RegisterFunction, TranslateFunction, VersionFunction, symbols};
use crate::launch::{KernelError, LaunchArgs};

/// The emulated device mapped into this process.
#[derive(Clone, Copy, Debug)]
pub struct Emulator {
    register: RegisterFunction,
    translate: TranslateFunction,
}

/// Why a kernel could not be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name holds a NUL byte, which no kernel name can.
    Name(String),
    /// The emulated device refused; its `CUresult`.
    Refused {
        /// The kernel's name.
        name: String,
        /// What the emulated device answered.
        code: u32,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "kernel name {name:?} holds a NUL byte"),
            Self::Refused { name, code } => {
                write!(f, "the emulated device refused kernel {name:?} with CUresult {code}")
            }
        }
    }
}

impl std::error::Error for RegisterError {}

impl Emulator {
    /// The emulated device, if the `libcuda.so.1` mapped into this process is one. `None` on a GPU's driver, and
    /// before anything has loaded `libcuda` (see [`Emulator::load`]).
    pub fn find() -> Option<Self> {
        Self::open(libc::RTLD_NOLOAD | libc::RTLD_NOW)
    }

    /// Like [`Emulator::find`], but loads `libcuda.so.1` by name first, as a CUDA program would.
    pub fn load() -> Option<Self> {
        Self::open(libc::RTLD_NOW)
    }

    fn open(flags: i32) -> Option<Self> {
        // SAFETY: libcuda's initialisers are what any CUDA program runs; with RTLD_NOLOAD none runs.
        let library = unsafe { Library::open(Some("libcuda.so.1"), flags) }.ok()?;
        // SAFETY: the symbols, when present, are the emulated device's and have these types at ABI_VERSION, which
        // is checked before the others are used.
        let found = unsafe {
            let version = *library.get::<VersionFunction>(symbols::VERSION).ok()?;
            if version() != ABI_VERSION {
                return None;
            }
            Self {
                register: *library.get::<RegisterFunction>(symbols::REGISTER).ok()?,
                translate: *library.get::<TranslateFunction>(symbols::TRANSLATE).ok()?,
            }
        };
        // Functions are called until the process ends: the library must stay mapped.
        std::mem::forget(library);
        Some(found)
    }

    /// An emulated device linked into the program itself.
    ///
    /// # Safety
    /// Both functions must be those of one emulated device and callable until the process ends.
    pub unsafe fn from_parts(register: RegisterFunction, translate: TranslateFunction) -> Self {
        Self { register, translate }
    }

    /// Registers the host implementation of kernel `name`, whose parameters have the given sizes in bytes. The
    /// closure runs on stream workers, possibly on several at once; it is kept until the process ends. A later
    /// registration of the same name replaces it.
    ///
    /// # Errors
    /// A name with a NUL byte, or a refusal by the emulated device.
    pub fn register(
        &self,
        name: &str,
        param_sizes: &[usize],
        kernel: impl Fn(&LaunchArgs<'_>) -> Result<(), KernelError> + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        let c_name = CString::new(name).map_err(|_| RegisterError::Name(name.to_owned()))?;
        let entry =
            Box::new(Entry { name: name.to_owned(), translate: self.translate, kernel: Box::new(kernel) });
        let user = Box::into_raw(entry).cast::<c_void>();
        // SAFETY: name and sizes are valid for the call; `user` is leaked, so it outlives every launch.
        let code = unsafe {
            (self.register)(c_name.as_ptr(), param_sizes.as_ptr(), param_sizes.len(), trampoline, user)
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a refused registration keeps no reference to `user`.
        drop(unsafe { Box::from_raw(user.cast::<Entry>()) });
        Err(RegisterError::Refused { name: name.to_owned(), code })
    }
}

struct Entry {
    name: String,
    translate: TranslateFunction,
    #[allow(clippy::type_complexity)] // said once, here
    kernel: Box<dyn Fn(&LaunchArgs<'_>) -> Result<(), KernelError> + Send + Sync>,
}

/// What the emulated device calls: runs the closure, says on stderr why a kernel failed, lets no panic out.
unsafe extern "C" fn trampoline(launch: *const RawLaunch, user: *mut c_void) -> u32 {
    // SAFETY: the emulated device passes a launch valid for this call and the `user` it was registered with.
    let (raw, entry) = unsafe { (&*launch, &*user.cast::<Entry>()) };
    let outcome = catch_unwind(AssertUnwindSafe(|| (entry.kernel)(&LaunchArgs::new(raw, entry.translate))));
    let error = match outcome {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error,
        Err(_) => KernelError::Failed("it panicked".to_owned()),
    };
    eprintln!("syncaudit emulator: kernel {}: {error}", entry.name);
    error.code()
}
