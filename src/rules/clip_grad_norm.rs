//! Gradient clipping that looks at the norm on the host.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "clip-grad-norm-check",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "gradient clipping checks the norm on the host",
    recognised: "a read of a few bytes from inside of clip_grad.py, with no code of the user between.",
    cuda: "A 1-byte copy to the host (is the norm finite?) and a stream synchronise. Without the check clipping \
        only launches kernels.",
    waits: "The norm is the result of the whole backward pass; looking at it means waiting for that.",
    see: "The read is in clip_grad_norm_ between the backward pass and the optimiser.",
    pytorch: "Leave error_if_nonfinite=False (the default). Scale without a branch: multiply by clamp(max_norm / \
        (norm + eps), max=1). Look at the norm on log steps.",
    rust: "Compute the coefficient in a kernel and let the update kernel multiply by it, whether it is 1 or \
        not.",
    leave: "While hunting a divergence: the check stops at the first bad step.",
    breaks: "A norm that is not finite no longer raises: make the update skip on the device, or check on log \
        steps, else the weights turn to NaN before anybody sees it.",
    fits: |facts| facts.is_scalar() && facts.library_file(&["utils/clip_grad.py"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, read, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[read(1).ops(&["aten::is_nonzero", "aten::item"]).python(&[
                ("/x/site-packages/torch/nn/utils/clip_grad.py", "clip_grad_norm_"),
                ("/home/me/train.py", "train"),
            ])],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (
                    read(1).ops(&["aten::is_nonzero", "aten::item"]).python(&[
                        ("/home/me/clip_grad.py", "clip_grad_norm_"),
                        ("/home/me/train.py", "train"),
                    ]),
                    "branch-on-tensor",
                ),
                (
                    read(4)
                        .ops(&["aten::item", "aten::_local_scalar_dense"])
                        .python(&[("/home/me/train.py", "train")]),
                    "scalar-read",
                ),
            ],
        );
    }
}
