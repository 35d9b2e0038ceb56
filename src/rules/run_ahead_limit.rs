//! A limit on how far the host runs ahead.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "run-ahead-limit",
    kinds: &[WaitKind::EventSync, WaitKind::StreamSync],
    headline: "a limit on run-ahead makes the host wait for earlier work",
    recognised: "an event or stream synchronise in a function or range that names itself so (limiter, throttle, \
        backpressure), or in FSDP's own limiter.",
    cuda: "cudaEventSynchronize on an event of an earlier step or layer.",
    waits: "On purpose: memory that work in flight holds is bounded that way.",
    see: "The event was recorded well before the wait; the device has work queued behind it and stays busy.",
    pytorch: "Usually nothing. If the device runs dry, let more be in flight (limit_all_gathers=False, a deeper \
        queue).",
    rust: "Usually nothing. Wait for the event of N steps back, with N of 2 or more.",
    leave: "When the device stays busy while the host waits: then it costs nothing. Give it an allowance: \
        event-sync = 1 under [budget.kinds].",
    breaks: "Without a limit the allocator's peak grows with the run-ahead, up to running out of memory.",
    fits: |facts| {
        facts.library_file(&["fsdp/_limiter_utils.py"])
            || facts.library_function(&["dequeue_if_needed"])
            || (facts.site.kind == WaitKind::EventSync
                && facts.named(&["limiter", "ratelimit", "throttle", "backpressure"]))
    },
};

#[cfg(test)]
mod tests {
    use super::super::sample::{call, fires, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[
                call("cudaEventSynchronize").python(&[
                    (
                        "/x/site-packages/torch/distributed/fsdp/_limiter_utils.py",
                        "_FreeEventQueue.dequeue_if_needed",
                    ),
                    ("/home/me/train.py", "train"),
                ]),
                call("cuEventSynchronize").ranges(&["throttle"]),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (call("cudaEventSynchronize").ranges(&["unlimited"]), "event-sync"),
                (call("cudaStreamSynchronize").ranges(&["throttle"]), "stream-sync"),
            ],
        );
    }
}
