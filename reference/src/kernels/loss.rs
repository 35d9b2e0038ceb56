//! Labels, weights, cross-entropy and the metrics.
//!
//! Shapes: R = b w B draft rows in sequence, block, slot order; V vocabulary entries.
//!
//! The cross-entropy overwrites a chunk of logits by their gradient, so that the logits of all rows are never held at once: the
//! sum of weights, which the gradient needs, depends on labels and masks only and is computed first.

use super::support::kernel;

/// Keeps empty denominators away from zero, as the public trainer does.
pub const DENOMINATOR_EPS: f32 = 1e-6;

kernel! {
    /// label\[R\], mask\[R\] and weight\[R\] of each slot. Slot k predicts the token at `anchor + k + shift`; with shift = 0 slot 0 is
    /// not scored. mask = keep * (position < S) * scored * loss_mask at the position;
    /// weight = mask * exp(-max(k - 1 + shift, 0) / gamma), without decay when `gamma` <= 0. Unscored labels are 0.
    loss_weights(
        input_ids: read i32 [sequences * seq_len],
        loss_mask: read f32 [sequences * seq_len],
        anchors: read i32 [sequences * blocks],
        keep: read i32 [sequences * blocks],
        labels: write i32 [sequences * blocks * slots],
        mask: write f32 [sequences * blocks * slots],
        weights: write f32 [sequences * blocks * slots];
        sequences: usize, seq_len: usize, blocks: usize, slots: usize, shift: i32, gamma: f32
    )
    grid [(sequences * blocks * slots).div_ceil(128), 1, 1], block 128, shared 0;
    cuda "{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= sequences * blocks * slots) return;
    int block = row / slots, k = row % slots, s = block / blocks;
    int position = anchors[block] + k + shift;
    float m = 0.0f;
    int label = 0;
    if (keep[block] && position < seq_len && k + shift > 0) {
        m = loss_mask[(long long)s * seq_len + position];
        label = input_ids[(long long)s * seq_len + position];
    }
    labels[row] = label;
    mask[row] = m;
    weights[row] = gamma > 0.0f ? m * expf(-(float)max(k - 1 + shift, 0) / gamma) : m;
}"
    host {
        for row in 0..sequences * blocks * slots {
            let (block, k) = (row / slots, i32::try_from(row % slots).unwrap_or(0));
            let position = usize::try_from(anchors[block] + k + shift).unwrap_or(usize::MAX);
            let scored = keep[block] != 0 && position < seq_len && k + shift > 0;
            let at = block / blocks * seq_len + position;
            (labels[row], mask[row]) = if scored { (input_ids[at], loss_mask[at]) } else { (0, 0.0) };
            weights[row] = if gamma > 0.0 {
                mask[row] * (-((k - 1 + shift).max(0) as f32) / gamma).exp()
            } else {
                mask[row]
            };
        }
    }
}

kernel! {
    /// sums\[2\] = (sum of weights, sum of mask). One thread block; a sequence's rows go to threads by block number, so that
    /// trailing unused blocks change no sum.
    loss_sums(
        weights: read f32 [sequences * blocks * slots],
        mask: read f32 [sequences * blocks * slots],
        sums: write f32 [2];
        sequences: usize, blocks: usize, slots: usize
    )
    grid [1, 1, 1], block 256, shared 0;
    cuda "{
    __shared__ float scratch[32];
    float w = ordered_sum(weights, sequences, blocks, slots, scratch);
    float m = ordered_sum(mask, sequences, blocks, slots, scratch);
    if (threadIdx.x == 0) {
        sums[0] = w;
        sums[1] = m;
    }
}"
    host {
        sums[0] = sum(weights);
        sums[1] = sum(mask);
    }
}

kernel! {
    /// Per row: term = weight * cross-entropy(logits, label), correct = mask where the largest logit (the first of equals) is
    /// the label's; then logits\[rows, V\] are overwritten by the loss' gradient, weight / (sum of weights + 1e-6) * (softmax - onehot).
    cross_entropy(
        logits: write f32 [rows * vocabulary],
        labels: read i32 [rows],
        mask: read f32 [rows],
        weights: read f32 [rows],
        sums: read f32 [2],
        terms: write f32 [rows],
        correct: write f32 [rows];
        rows: usize, vocabulary: usize, eps: f32
    )
    grid [rows, 1, 1], block 256, shared 0;
    cuda "{
    __shared__ float scratch[32];
    __shared__ int best;
    long long row = blockIdx.x;
    float* z = logits + row * vocabulary;
    int label = labels[row];
    float weight = weights[row];
    float top = -INFINITY;
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) top = fmaxf(top, z[i]);
    top = block_max(top, scratch);
    if (threadIdx.x == 0) best = vocabulary;
    __syncthreads();
    // The first index that holds the maximum; an integer minimum does not depend on order.
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x)
        if (z[i] == top) { atomicMin(&best, i); break; }
    float sum = 0.0f;
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) sum += expf(z[i] - top);
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
        terms[row] = weight * (logf(sum) + top - z[label]);
        correct[row] = best == label ? mask[row] : 0.0f;
    }
    __syncthreads();
    float factor = weight / (sums[0] + eps);
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x)
        z[i] = factor * (expf(z[i] - top) / sum - (i == label ? 1.0f : 0.0f));
}"
    host {
        for (row, z) in logits.chunks_exact_mut(vocabulary).enumerate().take(rows) {
            if weights[row] == 0.0 && mask[row] == 0.0 {
                // Unscored: exact zeros without computing the softmax.
                (terms[row], correct[row]) = (0.0, 0.0);
                z.fill(0.0);
                continue;
            }
            let label = usize::try_from(labels[row]).unwrap_or(usize::MAX);
            let top = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let best = z.iter().position(|v| *v == top);
            let at_label = z[label];
            let mut sum = 0.0_f32;
            for z in z.iter_mut() {
                *z = (*z - top).exp();
                sum += *z;
            }
            terms[row] = weights[row] * (sum.ln() + top - at_label);
            correct[row] = if best == Some(label) { mask[row] } else { 0.0 };
            let factor = weights[row] / (sums[0] + eps);
            for z in z.iter_mut() {
                *z = factor * (*z / sum);
            }
            z[label] -= factor;
        }
    }
}

kernel! {
    /// metrics\[3\] = (loss, accuracy, accuracy denominator) of the micro-batch: sum(terms) / (sum of weights + 1e-6),
    /// sum(correct) / (sum of mask + 1e-6), sum of mask. totals\[4\] += (loss, accuracy, denominator, 1): the step's sums.
    loss_finish(
        terms: read f32 [sequences * blocks * slots],
        correct: read f32 [sequences * blocks * slots],
        sums: read f32 [2],
        metrics: write f32 [3],
        totals: write f32 [4];
        sequences: usize, blocks: usize, slots: usize, eps: f32
    )
    grid [1, 1, 1], block 256, shared 0;
    cuda "{
    __shared__ float scratch[32];
    float loss = ordered_sum(terms, sequences, blocks, slots, scratch) / (sums[0] + eps);
    float accuracy = ordered_sum(correct, sequences, blocks, slots, scratch) / (sums[1] + eps);
    if (threadIdx.x == 0) {
        metrics[0] = loss;
        metrics[1] = accuracy;
        metrics[2] = sums[1];
        totals[0] += loss;
        totals[1] += accuracy;
        totals[2] += sums[1];
        totals[3] += 1.0f;
    }
}"
    host {
        metrics[0] = sum(terms) / (sums[0] + eps);
        metrics[1] = sum(correct) / (sums[1] + eps);
        metrics[2] = sums[1];
        for (total, metric) in totals.iter_mut().zip([metrics[0], metrics[1], metrics[2], 1.0]) {
            *total += metric;
        }
    }
}

/// In row order, in double precision: trailing zeros of a sequence change nothing.
#[allow(clippy::cast_possible_truncation)]
fn sum(values: &[f32]) -> f32 {
    values.iter().map(|v| f64::from(*v)).sum::<f64>() as f32
}
