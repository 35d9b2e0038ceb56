//! The recording tool synchronises; the program does not.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "profiler-wait",
    kinds: &[WaitKind::DeviceSync, WaitKind::StreamSync, WaitKind::EventSync],
    headline: "the profiler itself synchronises the device",
    recognised: "a synchronise that the recording tool makes when it starts, steps or stops, marked so by the \
        importer.",
    cuda: "cudaDeviceSynchronize from inside of the profiler.",
    waits: "The tool waits for all work in flight so that its records are complete.",
    see: "The report lists it as made by the profiler; it goes away with the profiler.",
    pytorch: "Nothing to fix: it is in no run without the profiler. Profile fewer steps if it disturbs the \
        picture.",
    rust: "Nothing to fix: it is in no run without the profiler.",
    leave: "Always.",
    breaks: "Nothing: there is no fix.",
    fits: |facts| facts.site.by_recorder,
};

#[cfg(test)]
mod tests {
    use super::super::sample::{call, fires, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(&RULE, &[call("cudaDeviceSynchronize").by_recorder()]);
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(&RULE, &[(call("cudaDeviceSynchronize"), "device-sync")]);
    }
}
