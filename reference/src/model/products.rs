//! Matrix products in the model's precision.
//!
//! With [`Precision::F32`] operands go as they are. With [`Precision::Bf16`] both are rounded to bf16 and summed in 32-bit floats:
//! weights have a rounded copy that is renewed in every forward pass, everything else is rounded on its way into a product.

use std::sync::Arc;

use super::{Config, Model};
use crate::device::{Buffer, Device, GemmShape, Layout, Result, Stream, View};
use crate::kernels::gemm::round_bf16;

/// In which precision matrix products take their operands. Sums, master weights and everything between are 32-bit floats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Precision {
    /// 32-bit floats, never TF32
    #[default]
    F32,
    /// bf16, on tensor cores where there are any
    Bf16,
}

/// An operand: its values, and their rounded copy where one is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix {
    full: View<f32>,
    half: Option<View<u16>>,
}

impl Matrix {
    pub fn of(full: View<f32>, half: Option<View<u16>>) -> Self {
        Matrix { full, half }
    }

    /// The values in full precision.
    pub fn full(self) -> View<f32> {
        self.full
    }
}

impl From<View<f32>> for Matrix {
    fn from(full: View<f32>) -> Self {
        Matrix { full, half: None }
    }
}

/// Rounded copies of the weights and room for those of two operands.
#[derive(Debug)]
pub(super) struct Halves {
    /// As the flat buffer of the weights.
    pub weights: Buffer<u16>,
    /// The frozen LM head, `[V, H]`.
    pub lm_head: Buffer<u16>,
    left: Buffer<u16>,
    right: Buffer<u16>,
}

impl Halves {
    /// Room for the largest operands of a model; the head is rounded here, once. Set-up only.
    pub fn new(
        device: &Arc<Device>,
        config: &Config,
        weights: usize,
        lm_head: &Buffer<f32>,
        [draft, context, logits]: [usize; 3],
    ) -> Result<Self> {
        let c = config;
        let (g, e) = c.domino.map_or((0, 0), |head| (head.gru_hidden_dim, head.emb_dim));
        let wide = [c.intermediate_size, c.query_width(), c.hidden_size + g, 3 * g, e]
            .into_iter()
            .max()
            .unwrap_or(0);
        let largest =
            (draft * wide).max(context * c.num_context_features * c.hidden_size).max(logits * c.vocab_size);
        let halves = Self {
            weights: Buffer::zeros(device, weights)?,
            lm_head: Buffer::zeros(device, lm_head.len())?,
            left: Buffer::zeros(device, largest)?,
            right: Buffer::zeros(device, largest)?,
        };
        let stream = Stream::new(device)?;
        round_bf16::launch(&stream, lm_head.view(), halves.lm_head.view(), lm_head.len())?;
        stream.synchronize()?;
        Ok(halves)
    }
}

/// Rows of which each sequence has equally many.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub sequences: usize,
    pub each: usize,
}

impl Rows {
    pub fn all(self) -> usize {
        self.sequences * self.each
    }

    /// The same memory seen as one row per head.
    pub fn heads(self, heads: usize) -> Self {
        Self { each: self.each * heads, ..self }
    }
}

impl Model {
    /// Renews the rounded copy of the weights.
    pub(super) fn round_weights(&self, stream: &Stream) -> Result<()> {
        match &self.halves {
            Some(halves) => {
                let weights = &self.params.weights;
                round_bf16::launch(stream, weights.view(), halves.weights.view(), weights.len())
            }
            None => Ok(()),
        }
    }

    /// `c = a b` or `c += a b`.
    pub(super) fn product(
        &self,
        stream: &Stream,
        layout: Layout,
        shape: GemmShape,
        (a, b): (Matrix, Matrix),
        c: View<f32>,
        accumulate: bool,
    ) -> Result<()> {
        let Some(halves) = &self.halves else {
            return stream.gemm(layout, shape, a.full, b.full, c, accumulate);
        };
        let rounded = |operand: Matrix, room: &Buffer<u16>, n: usize| match operand.half {
            Some(half) => Ok(half),
            None => {
                let room = room.slice(0..n);
                round_bf16::launch(stream, operand.full, room, n).map(|()| room)
            }
        };
        let a = rounded(a, &halves.left, shape.m * shape.k)?;
        let b = rounded(b, &halves.right, shape.k * shape.n)?;
        stream.gemm_bf16(layout, shape, a, b, c, accumulate)
    }

    /// `y[rows, outputs] = x[rows, inputs] w^T` with `w[outputs, inputs]`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn linear(
        &self,
        stream: &Stream,
        x: View<f32>,
        w: Matrix,
        y: View<f32>,
        rows: usize,
        inputs: usize,
        outputs: usize,
    ) -> Result<()> {
        let shape = GemmShape { m: rows, n: outputs, k: inputs };
        self.product(stream, Layout::Nt, shape, (x.into(), w), y, false)
    }

    /// `dw[outputs, inputs] += dy[rows, outputs]^T x[rows, inputs]`, one sequence after the other.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn weight_gradient(
        &self,
        stream: &Stream,
        dy: View<f32>,
        x: View<f32>,
        dw: View<f32>,
        rows: Rows,
        inputs: usize,
        outputs: usize,
    ) -> Result<()> {
        let shape = GemmShape { m: outputs, n: inputs, k: rows.each };
        for s in 0..rows.sequences {
            let (first, end) = (s * rows.each, (s + 1) * rows.each);
            let operands = (
                dy.slice(first * outputs..end * outputs).into(),
                x.slice(first * inputs..end * inputs).into(),
            );
            self.product(stream, Layout::Tn, shape, operands, dw, true)?;
        }
        Ok(())
    }

    /// `dx[rows, inputs] (+)= dy[rows, outputs] w[outputs, inputs]`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn input_gradient(
        &self,
        stream: &Stream,
        dy: View<f32>,
        w: Matrix,
        dx: View<f32>,
        rows: Rows,
        inputs: usize,
        outputs: usize,
        accumulate: bool,
    ) -> Result<()> {
        let shape = GemmShape { m: rows.all(), n: inputs, k: outputs };
        self.product(stream, Layout::Nn, shape, (dy.into(), w), dx, accumulate)
    }
}
