//! Host implementations of kernels: the extension functions, the registry, and a launch that is ready to run.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use syncaudit_emulator_api::{ABI_VERSION, KernelFunction, RawLaunch};

use crate::args::{In, Out, Text};
use crate::error::{Error, Result};
use crate::handles::lock;
use crate::{heap, op, process};

/// A registered host implementation.
pub struct Implementation {
    pub param_sizes: Vec<usize>,
    function: KernelFunction,
    user: usize,
}

static REGISTRY: LazyLock<RwLock<HashMap<String, Arc<Implementation>>>> = LazyLock::new(RwLock::default);

/// Extension: tells that this is the emulated device, and which version of the extension it speaks.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn syncauditEmuVersion() -> u32 {
    ABI_VERSION
}

/// Extension: registers the host implementation of a kernel. See `emulator/api`.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn syncauditEmuRegisterKernel(
    name: Text,
    param_sizes: In<usize>,
    n_params: usize,
    function: Option<KernelFunction>,
    user: *mut c_void,
) -> u32 {
    crate::error::code(register(name, param_sizes, n_params, function, user as usize))
}

/// Extension: where device memory lies in this process. See `emulator/api`.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn syncauditEmuTranslate(device_ptr: u64, bytes: usize, host_out: Out<*mut c_void>) -> u32 {
    if process::forked() {
        return Error::NOT_INITIALIZED.0; // no lock after fork
    }
    let found = heap::translate(device_ptr, bytes).ok_or(Error::ILLEGAL_ADDRESS);
    crate::error::code(found.and_then(|bytes| {
        if let Some(region) = bytes.region {
            op::pin_for_kernel(region);
        }
        host_out.set(bytes.at.cast())
    }))
}

fn register(name: Text, sizes: In<usize>, n: usize, function: Option<KernelFunction>, user: usize) -> Result {
    process::check_alive()?; // no lock after fork
    let (name, function) = (name.get()?, function.ok_or(Error::INVALID_VALUE)?);
    // CUDA's limit on a kernel's parameters is 32,764 bytes.
    let param_sizes = if n <= 4096 { sizes.list(n)? } else { return Err(Error::INVALID_VALUE) };
    if name.is_empty() || param_sizes.iter().any(|s| *s == 0 || *s > 32_764) {
        return Err(Error::INVALID_VALUE);
    }
    let implementation = Arc::new(Implementation { param_sizes, function, user });
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner).insert(name, implementation);
    Ok(())
}

/// The host implementation of kernel `name`.
pub fn implementation(name: &str) -> Option<Arc<Implementation>> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

/// One launch: everything that was said when it was issued.
pub struct Launch {
    pub name: Arc<str>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    /// `None`: the kernel has no host implementation and does nothing.
    pub implementation: Option<Arc<Implementation>>,
    /// Parameter bytes, each parameter at a multiple of 16.
    params: Vec<u128>,
}

/// How a caller passes a kernel's parameters.
#[derive(Clone, Copy)]
pub struct Parameters {
    /// Array of pointers to the parameters, or null.
    pub pointers: In<*const c_void>,
    /// List of (tag, value) ended by a null tag, or null.
    pub extra: In<*const c_void>,
}

impl Launch {
    /// Copies the parameters.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the kernel has parameters and the caller passes none, or passes them twice.
    pub fn new(
        name: Arc<str>,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        from: Parameters,
    ) -> Result<Self> {
        let implementation = implementation(&name);
        let mut params = Vec::new();
        if let Some(sizes) = implementation.as_ref().map(|i| &i.param_sizes).filter(|s| !s.is_empty()) {
            let sources = match (from.pointers.is_null(), from.extra.is_null()) {
                (false, true) => from.pointers.list(sizes.len())?,
                (true, false) => from_buffer(from.extra, sizes)?,
                _ => return Err(Error::INVALID_VALUE),
            };
            if sources.iter().any(|p| p.is_null()) {
                return Err(Error::INVALID_VALUE);
            }
            for (source, &size) in sources.iter().zip(sizes) {
                let at = params.len();
                params.resize(at + size.div_ceil(16), 0u128);
                // SAFETY: the caller passes one readable parameter of the kernel's size per pointer; the
                // destination was just made large enough.
                unsafe {
                    std::ptr::copy_nonoverlapping(source.cast::<u8>(), params[at..].as_mut_ptr().cast(), size)
                };
            }
        }
        Ok(Self { name, grid, block, shared_bytes, implementation, params })
    }

    /// Runs the host implementation; its `CUresult`.
    pub fn call(&self) -> u32 {
        let Some(implementation) = &self.implementation else {
            say_no_implementation(&self.name);
            return 0;
        };
        let mut at = self.params.as_ptr();
        let pointers: Vec<*const u8> = implementation
            .param_sizes
            .iter()
            .map(|size| {
                let this = at;
                at = at.wrapping_add(size.div_ceil(16));
                this.cast()
            })
            .collect();
        let raw = RawLaunch {
            grid: self.grid,
            block: self.block,
            shared_bytes: self.shared_bytes,
            n_params: pointers.len() as u32,
            params: pointers.as_ptr(),
            param_sizes: implementation.param_sizes.as_ptr(),
        };
        // SAFETY: the registered function takes a launch valid for the call and the user pointer it came with.
        unsafe { (implementation.function)(&raw, implementation.user as *mut c_void) }
    }
}

/// Addresses of the parameters in a CU_LAUNCH_PARAM_BUFFER: packed with each parameter's natural alignment.
fn from_buffer(extra: In<*const c_void>, sizes: &[usize]) -> Result<Vec<*const c_void>> {
    let (mut buffer, mut bytes) = (std::ptr::null::<c_void>(), 0usize);
    for pair in 0..8 {
        let [tag, value] = [pair * 2, pair * 2 + 1].map(|i| In(extra.0.wrapping_add(i)));
        match tag.get()? as usize {
            0 => break,
            1 => buffer = value.get()?,
            2 => bytes = In(value.get()?.cast::<usize>()).get()?,
            _ => return Err(Error::INVALID_VALUE),
        }
    }
    let mut offset = 0usize;
    let mut sources = Vec::with_capacity(sizes.len());
    for &size in sizes {
        offset = offset.next_multiple_of(param_align(size));
        if buffer.is_null() || offset + size > bytes {
            return Err(Error::INVALID_VALUE);
        }
        sources.push(buffer.wrapping_byte_add(offset));
        offset += size;
    }
    Ok(sources)
}

/// Alignment of a parameter in a packed buffer: 1, 2, 4, 8 or 16 bytes are aligned to their size, structures to at
/// most 8.
pub fn param_align(size: usize) -> usize {
    if size.is_power_of_two() && size <= 16 { size } else { 1 << size.trailing_zeros().min(3) }
}

fn say_no_implementation(name: &str) {
    static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    if lock(&SAID).insert(name.to_owned()) {
        eprintln!("syncaudit emulator: kernel {name} has no host implementation and does nothing");
    }
}
