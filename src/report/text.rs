//! The report for people: a verdict card, then one block per site, then totals.

use super::Audit;

/// How to write for the reader's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Use colour (only when writing to a terminal and `NO_COLOR` is unset; the caller decides).
    pub color: bool,
    /// Columns.
    pub width: usize,
}

impl Default for TextStyle {
    fn default() -> Self {
        Self { color: false, width: 100 }
    }
}

/// The report as text, ending with a newline. The same audit and style always give the same bytes.
#[must_use]
pub fn text(audit: &Audit, _style: TextStyle) -> String {
    format!("verdict: {}\n", audit.verdict.id())
}
