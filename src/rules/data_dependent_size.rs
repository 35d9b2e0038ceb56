//! An operator whose output size depends on its input.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "data-dependent-size",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "an operator reads its output size from the device",
    recognised: "a read of a few bytes under unique, repeat_interleave, bincount or one_hot.",
    cuda: "A size or a maximum is copied to the host (4 to 8 bytes) and the stream is synchronised before the \
        result can be allocated.",
    waits: "The shape of the result depends on values that are on the device.",
    see: "One read per call of the operator, in the middle of the forward pass.",
    pytorch: "Say the size: repeat_interleave(..., output_size=n), one_hot(x, num_classes=n), bincount replaced by \
        zeros(n).scatter_add_(...). Move unique to the data loader.",
    rust: "Allocate for an upper bound and keep the real size on the device.",
    leave: "When no bound is known, once per step.",
    breaks: "A host-known size that differs from the device's gives wrong rows or an error that surfaces later: \
        check it once in a debug run.",
    fits: |facts| {
        facts.is_scalar()
            && facts.op(&[
                "aten::unique_dim",
                "aten::unique_consecutive",
                "aten::_unique",
                "aten::_unique2",
                "aten::repeat_interleave",
                "aten::bincount",
                "aten::one_hot",
            ])
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
                read(8).ops(&["aten::repeat_interleave"]),
                read(8).ops(&["aten::one_hot", "aten::item", "aten::_local_scalar_dense"]),
                read(4).ops(&["aten::_unique2"]),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (read(8).ops(&["aten::max", "aten::item"]), "scalar-read"),
                (read(512).ops(&["aten::bincount"]), "device-to-host-read"),
            ],
        );
    }
}
