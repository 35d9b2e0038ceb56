//! A C program linked against `libcuda.so.1`, run against the emulated device: the loader's way in, `cuInit` with an
//! injected library, fork, and the end of a process with work outstanding.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Seconds after which a process that is still there hangs (`timeout` ends it with status 124).
const PATIENCE: &str = "60";

fn compile(folder: &Path, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let output = folder.join(name);
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(cc)
        .args(["-O1", "-Wall", "-o"])
        .arg(&output)
        .arg(source)
        .args(flags)
        .arg(format!("-L{}", folder.display()))
        .arg("-l:libcuda.so.1")
        .status()
        .expect("a C compiler (cc, or the one that CC names)");
    assert!(status.success());
    output
}

fn run(what: &str, injected: Option<&str>) -> Output {
    let folder = common::library_folder();
    let program = compile(folder.path(), "program.c", "program", &[]);
    let mut command = Command::new("timeout");
    command
        .arg(PATIENCE)
        .arg(program)
        .arg(what)
        .env("LD_LIBRARY_PATH", common::search_path(folder.path()))
        .env("SYNCAUDIT_EMU_LOG", if what == "copies" && injected.is_none() { "1" } else { "0" })
        .env_remove("CUDA_INJECTION64_PATH");
    match injected {
        Some("injected.c") => {
            let library = compile(folder.path(), "injected.c", "injected.so", &["-shared", "-fPIC"]);
            command.env("CUDA_INJECTION64_PATH", library);
        }
        Some(path) => {
            command.env("CUDA_INJECTION64_PATH", path);
        }
        None => {}
    }
    command.output().expect("the program runs")
}

fn passed(what: &str, injected: Option<&str>) -> String {
    let output = run(what, injected);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{what}: {:?}\n{stdout}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}

#[test]
fn a_program_links_and_runs() {
    assert_eq!(passed("copies", None), "hello CUDA_ERROR_ILLEGAL_ADDRESS 12080\n");
}

#[test]
fn functions_that_are_not_supported_are_named_on_request() {
    let said = run("copies", None).stderr;
    assert_eq!(String::from_utf8_lossy(&said), "syncaudit emulator: cuMemCreate is not supported\n");
}

#[test]
fn a_process_ends_although_a_kernel_never_does() {
    assert_eq!(passed("busy-exit", None), "leaving\n");
}

#[test]
fn a_forked_child_gets_errors_and_the_parent_goes_on() {
    assert_eq!(passed("fork", None), "parent goes on\n");
}

#[test]
fn a_child_forked_before_the_first_call_has_a_device_of_its_own() {
    assert_eq!(passed("fork-first", None), "hello CUDA_ERROR_ILLEGAL_ADDRESS 12080\n");
}

#[test]
fn the_injected_library_is_initialised_once_and_ends_before_the_driver() {
    let said = passed("init-twice", Some("injected.c"));
    assert_eq!(said, "injected, nested cuInit answers 0\nexit handler, driver answers 0\n");
}

#[test]
fn an_injection_that_can_not_be_loaded_is_silent() {
    for path in ["/no/such/library.so", "/etc/passwd", ""] {
        let output = run("copies", Some(path));
        assert!(output.status.success());
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
