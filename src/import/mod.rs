//! How a source becomes a trace: one file or folder per source.
//!
//! In: paths that a user gave. Out: one [`Trace`] for all of them, or an [`ImportError`] that says what was tried, what was
//! found and what to do. A damaged source yields what is readable and a problem that counts what is not, never a
//! smaller trace in silence.

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

fn load_into(path: &Path, _trace: &mut TraceBuilder) -> Result<(), ImportError> {
    Err(ImportError::new(path, "the format isn't known to this version"))
}
