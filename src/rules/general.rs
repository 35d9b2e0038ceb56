//! What is true of every wait of a kind, whatever the idiom.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static DEVICE_TO_HOST_READ: Rule = Rule {
    id: "device-to-host-read",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "the host reads a value from the device and waits for it",
    recognised: "a synchronous copy to the host, a copy to pageable memory, or an asynchronous copy with a \
        synchronise of its stream behind it.",
    cuda: "Data is copied from the device to the host, and the call or the synchronise after it returns when \
        the copy has ended.",
    waits: "Everything queued on that stream has to finish before the value is there; until then the host queues \
        no further work.",
    see: "The cost is the work queued before it, not its bytes. Removing one such wait moves the bill to the \
        next until the last is gone.",
    pytorch: "Keep the value on the device: accumulate detached tensors, torch.where instead of `if`; read it on \
        log steps; or copy with non_blocking=True into pinned memory, record an event and look a step later.",
    rust: "Pass device pointers on; read on log steps; or memcpy_dtoh into a PinnedHostSlice and look at it a \
        step later.",
    leave: "On log steps, for checkpoints, and where the host truly has to know before it can go on.",
    breaks: "A value that is read later is of an earlier step. A pinned buffer must not be reused before its copy \
        has ended.",
    fits: |_| true,
};

pub(super) static HOST_TO_DEVICE_WRITE: Rule = Rule {
    id: "host-to-device-write",
    kinds: &[WaitKind::HostToDeviceWrite],
    headline: "the host uploads data and waits for the upload",
    recognised: "a synchronous copy to the device, a copy from pageable memory that held the host, or an asynchronous \
        copy with a synchronise behind it.",
    cuda: "Data is copied from the host to the device, staged by the driver if the memory is pageable.",
    waits: "The source is pageable memory, or a synchronise follows the copy: the host stands still until \
        earlier work on the stream is done and the data is taken.",
    see: "A copy of a batch or a constant in the loop; the bytes tell which.",
    pytorch: "Pin once (DataLoader(pin_memory=True)) and copy with .to(device, non_blocking=True); make constants \
        on the device (torch.full) or use Python numbers.",
    rust: "Stage through reused pinned slices and an asynchronous copy; pass constants as kernel arguments.",
    leave: "Before the loop.",
    breaks: "A pinned buffer must not be written again before its copy has ended.",
    fits: |_| true,
};

pub(super) static STREAM_SYNC: Rule = Rule {
    id: "stream-sync",
    kinds: &[WaitKind::StreamSync],
    headline: "the host waits for a stream to drain",
    recognised: "cudaStreamSynchronize or cuStreamSynchronize that belongs to no copy; a synchronous copy between \
        host buffers or memset.",
    cuda: "The call returns when all work of the stream has ended.",
    waits: "The host queues nothing until then.",
    see: "Look at who calls it: timing, debugging, a buffer that is to be reused, or a library.",
    pytorch: "Remove it if it is left over. Order streams among themselves with events (stream.wait_event, \
        wait_stream). If it protects a buffer, wait for that buffer's event, later or on another thread.",
    rust: "stream.wait(&event) orders streams without the host. For a buffer: record an event behind its last \
        use and wait for that one when it is needed again.",
    leave: "Around a measurement, before the process ends, and where a buffer has to be free now.",
    breaks: "A synchronise may have ordered more than it was meant to: other streams, or ranks. Say each order \
        that is needed with an event.",
    fits: |_| true,
};

pub(super) static EVENT_SYNC: Rule = Rule {
    id: "event-sync",
    kinds: &[WaitKind::EventSync],
    headline: "the host waits for an event",
    recognised: "cudaEventSynchronize or cuEventSynchronize.",
    cuda: "The call returns when the device has reached the event.",
    waits: "The host queues nothing until then.",
    see: "How long ago was the event recorded? One of this step drains the queue, one of an earlier step only \
        limits run-ahead.",
    pytorch: "Wait for an event of an earlier step (keep two or more buffers in flight), or let a stream wait \
        (stream.wait_event). Read elapsed_time on log steps.",
    rust: "stream.wait(&event) where only the device has to wait; keep events of several steps and wait for the \
        oldest. Reading a PinnedHostSlice waits for its event, too.",
    leave: "When it limits run-ahead and the device stays busy: allow it with event-sync = 1 under \
        [budget.kinds].",
    breaks: "Buffers in flight take memory; without any limit run-ahead grows until memory ends.",
    fits: |_| true,
};

pub(super) static DEVICE_SYNC: Rule = Rule {
    id: "device-sync",
    kinds: &[WaitKind::DeviceSync],
    headline: "the host waits for the whole device",
    recognised: "cudaDeviceSynchronize, cuCtxSynchronize; destroying a context or resetting the device.",
    cuda: "The call returns when all streams are empty.",
    waits: "The host queues nothing until all work of all streams has ended: the strongest wait there is.",
    see: "Often left over from timing or debugging, or hidden in a library's profiling mode.",
    pytorch: "Remove it from the loop. For timing use events and read them on log steps; before reading a result \
        wait for the one event that matters.",
    rust: "Remove ctx.synchronize() from the loop; wait for the one event that matters.",
    leave: "Around a benchmark, at the end of the program, before a checkpoint.",
    breaks: "It may have hidden a missing order between streams: run with compute-sanitizer, or compare results, \
        after removing it.",
    fits: |_| true,
};

pub(super) static MEMORY_MANAGEMENT: Rule = Rule {
    id: "memory-management",
    kinds: &[WaitKind::MemoryManagement],
    headline: "allocating or freeing memory holds the host",
    recognised: "an allocation, a free or a registration of memory that held the host; on the emulated device frees \
        only.",
    cuda: "Memory is mapped, unmapped, locked or handed back.",
    waits: "The driver waits for work in flight, or takes long to map memory, before the call returns.",
    see: "Many in the first steps, few later. Steady ones in ordinary steps are the ones to look at.",
    pytorch: "Allocate before the loop and reuse; no empty_cache() in the loop; stay clear of the memory limit; \
        pin buffers once.",
    rust: "Allocate before the loop; take stream-ordered allocation (cuMemAllocAsync, cuMemFreeAsync).",
    leave: "In the warm-up and between phases.",
    breaks: "What is kept raises the resting memory use.",
    fits: |_| true,
};

pub(super) static MODULE_LOAD: Rule = Rule {
    id: "module-load",
    kinds: &[WaitKind::ModuleLoad],
    headline: "code is loaded onto the device during the step",
    recognised: "cuModuleLoad*, cuLibraryLoad*, and looking a function up if it held the host.",
    cuda: "A module is loaded (lazily at the first launch of one of its kernels) and linked on the device.",
    waits: "Loading may wait for the whole device.",
    see: "In the first steps, and later whenever a kernel is used for the first time: a new shape, an \
        evaluation in between.",
    pytorch: "Run every shape once before the loop. CUDA_MODULE_LOADING=EAGER shows whether lazy loading is the \
        cause. Keep torch.compile and Triton from compiling in the loop (mark_dynamic, a fixed set of \
        shapes).",
    rust: "Load modules and look functions up before the loop, and launch each kernel once.",
    leave: "In the warm-up.",
    breaks: "Eager loading costs start-up time and device memory.",
    fits: |_| true,
};

pub(super) static LAUNCH_QUEUE_FULL: Rule = Rule {
    id: "launch-queue-full",
    kinds: &[WaitKind::LaunchQueueFull],
    headline: "the launch queue is full and the host waits for space",
    recognised: "the driver's own record that its command buffer was full.",
    cuda: "A launch waits until the device has worked off part of the queue.",
    waits: "The host is about a thousand launches ahead of the device.",
    see: "The device is busy all the time; the wait limits run-ahead and costs nothing by itself.",
    pytorch: "Nothing, as a rule. CUDA graphs or torch.compile make fewer and larger launches.",
    rust: "Nothing, as a rule. Fuse kernels or capture a graph.",
    leave: "When the device is busy all the time, which is nearly always.",
    breaks: "Nothing: there is rarely a reason for a fix.",
    fits: |_| true,
};

pub(super) static POLLING: Rule = Rule {
    id: "polling",
    kinds: &[WaitKind::Polling],
    headline: "the host spins on a query until the device gets there",
    recognised: "ten or more queries of one event or stream in a row that answer \"not ready\", with no other call \
        between.",
    cuda: "cudaEventQuery or cudaStreamQuery, again and again.",
    waits: "The loop only ends when the device has got there: a wait that also burns a core.",
    see: "A row of queries on one thread; the core is at 100 %.",
    pytorch: "Ask once per step (event.query()) and go on when it isn't ready; or wait on another thread.",
    rust: "event.is_complete() once per step; or synchronize() on another thread, on an event made with the \
        blocking-sync flag.",
    leave: "Where microseconds of reaction matter and the core is free.",
    breaks: "A check once per step reacts up to a step later.",
    fits: |_| true,
};

pub(super) static UNCLASSIFIED: Rule = Rule {
    id: "unclassified",
    kinds: &[WaitKind::Unclassified],
    headline: "a call holds the host until the device gets there",
    recognised: "any other call that held the host for 100 us or more and returned just after work of its stream had \
        ended.",
    cuda: "A call that is not expected to wait. Any call may block for lack of internal resources, and what \
        blocks changes between versions of the driver.",
    waits: "It is not known why; it is known that the call returned when work on the device had ended.",
    see: "Look at the arguments of the call: the kinds of memory, the stream, launch limits.",
    pytorch: "Find the call that comes before it in the trace, and try without it.",
    rust: "Find the call that comes before it in the trace, and try without it.",
    leave: "When it is rare.",
    breaks: "That depends on what it turns out to be. If the call should not wait, keep the trace and report it.",
    fits: |_| true,
};
