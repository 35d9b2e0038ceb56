//! A thin, wait-free layer over the CUDA driver API.
//!
//! In: one device ordinal. Out: [`Device`], [`Stream`], [`Event`], [`Buffer`], [`Pinned`], kernel launches, GEMMs and graphs.
//! Never: a wait that the name of the function does not announce. `cudarc`'s safe layer synchronises inside slice and `Vec`
//! copies, pinned-slice access and drop, the first extra stream of a context, and frees; the training step must not, so this
//! layer is built on `cudarc`'s raw bindings. The only functions here that hold the host up for the device are
//! [`Stream::synchronize`], [`Event::synchronize`], [`Stream::upload_blocking`], [`Stream::download_blocking`] and the
//! destructors of [`Buffer`] and [`Pinned`] (free at the end of the program, never inside a step).
//!
//! Three backends, one interface: a GPU (kernels compiled by NVRTC at start), the emulated device (kernels registered as host
//! functions), and [`Device::in_process`], which runs the same host functions at once on the calling thread, without any driver;
//! unit tests use it.
//!
//! Ownership: everything keeps the [`Device`] alive through an `Arc`. Buffers are allocated before the first step and freed
//! after the last; a [`View`] is an address and a length and does not keep its buffer alive. Using a view of a freed buffer is a
//! device-side fault, reported by the driver, never a host memory error.

mod blas;
mod collective;
mod driver;
mod error;
mod event;
mod graph;
mod in_process;
mod memory;
mod module;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use blas::{GemmShape, Layout};
pub use collective::Communicator;
pub use error::{Error, Result};
pub use event::Event;
pub use graph::Graph;
pub use memory::{Buffer, Pinned, Pod, View};
pub(crate) use module::compile;
pub use stream::Stream;

use crate::kernels::Kernel;

/// One opened device: context, compiled kernels, GEMM library.
#[derive(Debug)]
pub struct Device {
    backend: Backend,
    name: String,
    gemm: blas::Gemm,
    /// Bytes in live buffers.
    allocated: AtomicUsize,
    launches: AtomicU64,
}

#[derive(Debug)]
enum Backend {
    /// A GPU or the emulated device, through the driver API.
    Driver { context: driver::Context, module: module::Module, emulated: bool },
    /// Host memory and immediate execution; no driver involved.
    InProcess,
}

impl Device {
    /// Opens device `ordinal` through the driver, compiles or registers every kernel and looks up the GEMM library.
    ///
    /// # Errors
    /// [`Error::NoDriver`] when no `libcuda` can be loaded; the driver's own errors; [`Error::Compile`] with NVRTC's log.
    pub fn open(ordinal: i32) -> Result<Arc<Self>> {
        let context = driver::Context::open(ordinal)?;
        let emulated = module::is_emulated();
        let module = module::Module::load(&context, emulated, crate::kernels::all())?;
        let name = context.name()?;
        let gemm = if emulated { blas::Gemm::Kernel } else { blas::Gemm::find()? };
        let backend = Backend::Driver { context, module, emulated };
        Ok(Arc::new(Self {
            backend,
            name,
            gemm,
            allocated: AtomicUsize::new(0),
            launches: AtomicU64::new(0),
        }))
    }

    /// As [`Device::open`], the device of the process with this number on its host. An emulated device is a process' own, so that every
    /// process has number 0.
    ///
    /// # Errors
    /// As [`Device::open`]; and when the host has fewer devices.
    pub fn of_local_rank(local_rank: usize) -> Result<Arc<Self>> {
        let count = driver::device_count()?;
        let ordinal = if module::is_emulated() { 0 } else { local_rank };
        if ordinal >= count {
            return Err(Error::misuse(format!(
                "LOCAL_RANK is {local_rank}, but this host has {count} GPU(s); start no more trainers on a host than it has"
            )));
        }
        Self::open(i32::try_from(ordinal).unwrap_or(i32::MAX))
    }

    /// A device made of host memory whose streams execute at once on the calling thread. For tests and for computing
    /// host-side expectations; it makes no CUDA call, so nothing about it can be traced.
    #[must_use]
    pub fn in_process() -> Arc<Self> {
        Arc::new(Self {
            backend: Backend::InProcess,
            name: "in-process".to_owned(),
            gemm: blas::Gemm::Kernel,
            allocated: AtomicUsize::new(0),
            launches: AtomicU64::new(0),
        })
    }

    /// Makes this device's context current on the calling thread. Call it first on every thread that uses the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn bind_to_thread(&self) -> Result<()> {
        match &self.backend {
            Backend::Driver { context, .. } => context.bind_to_thread(),
            Backend::InProcess => Ok(()),
        }
    }

    /// Bytes of device memory in live [`Buffer`]s.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    /// What the driver calls the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True when no GPU executes the kernels (emulated device or in-process).
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        match &self.backend {
            Backend::Driver { emulated, .. } => *emulated,
            Backend::InProcess => true,
        }
    }

    /// How matrix products are computed, for the start-up line: `cuBLAS`, or the own `gemm` kernel.
    #[must_use]
    pub fn gemm_provider(&self) -> &'static str {
        self.gemm.name()
    }

    /// How many kernels were launched so far, those of libraries not counted.
    #[must_use]
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    fn function(&self, kernel: &'static Kernel) -> Result<driver::Function> {
        match &self.backend {
            Backend::Driver { module, .. } => module.function(kernel),
            Backend::InProcess => Err(Error::misuse("an in-process device has no driver functions")),
        }
    }
}
