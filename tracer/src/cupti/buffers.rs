//! The buffers that CUPTI writes activity records into.
//!
//! In: requests on any thread of the program. Out: memory, always: CUPTI before 12.9 crashes when it is given none.
//! Filled buffers go to [`super::records`] and come back to the pool. Must never call CUDA or flush.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use syncaudit_eventlog::LossReason;

use super::records;
use crate::boundary::guard;
use crate::session;

/// CUPTI advises 1 to 10 MB. Since 13.0 each thread has a buffer of its own; pages are backed when they are written.
const BUFFER_BYTES: usize = 1 << 20;
/// Mapped at the start, so that the first requests cost nothing.
const PREPARED: usize = 8;

/// Our buffers, as addresses.
struct Pool {
    /// The ones that nobody uses.
    free: Vec<usize>,
    /// All of them. Another client may have registered its callbacks in between, and then CUPTI hands its buffers to us.
    ours: Vec<usize>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), ours: Vec::new() });
/// Handed out when the system has no memory left: written, never read.
static LAST_RESORT: Mutex<usize> = Mutex::new(0);
static DELIVERED: AtomicBool = AtomicBool::new(false);

/// Maps the first buffers.
pub fn prepare() {
    *LAST_RESORT.lock().unwrap_or_else(PoisonError::into_inner) = map().unwrap_or(0);
    let buffers: Vec<usize> = (0..PREPARED).filter_map(|_| map()).collect();
    pool(|pool| {
        pool.ours.extend(&buffers);
        pool.free.extend(&buffers);
    });
}

/// Whether CUPTI has given any buffer back yet.
pub fn any_delivered() -> bool {
    DELIVERED.load(Ordering::Relaxed)
}

/// CUPTI wants a buffer.
pub unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    guard((), || {
        let address = pool(|pool| pool.free.pop()).or_else(new_buffer).unwrap_or_else(last_resort);
        // SAFETY: CUPTI passes three places to write to.
        unsafe {
            *buffer = address as *mut u8;
            *size = BUFFER_BYTES;
            // As many as fit.
            *max_records = 0;
        }
    });
}

/// CUPTI gives a buffer back, with records in its first `valid_size` bytes.
pub unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream_id: u32,
    buffer: *mut u8,
    size: usize,
    valid_size: usize,
) {
    guard((), || {
        DELIVERED.store(true, Ordering::Relaxed);
        if buffer.is_null() {
            return;
        }
        if !pool(|pool| pool.ours.contains(&buffer.addr())) {
            if let Some(session) = session::current() {
                session.writer.count_loss(LossReason::Tracer, 1);
            }
            return;
        }
        if valid_size > 0 {
            // SAFETY: the buffer that `requested` handed out, whole and no longer written to by CUPTI.
            let records = unsafe { std::slice::from_raw_parts(buffer, valid_size.min(size)) };
            guard((), || records::write(records));
        }
        pool(|pool| pool.free.push(buffer.addr()));
    });
}

fn new_buffer() -> Option<usize> {
    let buffer = map()?;
    pool(|pool| pool.ours.push(buffer));
    Some(buffer)
}

fn pool<R>(body: impl FnOnce(&mut Pool) -> R) -> R {
    body(&mut POOL.lock().unwrap_or_else(PoisonError::into_inner))
}

fn last_resort() -> usize {
    *LAST_RESORT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn map() -> Option<usize> {
    // SAFETY: a new anonymous mapping touches no memory in use.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BUFFER_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (address != libc::MAP_FAILED).then_some(address.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> (*mut u8, usize, usize) {
        let (mut buffer, mut size, mut max_records) = (std::ptr::null_mut(), 0, 1);
        // SAFETY: three places to write to.
        unsafe { requested(&mut buffer, &mut size, &mut max_records) };
        (buffer, size, max_records)
    }

    #[test]
    fn a_request_is_never_declined_and_returned_buffers_are_used_again() {
        prepare();
        let buffers: Vec<_> = (0..3 * PREPARED).map(|_| request()).collect();
        let mut addresses: Vec<usize> = buffers.iter().map(|(buffer, ..)| buffer.addr()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 3 * PREPARED, "no buffer is handed out twice");
        for (buffer, size, max_records) in &buffers {
            assert!(!buffer.is_null() && buffer.addr().is_multiple_of(8));
            assert_eq!((*size, *max_records), (BUFFER_BYTES, 0));
        }
        for (buffer, size, _) in buffers {
            // SAFETY: the buffer just handed out, empty.
            unsafe { completed(std::ptr::null_mut(), 0, buffer, size, 0) };
        }
        assert!(addresses.contains(&request().0.addr()));

        let mut foreign = [0u64; 16];
        let buffer: *mut u8 = foreign.as_mut_ptr().cast();
        // SAFETY: a buffer of that size.
        unsafe { completed(std::ptr::null_mut(), 0, buffer, 128, 128) };
        let next: Vec<usize> = (0..4 * PREPARED).map(|_| request().0.addr()).collect();
        assert!(!next.contains(&buffer.addr()), "the buffer of another client is not ours to hand out");
    }
}
