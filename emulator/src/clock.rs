//! The clock of the emulated device: the machine's, or a virtual one that nothing but the time model moves.
//!
//! In: `SYNCAUDIT_EMU_CLOCK=virtual`, or [`make_virtual`]. Out: the times in CUPTI's records. With the virtual clock each thread of the program has a time of its own, which
//! goes on by a fixed time per call, by [`work`], and by waiting: to the time at which what it waits for is done on the device. Operations really
//! run, in the order that streams, events and the default stream give them, but when they begin and end is computed: so two runs of one program have the same times, on any
//! machine. Threads that hand work to each other without the driver must hand on their time as well ([`set_host_ns`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

/// A call of the driver API.
pub const CALL_NS: u64 = 5_000;
/// From a call to its work on an idle stream.
pub const ISSUE_NS: u64 = 4_000;
/// From one piece of work to the next on its stream.
pub const QUEUED_NS: u64 = 1_000;
/// From the end of work to the return of a call that waited for it.
pub const LAG_NS: u64 = 4_000;
/// A copy or memset, beside its bytes.
const COPY_NS: u64 = 2_000;
const COPY_BYTES_PER_NS: u64 = 16;

const UNKNOWN: u8 = 0;
const REAL: u8 = 1;
const VIRTUAL: u8 = 2;
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

thread_local! {
    /// Of a thread of the program.
    static HOST_NS: Cell<u64> = const { Cell::new(1_000_000_000) };
    /// Of a stream's worker: when the operation under way was issued, and how far the stream is.
    static DEVICE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Whether times are those of the model alone.
pub fn is_virtual() -> bool {
    match MODE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let set = std::env::var_os("SYNCAUDIT_EMU_CLOCK").is_some_and(|value| value == "virtual");
            MODE.store(if set { VIRTUAL } else { REAL }, Ordering::Relaxed);
            set
        }
        mode => mode == VIRTUAL,
    }
}

/// Makes the clock virtual from here on; before the device is used.
pub fn make_virtual() {
    MODE.store(VIRTUAL, Ordering::Relaxed);
}

/// The virtual time of this thread.
pub fn host_ns() -> u64 {
    HOST_NS.get()
}

/// Sets the virtual time of this thread: what another one had when it handed over.
pub fn set_host_ns(ns: u64) {
    HOST_NS.set(ns);
}

/// This thread works for so long.
pub fn work(ns: u64) {
    HOST_NS.set(HOST_NS.get() + ns);
}

/// This thread waited for something that was done at that time.
pub(crate) fn waited_for(done_ns: u64) {
    HOST_NS.set(HOST_NS.get().max(done_ns + LAG_NS));
}

/// This thread goes on no earlier than that.
pub(crate) fn not_before(ns: u64) {
    HOST_NS.set(HOST_NS.get().max(ns));
}

/// A worker begins an operation that was issued then, on a stream that is ready at that time.
pub(crate) fn begin(issued_ns: u64, ready_ns: u64) {
    DEVICE.set((issued_ns, ready_ns));
}

/// Work of the operation under way: when it begins and ends.
pub(crate) fn device_work(ns: u64) -> (u64, u64) {
    let (issued_ns, ready_ns) = DEVICE.get();
    let behind = if ready_ns == 0 { 0 } else { ready_ns + QUEUED_NS };
    let start_ns = behind.max(issued_ns + ISSUE_NS);
    DEVICE.set((issued_ns, start_ns + ns));
    (start_ns, start_ns + ns)
}

/// How far the stream is behind the operation: not before it was issued.
pub(crate) fn end() -> u64 {
    let (issued_ns, ready_ns) = DEVICE.get();
    issued_ns.max(ready_ns)
}

/// How long a copy or memset of so many bytes takes.
pub(crate) fn copy_ns(bytes: usize) -> u64 {
    COPY_NS + bytes as u64 / COPY_BYTES_PER_NS
}
