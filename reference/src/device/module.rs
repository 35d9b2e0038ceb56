//! The kernels of this crate as one loaded module: compiled by NVRTC on a GPU, registered as host functions on the emulated device.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CString;

use cudarc::nvrtc;
use syncaudit_emulator_api::Emulator;

use super::{Error, Result, driver};
use crate::kernels::{self, Kernel};

#[derive(Debug)]
pub struct Module {
    functions: HashMap<&'static str, driver::Function>,
    _handle: driver::ModuleHandle,
}

/// Is the mapped `libcuda` the emulated device? Meaningful after `cuInit`.
pub fn is_emulated() -> bool {
    Emulator::find().is_some()
}

impl Module {
    pub fn load(context: &driver::Context, emulated: bool, all: &'static [&'static Kernel]) -> Result<Self> {
        let ptx = if emulated {
            register(all)?;
            declarations(all)?
        } else {
            let architecture = format!("compute_{}", context.compute_capability()?);
            compile(&kernels::cuda_source(all), &architecture)?
        };
        let handle = driver::ModuleHandle::load(&ptx)?;
        // Looked up now: with lazy loading the first look-up of a kernel may hold the host, which no step may.
        let mut functions = HashMap::new();
        for kernel in all {
            functions.insert(kernel.name, handle.function(kernel.name)?);
        }
        Ok(Self { functions, _handle: handle })
    }

    pub fn function(&self, kernel: &'static Kernel) -> Result<driver::Function> {
        self.functions
            .get(kernel.name)
            .copied()
            .ok_or_else(|| Error::misuse(format!("kernel {} is not in the registry", kernel.name)))
    }
}

/// PTX that declares every kernel and holds no code: what the emulated device needs to know of a module.
fn declarations(all: &[&Kernel]) -> Result<CString> {
    let entries: String =
        all.iter().map(|kernel| format!(".visible .entry {}() {{ ret; }}\n", kernel.name)).collect();
    CString::new(format!(".version 8.0\n.target sm_80\n.address_size 64\n{entries}"))
        .map_err(|_| Error::misuse("kernel name with a NUL"))
}

fn register(all: &'static [&'static Kernel]) -> Result<()> {
    let emulator = Emulator::find().ok_or(Error::NoDriver)?;
    for kernel in all {
        let sizes: Vec<usize> = kernel.params.iter().map(|p| p.bytes).collect();
        emulator
            .register(kernel.name, &sizes, kernel.host)
            .map_err(|e| Error::misuse(format!("registering kernel {}: {e}", kernel.name)))?;
    }
    Ok(())
}

/// PTX that declares the kernels with empty bodies: an image for the emulated device, which runs the host functions.
fn declarations(all: &[&Kernel]) -> Result<CString> {
    let mut ptx = ".version 8.0\n.target sm_80\n.address_size 64\n".to_owned();
    for kernel in all {
        let params: Vec<String> =
            kernel.params.iter().map(|p| format!(".param .b{} {}", p.bytes * 8, p.name)).collect();
        ptx.push_str(&format!(".visible .entry {}({}) {{ ret; }}\n", kernel.name, params.join(", ")));
    }
    CString::new(ptx).map_err(|_| Error::misuse("a kernel or parameter name with a NUL"))
}

/// Compiles CUDA C to PTX with the NVRTC that the loader finds.
pub fn compile(source: &str, architecture: &str) -> Result<CString> {
    // SAFETY: only asks the dynamic loader; cudarc panics later if the library is missing, hence this check first.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err(Error::Compile {
            reason: "libnvrtc.so.12 was not found; install the CUDA toolkit or put its directory on LD_LIBRARY_PATH"
                .to_owned(),
        });
    }
    let options = nvrtc::CompileOptions {
        // Contracting a*b+c is what the host implementations' compiler does not do, but it only ever rounds less.
        fmad: Some(true),
        options: vec![format!("--gpu-architecture={architecture}"), "-default-device".to_owned()],
        ..nvrtc::CompileOptions::default()
    };
    let ptx = nvrtc::compile_ptx_with_opts(source, options).map_err(|error| Error::Compile {
        reason: match error {
            nvrtc::CompileError::CompileError { log, .. } => {
                format!("NVRTC says:\n{}", log.to_string_lossy())
            }
            other => other.to_string(),
        },
    })?;
    CString::new(ptx.to_src())
        .map_err(|_| Error::Compile { reason: "NVRTC returned PTX with a NUL inside".to_owned() })
}
