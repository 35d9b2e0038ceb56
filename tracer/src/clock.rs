//! The clocks, in nanoseconds. In: nothing. Out: numbers. No system call on Linux with a vDSO.

#![allow(unsafe_code)]

use syncaudit_eventlog::Clock;

/// `CLOCK_MONOTONIC`: the clock of everything that the tracer stamps itself.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// All clocks at one moment; `cupti_ns` is 0 where CUPTI gives no time.
pub fn pair(cupti_ns: impl FnOnce() -> Option<u64>) -> Clock {
    let before = monotonic_ns();
    let cupti_ns = cupti_ns().unwrap_or(0);
    let realtime_ns = read(libc::CLOCK_REALTIME);
    let after = monotonic_ns();
    Clock { monotonic_ns: before + (after - before) / 2, realtime_ns, cupti_ns }
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec; these two clocks exist on every Linux, so it can't fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
