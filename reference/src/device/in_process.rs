//! The in-process backend: device memory is host memory, and a launch calls the kernel's host implementation at once.
//!
//! It goes through the same client library as the emulated device ([`Emulator::from_parts`]), so a kernel's host
//! implementation sees the same checked slices in a unit test as under the emulated driver.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use syncaudit_emulator_api::{Emulator, KernelFunction, RawLaunch};

use super::{Error, Result};
use crate::kernels::Kernel;

struct Entry {
    function: KernelFunction,
    user: usize,
}

static KERNELS: OnceLock<HashMap<String, Entry>> = OnceLock::new();
static REGISTERING: Mutex<Option<HashMap<String, Entry>>> = Mutex::new(None);
/// Live allocations: start address to length in bytes.
static MEMORY: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// Allocates `bytes` zeroed bytes, 64-byte aligned lengths in whole words.
pub fn alloc(bytes: usize) -> u64 {
    let words = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
    let address = Box::into_raw(words).cast::<u64>().expose_provenance() as u64;
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
    address
}

pub fn free(address: u64) {
    let bytes = MEMORY.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    if let Some(bytes) = bytes {
        let start = std::ptr::with_exposed_provenance_mut::<u64>(address as usize);
        // SAFETY: made from a boxed slice of exactly this many words in `alloc`; the table gives it out once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, bytes.div_ceil(8))) });
    }
}

#[allow(clippy::unnecessary_wraps)] // same shape as the driver's copy
pub fn copy(target: u64, source: u64, bytes: usize) -> Result<()> {
    let target = std::ptr::with_exposed_provenance_mut::<u8>(target as usize);
    let source = std::ptr::with_exposed_provenance::<u8>(source as usize);
    // SAFETY: both ends come from views or borrowed slices of at least `bytes` bytes (checked by the stream).
    unsafe { source.copy_to(target, bytes) };
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // same shape as the driver's memset
pub fn zero(target: u64, bytes: usize) -> Result<()> {
    let target = std::ptr::with_exposed_provenance_mut::<u8>(target as usize);
    // SAFETY: a view of at least `bytes` bytes.
    unsafe { target.write_bytes(0, bytes) };
    Ok(())
}

pub fn launch(
    kernel: &'static Kernel,
    [x, y, z]: [u32; 3],
    block: u32,
    shared_bytes: u32,
    arguments: &[u64],
) -> Result<()> {
    let entry = kernels()
        .get(kernel.name)
        .ok_or_else(|| Error::misuse(format!("kernel {} is not in the registry", kernel.name)))?;
    let params: Vec<*const u8> = arguments.iter().map(|a| std::ptr::from_ref(a).cast()).collect();
    let sizes: Vec<usize> = kernel.params.iter().map(|p| p.bytes).collect();
    let raw = RawLaunch {
        grid: [x, y, z],
        block: [block, 1, 1],
        shared_bytes,
        n_params: u32::try_from(params.len()).unwrap_or(u32::MAX),
        params: params.as_ptr(),
        param_sizes: sizes.as_ptr(),
    };
    // SAFETY: the function and its `user` were registered together and live until the process ends; `raw` is complete.
    let code = unsafe { (entry.function)(&raw const raw, std::ptr::with_exposed_provenance_mut(entry.user)) };
    if code == 0 {
        return Ok(());
    }
    Err(Error::Driver {
        call: "cuLaunchKernel",
        code,
        name: format!("kernel {} failed in process", kernel.name),
    })
}

fn kernels() -> &'static HashMap<String, Entry> {
    KERNELS.get_or_init(|| {
        // SAFETY: both functions are of this backend and callable until the process ends.
        let emulator = unsafe { Emulator::from_parts(register, translate) };
        let mut guard = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
        *guard = Some(HashMap::new());
        drop(guard);
        for kernel in crate::kernels::all() {
            let sizes: Vec<usize> = kernel.params.iter().map(|p| p.bytes).collect();
            // Refusals can't happen: `register` below takes everything. A missing entry is reported at launch.
            let _ = emulator.register(kernel.name, &sizes, kernel.host);
        }
        REGISTERING.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    })
}

unsafe extern "C" fn register(
    name: *const c_char,
    _sizes: *const usize,
    _count: usize,
    function: KernelFunction,
    user: *mut c_void,
) -> u32 {
    // SAFETY: the client passes a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let mut guard = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(table) = guard.as_mut() {
        table.insert(name, Entry { function, user: user.expose_provenance() });
    }
    0
}

unsafe extern "C" fn translate(address: u64, bytes: usize, out: *mut *mut c_void) -> u32 {
    const ILLEGAL_ADDRESS: u32 = 700;
    let memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((start, length)) = memory.range(..=address).next_back() else { return ILLEGAL_ADDRESS };
    if (address - start) as usize + bytes > *length {
        return ILLEGAL_ADDRESS;
    }
    // SAFETY: the client passes a valid place for the answer.
    unsafe { out.write(std::ptr::with_exposed_provenance_mut(address as usize)) };
    0
}
