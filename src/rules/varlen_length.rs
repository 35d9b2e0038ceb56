//! Variable-length attention reads its longest sequence.

use super::Rule;
use crate::audit::WaitKind;

pub(super) static RULE: Rule = Rule {
    id: "varlen-max-length",
    kinds: &[WaitKind::DeviceToHostRead],
    headline: "variable-length attention reads the longest sequence from the device",
    recognised: "a read of a few bytes from inside of the helpers that unpad a batch for flash attention.",
    cuda: "An element-size copy to the host and a stream synchronise; nonzero adds one more.",
    waits: "The launch needs max_seqlen, or the number of real tokens, as a host integer, and it is computed \
        from the device-side mask.",
    see: "A read in the forward pass below _get_unpad_data or unpad_input; once per layer if the result is not \
        kept.",
    pytorch: "Compute cu_seqlens and max_seqlen on the CPU where the batch is collated, and pass both in. Or pass \
        an upper bound such as the padded length.",
    rust: "Keep the lengths on the host beside the batch; pass the bound as a kernel argument.",
    leave: "When the mask is really made on the device and no bound is known.",
    breaks: "A max_seqlen that is too small gives wrong attention without an error; one that is too large costs \
        empty blocks.",
    fits: |facts| {
        facts.is_scalar()
            && facts.library_function(&[
                "_get_unpad_data",
                "get_unpad_data",
                "_upad_input",
                "unpad_input",
                "_unpad_input",
                "prepare_fa2_from_position_ids",
                "prepare_fa_kwargs_from_position_ids",
            ])
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
            &[read(4).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                ("/x/site-packages/transformers/modeling_flash_attention_utils.py", "_get_unpad_data"),
                ("/home/me/train.py", "train"),
            ])],
        );
    }

    #[test]
    fn stays_silent_on_its_look_alikes() {
        silent(
            &RULE,
            &[
                (
                    read(4).ops(&["aten::item", "aten::_local_scalar_dense"]).python(&[
                        (
                            "/x/site-packages/transformers/modeling_flash_attention_utils.py",
                            "_flash_attention_forward",
                        ),
                        ("/home/me/train.py", "train"),
                    ]),
                    "scalar-read",
                ),
                (
                    read(4096).ops(&["aten::to", "aten::_to_copy", "aten::copy_"]).python(&[
                        ("/x/site-packages/flash_attn/bert_padding.py", "unpad_input"),
                        ("/home/me/train.py", "train"),
                    ]),
                    "blocking-download",
                ),
            ],
        );
    }
}
