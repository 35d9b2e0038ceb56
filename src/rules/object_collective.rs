//! Python objects sent through the device.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "object-collective",
    kinds: &[WaitKind::DeviceToHostRead, WaitKind::HostToDeviceWrite, WaitKind::StreamSync],
    headline: "a collective sends Python objects through the device",
    recognised: "a copy or synchronise from inside of all_gather_object, broadcast_object_list and their siblings.",
    cuda: "Pickled bytes and their sizes are uploaded, exchanged and read back: several copies with a \
        synchronise each.",
    waits: "The receiver has to know the size before it can make room, and the bytes before it can unpickle \
        them.",
    see: "Two to four waits per call, all below one *_object function of torch.distributed.",
    pytorch: "Send tensors (all_gather_into_tensor) and keep the result on the device; or do it on log steps only; \
        or use a group of the gloo backend for objects, which stays on the CPU.",
    rust: "Exchange fixed-size device buffers with the collective library; keep variable-size host data on a \
        socket or a CPU group.",
    leave: "At start-up, at checkpoints and on log steps.",
    breaks: "A CPU group needs its own set-up on every rank, and a collective that only some ranks reach hangs. A \
        wait that also kept the ranks in step is gone: make sure that nothing relied on it.",
    fits: |facts| {
        facts.library_function(&[
            "all_gather_object",
            "gather_object",
            "broadcast_object_list",
            "scatter_object_list",
            "send_object_list",
            "recv_object_list",
            "_object_to_tensor",
            "_tensor_to_object",
        ])
    },
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
                read(8).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                    ("/x/site-packages/torch/distributed/distributed_c10d.py", "all_gather_object"),
                    ("/home/me/train.py", "train"),
                ]),
                upload(512, MemoryKind::Pageable).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]).python(
                    &[
                        ("/x/site-packages/torch/distributed/distributed_c10d.py", "_object_to_tensor"),
                        ("/home/me/train.py", "train"),
                    ],
                ),
            ],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[(
                read(8).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                    ("/x/site-packages/torch/distributed/distributed_c10d.py", "all_reduce"),
                    ("/home/me/train.py", "train"),
                ]),
                "scalar-read",
            )],
        );
    }
}
