//! A tensor is printed.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "print-tensor",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "a tensor is printed or formatted",
    recognised: "a read from inside of torch/_tensor_str.py.",
    cuda: "Several kernels and copies to the host with a stream synchronise each: formatting looks at all \
        values.",
    waits: "The text needs the values.",
    see: "Several reads below a print, a log message or an f-string.",
    pytorch: "Remove it from the loop, or print on log steps; print shapes, which are on the host, instead of \
        values.",
    rust: "Print on log steps from a copy that was read anyway.",
    leave: "On log steps and while debugging.",
    breaks: "Nothing but the output.",
    fits: |facts| facts.library_file(&["torch/_tensor_str.py"]),
};

#[cfg(test)]
mod tests {
    use super::super::sample::{fires, read, silent};
    use super::*;

    #[test]
    fn fires_on_its_idiom() {
        fires(
            &RULE,
            &[read(4).ops(&["aten::nonzero"]).python(&[
                ("/x/site-packages/torch/_tensor_str.py", "_Formatter.__init__"),
                ("/x/site-packages/torch/_tensor.py", "Tensor.__repr__"),
                ("/home/me/train.py", "train"),
            ])],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[(
                read(4).ops(&["aten::nonzero"]).python(&[
                    ("/x/site-packages/torch/_tensor.py", "Tensor.__repr__"),
                    ("/home/me/train.py", "train"),
                ]),
                "mask-indexing",
            )],
        );
    }
}
