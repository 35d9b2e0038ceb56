//! For tests of the reader: makes damage that the checks can't see. No part of a trace ever passes through here.
//!
//! In: a log with changed bytes. Out: the same with right checks wherever headers and lengths can still be followed, so
//! that the decoder behind the checks meets bytes that no writer would write.

use crate::check::Check;
use crate::format::*;

/// Recomputes the checks of the file header, of every chunk and of the records that can be reached.
pub fn make_checks_right(bytes: &mut [u8]) {
    let Some(header) = bytes.get(..AT_HEADER_CHECK) else { return };
    let nonce = u64_at(header, AT_NONCE);
    let check = Check::of(nonce, 0, header);
    put(bytes, AT_HEADER_CHECK, check);
    for base in (SLOT_BYTES..bytes.len()).step_by(SLOT_BYTES) {
        let mut check = Check::new(nonce, base as u64);
        check.word(u64_at(bytes, base + AT_CHUNK_MAGIC));
        check.word(u64_at(bytes, base + AT_CHUNK_LANE));
        put(bytes, base + AT_CHUNK_CHECK, check.finish());
        let end = bytes.len().min(base + SLOT_BYTES);
        let mut at = base + CHUNK_HEADER_BYTES;
        while at + 8 <= end {
            let length = (u64_at(bytes, at) >> 16 & 0xffff) as usize * 8;
            if length == 0 || at + length > end {
                break;
            }
            let mut check = Check::new(nonce, at as u64);
            check.word(u64_at(bytes, at) & 0xffff_ffff);
            (at + 8..at + length).step_by(8).for_each(|word| check.word(u64_at(bytes, word)));
            put(bytes, at + 4, check.finish());
            at += length;
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).map_or(0, |word| u64::from_le_bytes(*word))
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}
