//! Pinned memory is made or given back in the step.

use super::Rule;
use crate::audit::WaitKind;
use crate::model::ApiClass;

pub(super) static RULE: Rule = Rule {
    id: "pin-memory",
    kinds: &[WaitKind::MemoryManagement],
    headline: "pinned host memory is allocated or freed during the step",
    recognised: "cudaHostAlloc, cudaHostRegister, cudaFreeHost, cudaHostUnregister or their driver twins.",
    cuda: "The operating system locks pages and the driver maps them for the device.",
    waits: "It takes a lock of the driver and, when freeing, waits for the device; megabytes take milliseconds.",
    see: "cudaHostAlloc below pin_memory() in the loop, or in the first steps while the pinned cache grows.",
    pytorch: "Pin once and reuse the tensor, or let the DataLoader's pinning thread do it. Batches of one shape \
        are served from PyTorch's pinned cache after the first steps.",
    rust: "Allocate the pinned slices before the loop and keep them in a pool.",
    leave: "In the warm-up, while pools fill.",
    breaks: "A reused pinned buffer must not be written before its last copy has ended. Pinned memory is not \
        swapped: too much of it starves the machine.",
    fits: |facts| {
        facts.calls(&[
            ApiClass::HostAlloc,
            ApiClass::HostRegister,
            ApiClass::HostFree,
            ApiClass::HostUnregister,
        ])
    },
};

#[cfg(test)]
mod tests {
    use super::super::sample::{call, fires, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[
                call("cudaHostAlloc").ops(&["aten::pin_memory", "aten::_pin_memory"]),
                call("cuMemHostRegister_v2"),
                call("cuMemFreeHost"),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(&RULE, &[(call("cudaMalloc"), "allocator-growth"), (call("cudaFree"), "free-in-step")]);
    }
}
