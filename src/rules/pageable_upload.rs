//! Data is uploaded from ordinary host memory.

use super::Rule;
use crate::audit::WaitKind;
use crate::model::MemoryKind;

pub(super) static RULE: Rule = Rule {
    id: "pageable-upload",
    kinds: &[WaitKind::HostToDeviceWrite],
    headline: "data is uploaded from pageable memory",
    recognised: "an upload of more than 16 bytes from pageable memory.",
    cuda: "The driver stages the data through a buffer of its own; large copies hold the host inside of the \
        copy, small ones in the synchronise after it.",
    waits: "Pageable memory may be moved by the operating system, so the device can't fetch it by itself, and \
        PyTorch synchronises after the copy.",
    see: "batch.to(\"cuda\") of a tensor that was not pinned; torch.tensor(list, device=\"cuda\").",
    pytorch: "DataLoader(pin_memory=True) and .to(device, non_blocking=True); prefetch on a side stream. For \
        tensors made by hand: fill a pinned tensor that is kept (torch.empty(..., pin_memory=True)) and copy \
        from it.",
    rust: "Keep a pool of pinned slices (ctx.alloc_pinned), fill one, memcpy_htod from it; take it again after \
        its event.",
    leave: "Before the loop, and for data that is uploaded once.",
    breaks: "non_blocking=True alone on pageable memory may still block. A pinned buffer that is refilled before \
        its copy has ended sends wrong data: keep two or wait for its event. Pinned memory is taken from the \
        whole machine.",
    fits: |facts| facts.from == MemoryKind::Pageable && facts.is_larger_than_scalar(),
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
                upload(1 << 20, MemoryKind::Pageable).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]),
                upload(1 << 20, MemoryKind::Pageable),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (upload(1 << 20, MemoryKind::Pinned), "blocking-pinned-upload"),
                (upload(8, MemoryKind::Pageable), "scalar-upload"),
                (upload(1 << 20, MemoryKind::Unknown), "host-to-device-write"),
            ],
        );
    }
}
