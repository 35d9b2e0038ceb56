//! What went wrong, as one message for the user: what was tried, what was found, what to do.

use std::fmt;

/// An error that a user reads. Nothing in the trainer handles one kind differently from another, so it has no kinds.
pub struct Error {
    message: String,
}

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Error { message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<crate::device::Error> for Error {
    fn from(error: crate::device::Error) -> Self {
        Error::new(error.to_string())
    }
}
