//! What the tests of the built library share: compiling small C programs, running them under the tracer, reading logs.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use syncaudit_eventlog::{LogFile, Payload, Record};

/// The shared object that cargo built together with this test.
pub fn tracer() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    // Tests lie in `deps` with the library, examples in `examples` beside it.
    [folder.join("libsyncaudit_tracer.so"), folder.with_file_name("deps").join("libsyncaudit_tracer.so")]
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo builds libsyncaudit_tracer.so with the package")
}

/// A private directory, gone at the end of the test.
pub fn private_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    directory
}

/// Compiles `tests/support/{source}` to `output` with the C compiler.
pub fn compile(source: &str, output: &Path, options: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(source);
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let result = Command::new(compiler)
        .args(["-g", "-O1", "-Wall", "-Werror", "-Wno-unused-function", "-pthread", "-o"])
        .arg(output)
        .arg(source)
        .args(options)
        .arg("-ldl")
        .output()
        .expect("these tests need a C compiler (cc, or the one named in CC)");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
}

/// A program that runs under the tracer with a trace directory of its own.
pub struct Traced {
    pub command: Command,
    pub directory: tempfile::TempDir,
}

/// What is left when it has run.
pub struct Trace {
    pub output: Output,
    pub directory: tempfile::TempDir,
}

impl Traced {
    pub fn new(program: &Path) -> Self {
        let directory = private_directory();
        let mut command = Command::new(program);
        for variable in ["RANK", "LOCAL_RANK", "WORLD_SIZE", "SYNCAUDIT_CUPTI", "SYNCAUDIT_GPU_TIMELINE"] {
            command.env_remove(variable);
        }
        command
            .env("SYNCAUDIT_TRACE_DIR", directory.path())
            .env("NVTX_INJECTION64_PATH", tracer())
            .env("CUDA_INJECTION64_PATH", tracer());
        Self { command, directory }
    }

    pub fn run(mut self) -> Trace {
        let output = self.command.output().unwrap();
        Trace { output, directory: self.directory }
    }
}

impl Trace {
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    #[track_caller]
    pub fn assert_exit(&self, code: i32) -> &Self {
        assert_eq!(self.output.status.code(), Some(code), "{}", self.stderr());
        self
    }

    /// All logs by the order in which they were begun.
    pub fn logs(&self) -> Vec<LogFile> {
        let mut logs: Vec<_> = std::fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "salog"))
            .map(|path| LogFile::open(&path).unwrap())
            .collect();
        logs.sort_by_key(|log| log.header().created_monotonic_ns);
        logs
    }

    /// The log of a program of one process, without anything to complain about.
    #[track_caller]
    pub fn log(&self) -> LogFile {
        let mut logs = self.logs();
        assert_eq!(logs.len(), 1, "{}", self.stderr());
        let log = logs.remove(0);
        assert!(log.warnings().is_empty(), "{:?}", log.warnings());
        log
    }

    /// The handshake files, with their names.
    pub fn handshakes(&self) -> Vec<(String, String)> {
        let mut files: Vec<_> = std::fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
            .filter(|(name, _)| name.starts_with("alive-"))
            .map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
            .collect();
        files.sort();
        files
    }
}

/// A name for a scratch file that no other test uses.
pub fn unique(name: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Everything that NVTX said, one line each, in the order of each thread.
pub fn said(log: &LogFile) -> Vec<String> {
    let text = |id| log.str(id).map_or("-".into(), |text| String::from_utf8_lossy(text).into_owned());
    let domain =
        |id| log.domain(id).map_or(String::new(), |name| format!("{}:", String::from_utf8_lossy(name)));
    let mut lines = Vec::new();
    for record in log.threads().flat_map(|thread| thread.records()) {
        let attributes = |a: syncaudit_eventlog::RangeAttributes| {
            let category = if a.category == 0 { String::new() } else { format!(" #{}", a.category) };
            let payload =
                if a.payload == Payload::None { String::new() } else { format!(" {:?}", a.payload) };
            format!("{}{}{category}{payload}", domain(a.domain), text(a.name))
        };
        lines.push(match record {
            Record::RangePush { attributes: a, .. } => format!("push {}", attributes(a)),
            Record::RangePop { domain: d, .. } => format!("pop {}", domain(d)),
            Record::RangeStart { attributes: a, .. } => format!("start {}", attributes(a)),
            Record::RangeEnd { domain: d, .. } => format!("end {}", domain(d)),
            Record::Mark { attributes: a, .. } => format!("mark {}", attributes(a)),
            Record::Category { domain: d, category, name } => {
                format!("category {}{category}={}", domain(d), text(name))
            }
            _ => continue,
        });
    }
    lines
}

/// Where `scripts/fetch-vendor-libs.sh` puts the files of others, or the folder named in `SYNCAUDIT_VENDOR`.
pub fn vendor() -> PathBuf {
    let built_in = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/vendor");
    std::env::var_os("SYNCAUDIT_VENDOR").map_or_else(built_in, PathBuf::from)
}
