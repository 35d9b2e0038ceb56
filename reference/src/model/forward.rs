//! Forward pass and loss. The loss' gradient with respect to the final hidden states falls out of the chunked cross-entropy
//! here, so that no chunk of logits is computed twice.

use super::{Batch, Model, Scalar};
use crate::device::{Buffer, GemmShape, Layout, Result, Stream};
use crate::kernels::{anchors, attention, domino, elementwise, loss, norm, rotary};
use std::ops::Range;

impl Model {
    pub(super) fn run_forward(&self, stream: &Stream, batch: &Batch, mask_token: Scalar<i32>) -> Result<()> {
        let (c, ws, w) = (&self.config, &self.workspace, &self.weights);
        let (sequences, blocks, slots) = (self.batch, self.blocks, c.block_size);
        let (rows, context_rows) = (sequences * blocks * slots, sequences * self.seq_len);
        let (h, eps) = (c.hidden_size, c.rms_norm_eps);

        self.round_weights(stream)?;
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
        self.linear(
            stream,
            batch.hidden_states.view(),
            w.fc,
            ws.context_raw.view(),
            context_rows,
            features,
            h,
        )?;
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
        self.forward_domino(stream, batch)?;
        self.run_loss(stream, batch)
    }

    /// The correction up to the activation between its projections: embeddings of previous tokens, GRU, first projection.
    fn forward_domino(&self, stream: &Stream, batch: &Batch) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let (Some(head), Some(d), Some(w)) = (c.domino, &ws.domino, self.weights.domino) else {
            return Ok(());
        };
        let (blocks, slots) = (self.batch * self.blocks, c.block_size);
        let (rows, h, g, e) = (blocks * slots, c.hidden_size, head.gru_hidden_dim, head.emb_dim);
        domino::previous_embed::launch(
            stream,
            batch.input_ids.view(),
            ws.anchors.view(),
            ws.keep.view(),
            self.frozen.embed_tokens.view(),
            d.previous.view(),
            self.batch,
            self.seq_len,
            self.blocks,
            slots,
            c.vocab_size,
            h,
            head.first_slot(),
        )?;
        self.linear(stream, d.previous.view(), w.gru_input, d.inputs.view(), rows, h, 3 * g)?;
        domino::gru::launch(
            stream,
            d.inputs.view(),
            w.gru_state.full(),
            d.states.view(),
            d.gates.view(),
            blocks,
            slots,
            g,
        )?;
        domino::concat::launch(stream, ws.hidden.view(), d.states.view(), d.features.view(), rows, h, g)?;
        self.linear(stream, d.features.view(), w.project, d.projected.view(), rows, h + g, e)?;
        domino::suffix_silu::launch(
            stream,
            d.projected.view(),
            d.activated.view(),
            rows,
            e,
            slots,
            head.suffix_start(),
        )
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
        self.linear(stream, state.h_in.view(), w.q, state.q_raw.view(), rows, h, q)?;
        self.linear(stream, state.h_in.view(), w.k, state.kd_raw.view(), rows, h, kv)?;
        self.linear(stream, state.h_in.view(), w.v, state.vd.view(), rows, h, kv)?;
        self.linear(stream, context, w.k, state.kc_raw.view(), context_rows, h, kv)?;
        self.linear(stream, context, w.v, state.vc.view(), context_rows, h, kv)?;

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
            c.window(layer),
            self.attention_scale(),
        )?;
        self.linear(stream, state.attended.view(), w.o, ws.projected.view(), rows, q, h)?;
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
        self.linear(stream, state.h_mid.view(), w.gate, state.gate.view(), rows, h, inner)?;
        self.linear(stream, state.h_mid.view(), w.up, state.up.view(), rows, h, inner)?;
        elementwise::silu_gate::launch(
            stream,
            state.gate.view(),
            state.up.view(),
            state.gated.view(),
            rows * inner,
        )?;
        self.linear(stream, state.gated.view(), w.down, ws.projected.view(), rows, inner, h)?;
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
        let eps = loss::DENOMINATOR_EPS;
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
            c.label_shift(),
            c.loss_decay_gamma.unwrap_or(0.0),
        )?;
        let (weights, mask, sums) = (ws.weights.view(), ws.mask.view(), ws.sums.view());
        let lambda = ws.domino.as_ref().map(|d| d.lambda.view());
        loss::loss_sums::launch(stream, weights, mask, sums, sequences, blocks, slots)?;
        let (share, base_share) = (ws.share.view(), ws.base_share.view());
        loss::loss_shares::launch(
            stream,
            weights,
            sums,
            share,
            base_share,
            lambda,
            sequences * blocks * slots,
            eps,
        )?;
        // Sequence by sequence, so that fewer blocks of each change no sum over rows (see `kernels`).
        let each = blocks * slots;
        for s in 0..sequences {
            let (mut first, end) = (s * each, (s + 1) * each);
            while first < end {
                let chunk = first..end.min(first + ws.logits_rows);
                first = chunk.end;
                self.loss_chunk(stream, chunk)?;
            }
        }
        loss::loss_finish::launch(
            stream,
            weights,
            share,
            mask,
            ws.losses.view(),
            ws.correct.view(),
            sums,
            ws.metrics.view(),
            ws.totals.view(),
            ws.domino.as_ref().map(|d| d.base_losses.view()),
            ws.domino.as_ref().map(|d| d.base_correct.view()),
            lambda,
            sequences,
            blocks,
            slots,
            eps,
        )
    }

    /// Logits, cross-entropy and gradients of these draft rows, which are whole blocks.
    fn loss_chunk(&self, stream: &Stream, rows: Range<usize>) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let (n, h, v) = (rows.len(), c.hidden_size, c.vocab_size);
        let lm_head = self.lm_head();
        let of = |buffer: &Buffer<f32>| buffer.slice(rows.clone());
        let wide = |buffer: &Buffer<f32>, width: usize| buffer.slice(rows.start * width..rows.end * width);
        let (labels, mask) = (ws.labels.slice(rows.clone()), of(&ws.mask));
        let (lse, losses, correct, share) = (of(&ws.lse), of(&ws.losses), of(&ws.correct), of(&ws.share));

        let logits = ws.logits.view();
        self.linear(stream, wide(&ws.hidden, h), lm_head, logits, n, h, v)?;
        if let (Some(head), Some(d), Some(w)) = (c.domino, &ws.domino, self.weights.domino) {
            let (e, final_logits) = (head.emb_dim, d.logits.slice(0..n * v));
            let activated = wide(&d.activated, e);
            stream.copy(final_logits, logits.slice(0..n * v))?;
            let product = GemmShape { m: n, n: v, k: e };
            self.product(stream, Layout::Nt, product, (activated.into(), w.correct), final_logits, true)?;
            loss::cross_entropy::launch(stream, final_logits, labels, mask, lse, losses, correct, n, v)?;
            loss::cross_entropy_gradient::launch(stream, final_logits, labels, lse, share, None, n, v)?;
            let product = GemmShape { m: n, n: e, k: v };
            let operands = (final_logits.into(), w.correct);
            self.product(stream, Layout::Nn, product, operands, wide(&d.d_activated, e), false)?;
            let product = GemmShape { m: v, n: e, k: n };
            let (operands, more) = ((final_logits.into(), activated.into()), rows.start > 0);
            self.product(stream, Layout::Tn, product, operands, d.d_correct.view(), more)?;

            let (lse, losses, correct) = (of(&d.base_lse), of(&d.base_losses), of(&d.base_correct));
            loss::cross_entropy::launch(stream, logits, labels, mask, lse, losses, correct, n, v)?;
            let (share, more) = (of(&ws.base_share), Some(final_logits));
            loss::cross_entropy_gradient::launch(stream, logits, labels, lse, share, more, n, v)?;
        } else {
            loss::cross_entropy::launch(stream, logits, labels, mask, lse, losses, correct, n, v)?;
            if let Some(kind) = c.loss_type.dpace_kind() {
                let (blocks, slots) = (n / c.block_size, c.block_size);
                let (alpha, sequences) = (c.dpace_alpha, self.batch as f32);
                loss::dpace_shares::launch(
                    stream, losses, mask, share, blocks, slots, alpha, kind, sequences,
                )?;
            }
            loss::cross_entropy_gradient::launch(stream, logits, labels, lse, share, None, n, v)?;
        }
        let (product, operands) = (GemmShape { m: n, n: h, k: v }, (logits.into(), lm_head));
        self.product(stream, Layout::Nn, product, operands, wide(&ws.d_hidden, h), false)
    }

    pub(super) fn attention_scale(&self) -> f32 {
        1.0 / (self.config.head_dim as f32).sqrt()
    }
}
