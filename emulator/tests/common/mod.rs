//! Runs a test in a child process that finds the emulated device as its `libcuda.so.1`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared object, built beside the test.
pub fn shared_object() -> PathBuf {
    let mut folder = std::env::current_exe().expect("the test's own path");
    folder.pop();
    folder.join("libsyncaudit_emulator.so")
}

/// A folder with the names that programs and loaders look for.
pub fn library_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["libcuda.so.1", "libcuda.so", "libnccl.so.2", "libnccl.so"] {
        std::os::unix::fs::symlink(shared_object(), folder.path().join(name)).expect("a link");
    }
    folder
}

/// `LD_LIBRARY_PATH` with `folder` first.
pub fn search_path(folder: &Path) -> String {
    let rest = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    format!("{}:{rest}", folder.display())
}

/// In the parent: runs test `name` of this binary in a child and expects it to pass. In the child: runs `body`.
#[allow(dead_code)] // not every test file uses it
pub fn on_the_emulated_device(name: &str, body: impl FnOnce()) {
    const INSIDE: &str = "EMULATOR_TEST_CHILD";
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let folder = library_folder();
    let output = Command::new(std::env::current_exe().expect("the test's own path"))
        .args(["--exact", name, "--nocapture"])
        .env("LD_LIBRARY_PATH", search_path(folder.path()))
        .env(INSIDE, "1")
        .output()
        .expect("the test's own binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success() && text(&output.stdout).contains("1 passed"),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}
