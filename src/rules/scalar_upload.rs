//! A Python number or short list becomes a device tensor.

use super::Rule;
use crate::audit::WaitKind;
use crate::model::MemoryKind;

pub(super) static RULE: Rule = Rule {
    id: "scalar-upload",
    kinds: &[WaitKind::HostToDeviceWrite],
    headline: "a host value is uploaded as a device scalar",
    recognised: "an upload of at most 16 bytes that is not from pinned memory, under aten::_to_copy (torch.tensor(x, \
        device=...), new_tensor), or in a program without PyTorch.",
    cuda: "A few bytes are copied from pageable memory and the stream is synchronised.",
    waits: "The source is an ordinary variable that is gone after the call, so the call only returns when the \
        copy was made, behind all earlier work of the stream.",
    see: "torch.tensor(value, device=\"cuda\"), x.new_tensor(value), torch.as_tensor of a number, \
        .to(\"cuda\") of a 0-d CPU tensor.",
    pytorch: "torch.full((), value, device=\"cuda\") or fill_: the value travels as a kernel argument. Python \
        numbers in arithmetic (x * 2.0) need no tensor at all. Make constants once, before the loop.",
    rust: "Pass the value as a kernel argument (launch_builder(...).arg(&value)), or write it with a memset; \
        upload constants once, before the loop.",
    leave: "Before the loop.",
    breaks: "Type promotion: a Python number doesn't promote a tensor's type as a 0-d tensor of another category \
        may; name the dtype in torch.full.",
    fits: |facts| {
        facts.is_scalar()
            && facts.from != MemoryKind::Pinned
            && (facts.op(&["aten::_to_copy"]) || facts.is_bare())
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
                upload(8, MemoryKind::Pageable).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]),
                upload(4, MemoryKind::Pageable),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (
                    upload(8, MemoryKind::Pinned).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]),
                    "blocking-pinned-upload",
                ),
                (upload(8, MemoryKind::Pageable).in_framework(), "host-to-device-write"),
                (
                    upload(4096, MemoryKind::Pageable).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]),
                    "pageable-upload",
                ),
                (upload(4, MemoryKind::Pageable).ops(&["aten::copy_"]), "scalar-assignment"),
            ],
        );
    }
}
