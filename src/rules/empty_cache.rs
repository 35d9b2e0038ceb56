//! The caching allocator is emptied in the loop.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "empty-cache",
    kinds: &[WaitKind::MemoryManagement],
    headline: "the allocator's cache is emptied during the step",
    recognised: "cudaFree or cuMemFree from inside of empty_cache.",
    cuda: "One cudaFree per cached segment; the next allocations are cudaMalloc again.",
    waits: "cudaFree waits for the work in flight on the device before it takes the memory away, and mapping \
        memory again is slow.",
    see: "A row of cudaFree below torch.cuda.empty_cache(), and a row of cudaMalloc in the step after it.",
    pytorch: "Remove the call. If it was there against running out of memory, lower the peak: \
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation, activation checkpointing, \
        smaller batches.",
    rust: "Keep the buffers and reuse them; don't trim the pool in the loop.",
    leave: "Between phases, such as training and evaluation, that need memory in very different shapes.",
    breaks: "Memory that other processes on the device counted on stays with this one.",
    fits: |facts| facts.library_function(&["empty_cache"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{call, fires, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[call("cudaFree").python(&[
                ("/x/site-packages/torch/cuda/memory.py", "empty_cache"),
                ("/home/me/train.py", "train"),
            ])],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[(
                call("cudaFree")
                    .python(&[("/home/me/cache.py", "empty_cache"), ("/home/me/train.py", "train")]),
                "memory-management",
            )],
        );
    }
}
