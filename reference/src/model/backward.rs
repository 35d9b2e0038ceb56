//! Backward pass: from the gradient of the final hidden states to the gradient of every trainable tensor.
//!
//! Weight gradients are added up sequence by sequence (see `kernels`: trailing padding is neutral).

use super::products::Rows;
use super::workspace::NORM_CHUNK;
use super::{Batch, Model};
use crate::device::{GemmShape, Layout, Result, Stream, View};
use crate::kernels::{attention, domino, elementwise, norm, rotary};

impl Model {
    pub(super) fn run_backward(&self, stream: &Stream, batch: &Batch, scale: f32) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let (draft, context) = (self.draft_rows(), self.context_rows());
        let h = c.hidden_size;

        if scale.to_bits() != 1.0_f32.to_bits() {
            elementwise::scale::launch(stream, ws.d_hidden.view(), draft.all() * h, scale)?;
        }
        self.backward_domino(stream, scale)?;
        self.norm_weight(
            stream,
            ws.d_hidden.view(),
            ws.x_out.view(),
            ws.rstd_out.view(),
            self.grads.norm,
            draft,
            h,
        )?;
        norm::rms_norm_backward::launch(
            stream,
            ws.d_hidden.view(),
            ws.x_out.view(),
            self.weights.norm,
            ws.rstd_out.view(),
            ws.dx.view(),
            draft.all(),
            h,
            0,
        )?;
        stream.zero(ws.d_context.view())?;
        for layer in (0..c.num_hidden_layers).rev() {
            self.backward_mlp(stream, layer)?;
            self.backward_attention(stream, layer)?;
        }

        self.norm_weight(
            stream,
            ws.d_context.view(),
            ws.context_raw.view(),
            ws.context_rstd.view(),
            self.grads.hidden_norm,
            context,
            h,
        )?;
        norm::rms_norm_backward::launch(
            stream,
            ws.d_context.view(),
            ws.context_raw.view(),
            self.weights.hidden_norm,
            ws.context_rstd.view(),
            ws.d_context_raw.view(),
            context.all(),
            h,
            0,
        )?;
        let features = c.num_context_features * h;
        self.weight_gradient(
            stream,
            ws.d_context_raw.view(),
            batch.hidden_states.view(),
            self.grads.fc,
            context,
            features,
            h,
        )
    }

    /// From the gradients that the loss left of the second projection and its input, to those of the first projection, the GRU,
    /// and (added) the final hidden states.
    fn backward_domino(&self, stream: &Stream, scale: f32) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let (Some(head), Some(d)) = (c.domino, &ws.domino) else { return Ok(()) };
        let (Some(w), Some(grads)) = (self.weights.domino, self.grads.domino) else { return Ok(()) };
        let draft = self.draft_rows();
        let (h, v, rows, slots) = (c.hidden_size, c.vocab_size, draft.all(), c.block_size);
        let (e, g) = (head.emb_dim, head.gru_hidden_dim);
        let (d_projected, d_features) = (d.d_projected.view(), d.d_features.view());

        elementwise::add_scaled::launch(stream, d.d_correct.view(), grads.correct, v * e, scale)?;
        if scale.to_bits() != 1.0_f32.to_bits() {
            elementwise::scale::launch(stream, d.d_activated.view(), rows * e, scale)?;
        }
        domino::suffix_silu_backward::launch(
            stream,
            d.d_activated.view(),
            d.projected.view(),
            d_projected,
            rows,
            e,
            slots,
            head.suffix_start(),
        )?;
        self.weight_gradient(stream, d_projected, d.features.view(), grads.project, draft, h + g, e)?;
        self.input_gradient(stream, d_projected, w.project, d_features, draft, h + g, e, false)?;
        domino::concat_backward::launch(
            stream,
            d_features,
            ws.d_hidden.view(),
            d.d_states.view(),
            rows,
            h,
            g,
        )?;
        domino::gru_backward::launch(
            stream,
            d.d_states.view(),
            d.states.view(),
            d.gates.view(),
            w.gru_state.full(),
            d.d_inputs.view(),
            d.d_recurrent.view(),
            d.carry.view(),
            self.batch * self.blocks,
            slots,
            g,
        )?;
        self.weight_gradient(stream, d.d_inputs.view(), d.previous.view(), grads.gru_input, draft, h, 3 * g)?;
        // A slot's gradient meets the state of the slot before: the same rows, shifted by one. In the first slot of a block,
        // where the row before belongs to another block, the gradient is zero.
        for s in 0..draft.sequences {
            let (first, last) = (s * draft.each, (s + 1) * draft.each - 1);
            let before = d.states.slice(first * g..last * g);
            let behind = d.d_recurrent.slice((first + 1) * 3 * g..(last + 1) * 3 * g);
            let shape = GemmShape { m: 3 * g, n: g, k: draft.each - 1 };
            let operands = (behind.into(), before.into());
            self.product(stream, Layout::Tn, shape, operands, grads.gru_state, true)?;
        }
        Ok(())
    }

    /// `x_out = x_mid + down(silu(gate(h)) * up(h))`, `h = norm(x_mid)`; `dx` is the gradient of `x_out`, then of `x_mid`.
    fn backward_mlp(&self, stream: &Stream, layer: usize) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let (state, w, g) = (&ws.layers[layer], &self.weights.layers[layer], &self.grads.layers[layer]);
        let draft = self.draft_rows();
        let (h, inner) = (c.hidden_size, c.intermediate_size);
        let (dx, dh) = (ws.dx.view(), ws.dh.view());

        self.weight_gradient(stream, dx, state.gated.view(), g.down, draft, inner, h)?;
        self.input_gradient(stream, dx, w.down, ws.d_gated.view(), draft, inner, h, false)?;
        elementwise::silu_gate_backward::launch(
            stream,
            ws.d_gated.view(),
            state.gate.view(),
            state.up.view(),
            ws.d_gate.view(),
            ws.d_up.view(),
            draft.all() * inner,
        )?;
        self.weight_gradient(stream, ws.d_gate.view(), state.h_mid.view(), g.gate, draft, h, inner)?;
        self.weight_gradient(stream, ws.d_up.view(), state.h_mid.view(), g.up, draft, h, inner)?;
        self.input_gradient(stream, ws.d_gate.view(), w.gate, dh, draft, h, inner, false)?;
        self.input_gradient(stream, ws.d_up.view(), w.up, dh, draft, h, inner, true)?;
        self.norm_weight(stream, dh, state.x_mid.view(), state.rstd_mid.view(), g.post_norm, draft, h)?;
        norm::rms_norm_backward::launch(
            stream,
            dh,
            state.x_mid.view(),
            w.post_norm,
            state.rstd_mid.view(),
            dx,
            draft.all(),
            h,
            1,
        )
    }

    /// `x_mid = x_in + o(attention(h, context))`, `h = norm(x_in)`; `dx` is the gradient of `x_mid`, then of `x_in`.
    fn backward_attention(&self, stream: &Stream, layer: usize) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let (state, w, g) = (&ws.layers[layer], &self.weights.layers[layer], &self.grads.layers[layer]);
        let (draft, context) = (self.draft_rows(), self.context_rows());
        let (h, q, kv) = (c.hidden_size, c.query_width(), c.key_value_width());
        let (heads, kv_heads) = (c.num_attention_heads, c.num_key_value_heads);
        let (dx, dh) = (ws.dx.view(), ws.dh.view());

        self.weight_gradient(stream, dx, state.attended.view(), g.o, draft, q, h)?;
        self.input_gradient(stream, dx, w.o, ws.d_attended.view(), draft, q, h, false)?;
        self.backward_scores(stream, layer)?;

        // Back through rotation and norm, per head.
        let anchors = Some(ws.anchors.view());
        let per_head = [
            (&ws.dq, &state.q_raw, &state.q_rstd, w.q_norm, g.q_norm, &ws.dq_raw, draft, heads, anchors),
            (
                &ws.dkd,
                &state.kd_raw,
                &state.kd_rstd,
                w.k_norm,
                g.k_norm,
                &ws.dkd_raw,
                draft,
                kv_heads,
                anchors,
            ),
            (
                &ws.dkc,
                &state.kc_raw,
                &state.kc_rstd,
                w.k_norm,
                g.k_norm,
                &ws.dkc_raw,
                context,
                kv_heads,
                None,
            ),
        ];
        for (dy, raw, rstd, weight, gradient, dx, rows, heads, anchors) in per_head {
            rotary::rotary::launch(
                stream,
                dy.view(),
                anchors,
                rows.all(),
                heads,
                c.head_dim,
                c.block_size,
                self.seq_len,
                c.rope_theta,
                -1.0,
            )?;
            self.norm_weight(
                stream,
                dy.view(),
                raw.view(),
                rstd.view(),
                gradient,
                rows.heads(heads),
                c.head_dim,
            )?;
            norm::rms_norm_backward::launch(
                stream,
                dy.view(),
                raw.view(),
                weight,
                rstd.view(),
                dx.view(),
                rows.all() * heads,
                c.head_dim,
                0,
            )?;
        }

        let h_in = state.h_in.view();
        self.weight_gradient(stream, ws.dq_raw.view(), h_in, g.q, draft, h, q)?;
        self.weight_gradient(stream, ws.dkd_raw.view(), h_in, g.k, draft, h, kv)?;
        self.weight_gradient(stream, ws.dvd.view(), h_in, g.v, draft, h, kv)?;
        self.weight_gradient(stream, ws.dkc_raw.view(), ws.context.view(), g.k, context, h, kv)?;
        self.weight_gradient(stream, ws.dvc.view(), ws.context.view(), g.v, context, h, kv)?;
        self.input_gradient(stream, ws.dq_raw.view(), w.q, dh, draft, h, q, false)?;
        self.input_gradient(stream, ws.dkd_raw.view(), w.k, dh, draft, h, kv, true)?;
        self.input_gradient(stream, ws.dvd.view(), w.v, dh, draft, h, kv, true)?;
        self.input_gradient(stream, ws.dkc_raw.view(), w.k, ws.d_context.view(), context, h, kv, true)?;
        self.input_gradient(stream, ws.dvc.view(), w.v, ws.d_context.view(), context, h, kv, true)?;
        self.norm_weight(stream, dh, state.x_in.view(), state.rstd_in.view(), g.input_norm, draft, h)?;
        norm::rms_norm_backward::launch(
            stream,
            dh,
            state.x_in.view(),
            w.input_norm,
            state.rstd_in.view(),
            dx,
            draft.all(),
            h,
            1,
        )
    }

    /// From the gradient of the attention's output to those of queries, keys and values.
    fn backward_scores(&self, stream: &Stream, layer: usize) -> Result<()> {
        let (c, ws) = (&self.config, &self.workspace);
        let state = &ws.layers[layer];
        let (sequences, blocks, slots) = (self.batch, self.blocks, c.block_size);
        let (heads, kv_heads, head_dim) = (c.num_attention_heads, c.num_key_value_heads, c.head_dim);
        let (window, scale) = (c.window(layer), self.attention_scale());
        let (q, lse, delta, dout) = (state.q.view(), state.lse.view(), ws.delta.view(), ws.d_attended.view());
        let (kc, vc, kd, vd) = (state.kc.view(), state.vc.view(), state.kd.view(), state.vd.view());
        let (anchors, keep) = (ws.anchors.view(), ws.keep.view());
        attention::attention_delta::launch(
            stream,
            dout,
            state.attended.view(),
            delta,
            sequences * blocks * slots * heads,
            head_dim,
        )?;
        attention::attention_backward_query::launch(
            stream,
            q,
            kc,
            vc,
            kd,
            vd,
            anchors,
            keep,
            dout,
            lse,
            delta,
            ws.dq.view(),
            sequences,
            self.seq_len,
            blocks,
            slots,
            heads,
            kv_heads,
            head_dim,
            window,
            scale,
        )?;
        attention::attention_backward_draft::launch(
            stream,
            q,
            kd,
            vd,
            keep,
            dout,
            lse,
            delta,
            ws.dkd.view(),
            ws.dvd.view(),
            sequences,
            blocks,
            slots,
            heads,
            kv_heads,
            head_dim,
            window,
            scale,
        )?;
        attention::attention_backward_context::launch(
            stream,
            q,
            kc,
            vc,
            anchors,
            keep,
            dout,
            lse,
            delta,
            ws.dkc.view(),
            ws.dvc.view(),
            sequences,
            self.seq_len,
            blocks,
            slots,
            heads,
            kv_heads,
            head_dim,
            window,
            scale,
        )
    }

    fn draft_rows(&self) -> Rows {
        Rows { sequences: self.batch, each: self.blocks * self.config.block_size }
    }

    fn context_rows(&self) -> Rows {
        Rows { sequences: self.batch, each: self.seq_len }
    }

    /// `gradient[width] += sum over rows of dy * x * rstd`, in two passes.
    #[allow(clippy::too_many_arguments)]
    fn norm_weight(
        &self,
        stream: &Stream,
        dy: View<f32>,
        x: View<f32>,
        rstd: View<f32>,
        gradient: View<f32>,
        rows: Rows,
        width: usize,
    ) -> Result<()> {
        let partial = self.workspace.partial.view();
        norm::rms_norm_weight_partial::launch(
            stream,
            dy,
            x,
            rstd,
            partial,
            rows.sequences,
            rows.each,
            width,
            NORM_CHUNK,
        )?;
        let chunks = rows.sequences * rows.each.div_ceil(NORM_CHUNK);
        norm::column_sum::launch(stream, partial, gradient, chunks, width)
    }
}
