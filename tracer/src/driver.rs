//! What the mapped driver says about itself.
//!
//! In: the process. Out: its version, and whether it is the emulated device. Must only ask what works before and without
//! a device, since it is asked from inside `cuInit`.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};

/// The driver of this process.
pub struct Driver(*mut c_void);

/// Exported by the emulated device only.
const EMULATOR_VERSION: &CStr = c"syncauditEmuVersion";

impl Driver {
    /// The mapped driver, if there is one.
    pub fn mapped() -> Option<Self> {
        // SAFETY: RTLD_NOLOAD maps nothing. The reference stays: a driver is never unloaded.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// Whether it stands in for a device that isn't there.
    pub fn is_emulated(&self) -> bool {
        self.symbol(EMULATOR_VERSION).is_some()
    }

    /// `cuDriverGetVersion`: 12040 is 12.4. A constant of the library; allowed before `cuInit`.
    pub fn version(&self) -> Option<u32> {
        let address = self.symbol(c"cuDriverGetVersion")?;
        // SAFETY: the driver's function of this name has this type (cuda.h).
        let get_version: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(address) };
        let mut version = 0;
        // SAFETY: writes one integer.
        let result = unsafe { get_version(&mut version) };
        (result == 0).then(|| u32::try_from(version).ok()).flatten()
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open handle and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}
