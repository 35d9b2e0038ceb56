//! How a source becomes a trace: one file or folder per source.
//!
//! In: paths that a user gave. Out: one [`Trace`] for all of them, or an [`ImportError`] that says what was tried, what was
//! found and what to do. A damaged source yields what is readable and a problem that counts what is not, never a
//! smaller trace in silence.

mod eventlog;
mod python_lines;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::model::{Trace, TraceBuilder};

/// Why no trace could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The path that was tried.
    pub path: PathBuf,
    /// What was found there, and what to do, as full sentences.
    pub text: String,
}

impl ImportError {
    /// An error about `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't read a trace from {}: {}", self.path.display(), self.text)
    }
}

impl std::error::Error for ImportError {}

/// Reads all of `paths` as one job.
///
/// # Errors
/// When nothing can be read at one of them.
pub fn load(paths: &[PathBuf]) -> Result<Trace, ImportError> {
    let mut trace = TraceBuilder::default();
    for path in paths {
        load_into(path, &mut trace)?;
    }
    Ok(trace.finish())
}

/// Finds out what is at `path` and has it read. The place where further formats enter.
fn load_into(path: &Path, trace: &mut TraceBuilder) -> Result<(), ImportError> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => ImportError::new(path, "there is nothing of that name"),
        _ => ImportError::new(path, format!("it can't be looked at: {error}")),
    })?;
    if eventlog::is_mine(path) {
        return eventlog::load(path, trace);
    }
    if metadata.is_dir() {
        return Err(ImportError::new(
            path,
            "the directory holds no event log (PID-N.salog) and was not made by 'syncaudit run'; give a trace \
             directory or a log file",
        ));
    }
    // The event log's reader knows what other files look like.
    match syncaudit_eventlog::LogFile::open(path) {
        Err(error) => Err(ImportError::new(path, error.to_string())),
        Ok(_) => eventlog::load(path, trace),
    }
}
