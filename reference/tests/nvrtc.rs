//! The kernels' CUDA C against the real compiler. Needs no GPU: NVRTC is a plain library, unpacked from its PyPI wheel into
//! `target/vendor/nvrtc-*` by `scripts/fetch-vendor-libs.sh`; without it the tests skip with a message.

use std::path::{Path, PathBuf};

use dflash_train::kernels::{self, Kernel};

/// Loads the vendored NVRTC so that cudarc's own look-up by name finds it already mapped.
#[allow(unsafe_code)]
fn nvrtc() -> bool {
    let vendor = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from)
        .join("vendor");
    let library = std::fs::read_dir(&vendor)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("nvrtc-")))
        .map(|folder| folder.join("libnvrtc.so.12"))
        .find(|path| path.is_file());
    let Some(library) = library else {
        println!(
            "skipped: no nvrtc-*/libnvrtc.so.12 in {}; run scripts/fetch-vendor-libs.sh",
            vendor.display()
        );
        return false;
    };
    // The builtins are opened by bare name when the first program is compiled.
    for name in ["libnvrtc-builtins.so.12.9", "libnvrtc-builtins.so.12.8"] {
        if let Ok(builtins) = library.with_file_name(name).canonicalize() {
            // SAFETY: NVIDIA's library; its initialisers are what any program that links it runs.
            std::mem::forget(unsafe { libloading::Library::new(builtins) });
        }
    }
    // SAFETY: as above.
    let loaded = unsafe { libloading::Library::new(&library) };
    std::mem::forget(loaded.unwrap_or_else(|e| panic!("{}: {e}", library.display())));
    true
}

#[test]
fn nvrtc_compiles_every_kernel_for_ampere_and_hopper() {
    if !nvrtc() {
        return;
    }
    // `sm_` and not only `compute_`: then NVRTC assembles machine code, and too many registers or too much shared memory
    // are errors as well.
    for architecture in ["sm_80", "sm_90"] {
        let (ptx, machine_code) = kernels::compile_check(kernels::all(), architecture)
            .unwrap_or_else(|e| panic!("{architecture}: {e}"));
        assert!(machine_code > 10_000, "{architecture}: {machine_code} bytes");
        for kernel in kernels::all() {
            assert_eq!(
                declared_sizes(&ptx, kernel),
                kernel.params.iter().map(|p| p.bytes).collect::<Vec<_>>(),
                "{architecture}: parameters of {} as compiled and as registered with the emulated device",
                kernel.name
            );
        }
    }
}

#[test]
fn an_error_in_a_kernel_comes_back_with_the_compilers_log() {
    if !nvrtc() {
        return;
    }
    static BROKEN: Kernel = Kernel { body: "{ no_such_thing(); }", ..kernels::elementwise::add::KERNEL };
    let error = kernels::compile_check(&[&BROKEN], "sm_80").unwrap_err().to_string();
    assert!(error.contains("no_such_thing"), "{error}");
}

/// Sizes of the parameters in the `.entry` of `kernel`: `.param .u64 .ptr .global .align 4 name_param_0,` and the like.
fn declared_sizes(ptx: &str, kernel: &Kernel) -> Vec<usize> {
    let entry = format!(".entry {}(", kernel.name);
    let start =
        ptx.find(&entry).unwrap_or_else(|| panic!("no entry {} in the PTX", kernel.name)) + entry.len();
    let end = start + ptx[start..].find(')').expect("an end of the parameter list");
    ptx[start..end]
        .split(',')
        .filter_map(|param| param.trim().strip_prefix(".param ."))
        .map(|param| match &param[..3] {
            "u64" | "s64" | "b64" | "f64" => 8,
            "u32" | "s32" | "b32" | "f32" => 4,
            other => panic!("{}: parameter type {other}", kernel.name),
        })
        .collect()
}
