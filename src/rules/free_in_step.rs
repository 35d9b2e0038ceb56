//! Device memory is freed in the step.

use super::Rule;
use crate::audit::WaitKind;
use crate::model::ApiClass;

pub(super) static RULE: Rule = Rule {
    id: "free-in-step",
    kinds: &[WaitKind::MemoryManagement],
    headline: "device memory is freed during the step",
    recognised: "cudaFree or cuMemFree in a program without PyTorch.",
    cuda: "The memory is unmapped; the stream-ordered form (cuMemFreeAsync) is not used.",
    waits: "The driver waits until no work in flight can still use the memory.",
    see: "A buffer goes out of scope in the loop.",
    pytorch: "An extension that calls cudaFree should take its memory from the caching allocator \
        (c10::cuda::CUDACachingAllocator, torch.empty).",
    rust: "Keep the buffers in a struct that outlives the loop. cudarc frees with cuMemFreeAsync where the \
        device has memory pools and else with cuMemFree: check ctx.has_async_alloc().",
    leave: "After the loop.",
    breaks: "Kept buffers raise the resting memory use; clear what the next step must not see.",
    fits: |facts| facts.is_bare() && facts.calls(&[ApiClass::DeviceFree]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{call, fires, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(&RULE, &[call("cuMemFree_v2"), call("cudaFree")]);
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (call("cudaFree").ops(&["aten::empty"]), "allocator-retry"),
                (call("cudaFree").in_framework(), "memory-management"),
                (call("cudaFreeHost"), "pin-memory"),
                (call("cudaFree").python(&[("/home/me/train.py", "train")]), "memory-management"),
            ],
        );
    }
}
