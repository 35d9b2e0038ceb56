//! Memory that two processes of one host share: an anonymous file that is gone with its last user, whatever happens.
//!
//! The trainer makes it, the rollout finds it under `/proc/PID/fd/N` and knows by a random token that it is the right one. Which
//! process may touch which part is said over the connection that they have as well, so both never touch the same part at a time.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// Bytes before the first slot.
const TOKEN: usize = 64;

/// Slots of one size.
pub struct SharedMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
}

// SAFETY: owns its mapping; slots are handed from process to process by messages, and within a process by `&mut`.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Makes it, zeroed, with a token that nobody can guess.
    pub fn create(slots: usize, slot_bytes: usize) -> Result<Self> {
        let file = rustix::fs::memfd_create("dflash-train features", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, (TOKEN + slots * slot_bytes) as u64)?;
        let mut memory = Self::map(file, slots, slot_bytes)?;
        let mut token = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut token)?;
        memory.bytes_mut(0, 16).copy_from_slice(&token);
        Ok(memory)
    }

    /// Opens what process `pid` has as descriptor `descriptor`, if its token is `token`.
    pub fn open(pid: u32, descriptor: i32, token: &[u8], slots: usize, slot_bytes: usize) -> Option<Self> {
        let file =
            OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
        if file.metadata().ok()?.len() != (TOKEN + slots * slot_bytes) as u64 {
            return None;
        }
        let memory = Self::map(file.into(), slots, slot_bytes).ok()?;
        (memory.token() == token).then_some(memory)
    }

    fn map(file: OwnedFd, slots: usize, slot_bytes: usize) -> Result<Self> {
        let length = TOKEN + slots * slot_bytes;
        // SAFETY: a new mapping at a place of the kernel's choice, of a file that has this length.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| std::io::Error::other("mapped at zero"))?;
        Ok(SharedMemory { file, start, slot_bytes, slots })
    }

    /// The number of its descriptor in this process.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// What tells it from any other.
    pub fn token(&self) -> Vec<u8> {
        self.bytes(0, 16).to_vec()
    }

    /// A slot that was handed to this process. `None`: there is no such slot.
    pub fn slot(&self, index: usize) -> Option<&[u8]> {
        (index < self.slots).then(|| self.bytes(TOKEN + index * self.slot_bytes, self.slot_bytes))
    }

    /// As above, to write.
    pub fn slot_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        (index < self.slots).then(|| self.bytes_mut(TOKEN + index * self.slot_bytes, self.slot_bytes))
    }

    fn bytes(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: inside the mapping (callers check the slot); the other process does not write to a part that was handed to
        // this one, and the kernel's socket orders its writes before ours.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), length) }
    }

    fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        // SAFETY: as above, and nobody else reads the part meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), length) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; no borrow outlives self.
        unsafe { libc::munmap(self.start.as_ptr().cast(), TOKEN + self.slots * self.slot_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_writes_the_other_reads_and_a_wrong_token_opens_nothing() {
        let mut ours = SharedMemory::create(2, 8).unwrap();
        let open =
            |token: &[u8], slots| SharedMemory::open(std::process::id(), ours.descriptor(), token, slots, 8);
        assert!(open(&[0; 16], 2).is_none());
        assert!(open(&ours.token(), 3).is_none(), "another size");
        let theirs = open(&ours.token(), 2).unwrap();
        ours.slot_mut(1).unwrap().copy_from_slice(b"features");
        assert_eq!(theirs.slot(1).unwrap(), b"features");
        assert!(theirs.slot(2).is_none());
    }
}
