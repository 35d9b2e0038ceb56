//! Two ways to read this process's own memory.
//!
//! In: addresses that were found in memory. Out: what is there, or nothing. [`Checked`] asks the kernel and never faults, at the price of a system call;
//! [`Direct`] refuses what can't be an address and trusts the rest.

#![allow(unsafe_code)]

pub trait Memory {
    /// The word at `address`, which has to be a multiple of 8.
    fn word(&self, address: u64) -> Option<u64>;

    /// The four bytes at `address`, which has to be a multiple of 4.
    fn half(&self, address: u64) -> Option<u32> {
        let word = self.word(address & !7)?;
        Some(if address & 4 == 0 { word as u32 } else { (word >> 32) as u32 })
    }

    /// The byte at `address`.
    fn byte(&self, address: u64) -> Option<u8> {
        Some((self.word(address & !7)? >> ((address & 7) * 8)) as u8)
    }
}

/// Plain loads. Only for structures that a self-test with [`Checked`] has found where they are expected.
pub struct Direct;

impl Memory for Direct {
    #[inline(always)]
    fn word(&self, address: u64) -> Option<u64> {
        // The first page is never mapped, and user-space addresses end at 2^47 (or 2^48).
        if !(0x1000..1 << 48).contains(&address) || !address.is_multiple_of(8) {
            return None;
        }
        // SAFETY: an aligned address that live structures of the interpreter gave, which the thread itself keeps alive (see the
        // module's own page).
        Some(unsafe { (address as *const u64).read_volatile() })
    }
}

/// Reads through the kernel.
pub struct Checked;

impl Memory for Checked {
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (address.is_multiple_of(8) && self.copy(address, &mut bytes)).then(|| u64::from_ne_bytes(bytes))
    }
}

impl Checked {
    /// Fills `bytes` with what is at `address`. False when that is not mapped, or the kernel doesn't allow to ask.
    pub fn copy(&self, address: u64, bytes: &mut [u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let to = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let from = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: the kernel writes to `bytes` only, and answers an error for what can't be read.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
        usize::try_from(read).is_ok_and(|read| read == bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_read_the_same_and_refuse_what_is_no_address() {
        let words = [0x1122_3344_5566_7788u64, 9];
        let at = words.as_ptr() as u64;
        fn all(memory: &impl Memory, at: u64) -> (Option<u64>, Option<u32>, Option<u8>) {
            (memory.word(at + 8), memory.half(at + 4), memory.byte(at + 1))
        }
        assert_eq!(all(&Direct, at), (Some(9), Some(0x1122_3344), Some(0x77)));
        assert_eq!(all(&Checked, at), all(&Direct, at));
        for address in [0, 8, at + 1, u64::MAX, 1 << 63] {
            assert_eq!(Direct.word(address), None, "{address:x}");
            assert_eq!(Checked.word(address), None, "{address:x}");
        }
    }

    #[test]
    fn memory_that_is_not_mapped_is_told_and_does_not_fault() {
        // SAFETY: a page of our own, given back at once.
        let page = unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(page, libc::MAP_FAILED);
            page as u64
        };
        assert_eq!(Checked.word(page), None);
    }
}
