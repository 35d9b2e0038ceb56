//! torch.cuda.synchronize() in the loop.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "leftover-synchronize",
    kinds: &[WaitKind::DeviceSync, WaitKind::StreamSync],
    headline: "torch.cuda.synchronize() is called during the step",
    recognised: "a device or stream synchronise from inside of a synchronize function of torch/cuda.",
    cuda: "cudaDeviceSynchronize (or cudaStreamSynchronize): all work has to end.",
    waits: "That is what it is for. In a training loop it is most often left over from timing or debugging.",
    see: "One call per step in the user's own code, often beside time.time().",
    pytorch: "Remove it. For timing record CUDA events and read elapsed_time on a log step; before reading a \
        result a copy to the host waits by itself.",
    rust: "Remove ctx.synchronize() and stream.synchronize() from the loop; time with events that are read \
        later.",
    leave: "Around a benchmark's timed region, and before the process ends.",
    breaks: "Host clocks around the region then time the launches only. If another stream or library relied on \
        the order, say the order with events: stream.wait_event(event).",
    fits: |facts| facts.library_function(&["synchronize"]) && facts.library_file(&["torch/cuda/"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{call, fires, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[call("cudaDeviceSynchronize").python(&[
                ("/x/site-packages/torch/cuda/__init__.py", "synchronize"),
                ("/home/me/train.py", "train"),
            ])],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[(
                call("cudaDeviceSynchronize")
                    .python(&[("/home/me/timing.py", "synchronize"), ("/home/me/train.py", "train")]),
                "device-sync",
            )],
        );
    }
}
