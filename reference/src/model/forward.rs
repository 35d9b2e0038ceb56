//! Forward pass and loss. The loss' gradient with respect to the final hidden states falls out of the chunked cross-entropy
//! here, so that no chunk of logits is computed twice.

use super::{Batch, Model, Scalar};
use crate::device::{GemmShape, Layout, Result, Stream, View};
use crate::kernels::{anchors, attention, elementwise, loss, norm, rotary};

impl Model {
    pub(super) fn run_forward(&self, stream: &Stream, batch: &Batch, mask_token: Scalar<i32>) -> Result<()> {
        let (c, ws, w) = (&self.config, &self.workspace, &self.weights);
        let (sequences, blocks, slots) = (self.batch, self.blocks, c.block_size);
        let (rows, context_rows) = (sequences * blocks * slots, sequences * self.seq_len);
        let (h, eps) = (c.hidden_size, c.rms_norm_eps);

        anchors::noise_embed::launch(
            stream,
            batch.input_ids.view(),
            ws.anchors.view(),
            ws.keep.view(),
            self.frozen.embed_tokens.view(),
            mask_token.pointer(),
            ws.noise_ids.view(),
            ws.x_first().view(),
            sequences,
            self.seq_len,
            blocks,
            slots,
            c.vocab_size,
            h,
            c.mask_token_id,
        )?;

        let features = c.num_context_features * h;
        linear(stream, batch.hidden_states.view(), w.fc, ws.context_raw.view(), context_rows, features, h)?;
        norm::rms_norm::launch(
            stream,
            ws.context_raw.view(),
            w.hidden_norm,
            ws.context.view(),
            ws.context_rstd.view(),
            context_rows,
            h,
            eps,
        )?;

        for layer in 0..c.num_hidden_layers {
            self.forward_layer(stream, layer)?;
        }

        norm::rms_norm::launch(
            stream,
            ws.x_out.view(),
            w.norm,
            ws.hidden.view(),
            ws.rstd_out.view(),
            rows,
            h,
            eps,
        )?;
        self.run_loss(stream, batch)
    }

    fn forward_layer(&self, stream: &Stream, layer: usize) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let (state, w) = (&ws.layers[layer], &self.weights.layers[layer]);
        let (sequences, blocks, slots) = (self.batch, self.blocks, c.block_size);
        let (rows, context_rows) = (sequences * blocks * slots, sequences * self.seq_len);
        let (h, q, kv, inner) = (c.hidden_size, c.query_width(), c.key_value_width(), c.intermediate_size);
        let (heads, kv_heads, head_dim, eps) =
            (c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rms_norm_eps);
        let context = ws.context.view();

        norm::rms_norm::launch(
            stream,
            state.x_in.view(),
            w.input_norm,
            state.h_in.view(),
            state.rstd_in.view(),
            rows,
            h,
            eps,
        )?;
        linear(stream, state.h_in.view(), w.q, state.q_raw.view(), rows, h, q)?;
        linear(stream, state.h_in.view(), w.k, state.kd_raw.view(), rows, h, kv)?;
        linear(stream, state.h_in.view(), w.v, state.vd.view(), rows, h, kv)?;
        linear(stream, context, w.k, state.kc_raw.view(), context_rows, h, kv)?;
        linear(stream, context, w.v, state.vc.view(), context_rows, h, kv)?;

        // Per head: norm, then rotation in place.
        let anchors = Some(ws.anchors.view());
        let per_head = [
            (&state.q_raw, w.q_norm, &state.q, &state.q_rstd, rows, heads, anchors),
            (&state.kd_raw, w.k_norm, &state.kd, &state.kd_rstd, rows, kv_heads, anchors),
            (&state.kc_raw, w.k_norm, &state.kc, &state.kc_rstd, context_rows, kv_heads, None),
        ];
        for (raw, weight, out, rstd, rows, heads, anchors) in per_head {
            norm::rms_norm::launch(
                stream,
                raw.view(),
                weight,
                out.view(),
                rstd.view(),
                rows * heads,
                head_dim,
                eps,
            )?;
            rotary::rotary::launch(
                stream,
                out.view(),
                anchors,
                rows,
                heads,
                head_dim,
                slots,
                self.seq_len,
                c.rope_theta,
                1.0,
            )?;
        }

        attention::attention::launch(
            stream,
            state.q.view(),
            state.kc.view(),
            state.vc.view(),
            state.kd.view(),
            state.vd.view(),
            ws.anchors.view(),
            ws.keep.view(),
            state.attended.view(),
            state.lse.view(),
            sequences,
            self.seq_len,
            blocks,
            slots,
            heads,
            kv_heads,
            head_dim,
            self.attention_scale(),
        )?;
        linear(stream, state.attended.view(), w.o, ws.projected.view(), rows, q, h)?;
        elementwise::add::launch(
            stream,
            state.x_in.view(),
            ws.projected.view(),
            state.x_mid.view(),
            rows * h,
        )?;

        norm::rms_norm::launch(
            stream,
            state.x_mid.view(),
            w.post_norm,
            state.h_mid.view(),
            state.rstd_mid.view(),
            rows,
            h,
            eps,
        )?;
        linear(stream, state.h_mid.view(), w.gate, state.gate.view(), rows, h, inner)?;
        linear(stream, state.h_mid.view(), w.up, state.up.view(), rows, h, inner)?;
        elementwise::silu_gate::launch(
            stream,
            state.gate.view(),
            state.up.view(),
            state.gated.view(),
            rows * inner,
        )?;
        linear(stream, state.gated.view(), w.down, ws.projected.view(), rows, inner, h)?;
        elementwise::add::launch(
            stream,
            state.x_mid.view(),
            ws.projected.view(),
            ws.x_after(layer).view(),
            rows * h,
        )
    }

    /// Labels, weights and their sums; then chunk by chunk logits, cross-entropy and the gradient of the final hidden states.
    fn run_loss(&self, stream: &Stream, batch: &Batch) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let (sequences, blocks, slots) = (self.batch, self.blocks, c.block_size);
        let (rows, h, v) = (sequences * blocks * slots, c.hidden_size, c.vocab_size);
        loss::loss_weights::launch(
            stream,
            batch.input_ids.view(),
            batch.loss_mask.view(),
            ws.anchors.view(),
            ws.keep.view(),
            ws.labels.view(),
            ws.mask.view(),
            ws.weights.view(),
            sequences,
            self.seq_len,
            blocks,
            slots,
            0, // DFlash: slot k predicts the token at anchor + k
            c.loss_decay_gamma.unwrap_or(0.0),
        )?;
        loss::loss_sums::launch(
            stream,
            ws.weights.view(),
            ws.mask.view(),
            ws.sums.view(),
            sequences,
            blocks,
            slots,
        )?;
        let lm_head = self.frozen.lm_head.view();
        let mut first = 0;
        while first < rows {
            let chunk = first..rows.min(first + ws.logits_rows);
            let n = chunk.len();
            let hidden = ws.hidden.slice(chunk.start * h..chunk.end * h);
            linear(stream, hidden, lm_head, ws.logits.view(), n, h, v)?;
            loss::cross_entropy::launch(
                stream,
                ws.logits.view(),
                ws.labels.slice(chunk.clone()),
                ws.mask.slice(chunk.clone()),
                ws.weights.slice(chunk.clone()),
                ws.sums.view(),
                ws.terms.slice(chunk.clone()),
                ws.correct.slice(chunk.clone()),
                n,
                v,
                loss::DENOMINATOR_EPS,
            )?;
            let d_hidden = ws.d_hidden.slice(chunk.start * h..chunk.end * h);
            stream.gemm(
                Layout::Nn,
                GemmShape { m: n, n: h, k: v },
                ws.logits.view(),
                lm_head,
                d_hidden,
                false,
            )?;
            first = chunk.end;
        }
        loss::loss_finish::launch(
            stream,
            ws.terms.view(),
            ws.correct.view(),
            ws.sums.view(),
            ws.metrics.view(),
            ws.totals.view(),
            sequences,
            blocks,
            slots,
            loss::DENOMINATOR_EPS,
        )
    }

    pub(super) fn attention_scale(&self) -> f32 {
        1.0 / (self.config.head_dim as f32).sqrt()
    }
}

/// `y[rows, outputs] = x[rows, inputs] w^T` with `w[outputs, inputs]`.
fn linear(
    stream: &Stream,
    x: View<f32>,
    w: View<f32>,
    y: View<f32>,
    rows: usize,
    inputs: usize,
    outputs: usize,
) -> Result<()> {
    stream.gemm(Layout::Nt, GemmShape { m: rows, n: outputs, k: inputs }, x, w, y, false)
}
