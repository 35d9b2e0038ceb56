//! How a source becomes a trace: one file or folder per source.
//!
//! In: paths that a user gave. Out: one [`Trace`] for all of them, or an [`ImportError`] that says what was tried, what was
//! found and what to do. A damaged source yields what is readable and a problem that counts what is not, never a
//! smaller trace in silence.

mod eventlog;
mod foreign;
mod input;
mod job;
mod kineto;
pub mod names;
mod nsys;
mod python_lines;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::model::{Problem, ProblemKind, Trace, TraceBuilder};
use job::Imported;

/// Why no trace could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The path that was tried.
    pub path: PathBuf,
    /// What was found there, and what to do, as full sentences.
    pub text: String,
    /// What is there was never meant to be a trace, as far as can be told. In a directory such a file is passed over.
    pub foreign: bool,
}

impl ImportError {
    /// An error about `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into(), foreign: false }
    }

    /// The same, about something that was never meant to be a trace.
    #[must_use]
    pub fn foreign(self) -> Self {
        Self { foreign: true, ..self }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't read a trace from {}: {}", self.path.display(), self.text)
    }
}

impl std::error::Error for ImportError {}

/// How far reading is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of files (as they are on disk) that were read.
    pub done_bytes: u64,
    /// Bytes of all files; `None` where unknown (standard input).
    pub total_bytes: Option<u64>,
}

/// Reads all of `paths` as one job.
///
/// # Errors
/// When nothing can be read at any of them.
pub fn load(paths: &[PathBuf]) -> Result<Trace, ImportError> {
    load_with(paths, &mut |_| {})
}

/// Reads all of `paths` as one job, and says how far it is after each piece of about a megabyte.
///
/// # Errors
/// As [`load`].
pub fn load_with(paths: &[PathBuf], progress: &mut dyn FnMut(Progress)) -> Result<Trace, ImportError> {
    let mut trace = TraceBuilder::default();
    let recordings = job::load(paths, &mut trace, progress)?;
    let mut trace = trace.finish();
    if recordings > 1 {
        // Ranks side by side in their own order, whatever the order of the files was.
        trace.processes.sort_by_key(|process| process.rank);
    }
    Ok(trace)
}

/// Finds out what is at `path` and has it read. The place where further formats enter.
fn load_file(
    path: &Path,
    trace: &mut TraceBuilder,
    seen: &mut eventlog::Seen,
    progress: &mut dyn FnMut(u64),
) -> Result<Imported, ImportError> {
    if eventlog::is_mine(path) {
        let before = trace.process_count();
        let world_size = eventlog::load(path, trace, seen)?;
        let processes = before..trace.process_count();
        let mut ranks: Vec<u32> =
            processes.clone().filter_map(|index| trace.process_at(index).data().rank).collect();
        ranks.sort_unstable();
        ranks.dedup(); // a rank's helpers have its number too
        return Ok(Imported { ranks, world_size, processes, ..Imported::default() });
    }
    let mut input = input::open(path)?;
    let counts = std::sync::Arc::clone(&input.counts);
    let imported = if kineto::looks_like(&input.head) {
        let mut tell = || progress(counts.read.load(std::sync::atomic::Ordering::Relaxed));
        kineto::import(path, &mut input.reader, trace, &mut tell)?
    } else if nsys::looks_like(&input.head) {
        nsys::import(path, &mut input, trace, progress)?
    } else {
        let text = nsys::report_file(path).unwrap_or_else(|| foreign::describe(&input.head));
        return Err(ImportError::new(path, text));
    };
    let foreign = counts.foreign.load(std::sync::atomic::Ordering::Relaxed);
    if foreign > 0 {
        trace.problem(Problem::counted(
            ProblemKind::Note,
            foreign,
            format!("{}: {foreign} bytes after the compressed data were not read", path.display()),
        ));
    }
    Ok(imported)
}
