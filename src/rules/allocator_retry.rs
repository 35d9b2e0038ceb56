//! The caching allocator gives memory back to try again.

use super::Rule;
use crate::audit::WaitKind;
use crate::model::ApiClass;

pub(super) static RULE: Rule = Rule {
    id: "allocator-retry",
    kinds: &[WaitKind::MemoryManagement],
    headline: "the allocator frees cached memory to make room",
    recognised: "cudaFree or cuMemFree under an operator of the framework, other than a convolution (where the search \
        for the fastest algorithm empties the cache, too): operators don't free device memory by themselves, \
        the caching allocator does when it is out of room.",
    cuda: "Cached segments are freed one by one and the allocation is tried again.",
    waits: "cudaFree waits for the device, and what was freed is allocated anew.",
    see: "torch.cuda.memory_stats()[\"num_alloc_retries\"] goes up; the step time has outliers.",
    pytorch: "Lower the peak: smaller batches, activation checkpointing, release references before the large \
        allocation. Against fragmentation: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; bucket the \
        shapes.",
    rust: "Allocate for the largest shape before the loop and reuse.",
    leave: "In a single step with an unusual shape.",
    breaks: "Checkpointing computes the forward pass twice; buckets pad.",
    fits: |facts| {
        facts.has_op()
            && facts.calls(&[ApiClass::DeviceFree])
            && !facts.op(&["aten::convolution", "aten::_convolution", "aten::convolution_backward"])
    },
};

#[cfg(test)]
mod tests {
    use super::super::sample::{call, fires, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(&RULE, &[call("cudaFree").ops(&["aten::empty"])]);
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (
                    call("cudaFree").ops(&["aten::empty"]).python(&[
                        ("/x/site-packages/torch/cuda/memory.py", "empty_cache"),
                        ("/home/me/train.py", "train"),
                    ]),
                    "empty-cache",
                ),
                (
                    call("cudaFree").ops(&["aten::conv2d", "aten::convolution", "aten::_convolution"]),
                    "memory-management",
                ),
                (call("cudaFree"), "free-in-step"),
                (call("cudaMalloc").ops(&["aten::empty"]), "allocator-growth"),
            ],
        );
    }
}
