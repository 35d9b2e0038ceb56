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
        Ok(())
    }
}

/// The attention kernels keep one head of a query in registers, spread over a warp.
pub const MAX_HEAD_DIM: usize = 256;
/// The attention kernels give each slot of a block one warp.
pub const MAX_BLOCK_SIZE: usize = 32;
