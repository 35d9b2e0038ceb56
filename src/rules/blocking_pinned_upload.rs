//! Pinned memory, but the copy blocks all the same.

use super::Rule;
use crate::audit::WaitKind;
use crate::model::MemoryKind;

pub(super) static RULE: Rule = Rule {
    id: "blocking-pinned-upload",
    kinds: &[WaitKind::HostToDeviceWrite],
    headline: "an upload from pinned memory is waited for",
    recognised: "an asynchronous upload from pinned memory with a stream synchronise behind it.",
    cuda: "The copy itself doesn't wait; the synchronise after it does.",
    waits: "The copy was asked for in its blocking form: .to(\"cuda\") without non_blocking=True.",
    see: "A pinned tensor and a copy followed by cudaStreamSynchronize.",
    pytorch: ".to(device, non_blocking=True) on the same pinned tensor. Prefetch the next batch on a side stream.",
    rust: "Drop the synchronise: work queued later on the same stream comes after the copy anyway.",
    leave: "When the host must reuse the buffer at once and there is only one of it.",
    breaks: "The pinned buffer must not be written again before the copy has ended: keep two, or wait for the \
        event of the copy before refilling. On a side stream: wait_stream, and record_stream on the tensor.",
    fits: |facts| facts.from == MemoryKind::Pinned && facts.site.apis.len() == 2,
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
                upload(4096, MemoryKind::Pinned).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]),
                upload(4096, MemoryKind::Pinned),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (
                    upload(4096, MemoryKind::Pageable).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]),
                    "pageable-upload",
                ),
                (upload(4096, MemoryKind::Unknown), "host-to-device-write"),
            ],
        );
    }
}
