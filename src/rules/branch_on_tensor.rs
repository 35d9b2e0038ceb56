//! Python branches on a device value.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "branch-on-tensor",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "Python branches on a value that is on the device",
    recognised: "a read of one element under aten::is_nonzero.",
    cuda: "The element (often 1 byte) is copied to the host and the stream is synchronised.",
    waits: "`if tensor:`, `bool(tensor)`, `while`, `assert`, `any(...)`: the host can't go on without the \
        answer.",
    see: "An `if` or `assert` on a tensor; checks for NaN such as `if torch.isnan(loss).any()`.",
    pytorch: "Decide on the device: torch.where(condition, a, b), or multiply by the condition. For a check that \
        should never fire: accumulate it into a device flag and read that on log steps; torch._assert_async \
        for assertions.",
    rust: "Let the kernel branch; carry a device-side flag through the step.",
    leave: "When the branch saves much more than one round trip, or on log steps.",
    breaks: "Both branches are computed. A check that is read later stops the run some steps later: keep the last \
        good checkpoint.",
    fits: |facts| facts.is_scalar() && facts.op(&["aten::is_nonzero"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, read, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(&RULE, &[read(1).ops(&["aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"])]);
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (read(1).ops(&["aten::item", "aten::_local_scalar_dense"]), "scalar-read"),
                (read(8).ops(&["aten::is_nonzero", "aten::nonzero"]), "mask-indexing"),
            ],
        );
    }
}
