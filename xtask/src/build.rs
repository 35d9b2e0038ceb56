//! Building and running what the chores need, in the repository root.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository root: the folder above this crate's.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

/// Where release builds go.
pub fn release() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target).join("release")
}

pub fn cargo(words: &[&str]) -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    succeed(Command::new(cargo).args(words))
}

/// Everything in release mode: the command, the tracer, the emulated device, the trainer.
pub fn workspace() -> Result<(), String> {
    cargo(&["build", "--release", "--workspace"])
}

pub fn succeed(command: &mut Command) -> Result<(), String> {
    let status = status(command)?;
    if status == 0 { Ok(()) } else { Err(format!("{command:?} ended with status {status}")) }
}

/// The exit status; a killed program is an error.
pub fn status(command: &mut Command) -> Result<i32, String> {
    let status = command
        .current_dir(root())
        .status()
        .map_err(|error| format!("{command:?} does not start: {error}"))?;
    status.code().ok_or_else(|| format!("{command:?} was killed"))
}
