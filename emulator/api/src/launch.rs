//! What a kernel's host implementation sees of its launch: sizes, parameters, and checked views of device memory.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt;

use crate::abi::{RawLaunch, TranslateFunction};

/// A type whose every bit pattern is a value and which holds no pointers that Rust must trust.
///
/// # Safety
/// The implementing type must be valid for any initialised bytes, have no padding and no interior mutability.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty)*) => {$(
        // SAFETY: every bit pattern of a primitive number is a value; numbers have no padding.
        unsafe impl Plain for $t {}
    )*};
}
plain!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64);
// SAFETY: an array has no padding of its own and is valid when its elements are.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Why a kernel's host implementation stopped. It becomes the context's sticky error, as on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelError {
    /// A parameter was asked for that the kernel does not have, or as a type of another size.
    Parameter(String),
    /// An address that does not lie inside one live allocation (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    IllegalAddress(String),
    /// An address not aligned for its element type (`CUDA_ERROR_MISALIGNED_ADDRESS`).
    Misaligned(String),
    /// Anything else that the implementation wants to report (`CUDA_ERROR_LAUNCH_FAILED`).
    Failed(String),
}

impl KernelError {
    /// The `CUresult` of the error.
    pub fn code(&self) -> u32 {
        match self {
            Self::Parameter(_) => 1,
            Self::IllegalAddress(_) => 700,
            Self::Misaligned(_) => 716,
            Self::Failed(_) => 719,
        }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter(m) | Self::IllegalAddress(m) | Self::Misaligned(m) | Self::Failed(m) => {
                f.write_str(m)
            }
        }
    }
}

impl std::error::Error for KernelError {}

/// Bytes `[start, end)` of device memory that this launch has handed out.
struct Loan {
    start: u64,
    end: u64,
    exclusive: bool,
}

/// One launch. Slices taken from it live until the kernel returns.
pub struct LaunchArgs<'l> {
    raw: &'l RawLaunch,
    translate: TranslateFunction,
    loans: RefCell<Vec<Loan>>,
}

impl<'l> LaunchArgs<'l> {
    pub(crate) fn new(raw: &'l RawLaunch, translate: TranslateFunction) -> Self {
        Self { raw, translate, loans: RefCell::new(Vec::new()) }
    }

    /// Thread blocks in x, y, z.
    pub fn grid(&self) -> [u32; 3] {
        self.raw.grid
    }

    /// Threads per block in x, y, z.
    pub fn block(&self) -> [u32; 3] {
        self.raw.block
    }

    /// Dynamic shared memory, bytes per block.
    pub fn shared_bytes(&self) -> usize {
        self.raw.shared_bytes as usize
    }

    /// How many parameters the kernel has.
    pub fn param_count(&self) -> usize {
        self.raw.n_params as usize
    }

    /// Parameter `index` as a `T`; its size must be the registered one.
    pub fn param<T: Plain>(&self, index: usize) -> Result<T, KernelError> {
        let n = self.param_count();
        if index >= n {
            return Err(KernelError::Parameter(format!("parameter {index} of a kernel with {n} parameters")));
        }
        // SAFETY: `params` and `param_sizes` hold `n_params` entries (contract of RawLaunch); `index` is below.
        let (at, size) = unsafe { (*self.raw.params.add(index), *self.raw.param_sizes.add(index)) };
        if size != size_of::<T>() {
            return Err(KernelError::Parameter(format!(
                "parameter {index} has {size} bytes, read as {} of {} bytes",
                std::any::type_name::<T>(),
                size_of::<T>()
            )));
        }
        // SAFETY: `at` points at `size` initialised bytes and T is valid for any bytes.
        Ok(unsafe { at.cast::<T>().read_unaligned() })
    }

    /// `len` elements at device address `ptr`, for reading. A zero `len` is an empty slice, whatever `ptr` is.
    pub fn slice<T: Plain>(&self, ptr: u64, len: usize) -> Result<&[T], KernelError> {
        let Some(host) = self.borrow::<T>(ptr, len, false)? else { return Ok(&[]) };
        // SAFETY: `borrow` checked bounds, alignment and that no mutable slice of this launch overlaps; the memory
        // stays mapped until the kernel returns, which outlives `&self`.
        Ok(unsafe { std::slice::from_raw_parts(host, len) })
    }

    /// `len` elements at device address `ptr`, for writing; must not overlap any other slice of this launch.
    #[allow(clippy::mut_from_ref)] // exclusive by the loan list, which is what a borrow checker can't see
    pub fn slice_mut<T: Plain>(&self, ptr: u64, len: usize) -> Result<&mut [T], KernelError> {
        let Some(host) = self.borrow::<T>(ptr, len, true)? else { return Ok(&mut []) };
        // SAFETY: as in `slice`; exclusive because `borrow` found no overlapping loan.
        Ok(unsafe { std::slice::from_raw_parts_mut(host, len) })
    }

    fn borrow<T: Plain>(&self, ptr: u64, len: usize, exclusive: bool) -> Result<Option<*mut T>, KernelError> {
        if len == 0 || size_of::<T>() == 0 {
            return Ok(None);
        }
        let bytes = len.checked_mul(size_of::<T>()).filter(|b| ptr.checked_add(*b as u64).is_some());
        let Some(bytes) = bytes else {
            return Err(KernelError::IllegalAddress(format!(
                "{len} elements at {ptr:#x} exceed the address space"
            )));
        };
        let mut host: *mut c_void = std::ptr::null_mut();
        // SAFETY: `translate` is the emulated device's function and writes only to `host`.
        let code = unsafe { (self.translate)(ptr, bytes, &mut host) };
        if code != 0 || host.is_null() {
            return Err(KernelError::IllegalAddress(format!(
                "{bytes} bytes at {ptr:#x} do not lie inside one live allocation"
            )));
        }
        let host = host.cast::<T>();
        if !host.is_aligned() {
            return Err(KernelError::Misaligned(format!(
                "{ptr:#x} is not aligned for {}",
                std::any::type_name::<T>()
            )));
        }
        let (start, end) = (ptr, ptr + bytes as u64);
        let mut loans = self.loans.borrow_mut();
        if loans.iter().any(|l| l.start < end && start < l.end && (l.exclusive || exclusive)) {
            return Err(KernelError::Failed(format!(
                "{bytes} bytes at {ptr:#x} overlap a slice that this launch already holds, one of them mutable"
            )));
        }
        loans.push(Loan { start, end, exclusive });
        Ok(Some(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A "device" of 64 bytes at address 0x1000, backed by a thread-local array.
    #[repr(align(16))]
    struct Backing([u8; 64]);
    thread_local! {
        static MEMORY: RefCell<Backing> = const { RefCell::new(Backing([0; 64])) };
    }
    unsafe extern "C" fn translate(ptr: u64, bytes: usize, out: *mut *mut c_void) -> u32 {
        if ptr < 0x1000 || ptr + bytes as u64 > 0x1040 {
            return 700;
        }
        let base = MEMORY.with(|m| m.borrow_mut().0.as_mut_ptr());
        // SAFETY: the caller passes a valid `out`; the offset is inside the array.
        unsafe { *out = base.add((ptr - 0x1000) as usize).cast() };
        0
    }

    fn with_launch(test: impl FnOnce(&LaunchArgs<'_>)) {
        let (a, b) = (7u32.to_ne_bytes(), 0x1000u64.to_ne_bytes());
        let (params, sizes) = ([a.as_ptr(), b.as_ptr()], [4usize, 8]);
        let raw = RawLaunch {
            grid: [1, 2, 3],
            block: [4, 5, 6],
            shared_bytes: 9,
            n_params: 2,
            params: params.as_ptr(),
            param_sizes: sizes.as_ptr(),
        };
        test(&LaunchArgs::new(&raw, translate));
    }

    #[test]
    fn parameters_are_read_by_index_and_only_with_their_own_size() {
        with_launch(|l| {
            assert_eq!(l.param::<u32>(0), Ok(7));
            assert_eq!(l.param::<u64>(1), Ok(0x1000));
            assert!(matches!(l.param::<u64>(0), Err(KernelError::Parameter(_))));
            assert!(matches!(l.param::<u32>(2), Err(KernelError::Parameter(_))));
        });
    }

    #[test]
    fn slices_outside_an_allocation_are_illegal_addresses() {
        with_launch(|l| {
            assert!(l.slice::<f32>(0x1000, 16).is_ok());
            for (ptr, len) in [(0x1000, 17), (0xff0, 4), (0, 1), (u64::MAX, 2), (0x1000, usize::MAX)] {
                assert!(
                    matches!(l.slice::<f32>(ptr, len), Err(KernelError::IllegalAddress(_))),
                    "{ptr:#x} {len}"
                );
            }
            assert_eq!(l.slice::<f32>(0, 0).map(<[f32]>::len), Ok(0));
            assert!(matches!(l.slice::<f32>(0x1002, 1), Err(KernelError::Misaligned(_))));
        });
    }

    #[test]
    fn a_mutable_slice_excludes_every_overlapping_slice_of_the_launch() {
        with_launch(|l| {
            let out = l.slice_mut::<u32>(0x1000, 4).unwrap();
            out.fill(3);
            assert!(l.slice::<u32>(0x1010, 4).is_ok(), "disjoint");
            assert!(l.slice::<u32>(0x1010, 4).is_ok(), "two shared slices may overlap");
            assert!(l.slice::<u32>(0x100c, 1).is_err());
            assert!(l.slice_mut::<u32>(0x1010, 1).is_err());
        });
    }
}
