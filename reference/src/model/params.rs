//! The trainable tensors: names, shapes, and their places in one flat buffer of weights and one of gradients.
//!
//! Flat, so that norm, clipping, optimiser and zeroing are one launch each whatever the number of layers.

use std::ops::Range;
use std::sync::Arc;

use super::Config;
use crate::device::{Buffer, Device, Error, Result, Stream, View};
use crate::kernels::anchors::philox;

/// Offsets are multiples of this many elements (128 bytes), the granularity of a memory transaction on the device.
const ALIGNMENT: usize = 32;

/// Tensors of one layer.
const OF_LAYER: usize = 11;

/// Standard deviation of fresh projections.
const INITIAL_DEVIATION: f64 = 0.02;

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

    /// Its part of a flat buffer's contents.
    #[must_use]
    pub fn of<'a, T>(&self, flat: &'a [T]) -> &'a [T] {
        &flat[self.offset..self.offset + self.len()]
    }
}

/// All trainable tensors: one flat weight buffer, one flat gradient buffer, and the table that says what is where.
///
/// The gaps between tensors hold zeros in both buffers and stay zero.
#[derive(Debug)]
pub struct Params {
    /// Sorted by offset.
    pub table: Vec<Param>,
    /// Master weights.
    pub weights: Buffer<f32>,
    /// Accumulated gradients, same layout.
    pub grads: Buffer<f32>,
}

impl Params {
    pub(super) fn new(device: &Arc<Device>, config: &Config) -> Result<Self> {
        let table = table(config);
        let elements = table.last().map_or(0, |p| (p.offset + p.len()).next_multiple_of(ALIGNMENT));
        Ok(Self { weights: Buffer::zeros(device, elements)?, grads: Buffer::zeros(device, elements)?, table })
    }

    /// The entry called `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Param> {
        self.table.iter().find(|p| p.name == name)
    }

    /// Number of trainable numbers (the flat buffers are a little longer).
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.iter().map(Param::len).sum()
    }

    /// Replaces one tensor. Waits: set-up only.
    pub(super) fn set(&self, name: &str, values: &[f32]) -> Result<()> {
        let param = self.find(name).ok_or_else(|| {
            Error::misuse(format!("the model has no tensor {name:?}; it has {}", self.names().join(", ")))
        })?;
        if values.len() != param.len() {
            return Err(Error::Length {
                what: format!("tensor {name} of shape {:?}", param.shape),
                needed: param.len(),
                found: values.len(),
            });
        }
        let stream = Stream::new(self.weights.device())?;
        stream.upload_blocking(self.weights.slice(param.offset..param.offset + param.len()), values)
    }

    /// Fresh weights: norms 1, projections normal. A function of the seed, the tensor's number and the element only. Waits.
    pub(super) fn initialize(&self, seed: u64) -> Result<()> {
        let mut flat = vec![0.0; self.weights.len()];
        for (number, param) in (0..).zip(&self.table) {
            for (i, value) in flat[param.offset..param.offset + param.len()].iter_mut().enumerate() {
                *value = if param.shape.len() == 1 { 1.0 } else { normal(seed, number, i) };
            }
        }
        Stream::new(self.weights.device())?.upload_blocking(self.weights.view(), &flat)
    }

    fn names(&self) -> Vec<&str> {
        self.table.iter().map(|p| p.name.as_str()).collect()
    }
}

/// A normal deviate by Box and Muller from two counter-based words.
#[allow(clippy::cast_possible_truncation)]
fn normal(seed: u64, tensor: u32, element: usize) -> f32 {
    let key = [seed as u32, (seed >> 32) as u32];
    let word = |half| f64::from(philox([element as u32, (element >> 32) as u32, tensor, half], key));
    let radius = (-2.0 * ((word(1) + 1.0) / 4_294_967_296.0).ln()).sqrt();
    (INITIAL_DEVIATION * radius * (std::f64::consts::TAU * word(2) / 4_294_967_296.0).cos()) as f32
}

fn table(config: &Config) -> Vec<Param> {
    let c = config;
    let (h, q, kv, d, i) =
        (c.hidden_size, c.query_width(), c.key_value_width(), c.head_dim, c.intermediate_size);
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("fc.weight".to_owned(), vec![h, c.num_context_features * h]),
        ("hidden_norm.weight".to_owned(), vec![h]),
    ];
    for layer in 0..c.num_hidden_layers {
        let of_layer: [(&str, Vec<usize>); OF_LAYER] = [
            ("input_layernorm", vec![h]),
            ("self_attn.q_proj", vec![q, h]),
            ("self_attn.k_proj", vec![kv, h]),
            ("self_attn.v_proj", vec![kv, h]),
            ("self_attn.o_proj", vec![h, q]),
            ("self_attn.q_norm", vec![d]),
            ("self_attn.k_norm", vec![d]),
            ("post_attention_layernorm", vec![h]),
            ("mlp.gate_proj", vec![i, h]),
            ("mlp.up_proj", vec![i, h]),
            ("mlp.down_proj", vec![h, i]),
        ];
        for (name, shape) in of_layer {
            tensors.push((format!("layers.{layer}.{name}.weight"), shape));
        }
    }
    tensors.push(("norm.weight".to_owned(), vec![h]));
    if let Some(head) = c.domino {
        let (e, g) = (head.emb_dim, head.gru_hidden_dim);
        tensors.push(("prefix_gru.weight_ih_l0".to_owned(), vec![3 * g, h]));
        tensors.push(("prefix_gru.weight_hh_l0".to_owned(), vec![3 * g, g]));
        tensors.push(("embed_proj.0.weight".to_owned(), vec![e, h + g]));
        tensors.push(("embed_proj.2.weight".to_owned(), vec![c.vocab_size, e]));
    }
    let mut offset = 0;
    tensors
        .into_iter()
        .map(|(name, shape)| {
            let param = Param { name, shape, offset };
            offset = (offset + param.len()).next_multiple_of(ALIGNMENT);
            param
        })
        .collect()
}

/// Views of every tensor in one of the flat buffers, by role instead of by name. `M` is what a matrix is seen as: an operand of
/// products, or the plain view of a gradient.
#[derive(Debug, Clone)]
pub(super) struct Tensors<M> {
    pub fc: M,
    pub hidden_norm: View<f32>,
    pub layers: Vec<LayerTensors<M>>,
    pub norm: View<f32>,
    pub domino: Option<DominoTensors<M>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DominoTensors<M> {
    pub gru_input: M,
    pub gru_state: M,
    /// `[E, H + G]`.
    pub project: M,
    /// `[V, E]`.
    pub correct: M,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LayerTensors<M> {
    pub input_norm: View<f32>,
    pub q: M,
    pub k: M,
    pub v: M,
    pub o: M,
    pub q_norm: View<f32>,
    pub k_norm: View<f32>,
    pub post_norm: View<f32>,
    pub gate: M,
    pub up: M,
    pub down: M,
}

impl<M> Tensors<M> {
    /// Relies on the order in [`table`].
    pub fn of(
        config: &Config,
        table: &[Param],
        flat: &Buffer<f32>,
        as_matrix: impl Fn(View<f32>, Range<usize>) -> M,
    ) -> Self {
        let end = 2 + OF_LAYER * config.num_hidden_layers;
        let range = |i: usize| table[i].offset..table[i].offset + table[i].len();
        let view = |i: usize| flat.slice(range(i));
        let matrix = |i: usize| as_matrix(view(i), range(i));
        let layers = (2..end).step_by(OF_LAYER).map(|i| LayerTensors {
            input_norm: view(i),
            q: matrix(i + 1),
            k: matrix(i + 2),
            v: matrix(i + 3),
            o: matrix(i + 4),
            q_norm: view(i + 5),
            k_norm: view(i + 6),
            post_norm: view(i + 7),
            gate: matrix(i + 8),
            up: matrix(i + 9),
            down: matrix(i + 10),
        });
        Self {
            fc: matrix(0),
            hidden_norm: view(1),
            layers: layers.collect(),
            norm: view(end),
            domino: config.domino.map(|_| DominoTensors {
                gru_input: matrix(end + 1),
                gru_state: matrix(end + 2),
                project: matrix(end + 3),
                correct: matrix(end + 4),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_projections_have_the_stated_deviation_and_differ_between_tensors() {
        let values: Vec<f64> = (0..20_000).map(|i| f64::from(normal(7, 3, i))).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 20_000.0).sqrt();
        assert!(mean.abs() < 6e-4, "{mean}");
        assert!((deviation - INITIAL_DEVIATION).abs() < 5e-4, "{deviation}");
        assert!((0..100).any(|i| normal(7, 3, i) != normal(7, 4, i)));
    }
}
