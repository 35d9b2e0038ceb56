//! A bar on the terminal while traces are read.
//!
//! In: how far reading is. Out: one line on stderr that is drawn over itself and wiped in the end. It must never write when
//! stderr is no terminal, nor for anything that takes less than a second.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use syncaudit::import::Progress;

const FIRST_AFTER: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(100);
const CELLS: usize = 30;

/// See the module's text. Dropping it wipes the line.
pub struct Bar {
    terminal: bool,
    next: Instant,
    drawn: bool,
}

impl Bar {
    /// A bar that shows itself if there is anything to show.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), next: Instant::now() + FIRST_AFTER, drawn: false }
    }

    /// Draws how far it is, if it is time to.
    pub fn show(&mut self, progress: Progress) {
        if !self.terminal || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        self.drawn = true;
        // A terminal that is gone is no reason to stop reading.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(progress));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(progress: Progress) -> String {
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let done = megabytes(progress.done_bytes);
    match progress.total_bytes.filter(|&total| total > 0) {
        Some(total) => {
            let part = progress.done_bytes.min(total) as f64 / total as f64;
            let full = (part * CELLS as f64) as usize;
            format!(
                "reading [{}{}] {:3.0} % of {} MB",
                "#".repeat(full),
                "-".repeat(CELLS - full),
                part * 100.0,
                megabytes(total)
            )
        }
        None => format!("reading: {done} MB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is_or_how_much_was_read() {
        let half = Progress { done_bytes: 50_000_000, total_bytes: Some(100_000_000) };
        assert_eq!(line(half), format!("reading [{}{}]  50 % of 100 MB", "#".repeat(15), "-".repeat(15)));
        assert_eq!(line(Progress { done_bytes: 7_000_000, total_bytes: None }), "reading: 7 MB");
    }
}
