//! The three functions that the emulated device exports beyond the driver API, as C sees them.
//!
//! Both sides use these types: the emulated device implements them, [`crate::Emulator`] calls them. A change of
//! any of them raises [`ABI_VERSION`].

use std::ffi::{c_char, c_void};

/// What `syncauditEmuVersion` answers. A client that knows another version must not use the functions.
pub const ABI_VERSION: u32 = 1;

/// Names of the exported functions, NUL-terminated for `dlsym`.
pub mod symbols {
    /// [`super::VersionFunction`].
    pub const VERSION: &[u8] = b"syncauditEmuVersion\0";
    /// [`super::RegisterFunction`].
    pub const REGISTER: &[u8] = b"syncauditEmuRegisterKernel\0";
    /// [`super::TranslateFunction`].
    pub const TRANSLATE: &[u8] = b"syncauditEmuTranslate\0";
}

/// One launch as the kernel's host implementation gets it. Valid until the function returns.
#[repr(C)]
#[derive(Debug)]
pub struct RawLaunch {
    /// Thread blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes per block.
    pub shared_bytes: u32,
    /// How many parameters the kernel was registered with.
    pub n_params: u32,
    /// `n_params` pointers to the parameters' bytes, copied when the launch was issued.
    pub params: *const *const u8,
    /// `n_params` sizes in bytes, as registered.
    pub param_sizes: *const usize,
}

/// `uint32_t syncauditEmuVersion(void)`.
pub type VersionFunction = unsafe extern "C" fn() -> u32;

/// A kernel's host implementation: runs on the stream's worker thread and returns a `CUresult`, sticky if not 0.
pub type KernelFunction = unsafe extern "C" fn(launch: *const RawLaunch, user: *mut c_void) -> u32;

/// `CUresult syncauditEmuRegisterKernel(name, param_sizes, n_params, function, user)`. A second registration of a
/// name replaces the first for launches issued later. `user` must live as long as the process.
pub type RegisterFunction = unsafe extern "C" fn(
    name: *const c_char,
    param_sizes: *const usize,
    n_params: usize,
    function: KernelFunction,
    user: *mut c_void,
) -> u32;

/// `CUresult syncauditEmuTranslate(device_ptr, bytes, host_out)`: where `bytes` bytes at a device address lie in this
/// process. 0, or 700 (illegal address) when they do not lie inside one live allocation. Called from inside a kernel
/// the memory stays mapped until that kernel returns; elsewhere it stays until the allocation is freed.
pub type TranslateFunction =
    unsafe extern "C" fn(device_ptr: u64, bytes: usize, host_out: *mut *mut c_void) -> u32;
