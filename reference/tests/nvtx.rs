//! The ranges that reach an injected library are the ones the program opened, and both clients send the same.

use std::path::Path;
use std::process::Command;

/// Not a claim by itself: what the child process of the tests below does. Without `NVTX_CLIENT` it does nothing.
#[test]
fn child_opens_ranges() {
    match std::env::var("NVTX_CLIENT").as_deref() {
        Ok("own") => open_ranges(
            dflash_train::nvtx::own::push,
            dflash_train::nvtx::own::push_with_payload,
            dflash_train::nvtx::own::pop,
        ),
        #[cfg(feature = "nvtx-official")]
        Ok("official") => open_ranges(
            dflash_train::nvtx::official::push,
            dflash_train::nvtx::official::push_with_payload,
            dflash_train::nvtx::official::pop,
        ),
        _ => {}
    }
}

fn open_ranges(push: fn(&std::ffi::CStr), push_with_payload: fn(&std::ffi::CStr, i64), pop: fn()) {
    for step in [1, i64::MAX, -7] {
        push_with_payload(c"step", step);
        push(c"forward");
        push(c"read loss @ reference/src/waits/metrics.rs:1");
        pop();
        pop();
        pop();
    }
}

fn record(client: &str, library: &Path, directory: &Path) -> String {
    let record = directory.join(format!("{client}.txt"));
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_opens_ranges"])
        .env("NVTX_CLIENT", client)
        .env("NVTX_INJECTION64_PATH", library)
        .env("NVTX_RECORD", &record)
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    std::fs::read_to_string(&record).unwrap_or_default()
}

fn build_recorder(directory: &Path) -> std::path::PathBuf {
    let library = directory.join("librecorder.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/nvtx_recorder.c");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    assert!(status.expect("a C compiler named `cc`").success());
    library
}

const EXPECTED: &str = "\
push step payload type 2 = 1 (size 48, message type 1)
push forward
push read loss @ reference/src/waits/metrics.rs:1
pop
pop
pop
push step payload type 2 = 9223372036854775807 (size 48, message type 1)
push forward
push read loss @ reference/src/waits/metrics.rs:1
pop
pop
pop
push step payload type 2 = -7 (size 48, message type 1)
push forward
push read loss @ reference/src/waits/metrics.rs:1
pop
pop
pop
";

#[test]
fn own_client_sends_the_ranges_that_were_opened() {
    let directory = tempfile::tempdir().unwrap();
    let library = build_recorder(directory.path());
    assert_eq!(record("own", &library, directory.path()), EXPECTED);
}

#[cfg(feature = "nvtx-official")]
#[test]
fn official_client_sends_the_same_ranges_as_ours() {
    let directory = tempfile::tempdir().unwrap();
    let library = build_recorder(directory.path());
    assert_eq!(record("official", &library, directory.path()), record("own", &library, directory.path()));
}

#[test]
fn without_a_usable_library_ranges_do_nothing() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(record("own", &directory.path().join("missing.so"), directory.path()), "");
}

#[test]
fn call_sites_carry_file_and_line() {
    // The macro must compile in any crate that uses ours; its text is checked end to end by the audit of a real run.
    let _range = dflash_train::call_site!("a place");
}
