//! Attention of each block's slots over the context before its anchor and over the block itself.
//!
//! Shapes: draft rows R = b w B, query q\[R, heads, D\], draft keys and values kd, vd\[R, kv_heads, D\]; context keys and values
//! kc, vc\[b, S, kv_heads, D\]; query head h uses key head h / (heads / kv_heads). A slot of block n of sequence s sees context
//! position j iff j < anchors\[s, n\], and every slot of its own block. With a window W > 0 slot k sees of those only
//! j >= anchors\[s, n\] + k - (W - 1) and slots up to k, as the public trainer's sliding layers do. A block with keep = 0 sees
//! nothing: its output is zero and it takes part in no gradient.
//!
//! Scores are never stored. The forward pass keeps one number per row and head, lse = ln(sum exp(score)); the backward passes
//! recompute p = exp(score - lse) from it. On the GPU one warp owns a query row (or a key row) and walks the other side;
//! a head is spread over the warp's lanes, at most 8 elements per lane (D <= 256).

use super::norm::{axpy, dot};
use super::support::kernel;

/// Rows that one thread block of [`attention_delta`] handles, one per warp.
const ROWS: usize = 4;

kernel! {
    /// out\[R, heads, D\] = softmax(scale q k^T) v over what the row sees; lse\[R, heads\].
    attention(
        q: read f32 [sequences * blocks * slots * heads * head_dim],
        kc: read f32 [sequences * seq_len * kv_heads * head_dim],
        vc: read f32 [sequences * seq_len * kv_heads * head_dim],
        kd: read f32 [sequences * blocks * slots * kv_heads * head_dim],
        vd: read f32 [sequences * blocks * slots * kv_heads * head_dim],
        anchors: read i32 [sequences * blocks],
        keep: read i32 [sequences * blocks],
        out: write f32 [sequences * blocks * slots * heads * head_dim],
        lse: write f32 [sequences * blocks * slots * heads];
        sequences: usize, seq_len: usize, blocks: usize, slots: usize, heads: usize, kv_heads: usize, head_dim: usize,
        window: usize, scale: f32
    )
    grid [sequences * blocks, heads, 1], block slots * 32, shared 0;
    cuda "{
    int block = blockIdx.x, h = blockIdx.y, k = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int s = block / blocks, g = h / (heads / kv_heads);
    long long row = (long long)block * slots + k, at = (row * heads + h) * head_dim;
    float query[8], sum[8];
    for (int i = 0, d = lane; i < 8; ++i, d += WARP) {
        query[i] = d < head_dim ? q[at + d] * scale : 0.0f;
        sum[i] = 0.0f;
    }
    float top = -INFINITY, total = 0.0f;
    if (keep[block]) {
        int before = anchors[block], seen = before + (window > 0 ? k + 1 : slots);
        for (int j = window > 0 ? min(before, max(0, before + k - (window - 1))) : 0; j < seen; ++j) {
            long long key_at = j < before ? (((long long)s * seq_len + j) * kv_heads + g) * head_dim
                                          : (((long long)block * slots + j - before) * kv_heads + g) * head_dim;
            const float* key = (j < before ? kc : kd) + key_at;
            const float* value = (j < before ? vc : vd) + key_at;
            float score = 0.0f;
            for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) score += query[i] * key[d];
            score = warp_sum(score);
            // Online softmax: rescale what was summed so far when a larger score comes.
            float larger = fmaxf(top, score), keeps = expf(top - larger), p = expf(score - larger);
            total = total * keeps + p;
            for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) sum[i] = sum[i] * keeps + p * value[d];
            top = larger;
        }
    }
    float inverse = total > 0.0f ? 1.0f / total : 0.0f;
    for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) out[at + d] = sum[i] * inverse;
    if (lane == 0) lse[row * heads + h] = total > 0.0f ? top + logf(total) : 0.0f;
}"
    host {
        let at = Shape { seq_len, blocks, slots, heads, kv_heads, head_dim, window };
        let mut scores = vec![0.0; seq_len + slots];
        out.fill(0.0);
        lse.fill(0.0);
        for block in 0..sequences * blocks {
            let Some(before) = context_length(anchors, keep, block) else { continue };
            for (row, h) in at.queries(block) {
                let query = &q[at.query(row, h)];
                let seen = at.seen(row, before);
                let scores = &mut scores[seen.clone()];
                for (j, score) in seen.clone().zip(scores.iter_mut()) {
                    let (keys, range) = if j < before {
                        (kc, at.context(block, j, h))
                    } else {
                        (kd, at.draft(block, j - before, h))
                    };
                    *score = scale * dot(query, &keys[range]);
                }
                let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut total = 0.0;
                for score in scores.iter_mut() {
                    *score = (*score - top).exp();
                    total += *score;
                }
                let out = &mut out[at.query(row, h)];
                for (j, p) in seen.zip(scores.iter()) {
                    let (values, range) = if j < before {
                        (vc, at.context(block, j, h))
                    } else {
                        (vd, at.draft(block, j - before, h))
                    };
                    axpy(p / total, &values[range], out);
                }
                lse[row * heads + h] = top + total.ln();
            }
        }
    }
}

kernel! {
    /// delta\[rows\] = sum over D of dout * out, for rows = R heads: the row term of the softmax' gradient.
    attention_delta(
        dout: read f32 [rows * head_dim],
        out: read f32 [rows * head_dim],
        delta: write f32 [rows];
        rows: usize, head_dim: usize
    )
    grid [rows.div_ceil(ROWS), 1, 1], block ROWS * 32, shared 0;
    cuda "{
    int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int d = lane; d < head_dim; d += WARP)
        sum += dout[(long long)row * head_dim + d] * out[(long long)row * head_dim + d];
    sum = warp_sum(sum);
    if (lane == 0) delta[row] = sum;
}"
    host {
        for (row, delta) in delta.iter_mut().enumerate().take(rows) {
            *delta = dot(&dout[row * head_dim..][..head_dim], &out[row * head_dim..][..head_dim]);
        }
    }
}

kernel! {
    /// dq\[R, heads, D\].
    attention_backward_query(
        q: read f32 [sequences * blocks * slots * heads * head_dim],
        kc: read f32 [sequences * seq_len * kv_heads * head_dim],
        vc: read f32 [sequences * seq_len * kv_heads * head_dim],
        kd: read f32 [sequences * blocks * slots * kv_heads * head_dim],
        vd: read f32 [sequences * blocks * slots * kv_heads * head_dim],
        anchors: read i32 [sequences * blocks],
        keep: read i32 [sequences * blocks],
        dout: read f32 [sequences * blocks * slots * heads * head_dim],
        lse: read f32 [sequences * blocks * slots * heads],
        delta: read f32 [sequences * blocks * slots * heads],
        dq: write f32 [sequences * blocks * slots * heads * head_dim];
        sequences: usize, seq_len: usize, blocks: usize, slots: usize, heads: usize, kv_heads: usize, head_dim: usize,
        window: usize, scale: f32
    )
    grid [sequences * blocks, heads, 1], block slots * 32, shared 0;
    cuda "{
    int block = blockIdx.x, h = blockIdx.y, k = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int s = block / blocks, g = h / (heads / kv_heads);
    long long row = (long long)block * slots + k, at = (row * heads + h) * head_dim;
    float query[8], grad[8], sum[8];
    for (int i = 0, d = lane; i < 8; ++i, d += WARP) {
        query[i] = d < head_dim ? q[at + d] * scale : 0.0f;
        grad[i] = d < head_dim ? dout[at + d] : 0.0f;
        sum[i] = 0.0f;
    }
    if (keep[block]) {
        float norm = lse[row * heads + h], term = delta[row * heads + h];
        int before = anchors[block], seen = before + (window > 0 ? k + 1 : slots);
        for (int j = window > 0 ? min(before, max(0, before + k - (window - 1))) : 0; j < seen; ++j) {
            long long key_at = j < before ? (((long long)s * seq_len + j) * kv_heads + g) * head_dim
                                          : (((long long)block * slots + j - before) * kv_heads + g) * head_dim;
            const float* key = (j < before ? kc : kd) + key_at;
            const float* value = (j < before ? vc : vd) + key_at;
            float score = 0.0f, dp = 0.0f;
            for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) {
                score += query[i] * key[d];
                dp += grad[i] * value[d];
            }
            float ds = expf(warp_sum(score) - norm) * (warp_sum(dp) - term) * scale;
            for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) sum[i] += ds * key[d];
        }
    }
    for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) dq[at + d] = sum[i];
}"
    host {
        let at = Shape { seq_len, blocks, slots, heads, kv_heads, head_dim, window };
        dq.fill(0.0);
        for block in 0..sequences * blocks {
            let Some(before) = context_length(anchors, keep, block) else { continue };
            for (row, h) in at.queries(block) {
                let (query, grad) = (&q[at.query(row, h)], &dout[at.query(row, h)]);
                let (norm, term) = (lse[row * heads + h], delta[row * heads + h]);
                let dq = &mut dq[at.query(row, h)];
                for j in at.seen(row, before) {
                    let (keys, values, range) = if j < before {
                        (kc, vc, at.context(block, j, h))
                    } else {
                        (kd, vd, at.draft(block, j - before, h))
                    };
                    let p = (scale * dot(query, &keys[range.clone()]) - norm).exp();
                    let ds = p * (dot(grad, &values[range.clone()]) - term) * scale;
                    axpy(ds, &keys[range], dq);
                }
            }
        }
    }
}

kernel! {
    /// dkd and dvd\[R, kv_heads, D\]: gradients of a block's own keys and values, from the block's queries.
    attention_backward_draft(
        q: read f32 [sequences * blocks * slots * heads * head_dim],
        kd: read f32 [sequences * blocks * slots * kv_heads * head_dim],
        vd: read f32 [sequences * blocks * slots * kv_heads * head_dim],
        keep: read i32 [sequences * blocks],
        dout: read f32 [sequences * blocks * slots * heads * head_dim],
        lse: read f32 [sequences * blocks * slots * heads],
        delta: read f32 [sequences * blocks * slots * heads],
        dkd: write f32 [sequences * blocks * slots * kv_heads * head_dim],
        dvd: write f32 [sequences * blocks * slots * kv_heads * head_dim];
        sequences: usize, blocks: usize, slots: usize, heads: usize, kv_heads: usize, head_dim: usize, window: usize, scale: f32
    )
    grid [sequences * blocks, kv_heads, 1], block slots * 32, shared 0;
    cuda "{
    int block = blockIdx.x, g = blockIdx.y, j = threadIdx.x / WARP, lane = threadIdx.x % WARP, group = heads / kv_heads;
    long long at = (((long long)block * slots + j) * kv_heads + g) * head_dim;
    float key[8], value[8], dk[8], dv[8];
    for (int i = 0, d = lane; i < 8; ++i, d += WARP) {
        key[i] = d < head_dim ? kd[at + d] * scale : 0.0f;
        value[i] = d < head_dim ? vd[at + d] : 0.0f;
        dk[i] = dv[i] = 0.0f;
    }
    if (keep[block]) {
        for (int k = window > 0 ? j : 0; k < slots; ++k)
            for (int h = g * group; h < (g + 1) * group; ++h) {
                long long head = ((long long)block * slots + k) * heads + h;
                const float *query = q + head * head_dim, *grad = dout + head * head_dim;
                float score = 0.0f, dp = 0.0f;
                for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) {
                    score += query[d] * key[i];
                    dp += grad[d] * value[i];
                }
                float p = expf(warp_sum(score) - lse[head]), ds = p * (warp_sum(dp) - delta[head]) * scale;
                for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) {
                    dk[i] += ds * query[d];
                    dv[i] += p * grad[d];
                }
            }
    }
    for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) {
        dkd[at + d] = dk[i];
        dvd[at + d] = dv[i];
    }
}"
    host {
        let at = Shape { seq_len: 0, blocks, slots, heads, kv_heads, head_dim, window };
        dkd.fill(0.0);
        dvd.fill(0.0);
        for block in (0..sequences * blocks).filter(|b| keep[*b] != 0) {
            for (row, h) in at.queries(block) {
                let (query, grad) = (&q[at.query(row, h)], &dout[at.query(row, h)]);
                let (norm, term) = (lse[row * heads + h], delta[row * heads + h]);
                for j in at.seen(row, 0) {
                    let range = at.draft(block, j, h);
                    let p = (scale * dot(query, &kd[range.clone()]) - norm).exp();
                    let ds = p * (dot(grad, &vd[range.clone()]) - term) * scale;
                    axpy(ds, query, &mut dkd[range.clone()]);
                    axpy(p, grad, &mut dvd[range]);
                }
            }
        }
    }
}

kernel! {
    /// dkc and dvc\[b, S, kv_heads, D\]: gradients of the context's keys and values, from the queries of every kept block whose
    /// anchor lies behind the position.
    attention_backward_context(
        q: read f32 [sequences * blocks * slots * heads * head_dim],
        kc: read f32 [sequences * seq_len * kv_heads * head_dim],
        vc: read f32 [sequences * seq_len * kv_heads * head_dim],
        anchors: read i32 [sequences * blocks],
        keep: read i32 [sequences * blocks],
        dout: read f32 [sequences * blocks * slots * heads * head_dim],
        lse: read f32 [sequences * blocks * slots * heads],
        delta: read f32 [sequences * blocks * slots * heads],
        dkc: write f32 [sequences * seq_len * kv_heads * head_dim],
        dvc: write f32 [sequences * seq_len * kv_heads * head_dim];
        sequences: usize, seq_len: usize, blocks: usize, slots: usize, heads: usize, kv_heads: usize, head_dim: usize,
        window: usize, scale: f32
    )
    grid [sequences * seq_len, kv_heads, 1], block 128, shared 0;
    cuda "{
    // Four warps share one key: each takes every fourth block, and their sums are added in warp order.
    __shared__ float shared_dk[4][256], shared_dv[4][256];
    int s = blockIdx.x / seq_len, j = blockIdx.x % seq_len, g = blockIdx.y, group = heads / kv_heads;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    long long at = ((long long)blockIdx.x * kv_heads + g) * head_dim;
    float key[8], value[8], dk[8], dv[8];
    for (int i = 0, d = lane; i < 8; ++i, d += WARP) {
        key[i] = d < head_dim ? kc[at + d] * scale : 0.0f;
        value[i] = d < head_dim ? vc[at + d] : 0.0f;
        dk[i] = dv[i] = 0.0f;
    }
    for (int n = warp; n < blocks; n += 4) {
        int block = s * blocks + n;
        if (!keep[block] || j >= anchors[block]) continue;
        // A slot too far behind the key does not see it.
        int last = window > 0 ? min(slots, j - anchors[block] + window) : slots;
        for (int k = 0; k < last; ++k)
            for (int h = g * group; h < (g + 1) * group; ++h) {
                long long head = ((long long)block * slots + k) * heads + h;
                const float *query = q + head * head_dim, *grad = dout + head * head_dim;
                float score = 0.0f, dp = 0.0f;
                for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) {
                    score += query[d] * key[i];
                    dp += grad[d] * value[i];
                }
                float p = expf(warp_sum(score) - lse[head]), ds = p * (warp_sum(dp) - delta[head]) * scale;
                for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) {
                    dk[i] += ds * query[d];
                    dv[i] += p * grad[d];
                }
            }
    }
    for (int i = 0, d = lane; d < head_dim; ++i, d += WARP) {
        shared_dk[warp][d] = dk[i];
        shared_dv[warp][d] = dv[i];
    }
    __syncthreads();
    for (int d = threadIdx.x; d < head_dim; d += blockDim.x) {
        dkc[at + d] = ((shared_dk[0][d] + shared_dk[1][d]) + shared_dk[2][d]) + shared_dk[3][d];
        dvc[at + d] = ((shared_dv[0][d] + shared_dv[1][d]) + shared_dv[2][d]) + shared_dv[3][d];
    }
}"
    host {
        let at = Shape { seq_len, blocks, slots, heads, kv_heads, head_dim, window };
        dkc.fill(0.0);
        dvc.fill(0.0);
        for block in 0..sequences * blocks {
            let Some(before) = context_length(anchors, keep, block) else { continue };
            for (row, h) in at.queries(block) {
                let (query, grad) = (&q[at.query(row, h)], &dout[at.query(row, h)]);
                let (norm, term) = (lse[row * heads + h], delta[row * heads + h]);
                for j in at.seen(row, before).take_while(|j| *j < before) {
                    let range = at.context(block, j, h);
                    let p = (scale * dot(query, &kc[range.clone()]) - norm).exp();
                    let ds = p * (dot(grad, &vc[range.clone()]) - term) * scale;
                    axpy(ds, query, &mut dkc[range.clone()]);
                    axpy(p, grad, &mut dvc[range]);
                }
            }
        }
    }
}

/// Where things lie in the host implementations' slices.
#[derive(Clone, Copy)]
struct Shape {
    seq_len: usize,
    blocks: usize,
    slots: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    window: usize,
}

impl Shape {
    /// The context positions and, behind them, the block's slots that a row of a block with `before` context positions sees:
    /// one range, in which `before + j` is slot j.
    fn seen(self, row: usize, before: usize) -> std::ops::Range<usize> {
        if self.window == 0 {
            return 0..before + self.slots;
        }
        let k = row % self.slots;
        (before + k + 1).saturating_sub(self.window).min(before)..before + k + 1
    }

    /// Every (row, head) of a block.
    fn queries(self, block: usize) -> impl Iterator<Item = (usize, usize)> {
        (block * self.slots..(block + 1) * self.slots)
            .flat_map(move |row| (0..self.heads).map(move |h| (row, h)))
    }

    fn query(self, row: usize, h: usize) -> std::ops::Range<usize> {
        let start = (row * self.heads + h) * self.head_dim;
        start..start + self.head_dim
    }

    /// Key or value of context position `j` of the block's sequence, for query head `h`.
    fn context(self, block: usize, j: usize, h: usize) -> std::ops::Range<usize> {
        self.key(block / self.blocks * self.seq_len + j, h)
    }

    /// Key or value of slot `j` of the block, for query head `h`.
    fn draft(self, block: usize, j: usize, h: usize) -> std::ops::Range<usize> {
        self.key(block * self.slots + j, h)
    }

    fn key(self, row: usize, h: usize) -> std::ops::Range<usize> {
        let start = (row * self.kv_heads + h / (self.heads / self.kv_heads)) * self.head_dim;
        start..start + self.head_dim
    }
}

/// How many context positions the block sees; none for a block that is not kept.
fn context_length(anchors: &[i32], keep: &[i32], block: usize) -> Option<usize> {
    (keep[block] != 0).then(|| usize::try_from(anchors[block]).unwrap_or(0))
}
