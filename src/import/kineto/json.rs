//! Reads JSON from a piece of text that may end anywhere.
//!
//! In: bytes of which the beginning of a value is known. Out: the parts of that value as slices of the same bytes, nothing
//! copied. It accepts what profilers really write: control characters and bytes that aren't UTF-8 inside of strings, bare
//! `NaN` and `Infinity`, a comma too many. It must never recurse (depth comes from the input) and never panic.
//!
//! Why not a library: `docs/import-kineto.md` has the measurements. Libraries want the whole text, or build a tree, or check
//! every skipped byte; of an event of 300 bytes about 60 are wanted here.

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes end inside of the value: get more and start over.
    Incomplete,
    /// This is no JSON: at which byte, and what was expected there.
    Bad { at: usize, expected: &'static str },
}

/// A string as it stands in the text, without its quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a> {
    pub raw: &'a [u8],
    /// Contains backslashes.
    pub escaped: bool,
}

/// A value; objects and arrays are left unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(Text<'a>),
    /// Number as written. `NaN` and the infinities are [`Value::Nothing`].
    Number(&'a [u8]),
    Bool(bool),
    Nothing,
    /// The cursor stands on the opening bracket.
    Object,
    Array,
}

/// A place in a piece of text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pub at: usize,
    /// A quote inside of a string was not escaped: take a quote for the end of a string only where the text goes on like
    /// JSON does after a string.
    pub mending: bool,
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks the bytes of `word` that equal `byte`: the lowest mark is exact, those above it may be false.
#[inline]
fn marks(word: u64, byte: u8) -> u64 {
    let x = word ^ (LOW * u64::from(byte));
    x.wrapping_sub(LOW) & !x & HIGH
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, mending: false }
    }

    fn bad<T>(&self, expected: &'static str) -> Result<T, Fault> {
        Err(Fault::Bad { at: self.at, expected })
    }

    /// The next byte that is not white space; the cursor stands on it.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<u8, Fault> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if byte > b' ' {
                return Ok(byte);
            }
            // Other control characters between values are damage, but harmless: a file padded with NUL bytes.
            self.at += 1;
        }
        Err(Fault::Incomplete)
    }

    /// Where the first byte is that is not white space.
    pub(super) fn blank(&self) -> Option<usize> {
        self.bytes.get(self.at..)?.iter().position(|&byte| byte > b' ').map(|offset| self.at + offset)
    }

    /// Reads the string that starts here.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Text<'a>, Fault> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return if self.at >= self.bytes.len() { Err(Fault::Incomplete) } else { self.bad("a string") };
        }
        let start = self.at + 1;
        let mut at = start;
        let mut escaped = false;
        loop {
            at = self.find_quote_or_backslash(at).ok_or(Fault::Incomplete)?;
            if self.bytes.get(at) == Some(&b'\\') {
                escaped = true;
                at += 2;
                continue;
            }
            if self.mending && !self.ends_string(at)? {
                at += 1;
                continue;
            }
            let raw = self.bytes.get(start..at).ok_or(Fault::Incomplete)?;
            self.at = at + 1;
            return Ok(Text { raw, escaped });
        }
    }

    #[inline]
    fn find_quote_or_backslash(&self, mut at: usize) -> Option<usize> {
        // Eight bytes at a time: most strings are short, so that a call into a search routine costs more than it saves.
        while let Some(chunk) = self.bytes.get(at..at + 8) {
            let word = u64::from_le_bytes(chunk.try_into().ok()?);
            let found = marks(word, b'"') | marks(word, b'\\');
            if found != 0 {
                return Some(at + (found.trailing_zeros() / 8) as usize);
            }
            at += 8;
        }
        let tail = self.bytes.get(at..)?;
        tail.iter().position(|&byte| byte == b'"' || byte == b'\\').map(|offset| at + offset)
    }

    /// Whether the text after the quote at `quote` goes on as it does after a string.
    fn ends_string(&self, quote: usize) -> Result<bool, Fault> {
        let mut after = Cursor::new(self.bytes, quote + 1);
        Ok(match after.peek()? {
            b':' | b'}' | b']' => true,
            b',' => {
                after.at += 1;
                matches!(after.peek()?, b'"' | b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N')
            }
            _ => false,
        })
    }

    /// Reads the value that starts here; of an object or array only what it is.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Value<'a>, Fault> {
        match self.peek()? {
            b'"' => self.string().map(Value::Text),
            b'{' => Ok(Value::Object),
            b'[' => Ok(Value::Array),
            b'0'..=b'9' | b'-' | b'+' | b'.' | b'a'..=b'z' | b'A'..=b'Z' => self.bare(),
            _ => self.bad("a value"),
        }
    }

    /// Reads a number or a bare word.
    #[inline]
    fn bare(&mut self) -> Result<Value<'a>, Fault> {
        let start = self.at;
        let mut end = start;
        while let Some(b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E') = self.bytes.get(end) {
            end += 1;
        }
        match self.bytes.get(end) {
            None => Err(Fault::Incomplete),
            Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') if end > start => {
                self.at = end;
                Ok(Value::Number(&self.bytes[start..end]))
            }
            Some(_) => self.word(),
        }
    }

    /// Reads a bare word: `true`, `null`, `NaN`.
    fn word(&mut self) -> Result<Value<'a>, Fault> {
        let start = self.at;
        let mut end = start;
        loop {
            match self.bytes.get(end) {
                None => return Err(Fault::Incomplete),
                Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | b':' | b'"') => break,
                Some(_) => end += 1,
            }
        }
        let value = match &self.bytes[start..end] {
            b"true" => Value::Bool(true),
            b"false" => Value::Bool(false),
            b"null" => Value::Nothing,
            raw if is_not_finite(raw) => Value::Nothing,
            _ => return self.bad("a value"),
        };
        self.at = end;
        Ok(value)
    }

    /// Skips the value that starts here.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        match self.value()? {
            Value::Object | Value::Array => self.skip_nested(),
            _ => Ok(()),
        }
    }

    /// Skips the object or array that starts here. Brackets are counted, not matched by kind.
    #[inline]
    pub(super) fn skip_nested(&mut self) -> Result<(), Fault> {
        self.at += 1;
        self.skip_rest()
    }

    /// Skips what is left of the object or array that was entered.
    #[inline]
    pub(super) fn skip_rest(&mut self) -> Result<(), Fault> {
        self.skip_rest_seeing(&[]).map(|_| ())
    }

    /// The same, and answers whether one of the strings on the way was one of these.
    #[inline]
    pub(super) fn skip_rest_seeing(&mut self, wanted: &[&[u8]]) -> Result<bool, Fault> {
        let mut depth = 1u32;
        let mut seen = false;
        loop {
            match self.bytes.get(self.at) {
                None => return Err(Fault::Incomplete),
                Some(b'"') => {
                    let text = self.string()?;
                    seen |= wanted.contains(&text.raw);
                    continue;
                }
                Some(b'[' | b'{') => depth += 1,
                Some(b']' | b'}') => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Ok(seen);
                    }
                }
                Some(_) => {}
            }
            self.at += 1;
        }
    }

    /// Enters the object that starts here.
    #[inline]
    pub(super) fn enter_object(&mut self) -> Result<(), Fault> {
        if self.peek()? != b'{' {
            return self.bad("an object");
        }
        self.at += 1;
        Ok(())
    }

    /// The next key of the object that was entered, with the cursor before its value; `None` after the object's end.
    #[inline]
    pub(super) fn next_key(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        loop {
            match self.peek()? {
                b'"' => break,
                // A comma too many is read over.
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(None);
                }
                _ => return self.bad("a key or the end of the object"),
            }
        }
        let key = self.string()?;
        if self.peek()? != b':' {
            return self.bad("a colon after the key");
        }
        self.at += 1;
        Ok(Some(key.raw))
    }

    /// Demands that the value just read is followed by what may follow one.
    #[inline]
    pub(super) fn after_value(&mut self) -> Result<(), Fault> {
        match self.peek()? {
            b',' | b'}' | b']' => Ok(()),
            _ => self.bad("a comma or the end of the object"),
        }
    }
}

fn is_not_finite(raw: &[u8]) -> bool {
    let word = raw.strip_prefix(b"-").or_else(|| raw.strip_prefix(b"+")).unwrap_or(raw);
    [&b"nan"[..], b"inf", b"infinity"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// The characters of a string as people read them; what is no UTF-8 is replaced.
pub(super) fn unescape(text: Text<'_>) -> String {
    if !text.escaped {
        return String::from_utf8_lossy(text.raw).into_owned();
    }
    let mut out: Vec<u8> = Vec::with_capacity(text.raw.len());
    let mut rest = text.raw;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((&kind, after)) = rest.split_first() else { break };
        rest = after;
        match kind {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'u' => {
                let (character, used) = unicode_escape(rest);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[used..];
            }
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
    String::from_utf8_lossy(&out).into_owned()
}

/// The character of `XXXX` or `XXXX\uXXXX` after `\u`, and how many bytes that took.
fn unicode_escape(rest: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = rest.get(at..at + 4)?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let Some(first) = unit(0) else { return (char::REPLACEMENT_CHARACTER, 0) };
    if (0xd800..0xdc00).contains(&first)
        && rest.get(4..6) == Some(b"\\u")
        && let Some(second) = unit(6).filter(|second| (0xdc00..0xe000).contains(second))
    {
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 10);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 4)
}

/// A whole number; `None` beyond 64 bits, for fractions and for anything else.
#[inline]
pub(super) fn integer(raw: &[u8]) -> Option<i64> {
    let (negative, digits) = match raw.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, raw),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
    }
    Some(if negative { -value } else { value })
}

/// Microseconds as nanoseconds, exactly: `1419116733109.998` has more digits than a float keeps at that size.
#[inline]
pub(super) fn micros_as_ns(raw: &[u8]) -> Option<i64> {
    let (negative, digits) = match raw.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, raw),
    };
    let mut value: i64 = 0;
    // Digits after the point that were taken; `None` before the point.
    let mut decimals: Option<u32> = None;
    for &byte in digits {
        match byte {
            b'0'..=b'9' => match decimals {
                Some(3) => {}
                _ => {
                    value = value.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
                    decimals = decimals.map(|n| n + 1);
                }
            },
            b'.' if decimals.is_none() => decimals = Some(0),
            // An exponent is rare enough for the slow way.
            b'e' | b'E' => {
                let micros: f64 = std::str::from_utf8(raw).ok()?.parse().ok()?;
                let ns = micros * 1000.0;
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "checked against the range of i64 just before"
                )]
                return (ns.abs() < 9.2e18).then_some(ns as i64);
            }
            _ => return None,
        }
    }
    if digits.is_empty() {
        return None;
    }
    let ns = value.checked_mul(10i64.pow(3 - decimals.unwrap_or(0)))?;
    Some(if negative { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(raw: &[u8]) -> Text<'_> {
        Text { raw, escaped: raw.contains(&b'\\') }
    }

    #[test]
    fn times_keep_every_nanosecond() {
        for (raw, ns) in [
            ("1419116733109.998", Some(1_419_116_733_109_998)),
            ("1661203462718626", Some(1_661_203_462_718_626_000)),
            ("0.07", Some(70)),
            ("2", Some(2_000)),
            ("12.3456", Some(12_345)),
            ("-1.5", Some(-1_500)),
            ("1.5e3", Some(1_500_000)),
            ("", None),
            ("-", None),
            ("x", None),
            ("99999999999999999999", None),
            ("1e300", None),
        ] {
            assert_eq!(micros_as_ns(raw.as_bytes()), ns, "{raw}");
        }
    }

    #[test]
    fn integers_beyond_64_bits_are_nothing_not_something_else() {
        assert_eq!(integer(b"10159970886766084423"), None);
        assert_eq!(integer(b"-12"), Some(-12));
        assert_eq!((integer(b""), integer(b"1.0"), integer(b"-")), (None, None, None));
    }

    #[test]
    fn escapes_are_undone_and_broken_ones_replaced() {
        for (raw, expected) in [
            (&br"a\nb\t\x22\\"[..], "a\nb\tx22\\"),
            (br"\u00e9\ud83d\ude00", "\u{e9}\u{1f600}"),
            (br"\ud83d", "\u{fffd}"),
            (br"\u12", "\u{fffd}12"),
            (b"caf\xe9", "caf\u{fffd}"),
            (b"tail\\", "tail"),
        ] {
            assert_eq!(unescape(text(raw)), expected);
        }
    }

    #[test]
    fn every_cut_of_a_value_is_incomplete_and_nothing_else() {
        let whole = br#"{"a": [1, {"b": "x\"]}"}], "c": -1.5e3, "d": NaN, "e": null,}"#;
        let mut cursor = Cursor::new(whole, 0);
        cursor.skip().unwrap();
        assert_eq!(cursor.at, whole.len());
        for cut in 0..whole.len() {
            assert_eq!(Cursor::new(&whole[..cut], 0).skip(), Err(Fault::Incomplete), "{cut}");
        }
    }

    #[test]
    fn a_quote_inside_of_a_string_ends_it_only_where_json_could_go_on() {
        let line = br#""say "hi" now", "next": 1"#;
        let mut cursor = Cursor::new(line, 0);
        assert_eq!(cursor.string().unwrap().raw, b"say ");
        let mut cursor = Cursor { mending: true, ..Cursor::new(line, 0) };
        assert_eq!(cursor.string().unwrap().raw, br#"say "hi" now"#);
    }
}
