//! Every intermediate of a step, allocated once for the largest case (N blocks per sequence).

use std::sync::Arc;

use super::{Config, DominoHead};
use crate::device::{Buffer, Device, Result};
use crate::kernels::loss::METRICS;

/// Rows that the first pass of a norm weight's gradient adds up.
pub(super) const NORM_CHUNK: usize = 64;

/// The logits of as many whole blocks as fit into this many floats (256 MiB) are held at a time; at least two blocks'.
const LOGITS_ELEMENTS: usize = 64 << 20;

/// What the backward pass needs of one layer. R draft rows, C context rows.
#[derive(Debug)]
pub(super) struct LayerState {
    /// Input of the layer, `[R, H]`.
    pub x_in: Buffer<f32>,
    pub rstd_in: Buffer<f32>,
    pub h_in: Buffer<f32>,
    /// Query projection before norm and rotation, `[R, Q]`, and after.
    pub q_raw: Buffer<f32>,
    pub q_rstd: Buffer<f32>,
    pub q: Buffer<f32>,
    /// Keys of the draft, `[R, KV]`.
    pub kd_raw: Buffer<f32>,
    pub kd_rstd: Buffer<f32>,
    pub kd: Buffer<f32>,
    pub vd: Buffer<f32>,
    /// Keys of the context, `[C, KV]`.
    pub kc_raw: Buffer<f32>,
    pub kc_rstd: Buffer<f32>,
    pub kc: Buffer<f32>,
    pub vc: Buffer<f32>,
    /// Attention output, `[R, Q]`.
    pub attended: Buffer<f32>,
    pub lse: Buffer<f32>,
    /// After the attention's residual sum, `[R, H]`.
    pub x_mid: Buffer<f32>,
    pub rstd_mid: Buffer<f32>,
    pub h_mid: Buffer<f32>,
    /// `[R, I]`.
    pub gate: Buffer<f32>,
    pub up: Buffer<f32>,
    pub gated: Buffer<f32>,
}

#[derive(Debug)]
pub(super) struct Workspace {
    pub counts: Buffer<i32>,
    pub width: Buffer<i32>,
    pub draws: Buffer<u32>,
    pub keys: Buffer<f32>,
    pub chosen: Buffer<i32>,
    pub anchors: Buffer<i32>,
    pub keep: Buffer<i32>,
    pub noise_ids: Buffer<i32>,

    pub context_raw: Buffer<f32>,
    pub context_rstd: Buffer<f32>,
    pub context: Buffer<f32>,
    pub layers: Vec<LayerState>,
    pub x_out: Buffer<f32>,
    pub rstd_out: Buffer<f32>,
    pub hidden: Buffer<f32>,
    /// Output of a projection before its residual sum, `[R, H]`.
    pub projected: Buffer<f32>,

    pub labels: Buffer<i32>,
    pub mask: Buffer<f32>,
    pub weights: Buffer<f32>,
    pub sums: Buffer<f32>,
    pub share: Buffer<f32>,
    pub base_share: Buffer<f32>,
    pub lse: Buffer<f32>,
    pub losses: Buffer<f32>,
    pub correct: Buffer<f32>,
    pub metrics: Buffer<f32>,
    pub totals: Buffer<f32>,
    /// Rows per chunk of `logits`: whole blocks.
    pub logits_rows: usize,
    pub logits: Buffer<f32>,

    pub d_hidden: Buffer<f32>,
    pub dx: Buffer<f32>,
    pub dh: Buffer<f32>,
    pub d_gated: Buffer<f32>,
    pub d_gate: Buffer<f32>,
    pub d_up: Buffer<f32>,
    pub d_attended: Buffer<f32>,
    pub delta: Buffer<f32>,
    pub dq: Buffer<f32>,
    pub dq_raw: Buffer<f32>,
    pub dkd: Buffer<f32>,
    pub dkd_raw: Buffer<f32>,
    pub dvd: Buffer<f32>,
    pub dkc: Buffer<f32>,
    pub dkc_raw: Buffer<f32>,
    pub dvc: Buffer<f32>,
    pub d_context: Buffer<f32>,
    pub d_context_raw: Buffer<f32>,
    pub partial: Buffer<f32>,
    pub domino: Option<DominoState>,
}

/// What the Domino head needs besides. R draft rows.
#[derive(Debug)]
pub(super) struct DominoState {
    /// Weight of the base loss, `[1]`.
    pub lambda: Buffer<f32>,
    /// Embeddings of previous tokens, `[R, H]`.
    pub previous: Buffer<f32>,
    /// The GRU's inputs, states and gates, `[R, 3 G]`, `[R, G]`, `[R, 4 G]`.
    pub inputs: Buffer<f32>,
    pub states: Buffer<f32>,
    pub gates: Buffer<f32>,
    /// Final hidden states and GRU states side by side, `[R, H + G]`.
    pub features: Buffer<f32>,
    /// Between the projections, before and after the activation, `[R, E]`.
    pub projected: Buffer<f32>,
    pub activated: Buffer<f32>,
    /// A chunk of corrected logits, and what the cross-entropy says of all rows of the base logits.
    pub logits: Buffer<f32>,
    pub base_lse: Buffer<f32>,
    pub base_losses: Buffer<f32>,
    pub base_correct: Buffer<f32>,

    /// The last forward pass' gradient of the second projection, `[V, E]`.
    pub d_correct: Buffer<f32>,
    pub d_activated: Buffer<f32>,
    pub d_projected: Buffer<f32>,
    pub d_features: Buffer<f32>,
    pub d_states: Buffer<f32>,
    pub d_inputs: Buffer<f32>,
    pub d_recurrent: Buffer<f32>,
    /// The GRU's gradient on its way to the slot before, one state per block.
    pub carry: Buffer<f32>,
}

impl DominoState {
    fn new(
        device: &Arc<Device>,
        config: &Config,
        head: DominoHead,
        blocks: usize,
        logits_rows: usize,
    ) -> Result<Self> {
        let floats = |n: usize| Buffer::<f32>::zeros(device, n);
        let (h, v, r) = (config.hidden_size, config.vocab_size, blocks * config.block_size);
        let (e, g) = (head.emb_dim, head.gru_hidden_dim);
        Ok(Self {
            lambda: floats(1)?,
            previous: floats(r * h)?,
            inputs: floats(r * 3 * g)?,
            states: floats(r * g)?,
            gates: floats(r * 4 * g)?,
            features: floats(r * (h + g))?,
            projected: floats(r * e)?,
            activated: floats(r * e)?,
            logits: floats(logits_rows * v)?,
            base_lse: floats(r)?,
            base_losses: floats(r)?,
            base_correct: floats(r)?,
            d_correct: floats(v * e)?,
            d_activated: floats(r * e)?,
            d_projected: floats(r * e)?,
            d_features: floats(r * (h + g))?,
            d_states: floats(r * g)?,
            d_inputs: floats(r * 3 * g)?,
            d_recurrent: floats(r * 3 * g)?,
            carry: floats(blocks * g)?,
        })
    }
}

impl Workspace {
    pub fn new(device: &Arc<Device>, config: &Config, batch: usize, seq_len: usize) -> Result<Self> {
        let c = config;
        let floats = |n: usize| Buffer::<f32>::zeros(device, n);
        let ints = |n: usize| Buffer::<i32>::zeros(device, n);
        let blocks = batch * c.num_anchors;
        let (r, s) = (blocks * c.block_size, batch * seq_len);
        let (h, q, kv, i) = (c.hidden_size, c.query_width(), c.key_value_width(), c.intermediate_size);
        let (heads, kv_heads) = (c.num_attention_heads, c.num_key_value_heads);
        let candidates = batch * super::candidates(seq_len, c.block_size);

        let mut layers = Vec::new();
        for _ in 0..c.num_hidden_layers {
            layers.push(LayerState {
                x_in: floats(r * h)?,
                rstd_in: floats(r)?,
                h_in: floats(r * h)?,
                q_raw: floats(r * q)?,
                q_rstd: floats(r * heads)?,
                q: floats(r * q)?,
                kd_raw: floats(r * kv)?,
                kd_rstd: floats(r * kv_heads)?,
                kd: floats(r * kv)?,
                vd: floats(r * kv)?,
                kc_raw: floats(s * kv)?,
                kc_rstd: floats(s * kv_heads)?,
                kc: floats(s * kv)?,
                vc: floats(s * kv)?,
                attended: floats(r * q)?,
                lse: floats(r * heads)?,
                x_mid: floats(r * h)?,
                rstd_mid: floats(r)?,
                h_mid: floats(r * h)?,
                gate: floats(r * i)?,
                up: floats(r * i)?,
                gated: floats(r * i)?,
            });
        }
        let logits_rows =
            (LOGITS_ELEMENTS / c.vocab_size / c.block_size).max(2).min(c.num_anchors) * c.block_size;
        // Rows per sequence and width of every norm whose weight gets a gradient.
        let draft_rows = c.num_anchors * c.block_size;
        let norms = [
            (draft_rows, h),
            (seq_len, h),
            (draft_rows * heads, c.head_dim),
            (draft_rows * kv_heads, c.head_dim),
            (seq_len * kv_heads, c.head_dim),
        ];
        let partial =
            norms.iter().map(|(rows, width)| batch * rows.div_ceil(NORM_CHUNK) * width).max().unwrap_or(0);
        Ok(Self {
            counts: ints(batch)?,
            width: ints(1)?,
            draws: Buffer::zeros(device, 1)?,
            keys: floats(candidates)?,
            chosen: ints(candidates)?,
            anchors: ints(blocks)?,
            keep: ints(blocks)?,
            noise_ids: ints(r)?,
            context_raw: floats(s * h)?,
            context_rstd: floats(s)?,
            context: floats(s * h)?,
            layers,
            x_out: floats(r * h)?,
            rstd_out: floats(r)?,
            hidden: floats(r * h)?,
            projected: floats(r * h)?,
            labels: ints(r)?,
            mask: floats(r)?,
            weights: floats(r)?,
            sums: floats(2)?,
            share: floats(r)?,
            base_share: floats(r)?,
            lse: floats(r)?,
            losses: floats(r)?,
            correct: floats(r)?,
            metrics: floats(METRICS)?,
            totals: floats(METRICS + 1)?,
            logits_rows,
            logits: floats(logits_rows * c.vocab_size)?,
            d_hidden: floats(r * h)?,
            dx: floats(r * h)?,
            dh: floats(r * h)?,
            d_gated: floats(r * i)?,
            d_gate: floats(r * i)?,
            d_up: floats(r * i)?,
            d_attended: floats(r * q)?,
            delta: floats(r * heads)?,
            dq: floats(r * q)?,
            dq_raw: floats(r * q)?,
            dkd: floats(r * kv)?,
            dkd_raw: floats(r * kv)?,
            dvd: floats(r * kv)?,
            dkc: floats(s * kv)?,
            dkc_raw: floats(s * kv)?,
            dvc: floats(s * kv)?,
            d_context: floats(s * h)?,
            d_context_raw: floats(s * h)?,
            partial: floats(partial)?,
            domino: c
                .domino
                .map(|head| DominoState::new(device, c, head, blocks, logits_rows))
                .transpose()?,
        })
    }

    /// Input of layer `layer`, or the last layer's output.
    pub fn x_after(&self, layer: usize) -> &Buffer<f32> {
        self.layers.get(layer + 1).map_or(&self.x_out, |l| &l.x_in)
    }

    /// Input of the first layer.
    pub fn x_first(&self) -> &Buffer<f32> {
        self.layers.first().map_or(&self.x_out, |l| &l.x_in)
    }
}
