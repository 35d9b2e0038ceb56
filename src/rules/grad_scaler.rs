//! GradScaler reads whether a gradient overflowed.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "grad-scaler-check",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "the gradient scaler reads whether a gradient overflowed",
    recognised: "a read of a few bytes from inside of grad_scaler.py, with no code of the user between.",
    cuda: "A 4-byte copy to the host of found_inf and a stream synchronise, once per optimiser and device.",
    waits: "The flag is the result of the backward pass, so the host has to wait for all of it before it can \
        decide whether to step.",
    see: "The read is in GradScaler.step, after the backward pass; the host queues nothing while the device \
        works it off.",
    pytorch: "Train in bfloat16 without a scaler where the hardware has it. Else take an optimiser that gets \
        found_inf and the scale as tensors and skips on the device (fused=True for Adam, AdamW and SGD).",
    rust: "Keep the overflow flag on the device and let the update kernel multiply by it, or return early on \
        it; read it on log steps only.",
    leave: "With an optimiser that has no fused form, in a run that is not host-bound: one read per step.",
    breaks: "bfloat16 has fewer bits of mantissa. A fused optimiser rounds differently from the loop over \
        tensors, and hooks that look at found_inf on the host no longer see it.",
    fits: |facts| facts.is_scalar() && facts.library_file(&["amp/grad_scaler.py"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, read, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[read(4).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                ("/x/site-packages/torch/amp/grad_scaler.py", "GradScaler._maybe_opt_step"),
                ("/x/site-packages/torch/amp/grad_scaler.py", "GradScaler.step"),
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
                    read(4).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                        ("/home/me/train.py", "closure"),
                        ("/x/site-packages/torch/amp/grad_scaler.py", "GradScaler.step"),
                        ("/home/me/train.py", "train"),
                    ]),
                    "scalar-read",
                ),
                (
                    read(4096).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]).python(&[
                        ("/x/site-packages/torch/amp/grad_scaler.py", "GradScaler.state_dict"),
                        ("/home/me/train.py", "train"),
                    ]),
                    "blocking-download",
                ),
            ],
        );
    }
}
