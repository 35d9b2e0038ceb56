//! The optimiser reads its own state or learning rate.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "optimizer-scalar-read",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "the optimiser reads a scalar of its own from the device",
    recognised: "a read of one element from inside of torch/optim, or directly in an Optimizer.step range.",
    cuda: "An element-size copy to the host and a stream synchronise, once per parameter or per group.",
    waits: "The step count or the learning rate is a device tensor, and the optimiser computes with it on the \
        host.",
    see: "The range is Optimizer.step#NAME; several reads per step as a rule, one for each group or parameter.",
    pytorch: "Make the optimiser work on the device: capturable=True or fused=True. Or keep the learning rate a \
        Python float and the step counts on the CPU, where they are by default.",
    rust: "Keep the step count on the host and pass the bias corrections as kernel arguments; or keep it on the \
        device and let the kernel read it through a pointer.",
    leave: "Never worth keeping in a training loop.",
    breaks: "A fused optimiser rounds differently. A state dict that was saved with device-side steps moves them \
        back when it is loaded: check after a resume.",
    fits: |facts| {
        facts.is_scalar()
            && (facts.library_file(&["torch/optim/"])
                || (facts.innermost_range("Optimizer.step#")
                    && !facts.site.python.iter().any(|frame| frame.user)))
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
                read(4)
                    .ops(&["aten::item", "aten::_local_scalar_dense"])
                    .ranges(&["Optimizer.step#AdamW.step"]),
                read(4).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                    ("/x/site-packages/torch/optim/adamw.py", "_single_tensor_adamw"),
                    ("/x/site-packages/torch/optim/optimizer.py", "wrapper"),
                    ("/home/me/train.py", "train"),
                ]),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (
                    read(4)
                        .ops(&["aten::item", "aten::_local_scalar_dense"])
                        .ranges(&["Optimizer.step#AdamW.step"])
                        .python(&[
                            ("/home/me/train.py", "closure"),
                            ("/x/site-packages/torch/optim/lbfgs.py", "LBFGS.step"),
                            ("/home/me/train.py", "train"),
                        ]),
                    "scalar-read",
                ),
                (
                    read(4).ops(&["aten::item", "aten::_local_scalar_dense"]).ranges(&["optimizer"]),
                    "scalar-read",
                ),
            ],
        );
    }
}
