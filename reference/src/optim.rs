//! Clipping, AdamW, the learning-rate schedule and the metrics ring: the last launches of a step.
//!
//! In: accumulated gradients. Out: new weights, one row in the metrics ring. Never: a host wait or an upload. The step counter
//! lives on the device and the schedule is evaluated there, so that a captured step can be replayed as a graph; the host
//! evaluates the same function ([`Schedule::learning_rate`]) where it wants to print it.

use std::sync::Arc;

use crate::device::{Buffer, Device, Result, Stream, View};
use crate::kernels::loss::METRICS;
use crate::kernels::optimizer;
use crate::model::Model;

/// Linear warm-up, then a cosine to zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Highest learning rate.
    pub peak: f32,
    /// Steps of linear rise; step k (from 0) has `peak * (k + 1) / warmup_steps`.
    pub warmup_steps: u32,
    /// Step at which the cosine reaches zero.
    pub total_steps: u32,
}

impl Schedule {
    /// Learning rate of step `step`, counted from 0.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn learning_rate(&self, step: u32) -> f32 {
        if step < self.warmup_steps {
            return self.peak * (step + 1) as f32 / self.warmup_steps as f32;
        }
        let span = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        let progress = ((step - self.warmup_steps) as f32 / span as f32).min(1.0);
        self.peak * 0.5 * (1.0 + (std::f32::consts::PI * progress).cos())
    }
}

/// How Domino's weight of the base loss falls: linearly from `start` to 0 over the first `decay_steps` steps, within 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curriculum {
    /// Weight of the base loss in step 0.
    pub start: f32,
    /// Step at which the weight reaches 0.
    pub decay_steps: u32,
}

impl Curriculum {
    /// Over the first `total_steps * decay_ratio` steps, at least one.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a float to integer cast saturates
    pub fn new(start: f32, total_steps: u32, decay_ratio: f32) -> Self {
        let steps = (f64::from(total_steps) * f64::from(decay_ratio)) as u32;
        Curriculum { start, decay_steps: steps.max(1) }
    }

    /// The weight in step `step`, counted from 0. The device computes the same bits (kernel `curriculum`).
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn lambda(&self, step: u32) -> f32 {
        let progress = (step as f32 / self.decay_steps.max(1) as f32).min(1.0);
        (self.start * (1.0 - progress)).clamp(0.0, 1.0)
    }
}

/// AdamW's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)] // the names of the paper
pub struct OptimizerConfig {
    pub schedule: Schedule,
    pub beta1: f32,
    pub beta2: f32,
    pub eps: f32,
    pub weight_decay: f32,
    /// Gradients are scaled by `min(1, max_grad_norm / (norm + 1e-6))`; the norm and the factor stay on the device.
    pub max_grad_norm: f32,
}

/// One row of the metrics ring.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// Optimiser step, from 0.
    pub step: u32,
    /// Mean over the step's micro-batches.
    pub loss: f32,
    /// Mean over the step's micro-batches.
    pub accuracy: f32,
    /// Sum over the step's micro-batches.
    pub accuracy_denom: f32,
    /// Global gradient norm before clipping.
    pub grad_norm: f32,
    /// Learning rate of the step.
    pub lr: f32,
    /// What only the Domino objective has.
    pub domino: Option<DominoMetrics>,
}

/// Metrics of the Domino objective: means over the step's micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct DominoMetrics {
    /// Loss of the corrected logits.
    pub final_loss: f32,
    /// Loss of the logits before the correction.
    pub base_loss: f32,
    /// Accuracy of the logits before the correction.
    pub base_accuracy: f32,
    /// Mean over blocks of 1 + the leading run of right predictions.
    pub accept_len: f32,
    /// The same for the logits before the correction.
    pub base_accept_len: f32,
    /// Weight of the base loss.
    pub lambda_base: f32,
}

impl Metrics {
    /// Floats per row: step + 1, gradient norm, learning rate, and the nine of `kernels::loss`.
    pub const FIELDS: usize = 3 + METRICS;

    /// The row of `step` in a copy of the ring of a model with (`domino`) or without the Domino head; none if the ring holds
    /// another step there.
    #[must_use]
    pub fn from_ring(ring: &[f32], step: u32, domino: bool) -> Option<Self> {
        let start = Self::row(ring.len(), step)?;
        // Stored as step + 1, so that a row never written (0) is no step.
        let row = &ring[start..start + Self::FIELDS];
        (row[0] == (step + 1) as f32).then(|| Self::from_row(row, step, domino))
    }

    /// Where the row of `step` starts in a ring of `elements` floats.
    pub(crate) fn row(elements: usize, step: u32) -> Option<usize> {
        let rows = elements / Self::FIELDS;
        (rows > 0).then(|| step as usize % rows * Self::FIELDS)
    }

    /// The numbers of a row by name. The row must have [`Metrics::FIELDS`] elements.
    pub(crate) fn from_row(row: &[f32], step: u32, domino: bool) -> Self {
        Self {
            step,
            grad_norm: row[1],
            lr: row[2],
            loss: row[3],
            accuracy: row[4],
            accuracy_denom: row[5],
            domino: domino.then(|| DominoMetrics {
                final_loss: row[6],
                base_loss: row[7],
                base_accuracy: row[8],
                accept_len: row[9],
                base_accept_len: row[10],
                lambda_base: row[11],
            }),
        }
    }
}

/// AdamW state and the metrics ring.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    first: Buffer<f32>,
    second: Buffer<f32>,
    steps: Buffer<u32>,
    scalars: Buffer<f32>,
    partial: Buffer<f32>,
    ring: Buffer<f32>,
    domino: bool,
}

impl Optimizer {
    /// State for `model`, with a metrics ring of `ring_rows` steps. Set-up only.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(
        device: &Arc<Device>,
        model: &Model,
        config: OptimizerConfig,
        ring_rows: usize,
    ) -> Result<Self> {
        let n = model.params().weights.len();
        Ok(Self {
            config,
            first: Buffer::zeros(device, n)?,
            second: Buffer::zeros(device, n)?,
            steps: Buffer::zeros(device, 1)?,
            scalars: Buffer::zeros(device, 5)?,
            partial: Buffer::zeros(device, n.div_ceil(optimizer::CHUNK))?,
            ring: Buffer::zeros(device, ring_rows * Metrics::FIELDS)?,
            domino: model.config().domino.is_some(),
        })
    }

    /// Whether the ring's rows hold [`DominoMetrics`].
    #[must_use]
    pub fn has_domino(&self) -> bool {
        self.domino
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &OptimizerConfig {
        &self.config
    }

    /// Clips, updates the weights, advances the step counter, writes the step's row into the metrics ring.
    ///
    /// # Errors
    /// The driver's.
    pub fn step(&mut self, stream: &Stream, model: &Model) -> Result<()> {
        let (c, params) = (&self.config, model.params());
        let (n, chunk) = (params.weights.len(), optimizer::CHUNK);
        optimizer::square_sums::launch(stream, params.grads.view(), self.partial.view(), n, chunk)?;
        optimizer::step_scalars::launch(
            stream,
            self.partial.view(),
            self.steps.view(),
            self.scalars.view(),
            n.div_ceil(chunk),
            c.max_grad_norm,
            c.schedule.peak,
            c.schedule.warmup_steps,
            c.schedule.total_steps,
            c.beta1,
            c.beta2,
        )?;
        optimizer::adamw::launch(
            stream,
            params.weights.view(),
            params.grads.view(),
            self.first.view(),
            self.second.view(),
            self.scalars.view(),
            n,
            c.beta1,
            c.beta2,
            c.eps,
            c.weight_decay,
        )?;
        optimizer::step_finish::launch(
            stream,
            self.scalars.view(),
            model.totals(),
            self.steps.view(),
            self.ring.view(),
            self.ring.len() / Metrics::FIELDS,
        )
    }

    /// First moments, same layout as the weights. Part of a checkpoint.
    #[must_use]
    pub fn first_moments(&self) -> &Buffer<f32> {
        &self.first
    }

    /// Second moments, same layout as the weights. Part of a checkpoint.
    #[must_use]
    pub fn second_moments(&self) -> &Buffer<f32> {
        &self.second
    }

    /// `[1]`: optimiser steps done. Part of a checkpoint.
    #[must_use]
    pub fn step_counter(&self) -> &Buffer<u32> {
        &self.steps
    }

    /// `[1]`: the last step's gradient norm before clipping.
    #[must_use]
    pub fn grad_norm(&self) -> View<f32> {
        self.scalars.slice(0..1)
    }

    /// `[1]`: the last step's learning rate.
    #[must_use]
    pub fn learning_rate(&self) -> View<f32> {
        self.scalars.slice(1..2)
    }

    /// `[ring_rows, Metrics::FIELDS]`: copy it whole, then [`Metrics::from_ring`].
    #[must_use]
    pub fn ring(&self) -> &Buffer<f32> {
        &self.ring
    }
}
