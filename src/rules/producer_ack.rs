//! Acknowledging data to its producer on the training thread.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "producer-ack",
    kinds: &[
        WaitKind::DeviceToHostRead,
        WaitKind::HostToDeviceWrite,
        WaitKind::StreamSync,
        WaitKind::EventSync,
        WaitKind::DeviceSync,
    ],
    headline: "data is acknowledged to its producer on the training thread",
    recognised: "a wait in a function, file or range of the user's that is named ack, acks or acknowledge.",
    cuda: "Sizes and payload go up to the device, through a collective, and are read back; each way is a copy \
        and a synchronise.",
    waits: "The acknowledgement may only be sent when the data was used, and the thread that trains waits for \
        that itself.",
    see: "A fixed number of waits in every step, log step or not, in the acknowledging code.",
    pytorch: "Record an event behind the step and let another thread wait for it and acknowledge. Gather ids \
        through a CPU group (gloo), not through the device.",
    rust: "stream.record_event, then event.synchronize() and the commit on a thread of its own; keep ids on the \
        host, where they came from.",
    leave: "When the producer needs the answer before the next batch.",
    breaks: "A crash between use and acknowledgement delivers the data again: the consumer has to bear that. \
        Acknowledgements of several steps must not overtake each other.",
    fits: |facts| facts.named(&["ack", "acks", "acknowledge", "acknowledgement"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, read, silent, upload};
    use super::*;
    use crate::model::MemoryKind;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[
                read(8).ranges(&["acks"]),
                upload(512, MemoryKind::Pageable)
                    .python(&[("/home/me/queue.py", "send_ack"), ("/home/me/train.py", "train")]),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(&RULE, &[(read(8).ranges(&["back"]), "scalar-read")]);
    }
}
