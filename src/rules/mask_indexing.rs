//! Selecting by a boolean mask reads the number of hits.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "mask-indexing",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "selecting by a boolean mask reads the number of hits back",
    recognised: "a read of 4 or 8 bytes under aten::nonzero or aten::masked_select.",
    cuda: "A kernel counts the hits, the count is copied to the host (4 to 8 bytes), the stream is \
        synchronised, then the selection is launched.",
    waits: "The shape of the result is the count, and shapes are on the host.",
    see: "x[mask], x[mask] = tensor, nonzero, masked_select, torch.where(mask) with one argument, argwhere.",
    pytorch: "Keep the shape: torch.where(mask, a, b), masked_fill, multiply by the mask; pad to a fixed size and \
        carry the mask on; x[mask] = number is fine (it is masked_fill). nonzero_static(size=...) where a \
        bound is known.",
    rust: "Write compact rows with a prefix sum into a buffer of the largest size and keep the count on the \
        device for the next kernel.",
    leave: "When the selected part is much smaller and later work is dear: one wait may be cheaper than dense \
        work.",
    breaks: "Masked arithmetic spreads NaN from masked places (0 * NaN): use where. Means must divide by the \
        mask's sum. A fixed size that is too small drops rows without an error.",
    fits: |facts| {
        facts.is_scalar()
            && facts.op(&["aten::nonzero", "aten::masked_select", "aten::nonzero_numpy", "aten::argwhere"])
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
                read(4).ops(&["aten::nonzero"]),
                read(8).ops(&["aten::index", "aten::nonzero"]),
                read(8).ops(&["aten::masked_select", "aten::nonzero"]),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (read(4).ops(&["aten::item", "aten::_local_scalar_dense"]), "scalar-read"),
                (read(4096).ops(&["aten::nonzero"]), "device-to-host-read"),
            ],
        );
    }
}
