//! A window that slides over a text of any length.
//!
//! In: a reader. Out: the bytes from the current place on, as many as are there; more on request. It holds a megabyte, more
//! only while a single value is longer than that, and never more than [`LONGEST_VALUE`].

use std::io::{self, Read};

const SIZE: usize = 1 << 20;
/// A single event beyond this is damage (a quote that never closes), not an event.
pub(super) const LONGEST_VALUE: usize = 64 << 20;

/// See the module's text.
pub(super) struct Window<'r> {
    reader: &'r mut dyn Read,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the whole text of `buffer[0]`.
    offset: u64,
    ended: bool,
    error: Option<io::Error>,
}

impl<'r> Window<'r> {
    pub(super) fn new(reader: &'r mut dyn Read) -> Self {
        Self { reader, buffer: vec![0; SIZE], start: 0, end: 0, offset: 0, ended: false, error: None }
    }

    /// The bytes from here on that are at hand.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Offset in the whole text of the first of [`Self::bytes`].
    pub(super) fn position(&self) -> u64 {
        self.offset + self.start as u64
    }

    /// Goes on by `count` bytes, which must be at hand.
    pub(super) fn advance(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Gets more bytes behind those at hand; false if there are no more, or the window is as large as it may be.
    pub(super) fn fill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.offset += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            if self.buffer.len() >= LONGEST_VALUE {
                return false;
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let before = self.end;
        while self.end < self.buffer.len() && !self.ended {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    self.ended = true;
                }
            }
        }
        self.end > before
    }

    /// Whether the text ends with the bytes at hand.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Why the text ended early, if reading failed.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }
}
