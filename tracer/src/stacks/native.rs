//! Unwinds the calling thread.
//!
//! In: the registers of this very function, the module snapshot. Out: return addresses, innermost first, without the
//! frames of this library. Must never fault: stack memory is only read between the current stack pointer and the end
//! of the thread's stack, all of which is mapped; anything else ends the stack there. Never allocates while unwinding.
//!
//! Only tables of modules whose code addresses are met are read. Those are on the stack, so they can't be unloaded
//! meanwhile.

#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use framehop::{CacheNative, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder as _};

use super::MAX_FRAMES;
use super::modules::Snapshot;

/// What a thread keeps between two stacks.
pub struct ThreadUnwinder {
    cache: Box<CacheNative<MustNotAllocateDuringUnwind>>,
    pub snapshot: Option<Arc<Snapshot>>,
    stack_end: u64,
}

/// Return addresses, innermost first.
pub struct Frames {
    addresses: [u64; MAX_FRAMES],
    count: usize,
}

impl Frames {
    pub fn addresses(&self) -> &[u64] {
        &self.addresses[..self.count]
    }
}

impl ThreadUnwinder {
    pub fn new() -> Self {
        Self { cache: Box::new(CacheNative::new_in()), snapshot: None, stack_end: stack_range().end }
    }

    /// The stack of the caller. `None`: no snapshot yet, or this is not the thread's own stack (a fiber).
    #[inline(never)]
    pub fn capture(&mut self) -> Option<Frames> {
        let snapshot = self.snapshot.as_deref()?;
        let (pc, sp, registers) = registers();
        let readable = sp..self.stack_end;
        if readable.is_empty() {
            return None;
        }
        let mut read_stack = |address: u64| read_word(&readable, address);
        let mut unwinding = snapshot.tables.iter_frames(pc, registers, &mut self.cache, &mut read_stack);
        let mut frames = Frames { addresses: [0; MAX_FRAMES], count: 0 };
        let mut outside = false;
        // An error ends the stack: what was found so far is right.
        while let Ok(Some(frame)) = unwinding.next() {
            let address = frame.address();
            outside = outside || !snapshot.own.as_ref().is_some_and(|own| own.contains(&address));
            if outside {
                frames.addresses[frames.count] = address;
                frames.count += 1;
                if frames.count == MAX_FRAMES {
                    break;
                }
            }
        }
        Some(frames)
    }
}

/// Reads a word of the thread's stack, or refuses.
fn read_word(readable: &Range<u64>, address: u64) -> Result<u64, ()> {
    let fits = address >= readable.start && address.checked_add(8).is_some_and(|end| end <= readable.end);
    if !fits || !address.is_multiple_of(8) {
        return Err(());
    }
    // SAFETY: between the stack pointer of a running frame of this thread and the end of its stack, aligned: mapped,
    // readable memory.
    Ok(unsafe { (address as *const u64).read() })
}

/// Program counter, stack pointer and what framehop needs to go on from here.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn registers() -> (u64, u64, UnwindRegsNative) {
    let (pc, sp, bp): (u64, u64, u64);
    // SAFETY: only reads registers.
    unsafe {
        std::arch::asm!(
            "lea {pc}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
            pc = out(reg) pc, sp = out(reg) sp, bp = out(reg) bp,
            options(nomem, nostack, preserves_flags)
        );
    }
    (pc, sp, UnwindRegsNative::new(pc, sp, bp))
}

/// Program counter, stack pointer and what framehop needs to go on from here.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
fn registers() -> (u64, u64, UnwindRegsNative) {
    let (pc, sp, fp, lr): (u64, u64, u64, u64);
    // SAFETY: only reads registers.
    unsafe {
        std::arch::asm!(
            "adr {pc}, .", "mov {sp}, sp", "mov {fp}, x29", "mov {lr}, x30",
            pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp, lr = out(reg) lr,
            options(nomem, nostack, preserves_flags)
        );
    }
    // User-space addresses have 48 bits; what is above them is a pointer-authentication code.
    let mask = framehop::aarch64::PtrAuthMask::from_max_known_address((1 << 48) - 1);
    (pc, sp, UnwindRegsNative::new_with_ptr_auth_mask(mask, lr, sp, fp))
}

/// The stack of the calling thread, empty when the system doesn't say.
fn stack_range() -> Range<u64> {
    // SAFETY: `attributes` is filled by the first call before it is read, and destroyed after.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0..0;
        }
        let (mut lowest, mut size) = (std::ptr::null_mut(), 0);
        let result = libc::pthread_attr_getstack(&attributes, &mut lowest, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        if result != 0 { 0..0 } else { lowest as u64..lowest as u64 + size as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn level(depth: u32, unwinder: &mut ThreadUnwinder) -> Frames {
        let frames = if depth == 0 { unwinder.capture().unwrap() } else { level(depth - 1, unwinder) };
        std::hint::black_box(frames)
    }

    fn unwinder() -> ThreadUnwinder {
        let mut unwinder = ThreadUnwinder::new();
        unwinder.snapshot = Some(Snapshot::take(None));
        unwinder
    }

    #[test]
    fn every_level_of_a_recursion_is_a_frame_and_the_outermost_is_reached() {
        std::thread::spawn(|| {
            let mut unwinder = unwinder();
            let shallow = level(0, &mut unwinder);
            let deep = level(10, &mut unwinder);
            assert_eq!(deep.count, shallow.count + 10);
            assert!(shallow.count >= 5, "{:x?}", shallow.addresses());
            let own = unwinder.snapshot.as_ref().unwrap().clone();
            for address in deep.addresses() {
                assert!(own.modules.iter().any(|module| module.range.contains(address)), "{address:x}");
            }
            assert_eq!(shallow.addresses().last(), deep.addresses().last(), "both end in the thread's start");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_very_deep_stack_keeps_its_inner_frames() {
        let frames = level(200, &mut unwinder());
        assert_eq!(frames.count, MAX_FRAMES);
    }

    #[test]
    fn words_outside_of_the_stack_are_refused() {
        let word = [7u64, 8];
        let base = word.as_ptr() as u64;
        let readable = base..base + 16;
        assert_eq!(read_word(&readable, base), Ok(7));
        assert_eq!(read_word(&readable, base + 8), Ok(8));
        for address in [0, 8, base - 8, base + 1, base + 16, u64::MAX, u64::MAX - 7] {
            assert_eq!(read_word(&readable, address), Err(()), "{address:x}");
        }
    }
}
