//! The sizes of a model and of one micro-batch.

use serde::{Deserialize, Serialize};

/// Shape and constants of a draft model, as a golden file's `config` metadata spells them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// H, the width of the draft and of the target's hidden states.
    pub hidden_size: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; each serves `num_attention_heads / num_key_value_heads` query heads.
    pub num_key_value_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// L, draft layers.
    pub num_hidden_layers: usize,
    /// T, target layers whose hidden states are concatenated.
    pub num_context_features: usize,
    /// B, slots per block.
    pub block_size: usize,
    /// N, most anchors per sequence.
    pub num_anchors: usize,
    /// V.
    pub vocab_size: usize,
    /// The token that fills unknown slots.
    pub mask_token_id: i32,
    /// Decay of the loss weights along a block; none: all weights 1.
    pub loss_decay_gamma: Option<f32>,
    /// Added to the mean square in every RMS norm.
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// How each layer attends; empty: all of them fully.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layer_types: Vec<LayerType>,
    /// Positions that a sliding layer sees, its own included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sliding_window: Option<usize>,
    /// What the DFlash objective weights a slot by.
    #[serde(default, skip_serializing_if = "LossType::is_default")]
    pub loss_type: LossType,
    /// D-PACE: how much of the draft's confidence is replaced by certainty.
    #[serde(default = "default_alpha", skip_serializing_if = "is_default_alpha")]
    pub dpace_alpha: f32,
    /// The causal correction on top; none: DFlash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domino: Option<DominoHead>,
}

/// How a layer attends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerType {
    /// Every context position before the anchor, and the whole block in both directions.
    FullAttention,
    /// Context positions at most `sliding_window - 1` before the slot's own position, and the block's slots up to it.
    SlidingAttention,
}

/// Weights of the slots in the DFlash objective. D-PACE: "Dynamic Position-Aware Cross-Entropy for Parallel Speculative
/// Drafting", arXiv 2605.18810, with the variants and the normalisation of the public trainer (its pull request 578).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LossType {
    /// A fixed decay along the block (`loss_decay_gamma`), normalised by the sum of weights
    #[default]
    Dflash,
    /// D-PACE: by the draft's own confidence, the suffix sum of its prefix products; normalised by the number of sequences
    Dpace,
    /// D-PACE's prefix products alone
    DpaceCumulativeConfidenceOnly,
    /// D-PACE's suffix sums over its prefix products
    DpaceContinuationValueOnly,
}

impl LossType {
    /// The `kind` of kernel `dpace_shares`; none for the fixed decay.
    #[must_use]
    pub fn dpace_kind(self) -> Option<i32> {
        match self {
            Self::Dflash => None,
            Self::Dpace => Some(0),
            Self::DpaceCumulativeConfidenceOnly => Some(1),
            Self::DpaceContinuationValueOnly => Some(2),
        }
    }

    /// As `--loss-type` spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dflash => "dflash",
            Self::Dpace => "dpace",
            Self::DpaceCumulativeConfidenceOnly => "dpace-cumulative-confidence-only",
            Self::DpaceContinuationValueOnly => "dpace-continuation-value-only",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
    fn is_default(&self) -> bool {
        *self == Self::Dflash
    }
}

/// The public trainer's default of [`Config::dpace_alpha`].
pub const DPACE_ALPHA: f32 = 0.5;

fn default_alpha() -> f32 {
    DPACE_ALPHA
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_default_alpha(alpha: &f32) -> bool {
    alpha.to_bits() == DPACE_ALPHA.to_bits()
}

/// Sizes and conventions of the Domino head, as a golden file's `config` metadata spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DominoHead {
    /// E, width between the head's two projections.
    pub emb_dim: usize,
    /// G, width of the GRU's state.
    pub gru_hidden_dim: usize,
    /// Whether slot k predicts the token at anchor + 1 + k and all slots are scored, instead of anchor + k without slot 0.
    pub shift_label: bool,
    /// Scored slots at a block's start that are left uncorrected.
    pub pure_draft_prefix_len: usize,
}

impl DominoHead {
    /// The first slot with a token of its block before the one that it predicts.
    #[must_use]
    pub fn first_slot(&self) -> usize {
        usize::from(!self.shift_label)
    }

    /// The first slot that is corrected.
    #[must_use]
    pub fn suffix_start(&self) -> usize {
        self.first_slot() + self.pure_draft_prefix_len
    }
}

/// Why a configuration can't be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "impossible model configuration: {}", self.0)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Width of all query heads together.
    #[must_use]
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Width of all key (or value) heads together.
    #[must_use]
    pub fn key_value_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Positions that layer `layer` sees, its own included; 0: no limit.
    #[must_use]
    pub fn window(&self, layer: usize) -> usize {
        match self.layer_types.get(layer) {
            Some(LayerType::SlidingAttention) => self.sliding_window.unwrap_or(0),
            _ => 0,
        }
    }

    /// Whether slot k predicts the token at anchor + 1 + k (1) or the one at anchor + k (0).
    #[must_use]
    pub fn label_shift(&self) -> i32 {
        i32::from(self.domino.is_some_and(|head| head.shift_label))
    }

    /// Checks what the kernels rely on.
    ///
    /// # Errors
    /// Names the first rule that is broken.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.intermediate_size),
            ("num_context_features", self.num_context_features),
            ("block_size", self.block_size),
            ("num_anchors", self.num_anchors),
            ("vocab_size", self.vocab_size),
        ];
        for (name, size) in sizes {
            if size == 0 {
                return Err(ConfigError(format!("{name} is 0")));
            }
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return Err(ConfigError(format!(
                "num_attention_heads = {} is not a multiple of num_key_value_heads = {}",
                self.num_attention_heads, self.num_key_value_heads
            )));
        }
        if !self.head_dim.is_multiple_of(2) || self.head_dim > MAX_HEAD_DIM {
            return Err(ConfigError(format!(
                "head_dim = {} must be even (rotary halves) and at most {MAX_HEAD_DIM}",
                self.head_dim
            )));
        }
        if self.block_size > MAX_BLOCK_SIZE {
            return Err(ConfigError(format!("block_size = {} exceeds {MAX_BLOCK_SIZE}", self.block_size)));
        }
        if self.mask_token_id < 0 || self.mask_token_id as usize >= self.vocab_size {
            return Err(ConfigError(format!(
                "mask_token_id = {} is outside the vocabulary of {}",
                self.mask_token_id, self.vocab_size
            )));
        }
        self.validate_layers()?;
        self.validate_objective()
    }

    fn validate_layers(&self) -> Result<(), ConfigError> {
        let (types, layers) = (self.layer_types.len(), self.num_hidden_layers);
        if types != 0 && types != layers {
            return Err(ConfigError(format!("layer_types has {types} entries for {layers} layers")));
        }
        if self.layer_types.contains(&LayerType::SlidingAttention) && self.sliding_window.unwrap_or(0) == 0 {
            return Err(ConfigError(
                "a sliding_attention layer without a positive sliding_window".to_owned(),
            ));
        }
        Ok(())
    }

    fn validate_objective(&self) -> Result<(), ConfigError> {
        if !(0.0..=1.0).contains(&self.dpace_alpha) {
            return Err(ConfigError(format!("dpace_alpha = {} is not within 0 to 1", self.dpace_alpha)));
        }
        let Some(head) = self.domino else { return Ok(()) };
        if self.loss_type != LossType::Dflash {
            return Err(ConfigError(
                "D-PACE weights are for the DFlash objective, not for Domino's".to_owned(),
            ));
        }
        for (name, size) in [("emb_dim", head.emb_dim), ("gru_hidden_dim", head.gru_hidden_dim)] {
            if size == 0 {
                return Err(ConfigError(format!("{name} is 0")));
            }
        }
        if head.suffix_start() >= self.block_size {
            return Err(ConfigError(format!(
                "pure_draft_prefix_len = {} leaves no slot of a block of {} to correct",
                head.pure_draft_prefix_len, self.block_size
            )));
        }
        Ok(())
    }
}

/// The attention kernels keep one head of a query in registers, spread over a warp.
pub const MAX_HEAD_DIM: usize = 256;
/// The attention kernels give each slot of a block one warp.
pub const MAX_BLOCK_SIZE: usize = 32;
