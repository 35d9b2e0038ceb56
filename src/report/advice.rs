//! What each kind of wait means and how it is usually removed: short texts for the end of a site's block.
//!
//! In: a kind. Out: text without any fact about the program at hand. The advice must name its condition where a fix can
//! break something.

use crate::audit::WaitKind;

/// Texts about one kind.
pub(super) struct Advice {
    /// A few words for the headline.
    pub headline: &'static str,
    /// What happens.
    pub meaning: &'static str,
    /// What to do, in PyTorch and in Rust terms.
    pub help: &'static str,
}

pub(super) fn of(kind: WaitKind) -> Advice {
    let (headline, meaning, help) = match kind {
        WaitKind::DeviceToHostRead => (
            "the host reads a value from the device and waits for it",
            "everything queued on that stream has to finish before the value is there; until then the host queues no \
             further work",
            "keep the value on the device (PyTorch: accumulate detached tensors, torch.where instead of `if`; Rust: pass \
             device pointers on), read it only on log steps, or copy into pinned memory without waiting and look at it a \
             step later (non_blocking=True and an event; memcpy to a pinned slice and an event)",
        ),
        WaitKind::HostToDeviceWrite => (
            "the host uploads data and waits for the upload",
            "the source is pageable memory, or a synchronise follows the copy: the host stands still until earlier work on \
             the stream is done and the data is taken",
            "stage through reused pinned memory and copy asynchronously (PyTorch: pin_memory() once, \
             .to(device, non_blocking=True); Rust: a pinned slice and an async copy, reused only after its event); make \
             constants on the device (torch.full) or pass them as kernel arguments",
        ),
        WaitKind::StreamSync => (
            "the host waits for a stream to drain",
            "the host queues nothing until all work of the stream is done",
            "remove it if it is left over from debugging or timing; order streams among themselves with events \
             (stream.wait_event, cuStreamWaitEvent); if it protects a buffer, wait for that buffer's event later, or on \
             another thread",
        ),
        WaitKind::EventSync => (
            "the host waits for an event",
            "the host queues nothing until the event has been reached on the device",
            "wait for an event of an earlier step instead (keep two or more buffers in flight), or let a stream wait \
             (stream.wait_event, cuStreamWaitEvent); a limit on run-ahead is a fine reason to keep it",
        ),
        WaitKind::DeviceSync => (
            "the host waits for the whole device",
            "the host queues nothing until all streams are empty",
            "remove it from the loop (torch.cuda.synchronize() for timing: use events and read them later); before reading \
             results wait for the one event that matters",
        ),
        WaitKind::MemoryManagement => (
            "allocating or freeing memory holds the host",
            "the driver waits for work in flight, or takes long to map memory, before the call returns",
            "allocate before the loop and reuse; take stream-ordered allocation (cudaMallocAsync, cuMemFreeAsync); \
             PyTorch: no empty_cache() in the loop, stay clear of the memory limit, pin buffers once",
        ),
        WaitKind::ModuleLoad => (
            "code is loaded onto the device during the step",
            "loading a module may wait for the whole device",
            "load modules and run each kernel once before the loop; CUDA_MODULE_LOADING=EAGER shows whether lazy loading \
             is the cause",
        ),
        WaitKind::LaunchQueueFull => (
            "the launch queue is full and the host waits for space",
            "the host is far ahead of the device: the wait limits run-ahead and costs nothing by itself",
            "nothing to fix if the device is busy all the time; fewer and larger launches, or a CUDA graph, make room",
        ),
        WaitKind::Polling => (
            "the host spins on a query until the device gets there",
            "a loop asks for the state of an event or stream again and again: a wait that also burns a core",
            "ask once per step and go on when it isn't ready; or wait on another thread with cuEventSynchronize on an event \
             made with the blocking-sync flag",
        ),
        WaitKind::Unclassified => (
            "a call holds the host until the device gets there",
            "the call was not expected to wait, but it returned only when work on the device had ended",
            "look at the call's arguments (memory kinds, the stream, launch limits); if it should not wait, keep the trace \
             and report it",
        ),
    };
    Advice { headline, meaning, help }
}
