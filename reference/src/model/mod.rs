//! The DFlash draft model: forward, loss and backward as launches on one stream.
//!
//! In: a [`Batch`] in device memory, anchors, weights. Out: loss and metrics in device memory, gradients in [`Params::grads`].
//! Never: a host wait, an allocation, or a host-to-device copy; everything is planned in [`Model::new`], sizes travel as kernel
//! arguments, limits that depend on the data stay on the device. One step is
//!
//! ```text
//! model.zero_gradients(&stream)?;
//! for each micro-batch {
//!     model.count_anchors(&stream, &batch)?;               // width and counts, on the device
//!     model.draw_anchors(&stream, &batch, width, scalars)?;
//!     model.forward(&stream, &batch, mask_token)?;
//!     model.backward(&stream, &batch, 1.0 / micro_batches)?;
//! }
//! optimizer.step(&stream, &mut model)?;
//! ```
//!
//! # Hooks for the historical waits
//! The public trainer read the anchor width back and uploaded constants as device scalars. The same step does either:
//! - [`AnchorWidth::OnDevice`]: N blocks per sequence, unused ones masked. [`AnchorWidth::Host`]: the caller read
//!   [`Model::anchor_width`] back after `count_anchors` and passes it on; only that many blocks are computed. Draws and sums
//!   are the same bit for bit with the own GEMM (see `kernels`: trailing padding is neutral).
//! - [`Scalar::Literal`]: the value is a kernel argument. [`Scalar::Device`]: the caller uploaded it and the kernel reads it.

mod config;

use std::sync::Arc;

pub use config::{Config, ConfigError, MAX_BLOCK_SIZE, MAX_HEAD_DIM};

use crate::device::{Buffer, Device, Error, Result, Stream, View};

/// One micro-batch in device memory.
#[derive(Debug)]
pub struct Batch {
    /// Token ids, `[batch, seq_len]`.
    pub input_ids: Buffer<i32>,
    /// The target's hidden states, `[batch, seq_len, T * H]`.
    pub hidden_states: Buffer<f32>,
    /// 1 where the token is supervised, `[batch, seq_len]`.
    pub loss_mask: Buffer<f32>,
}

impl Batch {
    /// Device memory for a batch. Set-up only.
    ///
    /// # Errors
    /// The driver's.
    pub fn zeros(device: &Arc<Device>, config: &Config, batch: usize, seq_len: usize) -> Result<Self> {
        let rows = batch * seq_len;
        Ok(Self {
            input_ids: Buffer::zeros(device, rows)?,
            hidden_states: Buffer::zeros(device, rows * config.num_context_features * config.hidden_size)?,
            loss_mask: Buffer::zeros(device, rows)?,
        })
    }
}

/// The target's frozen tables that the draft shares.
#[derive(Debug)]
pub struct Frozen {
    /// `[V, H]`.
    pub embed_tokens: Buffer<f32>,
    /// `[V, H]`.
    pub lm_head: Buffer<f32>,
}

/// Where a kernel takes a constant from.
#[derive(Debug, Clone, Copy)]
pub enum Scalar<T> {
    /// The kernel's argument.
    Literal,
    /// One element of device memory which the caller has filled with the same value.
    Device(View<T>),
}

/// The constants of anchor drawing; what the values must be is said by the methods of [`Model`].
#[derive(Debug, Clone, Copy)]
pub struct AnchorScalars {
    /// [`Model::position_sentinel`] = S + 1: sorts behind every position.
    pub position_sentinel: Scalar<i32>,
    /// [`Model::KEY_SENTINEL`] = 2.0: sorts behind every random key, which are in [0, 1).
    pub key_sentinel: Scalar<f32>,
    /// [`Model::PAD_POSITION`] = 0: the position of an unused block.
    pub pad_position: Scalar<i32>,
}

impl AnchorScalars {
    /// All three as kernel arguments.
    pub const LITERAL: Self = Self {
        position_sentinel: Scalar::Literal,
        key_sentinel: Scalar::Literal,
        pad_position: Scalar::Literal,
    };
}

/// How many blocks per sequence are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnchorWidth {
    /// N, with the limit read by the kernels from [`Model::anchor_width`].
    OnDevice,
    /// Exactly this many (1..=N): the value read back from [`Model::anchor_width`].
    Host(usize),
}

/// A trainable tensor's place in the flat weight and gradient buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// As the public draft model names it: `layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Row-major shape, `[out, in]` for a projection.
    pub shape: Vec<usize>,
    /// First element in the flat buffers.
    pub offset: usize,
}

impl Param {
    /// Number of elements.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// All trainable tensors: one flat weight buffer, one flat gradient buffer, and the table that says what is where.
#[derive(Debug)]
pub struct Params {
    /// Sorted by offset.
    pub table: Vec<Param>,
    /// Master weights.
    pub weights: Buffer<f32>,
    /// Accumulated gradients, same layout.
    pub grads: Buffer<f32>,
}

/// A draft model with its planned workspace.
#[derive(Debug)]
pub struct Model {
    config: Config,
    batch: usize,
    seq_len: usize,
    params: Params,
    frozen: Frozen,
    draws: Buffer<u32>,
    width: Buffer<i32>,
    step_metrics: Buffer<f32>,
}

impl Model {
    /// Value of [`AnchorScalars::key_sentinel`].
    pub const KEY_SENTINEL: f32 = 2.0;
    /// Value of [`AnchorScalars::pad_position`].
    pub const PAD_POSITION: i32 = 0;

    /// Plans and allocates everything for micro-batches of `batch` sequences of `seq_len` tokens; weights start as
    /// [`Model::initialize`] with seed 0 would make them. `seed` drives the anchor draws.
    ///
    /// # Errors
    /// An impossible configuration, or the driver's.
    pub fn new(
        device: &Arc<Device>,
        config: Config,
        batch: usize,
        seq_len: usize,
        frozen: Frozen,
        seed: u64,
    ) -> Result<Self> {
        let _ = seed;
        config.validate().map_err(|e| Error::misuse(e.to_string()))?;
        Ok(Self {
            params: Params {
                table: Vec::new(),
                weights: Buffer::zeros(device, 0)?,
                grads: Buffer::zeros(device, 0)?,
            },
            draws: Buffer::zeros(device, 1)?,
            width: Buffer::zeros(device, 1)?,
            step_metrics: Buffer::zeros(device, 4)?,
            config,
            batch,
            seq_len,
            frozen,
        })
    }

    /// Fresh weights: projections normal with deviation 0.02, norms 1. Set-up only.
    ///
    /// # Errors
    /// The driver's.
    pub fn initialize(&mut self, seed: u64) -> Result<()> {
        Err(not_yet(&format!("initialize {seed}")))
    }

    /// Replaces one tensor. Set-up only (checkpoints, golden files).
    ///
    /// # Errors
    /// An unknown name or another length; the driver's.
    pub fn set_weight(&mut self, name: &str, values: &[f32]) -> Result<()> {
        Err(not_yet(&format!("set_weight {name} {}", values.len())))
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Sequences per micro-batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Tokens per sequence.
    #[must_use]
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// Weights and gradients.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The frozen tables.
    #[must_use]
    pub fn frozen(&self) -> &Frozen {
        &self.frozen
    }

    /// Value of [`AnchorScalars::position_sentinel`].
    #[must_use]
    pub fn position_sentinel(&self) -> i32 {
        i32::try_from(self.seq_len).unwrap_or(i32::MAX - 1) + 1
    }

    /// `[1]`: anchors drawn so far (micro-batches). Part of a checkpoint: the same count continues the same draws.
    #[must_use]
    pub fn draw_counter(&self) -> &Buffer<u32> {
        &self.draws
    }

    /// Counts each sequence's supervised positions, derives the historical width `max(1, min(N, max count - 1))` and
    /// advances the draw counter. All results stay on the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn count_anchors(&mut self, stream: &Stream, batch: &Batch) -> Result<()> {
        let _ = (stream, batch);
        Err(not_yet("count_anchors"))
    }

    /// `[1]`: the width that the last [`Model::count_anchors`] found.
    #[must_use]
    pub fn anchor_width(&self) -> View<i32> {
        self.width.view()
    }

    /// Draws the anchors of this micro-batch from its supervised positions: without replacement, sorted, `keep` false for
    /// unused blocks. A function of seed, draw counter, sequence and mask only.
    ///
    /// # Errors
    /// A host width outside 1..=N; the driver's.
    pub fn draw_anchors(
        &mut self,
        stream: &Stream,
        batch: &Batch,
        width: AnchorWidth,
        scalars: AnchorScalars,
    ) -> Result<()> {
        let _ = (stream, batch, width, scalars);
        Err(not_yet("draw_anchors"))
    }

    /// Sets the gradients and the step's metric sums to zero.
    ///
    /// # Errors
    /// The driver's.
    pub fn zero_gradients(&mut self, stream: &Stream) -> Result<()> {
        stream.zero_buffer(&self.params.grads)?;
        stream.zero_buffer(&self.step_metrics)
    }

    /// Forward pass and loss for the drawn anchors. `mask_token` has the value [`Config::mask_token_id`].
    ///
    /// # Errors
    /// The driver's.
    pub fn forward(&mut self, stream: &Stream, batch: &Batch, mask_token: Scalar<i32>) -> Result<()> {
        let _ = (stream, batch, mask_token);
        Err(not_yet("forward"))
    }

    /// Adds `scale` times the gradients of the last forward pass to [`Params::grads`].
    ///
    /// # Errors
    /// The driver's.
    pub fn backward(&mut self, stream: &Stream, batch: &Batch, scale: f32) -> Result<()> {
        let _ = (stream, batch, scale);
        Err(not_yet("backward"))
    }

    /// `[3]`: loss, accuracy, accuracy denominator of the last forward pass.
    #[must_use]
    pub fn metrics(&self) -> View<f32> {
        self.step_metrics.slice(0..3)
    }
}

fn not_yet(what: &str) -> Error {
    Error::misuse(format!("{what} arrives with the next commits"))
}
