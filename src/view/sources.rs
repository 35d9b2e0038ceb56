//! Lines of the program's source files, read once each.
//!
//! In: the path of a frame. Out: lines around it, where the file is on this machine. A trace may name any path: only files of a
//! sensible size are read, and what is in them never controls the terminal.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::audit::Frame;
use crate::report::text::read_lines;
use crate::report::words::plain;

/// The files read so far; `None` for those that can't be.
#[derive(Debug, Default)]
pub struct Sources {
    files: RefCell<HashMap<String, Option<Vec<String>>>>,
}

impl Sources {
    /// Up to `around` lines before and after the frame's own, as (number, text); empty if there is nothing to show.
    #[must_use]
    pub fn excerpt(&self, frame: &Frame, around: usize) -> Vec<(usize, String)> {
        if frame.line == 0 || frame.path.is_empty() {
            return Vec::new();
        }
        let mut files = self.files.borrow_mut();
        let lines = files.entry(frame.path.clone()).or_insert_with(|| read_lines(&frame.path));
        let Some(lines) = lines else { return Vec::new() };
        let line = frame.line as usize;
        if line > lines.len() {
            return Vec::new();
        }
        let from = line.saturating_sub(around).max(1);
        (from..=(line + around).min(lines.len()))
            .map(|number| (number, plain(&lines[number - 1].replace('\t', "    "))))
            .collect()
    }
}
