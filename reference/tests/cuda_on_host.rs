//! The CUDA C of every kernel, executed without a GPU: compiled as C++ with a small shim (`cuda_on_host/shim.h`) that runs the
//! threads of a block as coroutines, and compared with the host implementation on the cases of `kernels::compare`.
//!
//! What it can't show: memory consistency between real warps, and NVIDIA's rounding. It needs a C++ compiler (`CXX`, or `c++`)
//! and skips with a message without one.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::path::Path;
use std::process::Command;

use dflash_train::device::Device;
use dflash_train::kernels::compare::{Case, DEFAULT_TOLERANCE, cases};
use dflash_train::kernels::{self, Kernel};

type Entry = unsafe extern "C" fn(*mut *mut c_void);
type Launch = unsafe extern "C" fn(Entry, *mut *mut c_void, *const u32, u32, i32) -> i32;

struct Compiled {
    library: libloading::Library,
    _folder: tempfile::TempDir,
}

fn compile(kernels: &[&Kernel]) -> Option<Compiled> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        println!("skipped: no C++ compiler {}", compiler.display());
        return None;
    }
    let mut source = include_str!("cuda_on_host/shim.h").to_owned();
    source.push_str(&kernels::cuda_source(kernels));
    for kernel in kernels {
        let arguments: Vec<String> = (0..)
            .zip(kernel.params)
            .map(|(i, p)| format!("*({}*)a[{i}]", p.c_type.replace(" __restrict__", "")))
            .collect();
        source.push_str(&format!(
            "extern \"C\" void run_{}(void** a) {{ {}({}); }}\n",
            kernel.name,
            kernel.name,
            arguments.join(", ")
        ));
    }
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("kernels.cpp"), folder.path().join("kernels.so"));
    std::fs::write(&input, source).unwrap();
    let run = Command::new(&compiler)
        .args(["-std=c++14", "-O1", "-shared", "-fPIC", "-o"])
        .args([output.as_path(), input.as_path()] as [&Path; 2])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    // SAFETY: compiled above from code without initialisers.
    let library = unsafe { libloading::Library::new(&output) }.unwrap();
    Some(Compiled { library, _folder: folder })
}

impl Compiled {
    /// Contents of every pointer parameter after the launch; an error when threads wait for each other forever.
    fn run(&self, case: &Case, descending: bool) -> Result<Vec<Option<Vec<u32>>>, String> {
        let mut contents = case.contents.clone();
        let geometry = (case.kernel.geometry)(&case.values);
        let pointers =
            contents.iter_mut().map(|c| c.as_mut().map_or(0, |c| c.as_mut_ptr().expose_provenance() as u64));
        let mut raw: Vec<u64> = pointers.chain(case.values.iter().copied()).collect();
        let mut arguments: Vec<*mut c_void> = raw.iter_mut().map(|a| std::ptr::from_mut(a).cast()).collect();
        let grid = geometry.grid.map(|g| u32::try_from(g).unwrap());
        // SAFETY: the library defines `launch` and one `run_*` per kernel with these types; the arguments match the kernel's
        // parameters and point at memory of the lengths that it declares.
        let code = unsafe {
            let launch = self.library.get::<Launch>(b"launch\0").unwrap();
            let entry = self.library.get::<Entry>(format!("run_{}\0", case.kernel.name).as_bytes()).unwrap();
            launch(
                *entry,
                arguments.as_mut_ptr(),
                grid.as_ptr(),
                u32::try_from(geometry.block).unwrap(),
                i32::from(descending),
            )
        };
        if code == 0 { Ok(contents) } else { Err(format!("{}: a barrier not reached by all", case.name())) }
    }
}

#[test]
fn the_cuda_c_of_every_kernel_computes_what_its_host_implementation_computes() {
    let Some(compiled) = compile(kernels::all()) else { return };
    let mut failures = Vec::new();
    for case in cases().unwrap() {
        let expected = case.run(&Device::in_process()).unwrap();
        let found = compiled.run(&case, false).unwrap();
        let difference = case.difference(&found, &expected);
        println!("{:45} {:.2e}", difference.name, difference.relative_error);
        if difference.relative_error > DEFAULT_TOLERANCE {
            failures.push(format!("{difference:?}"));
        }
        if compiled.run(&case, true).unwrap() != found {
            failures.push(format!("{} depends on the order of threads", case.name()));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The comparison above must be able to fail: a kernel without its barrier depends on the order of threads, and a barrier in a
/// branch never completes.
#[test]
fn a_missing_barrier_and_a_divergent_one_are_found() {
    let case = cases().unwrap().into_iter().find(|c| c.kernel.name == "scale").unwrap();
    let broken = |body: &'static str| -> &'static Kernel {
        Box::leak(Box::new(Kernel { body, ..kernels::elementwise::scale::KERNEL }))
    };
    let unordered = broken(
        "{ __shared__ float s[256]; int t = threadIdx.x; s[t] = t + 999 * blockIdx.x; x[t] = s[255 - t]; }",
    );
    let Some(compiled) = compile(&[unordered]) else { return };
    assert_ne!(compiled.run(&case, false).unwrap(), compiled.run(&case, true).unwrap());

    let Some(compiled) =
        compile(&[broken("{ if (threadIdx.x < 16) warp_sum(1.0f); else __syncthreads(); }")])
    else {
        return;
    };
    assert!(compiled.run(&case, false).is_err());
}
