//! A single value is read back.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "scalar-read",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "a single value is read from the device",
    recognised: "a read of one element (at most 16 bytes) under aten::item, or in a program without PyTorch.",
    cuda: "One element is copied to the host and the stream is synchronised.",
    waits: "All work that was queued on the stream before the read has to end; until then the host queues \
        nothing. The cost is that work, not the few bytes.",
    see: ".item(), float(t), int(t), a metric or progress bar fed in every step. Removing one moves the bill \
        to the next wait until the last is gone.",
    pytorch: "Accumulate detached tensors on the device and read them once, stacked, on log steps. Sizes and \
        indices: take an upper bound that the host knows. For a value of the last step: copy to pinned \
        memory with non_blocking=True and look at it one step later.",
    rust: "Add into a device buffer and read it on log steps. For the value of an earlier step: memcpy_dtoh \
        into a PinnedHostSlice and look at it a step later; as_slice() waits for its event only.",
    leave: "On log steps. Or when the host truly has to know before it can go on, such as in early stopping.",
    breaks: "A value read later is of an earlier step. A detached sum over many steps in low precision loses \
        digits: accumulate in float32. A pinned buffer must not be reused before its copy has ended.",
    fits: |facts| {
        facts.is_scalar() && (facts.op(&["aten::item", "aten::_local_scalar_dense"]) || facts.is_bare())
    },
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, read, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[
                read(4).ops(&["aten::item", "aten::_local_scalar_dense"]),
                read(4),
                read(16).ops(&["aten::item"]),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (read(4).ops(&["aten::nonzero"]), "mask-indexing"),
                (read(4096), "device-to-host-read"),
                (read(4).in_framework(), "device-to-host-read"),
                (read(4).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]), "blocking-download"),
                (read(4).python(&[("/home/me/train.py", "train")]), "device-to-host-read"),
            ],
        );
    }
}
