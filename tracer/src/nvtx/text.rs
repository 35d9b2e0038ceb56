//! Texts as NVTX hands them over.
//!
//! In: NUL-terminated `char` or `wchar_t` strings of the program. Out: bytes, meant to be UTF-8. Must not read beyond
//! [`MAX_UNITS`], whatever the program passes.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_char, c_void};

/// Longer names are cut: they would only bloat the log.
pub const MAX_UNITS: usize = 4096;

/// # Safety
/// `text` is null, or NUL-terminated, or at least [`MAX_UNITS`] long; and it stays so while the result is used.
pub unsafe fn narrow<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: caller's promise; `strnlen` stops at the NUL or the limit.
    unsafe { std::slice::from_raw_parts(text.cast(), libc::strnlen(text, MAX_UNITS)) }
}

/// `wchar_t` is 4 bytes on Linux. What isn't a character becomes U+FFFD.
///
/// # Safety
/// As for [`narrow`], in units of 4 bytes.
pub unsafe fn wide(text: *const c_void) -> String {
    let mut utf8 = String::new();
    if text.is_null() {
        return utf8;
    }
    for at in 0..MAX_UNITS {
        // SAFETY: caller's promise; stops at the NUL or the limit.
        let unit = unsafe { text.cast::<u32>().add(at).read_unaligned() };
        if unit == 0 {
            break;
        }
        utf8.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    utf8
}

/// A text of either width.
pub enum Text {
    Narrow(*const c_char),
    Wide(*const c_void),
}

impl Text {
    /// # Safety
    /// As for [`narrow`] and [`wide`].
    pub unsafe fn bytes<'a>(self) -> Cow<'a, [u8]> {
        match self {
            // SAFETY: caller's promise.
            Self::Narrow(text) => Cow::Borrowed(unsafe { narrow(text) }),
            // SAFETY: caller's promise.
            Self::Wide(text) => Cow::Owned(unsafe { wide(text) }.into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_text_becomes_utf8_and_bad_units_are_marked() {
        let text: Vec<u32> = "Schritt ß 😀".chars().map(u32::from).chain([0x11_0000, 0xd800, 0]).collect();
        // SAFETY: ends with a NUL.
        assert_eq!(unsafe { wide(text.as_ptr().cast()) }, "Schritt ß 😀\u{fffd}\u{fffd}");
        // SAFETY: null is allowed.
        assert_eq!(unsafe { (wide(std::ptr::null()), narrow(std::ptr::null())) }, (String::new(), &b""[..]));
    }

    #[test]
    fn endless_text_is_cut() {
        let text = vec![b'x'; 2 * MAX_UNITS];
        // SAFETY: longer than the limit.
        assert_eq!(unsafe { narrow(text.as_ptr().cast()) }.len(), MAX_UNITS);
    }
}
