//! A tensor is copied to the host and waited for.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "blocking-download",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "a tensor is copied to the host and waited for",
    recognised: "a copy to the host under aten::_to_copy, aten::to or aten::copy_.",
    cuda: "An asynchronous copy to pageable (or pinned) memory and a stream synchronise; to pageable memory the \
        copy alone waits.",
    waits: "The caller gets a tensor that it may read at once, so the copy has to have ended, and everything \
        before it.",
    see: ".cpu(), .numpy(), .tolist(), .to(\"cpu\"), host_tensor.copy_(device_tensor).",
    pytorch: "Keep it on the device; or copy into a reused pinned tensor with non_blocking=True, record an event, \
        and read after event.query() says yes, a step later.",
    rust: "memcpy_dtoh into a PinnedHostSlice instead of clone_dtoh into a Vec; keep two slices and read the \
        older one.",
    leave: "For checkpoints and evaluation output; on log steps.",
    breaks: "Reading a non_blocking copy before its event gives old bytes without any error.",
    fits: |facts| facts.op(&["aten::_to_copy", "aten::to", "aten::copy_"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, read, silent, upload};
    use super::*;
    use crate::model::MemoryKind;

    #[test]
    fn fires_on_its_idiom() {
        fires(&RULE, &[read(4096).ops(&["aten::to", "aten::_to_copy", "aten::copy_"])]);
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (read(4).ops(&["aten::item", "aten::_local_scalar_dense"]), "scalar-read"),
                (read(4096), "device-to-host-read"),
                (
                    upload(4096, MemoryKind::Pageable).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]),
                    "pageable-upload",
                ),
            ],
        );
    }
}
