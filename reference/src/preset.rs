//! Presets: named sizes of everything.

use crate::model::{Config, DPACE_ALPHA, DominoHead, LossType, Precision};
use crate::rollout::target::TargetShape;
use clap::ValueEnum;

/// A named set of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Two small layers: 60 steps take seconds on the emulated device
    Tiny,
    /// Four layers, blocks of 16: minutes on the emulated device
    Small,
    /// The published recipe: 5 layers, H 4096, V 151936, 256 anchors of 16. For a GPU
    #[value(name = "qwen3-8b")]
    Qwen3Eight,
}

/// What a preset fixes; `--batch`, `--sequence` and the like override single numbers.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The draft model. Its vocabulary and mask token are those of the tokenizer and the target.
    pub draft: Config,
    /// The stand-in target, without its vocabulary.
    pub target: TargetShape,
    /// Sequences per micro-batch.
    pub batch: usize,
    /// Tokens per sequence.
    pub sequence: usize,
    /// Optimiser steps.
    pub steps: u32,
    /// A log step every so many.
    pub log_every: u32,
    /// Peak learning rate.
    pub learning_rate: f32,
}

impl Preset {
    /// The sizes, for a vocabulary of `vocabulary` ids with this mask token.
    pub fn sizes(self, vocabulary: usize, mask_token: i32) -> Sizes {
        let draft =
            |hidden: usize, heads: usize, kv_heads: usize, head_dim: usize, mlp: usize, layers: usize| {
                Config {
                    hidden_size: hidden,
                    num_attention_heads: heads,
                    num_key_value_heads: kv_heads,
                    head_dim,
                    intermediate_size: mlp,
                    num_hidden_layers: layers,
                    num_context_features: 2,
                    block_size: 8,
                    num_anchors: 8,
                    vocab_size: vocabulary,
                    mask_token_id: mask_token,
                    loss_decay_gamma: Some(7.0),
                    rms_norm_eps: 1e-6,
                    rope_theta: 10_000.0,
                    layer_types: Vec::new(),
                    sliding_window: None,
                    loss_type: LossType::Dflash,
                    dpace_alpha: DPACE_ALPHA,
                    domino: None,
                }
            };
        let target =
            |hidden: usize, heads: usize, kv_heads: usize, head_dim: usize, mlp: usize, layers: usize| {
                TargetShape {
                    vocabulary,
                    hidden,
                    layers,
                    heads,
                    kv_heads,
                    head_dim,
                    mlp,
                    rope_theta: 10_000.0,
                    norm_epsilon: 1e-6,
                }
            };
        match self {
            Preset::Tiny => Sizes {
                draft: draft(64, 4, 2, 16, 128, 2),
                target: target(64, 4, 2, 16, 128, 5),
                batch: 2,
                sequence: 64,
                steps: 60,
                log_every: 10,
                learning_rate: 1e-2,
            },
            Preset::Small => Sizes {
                draft: Config {
                    num_context_features: 3,
                    block_size: 16,
                    num_anchors: 16,
                    ..draft(256, 8, 4, 32, 768, 4)
                },
                target: target(256, 8, 4, 32, 512, 8),
                batch: 2,
                sequence: 256,
                steps: 200,
                log_every: 20,
                learning_rate: 3e-3,
            },
            Preset::Qwen3Eight => Sizes {
                draft: Config {
                    num_context_features: 5,
                    block_size: 16,
                    num_anchors: 256,
                    rope_theta: 1_000_000.0,
                    ..draft(4096, 32, 8, 128, 12288, 5)
                },
                // As wide as the real target, so that the features have the published shape, but thin: host threads have
                // to run it. Real features come from --features or --target.
                target: target(4096, 1, 1, 64, 64, 8),
                batch: 2,
                sequence: 768,
                steps: 500,
                log_every: 50,
                learning_rate: 6e-4,
            },
        }
    }

    /// The operands of matrix products that go with the sizes.
    pub fn precision(self) -> Precision {
        match self {
            Preset::Tiny | Preset::Small => Precision::F32,
            Preset::Qwen3Eight => Precision::Bf16,
        }
    }

    /// The Domino head that goes with the sizes: shifted labels, one slot left uncorrected, as published.
    pub fn domino_head(self) -> DominoHead {
        let (emb_dim, gru_hidden_dim) = match self {
            Preset::Tiny => (16, 32),
            Preset::Small => (64, 128),
            Preset::Qwen3Eight => (256, 1024),
        };
        DominoHead { emb_dim, gru_hidden_dim, shift_label: true, pure_draft_prefix_len: 1 }
    }

    /// The vocabulary that the recipe was published with, used where the tokenizer's is smaller.
    pub fn published_vocabulary(self) -> usize {
        match self {
            Preset::Tiny | Preset::Small => 0,
            Preset::Qwen3Eight => 151_936,
        }
    }
}

/// What a run needs, from its shapes alone: printed before a large run starts, so that it fails early and with a reason.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// Trainable parameters.
    pub parameters: f64,
    /// fp32 weights, gradients and AdamW's two moments, GiB.
    pub weights_gib: f64,
    /// The frozen embedding table and LM head, GiB.
    pub frozen_gib: f64,
    /// With bf16 operands: rounded weights, LM head, and room for two rounded operands, GiB.
    pub rounded_gib: f64,
    /// What the forward pass keeps, its gradients, and a chunk of logits, GiB.
    pub activations_gib: f64,
    /// Batches on the device; as much again is page-locked on the host. GiB.
    pub batches_gib: f64,
    /// Arithmetic of one micro-batch, forward and backward.
    pub step_tflop: f64,
    /// The same as the published run counted its own: three times the forward pass, whose attention counts masked scores too.
    pub counted_tflop: f64,
}

impl Estimate {
    /// All device memory.
    pub fn total_gib(&self) -> f64 {
        self.weights_gib + self.frozen_gib + self.rounded_gib + self.activations_gib + self.batches_gib
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "needs   about {:.0} GiB on the device: {:.1} weights, gradients and moments of {:.2} G parameters in fp32, \
             {:.1} frozen tables, {:.1} rounded copies, {:.1} activations, {:.1} batches; about {:.0} TFLOP a micro-batch \
             ({:.0} as three dense forward passes)",
            self.total_gib(),
            self.weights_gib,
            self.parameters / 1e9,
            self.frozen_gib,
            self.rounded_gib,
            self.activations_gib,
            self.batches_gib,
            self.step_tflop,
            self.counted_tflop
        )
    }
}

/// Estimates memory and arithmetic for micro-batches of `batch` sequences of `sequence` tokens with `slots` of them loaded.
pub fn estimate(
    config: &Config,
    precision: Precision,
    batch: usize,
    sequence: usize,
    slots: usize,
) -> Estimate {
    let f = |n: usize| n as f64;
    let (h, v, mlp) = (f(config.hidden_size), f(config.vocab_size), f(config.intermediate_size));
    let (q, kv) = (f(config.query_width()), f(config.key_value_width()));
    let (layers, taps) = (f(config.num_hidden_layers), f(config.num_context_features));
    let context = f(batch * sequence);
    let draft = f(config.num_anchors * config.block_size);
    let rows = f(batch) * draft;
    let (e, g) = config.domino.map_or((0.0, 0.0), |head| (f(head.emb_dim), f(head.gru_hidden_dim)));
    let has_head = if config.domino.is_some() { 1.0 } else { 0.0 };

    let layer = 2.0 * h * q + 2.0 * h * kv + 3.0 * h * mlp;
    let head = 3.0 * g * (h + g) + e * (h + g) + v * e;
    let parameters = taps * h * h + layers * layer + head;
    // As `model/workspace.rs` lays it out. Per draft row of a layer: inputs and normed inputs of both halves, queries before
    // and after norm and mixed heads, keys twice and values, three MLP vectors. Then, once, their gradients.
    let per_layer = 4.0 * h + 3.0 * q + 3.0 * kv + 3.0 * mlp;
    let once = 6.0 * h + 3.0 * q + 3.0 * kv + 3.0 * mlp;
    let domino_rows = has_head * (h + 2.0 * (h + g)) + 15.0 * g + 4.0 * e;
    let logits = draft.min((f(64 << 20) / v).max(2.0 * f(config.block_size))) * v;
    let kept_per_context = 4.0 * h + (layers + 1.0) * 3.0 * kv;
    let operand = (rows * mlp.max(q).max(h + g).max(3.0 * g)).max(context * taps * h).max(logits);

    let dense = 2.0 * rows * (layers * layer + head) + 2.0 * context * (taps * h * h + layers * 2.0 * h * kv);
    let attention = |seen: f64| 4.0 * rows * seen * q * layers;
    let lm_head = 2.0 * rows * v * h;
    let body = dense + attention(f(sequence) / 2.0 + f(config.block_size));
    let gib = |floats: f64| floats * 4.0 / f64::from(1 << 30);
    Estimate {
        parameters,
        weights_gib: gib(4.0 * parameters),
        frozen_gib: gib(2.0 * v * h),
        rounded_gib: match precision {
            Precision::F32 => 0.0,
            Precision::Bf16 => gib((parameters + v * h + 2.0 * operand) / 2.0),
        },
        activations_gib: gib(rows * (layers * per_layer + once + domino_rows)
            + context * kept_per_context
            + logits * (1.0 + has_head)
            + v * e),
        batches_gib: gib(f(slots) * context * (taps * h + 2.0)),
        // Backward costs the body twice over, and the frozen head once: it needs no gradient of its own.
        step_tflop: (3.0 * body + 2.0 * lm_head) / 1e12,
        counted_tflop: 3.0 * (dense + attention(f(sequence) + draft) + lm_head) / 1e12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Device};
    use crate::model::{Frozen, Model};

    #[test]
    fn every_preset_is_a_valid_configuration() {
        for preset in Preset::value_variants() {
            let sizes = preset.sizes(preset.published_vocabulary().max(264), 257);
            sizes.draft.validate().unwrap();
            assert_eq!(sizes.draft.hidden_size, sizes.target.hidden);
            assert!(sizes.sequence > sizes.draft.block_size);
        }
    }

    /// Published: 211 ms for two samples on an H200 at 43.5 % of its 989.5 TFLOP/s, about 45 TFLOP a sample; counted as three
    /// forward passes by a counter that sees a dense attention.
    #[test]
    fn the_published_shapes_cost_what_was_published() {
        let mut draft = Preset::Qwen3Eight.sizes(151_936, 0).draft;
        draft.domino = Some(Preset::Qwen3Eight.domino_head());
        let one = estimate(&draft, Precision::Bf16, 1, 768, 3);
        let published = 0.211 / 2.0 * 0.435 * 989.5;
        assert!((one.counted_tflop / published - 1.0).abs() < 0.03, "{} {published}", one.counted_tflop);
        assert!(one.step_tflop < one.counted_tflop);
        let recipe = estimate(&draft, Precision::Bf16, 2, 768, 3);
        assert!((30.0..60.0).contains(&recipe.total_gib()), "{recipe}");
    }

    /// The estimate against what is allocated: the in-process device counts what the model asks for.
    #[test]
    fn the_estimate_is_close_to_what_a_model_allocates() {
        for (preset, domino) in [(Preset::Small, false), (Preset::Small, true)] {
            let sizes = preset.sizes(264, 257);
            let mut draft = sizes.draft;
            draft.domino = domino.then(|| preset.domino_head());
            let device = Device::in_process();
            let table = draft.vocab_size * draft.hidden_size;
            let before = device.allocated_bytes();
            let frozen = Frozen {
                embed_tokens: Buffer::zeros(&device, table).unwrap(),
                lm_head: Buffer::zeros(&device, table).unwrap(),
            };
            let model =
                Model::new(&device, draft.clone(), sizes.batch, sizes.sequence, frozen, Precision::Bf16, 0)
                    .unwrap();
            let found = (device.allocated_bytes() - before) as f64 / f64::from(1 << 30);
            let estimate = estimate(&draft, Precision::Bf16, sizes.batch, sizes.sequence, 0);
            // The optimiser's two moments are not the model's.
            let expected = estimate.total_gib() - estimate.weights_gib / 2.0;
            assert!((found / expected - 1.0).abs() < 0.1, "{found} GiB, {estimate}");
            drop(model);
        }
    }
}
