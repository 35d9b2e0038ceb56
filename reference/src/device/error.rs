//! What can go wrong at the device, as the user reads it: what was tried, what was found, what to do.

use std::fmt;

/// Shorthand used by everything that touches the device.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the device layer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No `libcuda` could be loaded.
    NoDriver,
    /// A driver call failed.
    Driver {
        /// The call, as the driver API names it.
        call: &'static str,
        /// Its result code.
        code: u32,
        /// The driver's name of the code.
        name: String,
    },
    /// NVRTC is missing or rejected the kernels.
    Compile {
        /// What went wrong, with NVRTC's log where there is one.
        reason: String,
    },
    /// cuBLAS failed.
    Blas {
        /// The call.
        call: &'static str,
        /// cuBLAS' status name.
        status: String,
    },
    /// No `libnccl` could be loaded.
    NoNccl,
    /// NCCL failed.
    Nccl {
        /// The call.
        call: &'static str,
        /// What its status means.
        status: String,
        /// What NCCL says about it.
        detail: String,
    },
    /// A buffer, pinned area or view is too short for what was asked of it.
    Length {
        /// What was tried.
        what: String,
        /// Elements needed.
        needed: usize,
        /// Elements found.
        found: usize,
    },
    /// The caller broke a rule of this layer.
    Misuse {
        /// Which one.
        reason: String,
    },
}

impl Error {
    pub(crate) fn misuse(reason: impl Into<String>) -> Self {
        Self::Misuse { reason: reason.into() }
    }

    pub(crate) fn check_length(what: impl FnOnce() -> String, needed: usize, found: usize) -> Result<()> {
        if found >= needed { Ok(()) } else { Err(Self::Length { what: what(), needed, found }) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => write!(
                f,
                "no CUDA driver found (libcuda.so.1 could not be loaded); without a GPU run under \
                 `syncaudit run --device emulated -- dflash-train ...`"
            ),
            Self::Driver { call, code, name } => write!(f, "{call} failed with {name} ({code})"),
            Self::Compile { reason } => write!(f, "could not compile the kernels: {reason}"),
            Self::Blas { call, status } => write!(f, "{call} failed with {status}"),
            Self::NoNccl => write!(
                f,
                "no NCCL found (libnccl.so.2 could not be loaded), and several trainers average their gradients with it; \
                 install it (package libnccl2, or the wheel nvidia-nccl-cu12 with its folder on LD_LIBRARY_PATH), or train \
                 with --trainers 1"
            ),
            Self::Nccl { call, status, detail } if detail.is_empty() => write!(f, "{call} failed: {status}"),
            Self::Nccl { call, status, detail } => write!(f, "{call} failed: {status} ({detail})"),
            Self::Length { what, needed, found } => {
                write!(f, "{what}: needs {needed} elements, found {found}")
            }
            Self::Misuse { reason } => write!(f, "device layer misused: {reason}"),
        }
    }
}

impl std::error::Error for Error {}
