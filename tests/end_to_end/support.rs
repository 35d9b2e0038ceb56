//! What the end-to-end tests share: the built programs, test programs in C, and one way to run the command.
//!
//! The tests drive binaries, so those are built first, once per test run, with the cargo that runs the tests: a fresh
//! clone needs nothing but `cargo test --workspace`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use tempfile::TempDir;

/// Folder of the built binaries and shared objects, for example `target/debug`.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_syncaudit")).parent().expect("in a folder").to_path_buf();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.arg("--target-dir").arg(folder.parent().expect("in a target directory"));
        match folder.file_name().and_then(OsStr::to_str) {
            Some("debug") => {}
            Some(profile) => drop(cargo.args(["--profile", profile])),
            None => unreachable!("a profile folder has a name"),
        }
        assert!(cargo.status().expect("cargo starts").success(), "the workspace builds");
        folder
    })
}

/// A test program from `tests/programs/NAME.c`, compiled once per test run.
pub fn program(name: &str) -> PathBuf {
    program_with(name, name, &[])
}

/// The same with compiler flags, under another name.
pub fn program_with(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    static PROGRAMS: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut programs = PROGRAMS.lock().expect("no test panicked while compiling");
    if let Some(path) = programs.get(name) {
        return path.clone();
    }
    // Compiled beside and moved, so that a program that still runs is never written to.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let fresh = folder.join(format!("{name}.{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{source}.c"));
    let compiled = Command::new("cc")
        .args(["-g", "-O1", "-Wall", "-Werror", "-o"])
        .arg(&fresh)
        .arg(source)
        .args(flags)
        .arg("-ldl")
        .status()
        .expect("a C compiler named `cc`");
    assert!(compiled.success(), "{name} compiles");
    let path = folder.join(name);
    std::fs::rename(&fresh, &path).expect("a compiled program can be moved");
    programs.insert(name.to_owned(), path.clone());
    path
}

/// A directory of its own in which one test runs the command.
pub struct Place {
    dir: TempDir,
}

/// What came of one run of the command.
pub struct Outcome {
    /// As a shell shows it.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        built();
        Place { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).expect("a temporary file");
        path
    }

    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        path
    }

    /// The command, in this directory, in an environment in which no other tool has a say.
    pub fn command(&self) -> Command {
        self.clean(built().join("syncaudit"))
    }

    /// Any program, in this directory and that environment.
    pub fn clean(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let foreign = ["SYNCAUDIT_", "CUDA_", "NVTX_"].iter().any(|prefix| name.starts_with(prefix));
            if foreign || name == "NO_COLOR" || name == "CLICOLOR_FORCE" {
                command.env_remove(name);
            }
        }
        command
    }

    pub fn syncaudit<I: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = I>) -> Outcome {
        Outcome::of(self.command().args(words).output().expect("the command starts"))
    }

    /// `syncaudit run --device emulated OPTIONS -- PROGRAM`, with the JSON report in a file.
    pub fn run(&self, options: &[&str], program: &[&OsStr]) -> (Outcome, Value) {
        let report = self.path().join("report.json");
        let mut command = self.command();
        command.args(["run", "--device", "emulated", "--format", "json=report.json"]).args(options);
        command.arg("--").args(program);
        let outcome = Outcome::of(command.output().expect("the command starts"));
        (outcome, json(&report))
    }

    /// The trace that the only run in this directory has left.
    pub fn trace(&self) -> PathBuf {
        let mut traces: Vec<PathBuf> = std::fs::read_dir(self.path().join(".syncaudit"))
            .expect("a trace was kept")
            .map(|entry| entry.expect("readable").path())
            .filter(|path| path.is_dir())
            .collect();
        assert_eq!(traces.len(), 1, "{traces:?}");
        traces.remove(0)
    }
}

impl Outcome {
    pub fn of(output: Output) -> Outcome {
        let status = output.status;
        Outcome {
            status: status.code().unwrap_or_else(|| 128 + status.signal().expect("exited or was killed")),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Exit 2, and a message that says what was found and what to do.
    #[track_caller]
    pub fn refused(&self, found: &str, todo: &str) {
        assert_eq!(self.status, 2, "{}", self.stderr);
        for word in [found, todo, "help:"] {
            assert!(self.stderr.contains(word), "`{word}` in:\n{}", self.stderr);
        }
    }
}

#[track_caller]
pub fn json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
