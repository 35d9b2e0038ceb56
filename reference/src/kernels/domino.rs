//! The Domino head: embeddings of previous tokens, the GRU that runs over them, and the pieces around its two projections.
//!
//! Shapes: R = b w B draft rows in sequence, block, slot order; G the width of the GRU's state. `first` is the first slot with a
//! previous token inside its block: 0 where slot k predicts the token at anchor + 1 + k, 1 where it predicts the one at
//! anchor + k. Rows without one are zero, and a GRU without biases keeps a zero state on zero input, so no kernel below
//! needs to know where a block's first token or its padding is.

use super::norm::{axpy, dot};
use super::support::kernel;

/// Blocks that one thread block of the GRU's kernels takes through all their slots: its reads of the weights serve all of them.
const TOGETHER: usize = 4;

kernel! {
    /// x\[R, H\]: the frozen embedding of the token before the one that slot k predicts, at anchor + k - first (the last of the
    /// sequence where that lies beyond it: such slots are not scored). Zero for slots before `first` and unused blocks.
    previous_embed(
        input_ids: read i32 [sequences * seq_len],
        anchors: read i32 [sequences * blocks],
        keep: read i32 [sequences * blocks],
        embed_tokens: read f32 [vocabulary * hidden],
        x: write f32 [sequences * blocks * slots * hidden];
        sequences: usize, seq_len: usize, blocks: usize, slots: usize, vocabulary: usize, hidden: usize, first: usize
    )
    grid [sequences * blocks * slots, 1, 1], block 128, shared 0;
    cuda "{
    int row = blockIdx.x, block = row / slots, k = row % slots, s = block / blocks;
    bool real = keep[block] && k >= first;
    int id = real ? input_ids[(long long)s * seq_len + min(anchors[block] + k - first, seq_len - 1)] : 0;
    for (int i = threadIdx.x; i < hidden; i += blockDim.x)
        x[(long long)row * hidden + i] = real ? embed_tokens[(long long)id * hidden + i] : 0.0f;
}"
    host {
        for (row, x) in x.chunks_exact_mut(hidden).enumerate().take(sequences * blocks * slots) {
            let (block, k) = (row / slots, row % slots);
            if keep[block] == 0 || k < first {
                x.fill(0.0);
                continue;
            }
            let position = usize::try_from(anchors[block]).unwrap_or(usize::MAX) + k - first;
            let id = input_ids[block / blocks * seq_len + position.min(seq_len - 1)];
            let id = usize::try_from(id).unwrap_or(usize::MAX);
            x.copy_from_slice(&embed_tokens[id * hidden..][..hidden]);
        }
    }
}

kernel! {
    /// A GRU without biases over the slots of every block, from a zero state, in one launch:
    /// r, z = sigmoid(input + W h), n = tanh(input + r (W_n h)), h' = (1 - z) n + z h, with inputs\[R, 3 G\] = W_ih x in the order
    /// r, z, n and W = w_hh\[3 G, G\]. Out: states\[R, G\], and gates\[R, 4 G\] = (r, z, n, W_n h) for the backward pass.
    gru(
        inputs: read f32 [blocks * slots * 3 * state],
        w_hh: read f32 [3 * state * state],
        states: write f32 [blocks * slots * state],
        gates: write f32 [blocks * slots * 4 * state];
        blocks: usize, slots: usize, state: usize
    )
    grid [blocks.div_ceil(TOGETHER), 1, 1], block state.min(16) * 32, shared 0;
    cuda "{
    // A warp owns an element of the state and walks its three rows of W along the lanes, for four blocks at a time.
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    int first = blockIdx.x * 4, count = min(4, blocks - first);
    for (int k = 0; k < slots; ++k) {
        for (int g = warp; g < state; g += warps) {
            float sum[4][3];
            for (int j = 0; j < 4; ++j) sum[j][0] = sum[j][1] = sum[j][2] = 0.0f;
            const float* wr = w_hh + (long long)g * state;
            const float* wz = wr + (long long)state * state;
            const float* wn = wz + (long long)state * state;
            if (k > 0)
                for (int i = lane; i < state; i += WARP) {
                    float r = wr[i], z = wz[i], n = wn[i];
                    for (int j = 0; j < 4; ++j)
                        if (j < count) {
                            float h = states[((long long)(first + j) * slots + k - 1) * state + i];
                            sum[j][0] += r * h;
                            sum[j][1] += z * h;
                            sum[j][2] += n * h;
                        }
                }
            for (int j = 0; j < 4; ++j)
                if (j < count) {
                    float r = warp_sum(sum[j][0]), z = warp_sum(sum[j][1]), wh = warp_sum(sum[j][2]);
                    if (lane == 0) {
                        long long row = (long long)(first + j) * slots + k;
                        const float* in = inputs + row * 3 * state;
                        float* gate = gates + row * 4 * state;
                        r = 1.0f / (1.0f + expf(-(in[g] + r)));
                        z = 1.0f / (1.0f + expf(-(in[state + g] + z)));
                        float n = tanhf(in[2 * state + g] + r * wh);
                        float before = k > 0 ? states[(row - 1) * state + g] : 0.0f;
                        states[row * state + g] = (1.0f - z) * n + z * before;
                        gate[g] = r;
                        gate[state + g] = z;
                        gate[2 * state + g] = n;
                        gate[3 * state + g] = wh;
                    }
                }
        }
        __syncthreads();
    }
}"
    host {
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let mut before = vec![0.0; state];
        for block in 0..blocks {
            before.fill(0.0);
            for row in block * slots..(block + 1) * slots {
                let (input, gate) = (&inputs[row * 3 * state..][..3 * state], &mut gates[row * 4 * state..][..4 * state]);
                let h = &mut states[row * state..][..state];
                for g in 0..state {
                    let product = |gate: usize| dot(&w_hh[(gate * state + g) * state..][..state], &before);
                    let (r, z) = (sigmoid(input[g] + product(0)), sigmoid(input[state + g] + product(1)));
                    let wh = product(2);
                    let n = (input[2 * state + g] + r * wh).tanh();
                    h[g] = (1.0 - z) * n + z * before[g];
                    (gate[g], gate[state + g], gate[2 * state + g], gate[3 * state + g]) = (r, z, n, wh);
                }
                before.copy_from_slice(h);
            }
        }
    }
}

kernel! {
    /// Backward of [`gru`](super::gru) through all slots of every block in one launch. From dstates\[R, G\]: dinputs\[R, 3 G\], and
    /// dhidden\[R, 3 G\], the gradient of W h (zero in slot 0, whose h is the zero state). carry\[blocks, G\] is scratch.
    gru_backward(
        dstates: read f32 [blocks * slots * state],
        states: read f32 [blocks * slots * state],
        gates: read f32 [blocks * slots * 4 * state],
        w_hh: read f32 [3 * state * state],
        dinputs: write f32 [blocks * slots * 3 * state],
        dhidden: write f32 [blocks * slots * 3 * state],
        carry: write f32 [blocks * state];
        blocks: usize, slots: usize, state: usize
    )
    grid [blocks.div_ceil(TOGETHER), 1, 1], block state.min(1024).next_multiple_of(32), shared 0;
    cuda "{
    int first = blockIdx.x * 4, count = min(4, blocks - first);
    for (int k = slots - 1; k >= 0; --k) {
        for (int e = threadIdx.x; e < count * state; e += blockDim.x) {
            int block = first + e / state, g = e % state;
            long long row = (long long)block * slots + k;
            const float* gate = gates + row * 4 * state;
            float r = gate[g], z = gate[state + g], n = gate[2 * state + g], wh = gate[3 * state + g];
            float before = k > 0 ? states[(row - 1) * state + g] : 0.0f;
            float d = dstates[row * state + g] + (k + 1 < slots ? carry[(long long)block * state + g] : 0.0f);
            float dn = d * (1.0f - z) * (1.0f - n * n);
            float dz = d * (before - n) * z * (1.0f - z);
            float dr = dn * wh * r * (1.0f - r);
            float *in = dinputs + row * 3 * state, *hidden = dhidden + row * 3 * state;
            in[g] = dr;
            in[state + g] = dz;
            in[2 * state + g] = dn;
            hidden[g] = k > 0 ? dr : 0.0f;
            hidden[state + g] = k > 0 ? dz : 0.0f;
            hidden[2 * state + g] = k > 0 ? dn * r : 0.0f;
            carry[(long long)block * state + g] = d * z;
        }
        __syncthreads();
        // What goes back to the state before: W^T times the gradient of W h. A thread owns a column of W.
        if (k > 0)
            for (int i = threadIdx.x; i < state; i += blockDim.x) {
                float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                for (int m = 0; m < 3 * state; ++m) {
                    float w = w_hh[(long long)m * state + i];
                    for (int j = 0; j < 4; ++j)
                        if (j < count) sum[j] += w * dhidden[((long long)(first + j) * slots + k) * 3 * state + m];
                }
                for (int j = 0; j < 4; ++j)
                    if (j < count) carry[(long long)(first + j) * state + i] += sum[j];
            }
        __syncthreads();
    }
}"
    host {
        for (block, carry) in carry.chunks_exact_mut(state).enumerate().take(blocks) {
            carry.fill(0.0);
            for k in (0..slots).rev() {
                let row = block * slots + k;
                let gate = &gates[row * 4 * state..][..4 * state];
                let (input, hidden) =
                    (&mut dinputs[row * 3 * state..][..3 * state], &mut dhidden[row * 3 * state..][..3 * state]);
                for g in 0..state {
                    let (r, z, n, wh) = (gate[g], gate[state + g], gate[2 * state + g], gate[3 * state + g]);
                    let before = if k > 0 { states[(row - 1) * state + g] } else { 0.0 };
                    let d = dstates[row * state + g] + carry[g];
                    let dn = d * (1.0 - z) * (1.0 - n * n);
                    let dz = d * (before - n) * z * (1.0 - z);
                    let dr = dn * wh * r * (1.0 - r);
                    (input[g], input[state + g], input[2 * state + g]) = (dr, dz, dn);
                    let back = if k > 0 { (dr, dz, dn * r) } else { (0.0, 0.0, 0.0) };
                    (hidden[g], hidden[state + g], hidden[2 * state + g]) = back;
                    carry[g] = d * z;
                }
                if k > 0 {
                    for (m, d) in hidden.iter().enumerate() {
                        axpy(*d, &w_hh[m * state..][..state], carry);
                    }
                }
            }
        }
    }
}

kernel! {
    /// out\[rows, left + right\] = \[a ; b\], row by row.
    concat(
        a: read f32 [rows * left],
        b: read f32 [rows * right],
        out: write f32 [rows * (left + right)];
        rows: usize, left: usize, right: usize
    )
    grid [rows, 1, 1], block 256, shared 0;
    cuda "{
    long long row = blockIdx.x;
    int width = left + right;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        out[row * width + i] = i < left ? a[row * left + i] : b[row * right + i - left];
}"
    host {
        for (row, out) in out.chunks_exact_mut(left + right).enumerate().take(rows) {
            out[..left].copy_from_slice(&a[row * left..][..left]);
            out[left..].copy_from_slice(&b[row * right..][..right]);
        }
    }
}

kernel! {
    /// Backward of [`concat`](super::concat): da\[rows, left\] += and db\[rows, right\] = the halves of dout's rows.
    concat_backward(
        dout: read f32 [rows * (left + right)],
        da: write f32 [rows * left],
        db: write f32 [rows * right];
        rows: usize, left: usize, right: usize
    )
    grid [rows, 1, 1], block 256, shared 0;
    cuda "{
    long long row = blockIdx.x;
    int width = left + right;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        if (i < left)
            da[row * left + i] += dout[row * width + i];
        else
            db[row * right + i - left] = dout[row * width + i];
}"
    host {
        for (row, dout) in dout.chunks_exact(left + right).enumerate().take(rows) {
            for (da, d) in da[row * left..][..left].iter_mut().zip(dout) {
                *da += d;
            }
            db[row * right..][..right].copy_from_slice(&dout[left..]);
        }
    }
}

kernel! {
    /// out\[R, width\] = silu(x) in the slots from `suffix` on, zero before: the correction leaves a block's first slots alone.
    suffix_silu(
        x: read f32 [rows * width],
        out: write f32 [rows * width];
        rows: usize, width: usize, slots: usize, suffix: usize
    )
    grid [(rows * width).div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)rows * width) return;
    out[i] = i / width % slots >= suffix ? x[i] / (1.0f + expf(-x[i])) : 0.0f;
}"
    host {
        for i in 0..rows * width {
            out[i] = if i / width % slots >= suffix { x[i] / (1.0 + (-x[i]).exp()) } else { 0.0 };
        }
    }
}

kernel! {
    /// Backward of [`suffix_silu`](super::suffix_silu): dx\[R, width\] from dout.
    suffix_silu_backward(
        dout: read f32 [rows * width],
        x: read f32 [rows * width],
        dx: write f32 [rows * width];
        rows: usize, width: usize, slots: usize, suffix: usize
    )
    grid [(rows * width).div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)rows * width) return;
    float s = 1.0f / (1.0f + expf(-x[i]));
    dx[i] = i / width % slots >= suffix ? dout[i] * s * (1.0f + x[i] * (1.0f - s)) : 0.0f;
}"
    host {
        for i in 0..rows * width {
            let s = 1.0 / (1.0 + (-x[i]).exp());
            dx[i] = if i / width % slots >= suffix { dout[i] * s * (1.0 + x[i] * (1.0 - s)) } else { 0.0 };
        }
    }
}
