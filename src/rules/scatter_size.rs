//! Scatter helpers that find their own output size.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "scatter-output-size",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "a scatter helper reads its output size from the device",
    recognised: "a read of one element from inside of torch_scatter, or of maybe_num_nodes of torch_geometric.",
    cuda: "index.max() and an 8-byte copy to the host with a stream synchronise.",
    waits: "The size of the output was not given, so it is taken from the largest index, which is on the device.",
    see: "One read per message-passing layer.",
    pytorch: "Pass dim_size= (or num_nodes=, size=) which the host knows from the batch.",
    rust: "Pass the number of segments from the host.",
    leave: "When the number of segments is really not known on the host.",
    breaks: "A size that is too small loses or overwrites rows; assert it in the data loader.",
    fits: |facts| {
        facts.is_scalar()
            && (facts.library_file(&["torch_scatter/"])
                || facts.library_function(&["maybe_num_nodes", "maybe_dim_size"]))
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
            &[read(8).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                ("/x/site-packages/torch_scatter/scatter.py", "scatter_sum"),
                ("/home/me/train.py", "train"),
            ])],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[(
                read(8).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                    ("/x/site-packages/torch_geometric/nn/conv/gcn_conv.py", "gcn_norm"),
                    ("/home/me/train.py", "train"),
                ]),
                "scalar-read",
            )],
        );
    }
}
