//! The DFlash draft model, with or without the Domino head: forward, loss and backward as launches on one stream.
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
//!     model.schedule_lambda(&stream, steps, curriculum)?;  // Domino's weight of the base loss
//!     model.forward(&stream, &batch, mask_token)?;
//!     model.backward(&stream, &batch, 1.0 / micro_batches)?;
//! }
//! optimizer.step(&stream, &model)?;
//! ```
//!
//! # Hooks for the historical waits
//! The public trainer read the anchor width back and uploaded constants as device scalars. The same step does either:
//! - [`AnchorWidth::OnDevice`]: N blocks per sequence, unused ones masked. [`AnchorWidth::Host`]: the caller read
//!   [`Model::anchor_width`] back after `count_anchors` and passes it on; only that many blocks are computed. Draws and sums
//!   are the same bit for bit with the own GEMM (see `kernels`: trailing padding is neutral).
//! - [`Scalar::Literal`]: the value is a kernel argument. [`Scalar::Device`]: the caller uploaded it and the kernel reads it.

mod backward;
mod config;
mod forward;
mod params;
mod products;
mod workspace;

use std::sync::Arc;

pub use config::{
    Config, ConfigError, DPACE_ALPHA, DominoHead, LayerType, LossType, MAX_BLOCK_SIZE, MAX_HEAD_DIM,
};
pub use params::{Param, Params};
pub use products::Precision;

use crate::device::{Buffer, Device, Error, Result, Stream, View};
use crate::kernels::{anchors, loss};
use crate::optim::Curriculum;
use params::Tensors;
use products::{Halves, Matrix};
use workspace::Workspace;

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

impl<T: Copy> Scalar<T> {
    fn pointer(self) -> Option<View<T>> {
        match self {
            Self::Literal => None,
            Self::Device(view) => Some(view),
        }
    }
}

/// How many positions of a sequence can be anchors: 0 to max(S - B, 0).
fn candidates(seq_len: usize, block_size: usize) -> usize {
    seq_len.saturating_sub(block_size) + 1
}

/// A draft model with its planned workspace.
#[derive(Debug)]
pub struct Model {
    config: Config,
    batch: usize,
    seq_len: usize,
    seed: u64,
    params: Params,
    weights: Tensors<Matrix>,
    grads: Tensors<View<f32>>,
    /// Rounded copies; none with full precision.
    halves: Option<Halves>,
    frozen: Frozen,
    workspace: Workspace,
    /// Blocks per sequence of the current micro-batch: N, or the host-known width.
    blocks: usize,
}

impl Model {
    /// Value of [`AnchorScalars::key_sentinel`].
    pub const KEY_SENTINEL: f32 = 2.0;
    /// Value of [`AnchorScalars::pad_position`].
    pub const PAD_POSITION: i32 = 0;

    /// Plans and allocates everything for micro-batches of `batch` sequences of `seq_len` tokens. Weights are zero until
    /// [`Model::initialize`] or [`Model::set_weight`]. `seed` drives the anchor draws. Set-up only.
    ///
    /// # Errors
    /// An impossible configuration, frozen tables of another size, or the driver's.
    pub fn new(
        device: &Arc<Device>,
        config: Config,
        batch: usize,
        seq_len: usize,
        frozen: Frozen,
        precision: Precision,
        seed: u64,
    ) -> Result<Self> {
        config.validate().map_err(|e| Error::misuse(e.to_string()))?;
        if batch == 0 || seq_len == 0 {
            return Err(Error::misuse(format!("a batch of {batch} sequences of {seq_len} tokens")));
        }
        for (name, table) in [("embed_tokens", &frozen.embed_tokens), ("lm_head", &frozen.lm_head)] {
            let needed = config.vocab_size * config.hidden_size;
            if table.len() != needed {
                let what = format!("frozen table {name} [vocab_size, hidden_size]");
                return Err(Error::Length { what, needed, found: table.len() });
            }
        }
        let params = Params::new(device, &config)?;
        let workspace = Workspace::new(device, &config, batch, seq_len)?;
        let halves = match precision {
            Precision::F32 => None,
            Precision::Bf16 => {
                let draft = batch * config.num_anchors * config.block_size;
                let rows = [draft, batch * seq_len, workspace.logits_rows];
                Some(Halves::new(device, &config, params.weights.len(), &frozen.lm_head, rows)?)
            }
        };
        let half = |range| halves.as_ref().map(|halves| halves.weights.slice(range));
        Ok(Self {
            weights: Tensors::of(&config, &params.table, &params.weights, |full, range| {
                Matrix::of(full, half(range))
            }),
            grads: Tensors::of(&config, &params.table, &params.grads, |full, _| full),
            workspace,
            halves,
            blocks: config.num_anchors,
            params,
            config,
            batch,
            seq_len,
            seed,
            frozen,
        })
    }

    /// Fresh weights: projections normal with deviation 0.02, norms 1. Waits: set-up only.
    ///
    /// # Errors
    /// The driver's.
    pub fn initialize(&mut self, seed: u64) -> Result<()> {
        self.params.initialize(seed)
    }

    /// Replaces one tensor. Waits: set-up only (checkpoints, golden files).
    ///
    /// # Errors
    /// An unknown name or another length; the driver's.
    pub fn set_weight(&mut self, name: &str, values: &[f32]) -> Result<()> {
        self.params.set(name, values)
    }

    /// Uses given anchors, `[batch, N]` each, instead of drawn ones. Waits: golden files and tests only.
    ///
    /// # Errors
    /// Another length, a position outside the sequence; the driver's.
    pub fn set_anchors(&mut self, stream: &Stream, positions: &[i32], keep: &[bool]) -> Result<()> {
        let needed = self.batch * self.config.num_anchors;
        for found in [positions.len(), keep.len()] {
            if found != needed {
                return Err(Error::Length { what: "anchors [batch, num_anchors]".to_owned(), needed, found });
            }
        }
        if let Some(bad) = positions.iter().find(|p| !usize::try_from(**p).is_ok_and(|p| p < self.seq_len)) {
            return Err(Error::misuse(format!("anchor {bad} is outside a sequence of {}", self.seq_len)));
        }
        let keep: Vec<i32> = keep.iter().map(|k| i32::from(*k)).collect();
        self.blocks = self.config.num_anchors;
        stream.upload_blocking(self.workspace.anchors.view(), positions)?;
        stream.upload_blocking(self.workspace.keep.view(), &keep)
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
        &self.workspace.draws
    }

    /// Counts each sequence's supervised candidate positions, derives the historical width
    /// `max(1, min(N, max count - 1))` and advances the draw counter. All results stay on the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn count_anchors(&mut self, stream: &Stream, batch: &Batch) -> Result<()> {
        let ws = &self.workspace;
        anchors::anchor_count::launch(
            stream,
            batch.loss_mask.view(),
            ws.counts.view(),
            ws.width.view(),
            ws.draws.view(),
            self.batch,
            self.seq_len,
            self.candidates(),
            i32::try_from(self.config.num_anchors).unwrap_or(i32::MAX),
        )
    }

    /// `[1]`: the width that the last [`Model::count_anchors`] found.
    #[must_use]
    pub fn anchor_width(&self) -> View<i32> {
        self.workspace.width.view()
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
        let most = self.config.num_anchors;
        let (blocks, host_width) = match width {
            AnchorWidth::OnDevice => (most, 0),
            AnchorWidth::Host(w) if (1..=most).contains(&w) => (w, i32::try_from(w).unwrap_or(i32::MAX)),
            AnchorWidth::Host(w) => {
                return Err(Error::misuse(format!("an anchor width of {w}; it must be 1 to {most}")));
            }
        };
        self.blocks = blocks;
        let ws = &self.workspace;
        anchors::anchor_draw::launch(
            stream,
            batch.loss_mask.view(),
            ws.counts.view(),
            ws.width.view(),
            ws.draws.view(),
            ws.keys.view(),
            ws.chosen.view(),
            ws.anchors.view(),
            ws.keep.view(),
            scalars.position_sentinel.pointer(),
            scalars.key_sentinel.pointer(),
            scalars.pad_position.pointer(),
            self.batch,
            self.seq_len,
            self.candidates(),
            blocks,
            host_width,
            self.seed,
            self.position_sentinel(),
            Self::KEY_SENTINEL,
            Self::PAD_POSITION,
        )
    }

    /// Positions and keep flags of the current micro-batch, `[batch, blocks]` in the first elements.
    #[must_use]
    pub fn anchors(&self) -> (View<i32>, View<i32>) {
        let n = self.batch * self.blocks;
        (self.workspace.anchors.slice(0..n), self.workspace.keep.slice(0..n))
    }

    /// Sets the gradients and the step's metric sums to zero.
    ///
    /// # Errors
    /// The driver's.
    pub fn zero_gradients(&mut self, stream: &Stream) -> Result<()> {
        stream.zero_buffer(&self.params.grads)?;
        stream.zero_buffer(&self.workspace.totals)
    }

    /// Forward pass and loss for the drawn anchors. `mask_token` has the value [`Config::mask_token_id`].
    ///
    /// # Errors
    /// A batch of another size; the driver's.
    pub fn forward(&mut self, stream: &Stream, batch: &Batch, mask_token: Scalar<i32>) -> Result<()> {
        self.run_forward(stream, batch, mask_token)
    }

    /// Adds `scale` times the gradients of the last forward pass to [`Params::grads`]. Once per forward pass.
    ///
    /// # Errors
    /// The driver's.
    pub fn backward(&mut self, stream: &Stream, batch: &Batch, scale: f32) -> Result<()> {
        self.run_backward(stream, batch, scale)
    }

    /// `[1]`: Domino's weight of the base loss, read by [`Model::forward`]; none without the Domino head. Zero until written.
    #[must_use]
    pub fn lambda_base(&self) -> Option<View<f32>> {
        self.workspace.domino.as_ref().map(|d| d.lambda.view())
    }

    /// Computes [`Model::lambda_base`] of optimiser step `steps[0]` on the device. Nothing to do without the Domino head.
    ///
    /// # Errors
    /// The driver's.
    pub fn schedule_lambda(
        &mut self,
        stream: &Stream,
        steps: View<u32>,
        curriculum: Curriculum,
    ) -> Result<()> {
        match self.lambda_base() {
            Some(lambda) => {
                loss::curriculum::launch(stream, steps, lambda, curriculum.start, curriculum.decay_steps)
            }
            None => Ok(()),
        }
    }

    /// `[9]`: the metrics of the last forward pass, in the order of [`loss::METRICS`].
    #[must_use]
    pub fn metrics(&self) -> View<f32> {
        self.workspace.metrics.view()
    }

    /// `[10]`: sums of [`Model::metrics`] over the step's micro-batches, and how many there were.
    pub(crate) fn totals(&self) -> View<f32> {
        self.workspace.totals.view()
    }

    fn lm_head(&self) -> Matrix {
        Matrix::of(self.frozen.lm_head.view(), self.halves.as_ref().map(|halves| halves.lm_head.view()))
    }

    fn candidates(&self) -> usize {
        candidates(self.seq_len, self.config.block_size)
    }
}
