//! Metric libraries that check their inputs by value.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "metric-validation",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "a metric library checks or reads its inputs by value",
    recognised: "a read from inside of torchmetrics or torcheval, with no code of the user between.",
    cuda: "One to several element-size copies to the host with a stream synchronise each, per update of the \
        metric.",
    waits: "Argument checks (is any value NaN, are the labels in range) branch on device data.",
    see: "Several reads in one update() call, below the metric library's own frames.",
    pytorch: "Switch the checks off in the loop: validate_args=False, nan_strategy=\"disable\" or a number. Call \
        compute() on log steps only.",
    rust: "Accumulate sums and counts in a device buffer and divide on log steps.",
    leave: "In evaluation loops, where nobody waits for the throughput, and while the inputs are not trusted \
        yet.",
    breaks: "Bad labels or NaN are no longer found where they enter; validate once per epoch or in a test.",
    fits: |facts| facts.library_file(&["torchmetrics/", "torcheval/"]),
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
                ("/x/site-packages/torchmetrics/aggregation.py", "MeanMetric._cast_and_nan_check_input"),
                ("/home/me/train.py", "train"),
            ])],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[(
                read(1)
                    .ops(&["aten::is_nonzero", "aten::item"])
                    .python(&[("/home/me/metrics.py", "update"), ("/home/me/train.py", "train")]),
                "branch-on-tensor",
            )],
        );
    }
}
