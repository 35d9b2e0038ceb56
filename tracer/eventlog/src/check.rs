//! The check of a record and of the two headers, and the hash of the interner.
//!
//! In: words. Out: 32 bits. Not cryptographic: it tells damage from data, and costs one multiply per word.
//! Every step is a bijection of the state for a given word, so a change in a single word always reaches the
//! 64-bit state; only the last fold to 32 bits can hide it.

const K: u64 = 0x9E37_79B9_7F4A_7C15;
const K2: u64 = 0xD6E8_FEB8_6659_FD93;

/// Running check. Two lanes, fed in turn, so that the multiplies of neighbouring words overlap.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    next: u64,
    other: u64,
}

impl Check {
    /// `nonce` is the file's, `position` the byte offset of the checked thing in the file.
    #[inline(always)]
    pub(crate) fn new(nonce: u64, position: u64) -> Check {
        Check { next: nonce, other: position.wrapping_mul(K2) }
    }

    #[inline(always)]
    pub(crate) fn word(&mut self, word: u64) {
        let mixed = (self.next ^ word).wrapping_mul(K).rotate_left(29);
        self.next = self.other;
        self.other = mixed;
    }

    #[inline(always)]
    pub(crate) fn finish(self) -> u32 {
        let folded = (self.next.wrapping_mul(K2).rotate_left(31) ^ self.other).wrapping_mul(K);
        ((folded ^ (folded >> 29)) >> 8) as u32
    }

    /// Check over bytes, whose length must be a multiple of 8 (a rest is ignored).
    pub(crate) fn of(nonce: u64, position: u64, bytes: &[u8]) -> u32 {
        let mut check = Check::new(nonce, position);
        for word in bytes.as_chunks::<8>().0 {
            check.word(u64::from_le_bytes(*word));
        }
        check.finish()
    }
}

/// 64-bit hash of bytes for the interner's tables; collisions are resolved there by content.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = (bytes.len() as u64).wrapping_mul(K2);
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(K).rotate_left(29);
    }
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(K);
    hash ^ (hash >> 32)
}

/// As [`hash_bytes`], for addresses.
pub(crate) fn hash_words(words: &[u64]) -> u64 {
    let mut hash = (words.len() as u64).wrapping_mul(K2);
    for word in words {
        hash = (hash ^ word).wrapping_mul(K).rotate_left(29);
    }
    hash = hash.wrapping_mul(K2);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_bit_flip_in_a_call_sized_record_changes_the_check() {
        let words: [u64; 7] = [1_000_000_007, 42, 0, u64::MAX, 0x7f00_dead_0000, 4096, 0];
        let check = |words: &[u64]| {
            let mut check = Check::new(0x1234_5678_9abc_def0, 65568);
            words.iter().for_each(|word| check.word(*word));
            check.finish()
        };
        let whole = check(&words);
        for at in 0..words.len() {
            for bit in 0..64 {
                let mut flipped = words;
                flipped[at] ^= 1 << bit;
                assert_ne!(check(&flipped), whole, "bit {bit} of word {at}");
            }
        }
    }

    #[test]
    fn swapped_words_and_moved_records_change_the_check() {
        let bytes: Vec<u8> = (0..64).collect();
        let mut swapped = bytes[8..16].to_vec();
        swapped.extend(&bytes[..8]);
        swapped.extend(&bytes[16..]);
        assert_ne!(Check::of(1, 64, &bytes), Check::of(1, 64, &swapped));
        assert_ne!(Check::of(1, 64, &bytes), Check::of(1, 72, &bytes));
        assert_ne!(Check::of(1, 64, &bytes), Check::of(2, 64, &bytes));
        let mut third = bytes[16..24].to_vec();
        third.extend(&bytes[8..16]);
        third.extend(&bytes[..8]);
        third.extend(&bytes[24..]);
        assert_ne!(Check::of(1, 64, &bytes), Check::of(1, 64, &third));
    }
}
