//! Walks through a trace's text: the top level, the events, and what to do where it is damaged.
//!
//! In: a reader of plain text. Out: each event once, in order, to a [`Sink`], and a [`Damage`] that counts what could not be
//! read. It must never hold more than a window of the text, and never skip anything without counting it.

use std::io::{self, Read};

use super::event::{self, Event};
use super::json::{Cursor, Fault};
use super::window::Window;

/// Takes what is read.
pub(super) trait Sink {
    fn event(&mut self, event: &Event<'_>);
    /// A member of the top-level object besides the events; `value` is its JSON text.
    fn member(&mut self, key: &str, value: &[u8]);
    /// The text up to this offset was read.
    fn position(&mut self, offset: u64);
}

/// What could not be read, and where.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Places at which something was no event: each may have been more than one.
    pub lost: u64,
    /// Bytes skipped there.
    pub lost_bytes: u64,
    /// The first of these places, and what was expected there.
    pub first_lost: Option<(u64, &'static str)>,
    /// Events with a quote in a string that was not escaped, read all the same.
    pub mended: u64,
    /// Offset at which the text ends though the trace doesn't.
    pub cut_at: Option<u64>,
    /// The cut is inside of an event.
    pub cut_inside_event: bool,
    /// A bare array of events without its closing bracket: allowed, but also what a cut looks like.
    pub open_array: bool,
    /// Bytes after the end of the trace that are no white space.
    pub trailing: u64,
    /// Reading failed here.
    pub error: Option<io::Error>,
    /// A list of events was there.
    pub saw_events: bool,
}

/// Why a text is no trace.
#[derive(Debug)]
pub(super) struct NotATrace {
    pub offset: u64,
    pub expected: &'static str,
    /// It is JSON without damage, of some other kind.
    pub well_formed: bool,
}

/// Reads a whole trace.
pub(super) fn read(reader: &mut dyn Read, sink: &mut dyn Sink) -> Result<Damage, NotATrace> {
    let mut walk = Walk { window: Window::new(reader), sink, damage: Damage::default() };
    walk.byte_order_mark();
    match walk.peek() {
        Some(b'{') => walk.top_level()?,
        Some(b'[') => {
            walk.window.advance(1);
            walk.damage.saw_events = true;
            if !walk.events() {
                walk.damage.open_array = !walk.damage.cut_inside_event;
                if walk.damage.open_array {
                    walk.damage.cut_at = None;
                }
            }
        }
        _ => {
            return Err(NotATrace {
                offset: walk.window.position(),
                expected: "a JSON object or array",
                well_formed: false,
            });
        }
    }
    walk.trailing();
    walk.damage.error = walk.window.take_error();
    walk.sink.position(walk.window.position());
    Ok(walk.damage)
}

struct Walk<'a> {
    window: Window<'a>,
    sink: &'a mut dyn Sink,
    damage: Damage,
}

impl Walk<'_> {
    fn byte_order_mark(&mut self) {
        while self.window.bytes().len() < 3 && self.window.fill() {}
        if self.window.bytes().starts_with(b"\xef\xbb\xbf") {
            self.window.advance(3);
        }
    }

    /// The next byte that is no white space, with the window starting there; `None` at the end of the text.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let bytes = self.window.bytes();
            match Cursor::new(bytes, 0).blank() {
                Some(blank) => {
                    let byte = bytes[blank];
                    self.window.advance(blank);
                    return Some(byte);
                }
                None => {
                    let count = bytes.len();
                    self.window.advance(count);
                    if !self.window.fill() {
                        return None;
                    }
                }
            }
        }
    }

    /// Reads something that starts at the window's start, getting more text as long as it is incomplete. Answers what
    /// `read` made of it and how long it was, with the window still at its start.
    fn whole<T>(
        &mut self,
        mut read: impl FnMut(&mut Cursor<'_>) -> Result<T, Fault>,
    ) -> Result<(T, usize), Fault> {
        loop {
            let mut cursor = Cursor::new(self.window.bytes(), 0);
            match read(&mut cursor) {
                Ok(value) => return Ok((value, cursor.at)),
                Err(Fault::Incomplete) => {
                    if !self.window.fill() {
                        return Err(Fault::Incomplete);
                    }
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// The members of the top-level object.
    fn top_level(&mut self) -> Result<(), NotATrace> {
        let begin = self.window.position();
        self.window.advance(1);
        loop {
            match self.peek() {
                Some(b'"') => {}
                Some(b',') => {
                    self.window.advance(1);
                    continue;
                }
                Some(b'}') => {
                    self.window.advance(1);
                    break;
                }
                Some(_) => {
                    if self.damage.saw_events {
                        // The events are read; what is damaged is only what stands behind them.
                        self.note_lost(self.window.position(), "a key or the end of the object");
                        break;
                    }
                    return Err(NotATrace {
                        offset: self.window.position(),
                        expected: "a key of the JSON object",
                        well_formed: false,
                    });
                }
                None => {
                    self.damage.cut_at = Some(self.window.position());
                    break;
                }
            }
            let key = self.whole(|cursor| {
                let key = cursor.next_key()?;
                Ok(String::from_utf8_lossy(key.unwrap_or_default()).into_owned())
            });
            let key = match key {
                Ok((key, length)) => {
                    self.window.advance(length);
                    key
                }
                Err(Fault::Incomplete) => {
                    self.damage.cut_at = Some(self.window.position() + self.window.bytes().len() as u64);
                    break;
                }
                Err(Fault::Bad { at, expected }) if !self.damage.saw_events => {
                    return Err(NotATrace {
                        offset: self.window.position() + at as u64,
                        expected,
                        well_formed: false,
                    });
                }
                Err(Fault::Bad { expected, .. }) => {
                    self.note_lost(self.window.position(), expected);
                    break;
                }
            };
            if key == "traceEvents" && self.peek() == Some(b'[') {
                self.window.advance(1);
                self.damage.saw_events = true;
                if !self.events() {
                    break;
                }
            } else if !self.member(&key)? {
                break;
            }
        }
        if !self.damage.saw_events && self.damage.cut_at.is_none() {
            return Err(NotATrace {
                offset: begin,
                expected: "a member \"traceEvents\" with a list of events",
                well_formed: true,
            });
        }
        Ok(())
    }

    /// A member that is no list of events; false if the text ended in it.
    fn member(&mut self, key: &str) -> Result<bool, NotATrace> {
        let wanted = WANTED_MEMBERS.contains(&key);
        if self.peek().is_none() {
            self.damage.cut_at = Some(self.window.position());
            return Ok(false);
        }
        if !wanted && matches!(self.peek(), Some(b'{' | b'[')) {
            let complete = self.skip_nested();
            if !complete {
                self.damage.cut_at = Some(self.window.position());
            }
            return Ok(complete);
        }
        match self.whole(|cursor| cursor.skip()) {
            Ok(((), length)) => {
                if wanted {
                    self.sink.member(key, &self.window.bytes()[..length]);
                }
                self.window.advance(length);
                Ok(true)
            }
            Err(Fault::Incomplete) => {
                self.damage.cut_at = Some(self.window.position() + self.window.bytes().len() as u64);
                Ok(false)
            }
            Err(Fault::Bad { at, expected }) => {
                let offset = self.window.position() + at as u64;
                if self.damage.saw_events {
                    self.note_lost(offset, expected);
                    return Ok(false);
                }
                Err(NotATrace { offset, expected, well_formed: false })
            }
        }
    }

    /// Skips an object or array of any length without holding it; false if the text ended in it.
    fn skip_nested(&mut self) -> bool {
        let (mut depth, mut in_string, mut escaped) = (0u64, false, false);
        loop {
            let mut used = 0;
            for &byte in self.window.bytes() {
                used += 1;
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if in_string => escaped = true,
                    b'"' => in_string = !in_string,
                    _ if in_string => {}
                    b'[' | b'{' => depth += 1,
                    b']' | b'}' => {
                        depth -= 1;
                        if depth == 0 {
                            break;
                        }
                    }
                    _ => {}
                }
            }
            self.window.advance(used);
            if depth == 0 {
                return true;
            }
            if !self.window.fill() {
                return false;
            }
        }
    }

    /// The events up to the end of their list; false if the text ended before.
    fn events(&mut self) -> bool {
        loop {
            // As many events as are complete in the window, then more text.
            let mut at = 0;
            let bytes = self.window.bytes();
            let outcome = loop {
                let mut cursor = Cursor::new(bytes, at);
                match cursor.peek() {
                    Ok(b',') => at = cursor.at + 1,
                    Ok(b'{') => {
                        at = cursor.at;
                        match event::read(&mut cursor) {
                            Ok(event) => {
                                self.sink.event(&event);
                                at = cursor.at;
                            }
                            Err(fault) => break Some(fault),
                        }
                    }
                    Ok(b']') => {
                        at = cursor.at + 1;
                        break None;
                    }
                    Ok(_) => {
                        at = cursor.at;
                        break Some(Fault::Bad { at, expected: "an event or the end of the list" });
                    }
                    Err(fault) => break Some(fault),
                }
            };
            self.window.advance(at);
            match outcome {
                None => return true,
                Some(Fault::Incomplete) => {
                    self.sink.position(self.window.position());
                    if self.window.fill() {
                        continue;
                    }
                    if !self.window.ended() {
                        // One event is larger than any event is: a quote that never closes.
                        self.damaged(self.window.position(), "the end of an event");
                        continue;
                    }
                    let rest = self.window.bytes();
                    self.damage.cut_inside_event = rest.iter().any(|byte| *byte > b' ');
                    self.damage.cut_at = Some(self.window.position() + rest.len() as u64);
                    let count = rest.len();
                    self.window.advance(count);
                    return false;
                }
                Some(Fault::Bad { at: bad_at, expected }) => {
                    let place = self.window.position() + (bad_at - at) as u64;
                    self.damaged(place, expected);
                }
            }
        }
    }

    /// Gets past something that is no event, and counts it.
    fn damaged(&mut self, place: u64, expected: &'static str) {
        if self.window.bytes().first() == Some(&b'{') {
            let sink = &mut *self.sink;
            let mended = loop {
                let mut cursor = Cursor::new(self.window.bytes(), 0);
                cursor.mending = true;
                match event::read(&mut cursor) {
                    Ok(event) if is_plausible(&event) => {
                        sink.event(&event);
                        break Some(cursor.at);
                    }
                    // Whether the mended event is a sound one shows within some kilobytes or not at all.
                    Err(Fault::Incomplete) => {}
                    _ => break None,
                }
                if self.window.bytes().len() >= MENDABLE || !self.window.fill() {
                    break None;
                }
            };
            if let Some(length) = mended {
                self.window.advance(length);
                self.damage.mended += 1;
                return;
            }
        }
        self.note_lost(place, expected);
        let mut skip_from = 1;
        loop {
            match next_event(self.window.bytes(), skip_from) {
                Next::At(at) => {
                    self.damage.lost_bytes += at as u64;
                    self.window.advance(at);
                    return;
                }
                Next::NotIn(searched) => {
                    self.damage.lost_bytes += searched as u64;
                    self.window.advance(searched);
                    skip_from = 0;
                    if !self.window.fill() {
                        let rest = self.window.bytes().len();
                        self.damage.lost_bytes += rest as u64;
                        self.window.advance(rest);
                        return;
                    }
                }
            }
        }
    }

    fn note_lost(&mut self, place: u64, expected: &'static str) {
        self.damage.lost += 1;
        self.damage.first_lost.get_or_insert((place, expected));
    }

    fn trailing(&mut self) {
        while self.peek().is_some() {
            let count = self.window.bytes().len();
            self.damage.trailing += count as u64;
            self.window.advance(count);
        }
    }
}

/// Members of the top-level object that say something about the run.
const WANTED_MEMBERS: [&str; 12] = [
    "distributedInfo",
    "deviceProperties",
    "baseTimeNanoseconds",
    "host_name",
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "with_stack",
    "traceName",
    "pytorch_version",
];

const MENDABLE: usize = 1 << 20;

/// A mended event is believed when it has what every event has.
fn is_plausible(event: &Event<'_>) -> bool {
    let timed = match event.phase {
        b'X' => event.start_ns.is_some() && event.duration_ns.is_some(),
        b'M' => true,
        _ => event.start_ns.is_some(),
    };
    // A text that runs over the end of a line has swallowed what came after it.
    event.phase != 0 && timed && !event.name.raw.is_empty() && !event.name.raw.contains(&b'\n')
}

enum Next {
    At(usize),
    /// No event starts in so many bytes.
    NotIn(usize),
}

/// Finds where an event starts: a brace, then a key that events have.
fn next_event(bytes: &[u8], from: usize) -> Next {
    const KEYS: [&[u8]; 7] =
        [b"\"ph\"", b"\"name\"", b"\"cat\"", b"\"pid\"", b"\"tid\"", b"\"ts\"", b"\"dur\""];
    // The brace and the key may stand apart by this much white space.
    const REACH: usize = 256;
    let mut at = from.min(bytes.len());
    while let Some(offset) = bytes[at..].iter().position(|&byte| byte == b'{') {
        let brace = at + offset;
        let mut cursor = Cursor::new(bytes, brace + 1);
        match cursor.peek() {
            Ok(b'"') if KEYS.iter().any(|key| bytes[cursor.at..].starts_with(key)) => return Next::At(brace),
            _ if bytes.len() - brace < REACH => return Next::NotIn(brace),
            _ => at = brace + 1,
        }
    }
    Next::NotIn(bytes.len())
}
