//! Handles for domains and registered strings.
//!
//! In: names. Out: numbers that look like pointers to the program. Not real pointers, so that a handle that isn't ours
//! (a stale one, one of another tool) is looked up and not found instead of being read. Look-up takes no lock, and
//! nothing is ever removed.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A grow-only table. Place `i` is in chunk `log2(i / FIRST + 1)`; each chunk is twice as large as the one before.
pub struct Handles<T: 'static> {
    chunks: [AtomicPtr<AtomicPtr<T>>; CHUNKS],
    next: AtomicUsize,
}

const FIRST: usize = 256;
/// Room for about 4 million entries.
const CHUNKS: usize = 14;

impl<T> Handles<T> {
    pub const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS], next: AtomicUsize::new(0) }
    }

    /// Keeps `value` for good. Its handle, or null when the table is full.
    pub fn add(&self, value: T) -> *const c_void {
        let place = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = self.slot(place, true) else { return std::ptr::null() };
        slot.store(Box::leak(Box::new(value)), Ordering::Release);
        std::ptr::without_provenance(handle_of(place))
    }

    /// What was kept under `handle`; `None` for null and for anything that is not a handle of this table.
    pub fn get(&self, handle: *const c_void) -> Option<&'static T> {
        let place = handle.addr().checked_sub(handle_of(0)).filter(|at| at.is_multiple_of(STEP))? / STEP;
        let slot = self.slot(place, false)?;
        // SAFETY: null or a leaked box that `add` published.
        unsafe { slot.load(Ordering::Acquire).as_ref() }
    }

    fn slot(&self, place: usize, grow: bool) -> Option<&AtomicPtr<T>> {
        let index = (place / FIRST + 1).ilog2() as usize;
        let chunk = self.chunks.get(index)?;
        let length = FIRST << index;
        let mut base = chunk.load(Ordering::Acquire);
        if base.is_null() && grow {
            let fresh: Box<[AtomicPtr<T>]> =
                (0..length).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
            let fresh = Box::into_raw(fresh);
            match chunk.compare_exchange(
                std::ptr::null_mut(),
                fresh.cast(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => base = fresh.cast(),
                Err(first) => {
                    // SAFETY: nobody else has seen this box.
                    drop(unsafe { Box::from_raw(fresh) });
                    base = first;
                }
            }
        }
        if base.is_null() {
            return None;
        }
        // The chunks before this one hold FIRST * (2^index - 1) entries.
        let within = place - FIRST * ((1 << index) - 1);
        // SAFETY: a leaked chunk of `length` slots, and `within` is less than that by the choice of `index`.
        Some(unsafe { &*base.add(within) })
    }
}

const STEP: usize = 16;

/// Never null, and in the first pages only for the first few: nothing is ever mapped that low.
fn handle_of(place: usize) -> usize {
    STEP + place * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_leads_to_its_own_value_and_nothing_else_does() {
        let table: Handles<usize> = Handles::new();
        let handles: Vec<_> = (0..5000).map(|value| table.add(value)).collect();
        for (value, handle) in handles.iter().enumerate() {
            assert_eq!(table.get(*handle), Some(&value));
        }
        let last = handles.last().unwrap().addr();
        for foreign in [0, 1, 15, 17, last + STEP, last + 1, usize::MAX, usize::MAX / 2, 1 << 47] {
            assert_eq!(table.get(std::ptr::without_provenance(foreign)), None, "{foreign:x}");
        }
    }

    #[test]
    fn threads_that_add_at_once_get_different_handles() {
        static TABLE: Handles<usize> = Handles::new();
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                std::thread::spawn(move || {
                    (0..1000)
                        .map(|i| (TABLE.add(thread * 1000 + i).addr(), thread * 1000 + i))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let mut all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        for (handle, value) in &all {
            assert_eq!(TABLE.get(std::ptr::without_provenance(*handle)), Some(value));
        }
        all.sort_unstable();
        all.dedup_by_key(|(handle, _)| *handle);
        assert_eq!(all.len(), 4000);
    }
}
