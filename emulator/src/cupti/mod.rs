//! The CUPTI surface of the emulated device: callbacks of the driver domain and activity records, as the tracer uses
//! them with the real library. Behaves like CUPTI 12.8 (version 26, its record sizes).
//!
//! What comes in: subscriptions and enabled kinds from a tool, calls and finished operations from the device. What
//! goes out: callbacks on the calling thread at ENTER and EXIT, and buffers of records.
//!
//! What it must never do: cost anything while no tool is attached (one relaxed load per call), call a tool with a lock
//! held, or report a subscription or kind as enabled that will never deliver.

pub mod activity;
mod api;
pub mod callbacks;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a tool wants, as bits; 0 while none is attached.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// Some driver callback is enabled.
pub const CALLBACKS: u32 = 1;
/// Some kind of record is enabled.
pub const RECORDS: u32 = 2;

thread_local! {
    /// Correlation id of the call that this thread is in, 0 outside.
    static CORRELATION: Cell<u32> = const { Cell::new(0) };
}

/// What a tool wants right now.
pub fn wanted() -> u32 {
    WANTED.load(Ordering::Relaxed)
}

fn set_wanted(bit: u32, on: bool) {
    if on {
        WANTED.fetch_or(bit, Ordering::SeqCst);
    } else {
        WANTED.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// CUPTI's clock on Linux: CLOCK_REALTIME, nanoseconds. Of the calling thread, where the clock is virtual.
pub fn now_ns() -> u64 {
    if crate::clock::is_virtual() {
        return crate::clock::host_ns();
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Every public function's callback id by name, and the names by id.
struct Ids {
    by_name: HashMap<&'static str, u32>,
    by_id: Vec<Option<&'static str>>,
}

static IDS: LazyLock<Ids> = LazyLock::new(|| {
    let lines = include_str!("../driver-functions.txt").lines().filter(|l| !l.starts_with('#'));
    let by_name: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, id)| Some((name, id.parse().ok()?)))
        .filter(|(_, id)| *id != 0)
        .collect();
    let mut by_id = vec![None; DRIVER_IDS];
    for (name, id) in &by_name {
        by_id[*id as usize] = Some(*name);
    }
    Ids { by_name, by_id }
});

/// CUPTI_DRIVER_TRACE_CBID_SIZE of 12.8.
pub const DRIVER_IDS: usize = 782;
/// CUPTI_RUNTIME_TRACE_CBID_SIZE of 12.8.
const RUNTIME_IDS: u32 = 487;

/// Callback id of a driver function, 0 for none.
pub fn callback_id(name: &str) -> u32 {
    IDS.by_name.get(name).copied().unwrap_or(0)
}

fn driver_name(id: u32) -> Option<&'static str> {
    IDS.by_id.get(id as usize).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_cupti_header() {
        let known = [("cuInit", 1), ("cuCtxCreate", 10), ("cuCtxDestroy", 11), ("cuCtxSetLimit", 136)];
        for (name, id) in known {
            assert_eq!(callback_id(name), id, "{name}");
            assert_eq!(driver_name(id), Some(name));
        }
        for call in cupti_sys::cbid::driver::CALLS.iter().filter(|c| (c.cbid as usize) < DRIVER_IDS) {
            let name = driver_name(call.cbid);
            assert!(name.is_some_and(|n| n.starts_with(call.name)), "{} {name:?}", call.name);
        }
    }
}
