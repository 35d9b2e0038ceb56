//! The C boundary of the writer: creating, growing and mapping the file, and the word that a fork wipes.
//!
//! In: a path, sizes. Out: mapped slots that are backed by reserved disk space. Must never hand out a mapping whose
//! pages the file system may still refuse (that would be SIGBUS in the traced program), never raise SIGXFSZ, and never
//! touch a file other than its own, even when the program has closed our descriptor and re-used its number.
#![allow(unsafe_code)]

use crate::format::SLOT_BYTES;
use crate::loss::LossReason;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The log file and what is needed to be sure that it still is ours.
pub(crate) struct LogHandle {
    file: File,
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Bytes reserved so far.
    length: u64,
}

impl LogHandle {
    /// Creates the file; it must not exist, and a symbolic link is not followed.
    pub(crate) fn create(path: &Path) -> io::Result<LogHandle> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        let file = out_of_the_way(file);
        let metadata = file.metadata()?;
        Ok(LogHandle {
            file,
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            length: 0,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Reserves `bytes` more at the end and maps them. On an error nothing has changed.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<Segment, LossReason> {
        self.make_sure_it_is_ours()?;
        let end = self.length + bytes as u64;
        // Growing beyond the limit would raise SIGXFSZ, whose default action kills the program.
        if end > file_size_limit() {
            return Err(LossReason::FileSizeLimit);
        }
        reserve(&self.file, self.length, bytes).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => LossReason::DiskFull,
            Some(libc::EFBIG) => LossReason::FileSizeLimit,
            _ => LossReason::Io,
        })?;
        let segment = Segment::map(&self.file, self.length, bytes).map_err(|_| LossReason::Io)?;
        self.length = end;
        Ok(segment)
    }

    /// Gives back the space from `length` on. Nothing there may be mapped into use.
    pub(crate) fn shrink(&mut self, length: u64) {
        if length < self.length && self.make_sure_it_is_ours().is_ok() && self.file.set_len(length).is_ok() {
            self.length = length;
        }
    }

    /// Programs that become daemons close descriptors that they never opened; the number may be another file by now.
    fn make_sure_it_is_ours(&mut self) -> Result<(), LossReason> {
        let is_ours =
            |file: &File| file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (self.device, self.inode));
        if is_ours(&self.file) {
            return Ok(());
        }
        let again = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&self.path)
            .ok()
            .filter(is_ours)
            .ok_or(LossReason::FileClosed)?;
        // The old number belongs to the program now: forget it without closing.
        std::mem::forget(std::mem::replace(&mut self.file, out_of_the_way(again)));
        Ok(())
    }
}

impl Drop for LogHandle {
    fn drop(&mut self) {
        // As above: never close a number that has become the program's.
        let ours = self.file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (self.device, self.inode));
        if !ours && let Ok(null) = File::open("/dev/null") {
            std::mem::forget(std::mem::replace(&mut self.file, null));
        }
    }
}

/// Moves a descriptor to a high number, so that programs that count on the low ones see no difference.
fn out_of_the_way(file: File) -> File {
    // SAFETY: duplicating a descriptor that `file` keeps open has no precondition.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 500) };
    if high < 0 {
        return file;
    }
    // SAFETY: fcntl has just returned this descriptor, nobody else owns it.
    File::from(unsafe { OwnedFd::from_raw_fd(high) })
}

fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the write.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

fn reserve(file: &File, offset: u64, bytes: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    loop {
        // SAFETY: plain integers and an open descriptor.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, offset as libc::off_t, bytes as libc::off_t) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => continue,
            // Not every file system can; writing zeros reserves as well.
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => break,
            _ => return Err(error),
        }
    }
    let zeros = [0; 16 * 1024];
    let end = offset + bytes as u64;
    let mut at = offset;
    while at < end {
        let part = zeros.len().min((end - at) as usize);
        file.write_all_at(&zeros[..part], at)?;
        at += part as u64;
    }
    Ok(())
}

/// A mapped, reserved part of the file. Unmapped when the last chunk in it is done.
pub(crate) struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    offset: u64,
}

// SAFETY: the memory stays mapped while the segment lives and may be used from any thread; who may write where is
// decided by `SlotPart` (one owner per slot) and by atomics (header slot).
unsafe impl Send for Segment {}
// SAFETY: as above; no method writes through `&Segment` other than atomically.
unsafe impl Sync for Segment {}

impl Segment {
    fn map(file: &File, offset: u64, bytes: usize) -> io::Result<Segment> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(start) if base != libc::MAP_FAILED => Ok(Segment { base: start, bytes, offset }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.bytes / SLOT_BYTES
    }

    /// Offset in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// A counter in the header slot. `None` when it would lie outside or not be aligned.
    pub(crate) fn atomic_u64(&self, at: usize) -> Option<&AtomicU64> {
        if !at.is_multiple_of(8) || at.checked_add(8)? > self.bytes {
            return None;
        }
        // SAFETY: in bounds and aligned (checked), mapped while `self` lives; the header slot is only accessed atomically
        // once it is mapped.
        Some(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) })
    }

    /// As [`Segment::atomic_u64`].
    pub(crate) fn atomic_u32(&self, at: usize) -> Option<&AtomicU32> {
        if !at.is_multiple_of(4) || at.checked_add(4)? > self.bytes {
            return None;
        }
        // SAFETY: as above.
        Some(unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) })
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and every `SlotPart` in it holds the segment, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// One slot of a segment, owned by whoever holds this.
pub(crate) struct SlotPart {
    base: NonNull<u8>,
    segment: Arc<Segment>,
}

// SAFETY: the slot is owned by this value alone and the segment may be used from any thread.
unsafe impl Send for SlotPart {}

impl SlotPart {
    /// # Safety
    /// At most one `SlotPart` may be made per segment and index, and not for the header slot.
    pub(crate) unsafe fn new(segment: Arc<Segment>, index: usize) -> Option<SlotPart> {
        if index >= segment.slots() {
            return None;
        }
        // SAFETY: in bounds, just checked.
        let base = unsafe { segment.base.add(index * SLOT_BYTES) };
        Some(SlotPart { base, segment })
    }

    /// Offset of the slot in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.segment.offset + (self.base.addr().get() - self.segment.base.addr().get()) as u64
    }

    /// Copies words to byte offset `at`, in the file's byte order. Out of bounds, nothing is written.
    #[inline(always)]
    pub(crate) fn put_words(&self, at: usize, words: &[u64]) {
        if !at.is_multiple_of(8) || at + words.len() * 8 > SLOT_BYTES {
            return;
        }
        for (index, word) in words.iter().enumerate() {
            // SAFETY: in bounds and aligned (checked above; the base is page-aligned), and the slot is ours alone.
            unsafe { self.base.as_ptr().add(at + index * 8).cast::<u64>().write(word.to_le()) };
        }
    }

    /// Copies bytes. Out of bounds, nothing is written.
    #[inline(always)]
    pub(crate) fn put_bytes(&self, at: usize, bytes: &[u8]) {
        if at + bytes.len() > SLOT_BYTES {
            return;
        }
        // SAFETY: in bounds (checked), the slot is ours alone, and `bytes` can't overlap memory that is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len()) };
    }

    /// Reads back what was written by this owner; empty when out of bounds.
    pub(crate) fn bytes(&self, at: usize, length: usize) -> &[u8] {
        if at + length > SLOT_BYTES {
            return &[];
        }
        // SAFETY: in bounds (checked), initialised by the kernel's zeros or by us, and not written while borrowed:
        // only the owner of the slot writes, and it calls this on itself.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), length) }
    }

    /// Publishes a 32-bit value behind everything written before.
    #[inline(always)]
    pub(crate) fn publish_u32(&self, at: usize, value: u32) {
        if !at.is_multiple_of(4) || at + 4 > SLOT_BYTES {
            return;
        }
        // SAFETY: in bounds and aligned (checked), mapped while the segment lives.
        let place = unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) };
        place.store(value.to_le(), Ordering::Release);
    }
}

/// A word in memory that a forked child sees as zero: it tells the child that the log is its parent's,
/// before any fork handler has run and also after a raw `clone`. Where the system can't do that, it is a plain word
/// and the fork handler must clear it.
pub(crate) struct ForkWord {
    word: NonNull<AtomicU32>,
    bytes: usize,
}

// SAFETY: an atomic in memory that lives as long as the value.
unsafe impl Send for ForkWord {}
// SAFETY: as above.
unsafe impl Sync for ForkWord {}

impl ForkWord {
    /// Holds 1 in this process.
    pub(crate) fn new() -> io::Result<ForkWord> {
        let bytes = SLOT_BYTES;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let Some(word) = NonNull::new(base.cast::<AtomicU32>()).filter(|_| base != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: our own new mapping.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(base, bytes, libc::MADV_WIPEONFORK)
        };
        let word = ForkWord { word, bytes };
        word.get().store(1, Ordering::Release);
        Ok(word)
    }

    #[inline(always)]
    fn get(&self) -> &AtomicU32 {
        // SAFETY: aligned, mapped while `self` lives, only accessed as an atomic.
        unsafe { self.word.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.get().load(Ordering::Relaxed) == 1
    }

    pub(crate) fn clear(&self) {
        self.get().store(0, Ordering::Release);
    }
}

impl Drop for ForkWord {
    fn drop(&mut self) {
        // SAFETY: our own mapping; the borrow rules say that nobody uses it any more.
        unsafe { libc::munmap(self.word.as_ptr().cast(), self.bytes) };
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds, the clock of all host times in the log.
#[inline]
pub fn monotonic_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME` in nanoseconds.
pub fn realtime_ns() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

#[inline]
fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the write; both clocks exist on every system we build for.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's id of the calling thread.
pub fn os_thread_id() -> u64 {
    #[cfg(target_os = "linux")]
    // SAFETY: no arguments, cannot fail.
    return unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    #[cfg(not(target_os = "linux"))]
    // SAFETY: no arguments, cannot fail; unique among live threads is all that is asked of it.
    return unsafe { libc::pthread_self() } as u64;
}

/// Random bits for the file's nonce.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| io::Read::read_exact(&mut file, &mut bytes));
    match read {
        Ok(()) => u64::from_le_bytes(bytes),
        // Only has to differ between files.
        Err(_) => {
            realtime_ns().wrapping_mul(0x9E37_79B9_7F4A_7C15)
                ^ u64::from(std::process::id()).rotate_left(40)
                ^ monotonic_ns()
        }
    }
}
