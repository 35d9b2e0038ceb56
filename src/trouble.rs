//! A failure as the user reads it: what was tried, what was found, what to do.
//!
//! Every error of the command ends in one of these; `main` prints it and exits 2.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    tried: String,
    found: String,
    todo: String,
}

impl Trouble {
    /// `tried` completes "cannot ...", `found` is what was there instead, `todo` is an instruction; none of them ends
    /// in a full stop.
    pub fn new(tried: impl Into<String>, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Trouble { tried: tried.into(), found: found.into(), todo: todo.into() }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}\n  help: {}", self.tried, self.found, self.todo)
    }
}

impl std::error::Error for Trouble {}
