//! The command on the emulated device, in a scratch directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory in which the emulated device goes by the names of the driver and of NCCL.
fn driver_directory() -> tempfile::TempDir {
    let program = Path::new(env!("CARGO_BIN_EXE_dflash-train"));
    // Built along as a dev-dependency; cargo puts shared objects of dependencies there.
    let emulator = program.parent().unwrap().join("deps/libsyncaudit_emulator.so");
    assert!(emulator.exists(), "{} is missing", emulator.display());
    let directory = tempfile::tempdir().unwrap();
    for name in ["libcuda.so", "libcuda.so.1", "libnccl.so", "libnccl.so.2"] {
        std::os::unix::fs::symlink(&emulator, directory.path().join(name)).unwrap();
    }
    directory
}

/// A scratch directory and the command that runs in it.
pub struct Bench {
    driver: tempfile::TempDir,
    work: tempfile::TempDir,
}

#[allow(dead_code)] // not every test file uses all of it
impl Bench {
    pub fn new() -> Self {
        Bench { driver: driver_directory(), work: tempfile::tempdir().unwrap() }
    }

    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dflash-train"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.work.path())
            .env("LD_LIBRARY_PATH", self.driver.path())
            .env_remove("NVTX_INJECTION64_PATH")
            .env_remove("CUDA_INJECTION64_PATH")
            .stdin(Stdio::null());
        for name in ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs to success; what it said on stderr.
    pub fn succeed(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "dflash-train {arguments}: {}\n{said}", output.status);
        assert!(output.stdout.is_empty() || arguments.starts_with("capture-check"));
        said
    }

    /// Runs to failure; what it said on stderr.
    pub fn fail(&self, arguments: &str, code: i32) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "dflash-train {arguments}\n{said}");
        said
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Step and loss of every line of a metrics file.
    pub fn losses(&self, name: &str) -> Vec<(u64, f64)> {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        text.lines()
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                for key in ["accuracy", "accuracy_denom", "grad_norm", "lr"] {
                    assert!(line[key].is_f64(), "{key} in {line}");
                }
                (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap())
            })
            .collect()
    }

    /// The rows of a ledger: sample, step, rank.
    pub fn ledger(&self, directory: &str) -> Vec<(u64, u32, usize)> {
        let rows = dflash_train::train::ledger::read(&self.path(directory)).unwrap();
        rows.iter().map(|row| (row.sample, row.step, row.rank)).collect()
    }
}
