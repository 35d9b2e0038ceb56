//! The kernels of this crate as one loaded module: compiled by NVRTC on a GPU, registered as host functions on the emulated device.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_char};

use cudarc::nvrtc::{result as nvrtc, sys};
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
        let handle = if emulated {
            register(all)?;
            driver::ModuleHandle::load_ptx(&declarations(all)?)?
        } else {
            require_nvrtc()?;
            let compiled = compile(&kernels::cuda_source(all), &target(context.compute_capability()?)?)?;
            if compiled.machine_code.is_empty() {
                driver::ModuleHandle::load_ptx(&compiled.ptx)?
            } else {
                driver::ModuleHandle::load_machine_code(&compiled.machine_code)?
            }
        };
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

/// What NVRTC made of the kernels.
pub struct Compiled {
    /// PTX text.
    pub ptx: CString,
    /// Machine code; empty when the target was a virtual architecture (`compute_90`).
    pub machine_code: Vec<u8>,
}

/// Compiles CUDA C for `architecture` (`sm_90`, or the virtual `compute_90`) with the NVRTC that is loaded or that the loader
/// finds.
pub fn compile(source: &str, architecture: &str) -> Result<Compiled> {
    let failed = |call: &'static str| {
        move |error: nvrtc::NvrtcError| Error::Compile { reason: format!("{call} failed with {:?}", error.0) }
    };
    let source = CString::new(source)
        .map_err(|_| Error::Compile { reason: "the CUDA C has a NUL inside".to_owned() })?;
    let program = Program(nvrtc::create_program(&source, None).map_err(failed("nvrtcCreateProgram"))?);
    let options = [format!("--gpu-architecture={architecture}"), "--fmad=true".to_owned()];
    // SAFETY: the program is alive until the end of this function, its source too.
    unsafe {
        if nvrtc::compile_program(program.0, &options).is_err() {
            let log = nvrtc::get_program_log(program.0).map_err(failed("nvrtcGetProgramLog"))?;
            let log: Vec<u8> = text(&log);
            let reason = format!("for {architecture} NVRTC says:\n{}", String::from_utf8_lossy(&log));
            return Err(Error::Compile { reason });
        }
        let ptx = nvrtc::get_ptx(program.0).map_err(failed("nvrtcGetPTX"))?;
        let ptx: Vec<u8> = text(&ptx);
        let mut bytes = 0;
        sys::nvrtcGetCUBINSize(program.0, &raw mut bytes).result().map_err(failed("nvrtcGetCUBINSize"))?;
        let mut machine_code = vec![0_u8; bytes];
        if bytes > 0 {
            sys::nvrtcGetCUBIN(program.0, machine_code.as_mut_ptr().cast())
                .result()
                .map_err(failed("nvrtcGetCUBIN"))?;
        }
        let ptx =
            CString::new(ptx).map_err(|_| Error::Compile { reason: "PTX with a NUL inside".to_owned() })?;
        Ok(Compiled { ptx, machine_code })
    }
}

/// The bytes up to the terminating NUL. `c_char` is signed on one architecture and unsigned on another.
#[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
fn text(chars: &[c_char]) -> Vec<u8> {
    chars.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect()
}

/// An NVRTC program, destroyed on every way out.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by `compile`, destroyed once; nothing can be done about a failure.
        let _ = unsafe { nvrtc::destroy_program(self.0) };
    }
}

/// Fails unless NVRTC can be loaded: cudarc would panic.
fn require_nvrtc() -> Result<()> {
    // SAFETY: only asks the dynamic loader.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    Err(Error::Compile {
        reason:
            "libnvrtc.so.12 was not found; install the CUDA toolkit or put its directory on LD_LIBRARY_PATH"
                .to_owned(),
    })
}

/// The best target for a device of this compute capability: its machine code, which does not depend on the driver knowing the
/// compiler's PTX version; or, for a device newer than this NVRTC, the newest PTX that it can make.
fn target(capability: i32) -> Result<String> {
    let failed =
        |error: nvrtc::NvrtcError| Error::Compile { reason: format!("NVRTC's targets: {:?}", error.0) };
    let mut count = 0;
    // SAFETY: the first call writes a count, the second that many numbers.
    let known = unsafe {
        sys::nvrtcGetNumSupportedArchs(&raw mut count).result().map_err(failed)?;
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        sys::nvrtcGetSupportedArchs(known.as_mut_ptr()).result().map_err(failed)?;
        known
    };
    if known.contains(&capability) {
        return Ok(format!("sm_{capability}"));
    }
    match known.iter().filter(|k| **k < capability).max() {
        Some(best) => Ok(format!("compute_{best}")),
        None => Err(Error::Compile {
            reason: format!(
                "the device has compute capability {capability} (times ten), NVRTC makes code for {known:?}"
            ),
        }),
    }
}
