//! New device memory is mapped in the step.

use super::Rule;
use crate::audit::WaitKind;
use crate::model::ApiClass;

pub(super) static RULE: Rule = Rule {
    id: "allocator-growth",
    kinds: &[WaitKind::MemoryManagement],
    headline: "new device memory is allocated during the step",
    recognised: "cudaMalloc, cuMemAlloc or the like that held the host.",
    cuda: "The driver maps new memory; under PyTorch the caching allocator asks for a segment it doesn't have.",
    waits: "Mapping takes a lock of the driver and time of its own, and may wait for work in flight.",
    see: "In the first steps always; in later ones when a shape is larger than all before, or after \
        empty_cache().",
    pytorch: "Run the largest shape first. Bucket or pad shapes. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
        lets segments grow. Libraries such as cuBLAS take their workspace on first use: warm each thread up.",
    rust: "Allocate before the loop; in the loop use stream-ordered allocation (stream.alloc on devices with \
        memory pools) or a pool of your own.",
    leave: "In the warm-up.",
    breaks: "A pool holds its peak for ever.",
    fits: |facts| facts.calls(&[ApiClass::DeviceAlloc]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{call, fires, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(&RULE, &[call("cudaMalloc").ops(&["aten::empty"]), call("cuMemAlloc_v2")]);
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(&RULE, &[(call("cudaHostAlloc"), "pin-memory"), (call("cuMemMap"), "memory-management")]);
    }
}
