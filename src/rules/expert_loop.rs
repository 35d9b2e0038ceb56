//! A loop over experts that asks the device about each one.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "expert-loop",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "a loop over experts asks the device which tokens each one has",
    recognised: "at least two reads of a few bytes in one step, under nonzero, a condition or an item read, where a \
        range or a function or file of the user's is named expert, experts or moe.",
    cuda: "For each expert a count or a flag is copied to the host with a stream synchronise.",
    waits: "Python decides for every expert whether it has work and how much.",
    see: "The number of waits per step is a multiple of experts times layers.",
    pytorch: "Read all counts of a layer at once (bincount(...).tolist(): one wait), or keep them on the device: \
        sort tokens by expert and use a grouped matrix product (torch._grouped_mm, Triton, MegaBlocks).",
    rust: "Sort by expert on the device and hand the offsets to a grouped kernel by pointer.",
    leave: "With a few experts in a small model where one read per layer is lost in the noise; then read once, \
        not once per expert.",
    breaks: "Launching every expert, also the empty ones, costs empty launches. The order of sums changes, and \
        with it the last bits.",
    fits: |facts| {
        facts.is_scalar()
            && facts.site.most_per_step >= 2
            && facts.op(&[
                "aten::nonzero",
                "aten::is_nonzero",
                "aten::item",
                "aten::where",
                "aten::_local_scalar_dense",
            ])
            && facts.named(&["expert", "experts", "moe"])
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
            &[read(8)
                .ops(&["aten::where", "aten::nonzero"])
                .python(&[("/home/me/moe.py", "forward"), ("/home/me/train.py", "train")])
                .times(4)],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (
                    read(8)
                        .ops(&["aten::where", "aten::nonzero"])
                        .python(&[("/home/me/moe.py", "forward"), ("/home/me/train.py", "train")]),
                    "mask-indexing",
                ),
                (
                    read(8)
                        .ops(&["aten::where", "aten::nonzero"])
                        .python(&[("/home/me/model.py", "forward"), ("/home/me/train.py", "train")])
                        .times(4),
                    "mask-indexing",
                ),
            ],
        );
    }
}
