//! A CPU scalar is assigned into a CUDA tensor.

use super::Rule;
use crate::audit::WaitKind;
use crate::model::MemoryKind;

pub(super) static RULE: Rule = Rule {
    id: "scalar-assignment",
    kinds: &[WaitKind::HostToDeviceWrite],
    headline: "a host scalar is assigned into a device tensor",
    recognised: "an upload of at most 16 bytes under aten::copy_ or aten::fill_ without aten::_to_copy around it.",
    cuda: "A few bytes are copied from pageable memory and the stream is synchronised.",
    waits: "The scalar is in pageable memory and the call must not return before it was taken.",
    see: "x[i] = cpu_tensor; with older PyTorch (2.7) also x[i] = 1.",
    pytorch: "x[i].fill_(number) or x.index_fill_(0, index, number) with a Python number: one launch. Build the \
        tensor with torch.full or torch.where instead of patching it.",
    rust: "Write it by a small kernel with the value as an argument, or by a memset.",
    leave: "Before the loop.",
    breaks: "index_fill_ takes an index tensor: make it on the device once, else it is an upload itself.",
    fits: |facts| {
        facts.is_scalar()
            && facts.from != MemoryKind::Pinned
            && facts.op(&["aten::copy_", "aten::fill_"])
            && !facts.op(&["aten::_to_copy", "aten::to"])
    },
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, silent, upload};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[
                upload(4, MemoryKind::Pageable).ops(&["aten::copy_"]),
                upload(4, MemoryKind::Pageable).ops(&["aten::fill_", "aten::copy_"]),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (
                    upload(4, MemoryKind::Pageable).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]),
                    "scalar-upload",
                ),
                (upload(4096, MemoryKind::Pageable).ops(&["aten::copy_"]), "pageable-upload"),
            ],
        );
    }
}
