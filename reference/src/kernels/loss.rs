//! Labels, weights, cross-entropy, its gradient, and the metrics.
//!
//! Shapes: R = b w B draft rows in sequence, block, slot order; V vocabulary entries.
//!
//! A chunk of logits is read once for the cross-entropy and overwritten by its gradient, so that the logits of all rows are never
//! held at once: the sum of weights, which the gradient needs, depends on labels and masks only and is computed first; the
//! weights of D-PACE depend on the block's own logits only, so a chunk holds whole blocks.

use super::support::kernel;
use crate::optim::Curriculum;

/// Keeps empty denominators away from zero, as the public trainer does.
pub const DENOMINATOR_EPS: f32 = 1e-6;

/// Metrics of a micro-batch: loss, accuracy, accuracy denominator, and Domino's final loss, base loss, base accuracy, accepted
/// length, base accepted length, lambda (zero for other objectives).
pub const METRICS: usize = 9;

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
    float w = ordered_sum(weights, 0, sequences, blocks, slots, scratch);
    float m = ordered_sum(mask, 0, sequences, blocks, slots, scratch);
    if (threadIdx.x == 0) {
        sums[0] = w;
        sums[1] = m;
    }
}"
    host {
        sums[0] = sum(weights.iter().copied());
        sums[1] = sum(mask.iter().copied());
    }
}

kernel! {
    /// lambda\[1\] of optimiser step steps\[0\] as [`Curriculum`] says: Domino's weight of the base loss.
    curriculum(
        steps: read u32 [1],
        lambda: write f32 [1];
        start: f32, decay_steps: u32
    )
    grid [1, 1, 1], block 32, shared 0;
    cuda "{
    if (threadIdx.x != 0) return;
    float progress = fminf((float)steps[0] / (float)max(decay_steps, 1u), 1.0f);
    lambda[0] = fmaxf(0.0f, fminf(1.0f, start * (1.0f - progress)));
}"
    host {
        lambda[0] = Curriculum { start, decay_steps }.lambda(steps[0]);
    }
}

kernel! {
    /// What a row's cross-entropy counts in the loss: share\[R\] = (1 - lambda) weight / (sum of weights + 1e-6), and for the base
    /// logits base_share\[R\] with lambda instead. Without lambda there are no base logits and share counts whole.
    loss_shares(
        weights: read f32 [rows],
        sums: read f32 [2],
        share: write f32 [rows],
        base_share: write f32 [rows],
        lambda: maybe f32 [1];
        rows: usize, eps: f32
    )
    grid [rows.div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float base = lambda ? lambda[0] : 0.0f, whole = weights[row] / (sums[0] + eps);
    share[row] = (1.0f - base) * whole;
    base_share[row] = base * whole;
}"
    host {
        let base = lambda.map_or(0.0, |l| l[0]);
        for row in 0..rows {
            let whole = weights[row] / (sums[0] + eps);
            (share[row], base_share[row]) = ((1.0 - base) * whole, base * whole);
        }
    }
}

kernel! {
    /// D-PACE, for whole blocks: share\[blocks, B\] = mask * weight / denominator with weights from the draft's confidence in the
    /// labels, p = exp(-loss), smoothed to q = (1 - alpha) p + alpha (1 in unscored slots). With the prefix product c of q up to a
    /// slot and the suffix sum v of mask * c from it on, the weight is v (`kind` 0), c (1: cumulative confidence only) or
    /// v / c (2: continuation value only). No gradient flows through it.
    dpace_shares(
        losses: read f32 [blocks * slots],
        mask: read f32 [blocks * slots],
        share: write f32 [blocks * slots];
        blocks: usize, slots: usize, alpha: f32, kind: i32, denominator: f32
    )
    grid [blocks.div_ceil(64), 1, 1], block 64, shared 0;
    cuda "{
    int block = blockIdx.x * blockDim.x + threadIdx.x;
    if (block >= blocks) return;
    long long first = (long long)block * slots;
    float product = 1.0f, value = 0.0f;
    for (int k = 0; k < slots; ++k) {
        if (mask[first + k] > 0.0f) product *= (1.0f - alpha) * expf(-losses[first + k]) + alpha;
        share[first + k] = product;
    }
    for (int k = slots - 1; k >= 0; --k) {
        float m = mask[first + k], c = share[first + k];
        value += m * c;
        float weight = kind == 0 ? value : kind == 1 ? c : value / fmaxf(c, 1.17549435e-38f);
        share[first + k] = m * weight / denominator;
    }
}"
    host {
        for block in 0..blocks {
            let rows = block * slots..(block + 1) * slots;
            let (mut product, mut value) = (1.0, 0.0);
            for row in rows.clone() {
                if mask[row] > 0.0 {
                    product *= (1.0 - alpha) * (-losses[row]).exp() + alpha;
                }
                share[row] = product;
            }
            for row in rows.rev() {
                let c = share[row];
                value += mask[row] * c;
                let weight = match kind {
                    0 => value,
                    1 => c,
                    _ => value / c.max(f32::MIN_POSITIVE),
                };
                share[row] = mask[row] * weight / denominator;
            }
        }
    }
}

kernel! {
    /// Per row of logits\[rows, V\]: lse = ln(sum exp(logit)), loss = lse - logit of the label, correct = mask where the largest
    /// logit (the first of equals) is the label's. Unscored rows (mask = 0) give zeros.
    cross_entropy(
        logits: read f32 [rows * vocabulary],
        labels: read i32 [rows],
        mask: read f32 [rows],
        lse: write f32 [rows],
        losses: write f32 [rows],
        correct: write f32 [rows];
        rows: usize, vocabulary: usize
    )
    grid [rows, 1, 1], block 256, shared 0;
    cuda "{
    __shared__ float scratch[32];
    __shared__ int best;
    long long row = blockIdx.x;
    const float* z = logits + row * vocabulary;
    int label = labels[row];
    if (mask[row] == 0.0f) {
        if (threadIdx.x == 0) lse[row] = losses[row] = correct[row] = 0.0f;
        return;
    }
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
        lse[row] = logf(sum) + top;
        losses[row] = logf(sum) + top - z[label];
        correct[row] = best == label ? mask[row] : 0.0f;
    }
}"
    host {
        for (row, z) in logits.chunks_exact(vocabulary).enumerate().take(rows) {
            if mask[row] == 0.0 {
                (lse[row], losses[row], correct[row]) = (0.0, 0.0, 0.0);
                continue;
            }
            let label = usize::try_from(labels[row]).unwrap_or(usize::MAX);
            let top = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let best = z.iter().position(|v| *v == top);
            let sum: f32 = z.iter().map(|v| (v - top).exp()).sum();
            lse[row] = sum.ln() + top;
            losses[row] = sum.ln() + top - z[label];
            correct[row] = if best == Some(label) { mask[row] } else { 0.0 };
        }
    }
}

kernel! {
    /// Overwrites logits\[rows, V\] by the loss' gradient, share * (softmax - onehot), plus `more`\[rows, V\] where given. Rows whose
    /// share is 0 add exact zeros.
    cross_entropy_gradient(
        logits: write f32 [rows * vocabulary],
        labels: read i32 [rows],
        lse: read f32 [rows],
        share: read f32 [rows],
        more: maybe f32 [rows * vocabulary];
        rows: usize, vocabulary: usize
    )
    grid [rows, 1, 1], block 256, shared 0;
    cuda "{
    long long row = blockIdx.x;
    float* z = logits + row * vocabulary;
    const float* add = more ? more + row * vocabulary : 0;
    int label = labels[row];
    float part = share[row], norm = lse[row];
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
        float d = part == 0.0f ? 0.0f : part * (expf(z[i] - norm) - (i == label ? 1.0f : 0.0f));
        z[i] = add ? d + add[i] : d;
    }
}"
    host {
        for (row, z) in logits.chunks_exact_mut(vocabulary).enumerate().take(rows) {
            let part = share[row];
            if part == 0.0 {
                z.fill(0.0);
            } else {
                for z in z.iter_mut() {
                    *z = part * (*z - lse[row]).exp();
                }
                z[usize::try_from(labels[row]).unwrap_or(usize::MAX)] -= part;
            }
            if let Some(more) = more {
                for (z, more) in z.iter_mut().zip(&more[row * vocabulary..][..vocabulary]) {
                    *z += more;
                }
            }
        }
    }
}

kernel! {
    /// metrics\[9\] of the micro-batch, see [`METRICS`](super::METRICS): loss = sum(share * losses); accuracy = sum(correct) / (sum of
    /// mask + 1e-6). With base logits (`base_losses`, `base_correct` and `lambda` all given) final and base loss are
    /// sum(weight * losses) / (sum of weights + 1e-6), loss = (1 - lambda) final + lambda base, and an accepted length is the mean over
    /// blocks with any scored slot of 1 + the leading run of correct scored slots. totals\[10\] += (metrics, 1): the step's sums.
    loss_finish(
        weights: read f32 [sequences * blocks * slots],
        share: read f32 [sequences * blocks * slots],
        mask: read f32 [sequences * blocks * slots],
        losses: read f32 [sequences * blocks * slots],
        correct: read f32 [sequences * blocks * slots],
        sums: read f32 [2],
        metrics: write f32 [METRICS],
        totals: write f32 [METRICS + 1],
        base_losses: maybe f32 [sequences * blocks * slots],
        base_correct: maybe f32 [sequences * blocks * slots],
        lambda: maybe f32 [1];
        sequences: usize, blocks: usize, slots: usize, eps: f32
    )
    grid [1, 1, 1], block 256, shared 0;
    cuda "{
    __shared__ float scratch[32];
    float m[9] = {0.0f, 0.0f, sums[1], 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    m[1] = ordered_sum(correct, 0, sequences, blocks, slots, scratch) / (sums[1] + eps);
    if (lambda) {
        float count;
        m[3] = ordered_sum(losses, weights, sequences, blocks, slots, scratch) / (sums[0] + eps);
        m[4] = ordered_sum(base_losses, weights, sequences, blocks, slots, scratch) / (sums[0] + eps);
        m[5] = ordered_sum(base_correct, 0, sequences, blocks, slots, scratch) / (sums[1] + eps);
        m[6] = accepted_sum(mask, correct, sequences, blocks, slots, &count, scratch) / (count + eps);
        m[7] = accepted_sum(mask, base_correct, sequences, blocks, slots, &count, scratch) / (count + eps);
        m[8] = lambda[0];
        m[0] = (1.0f - m[8]) * m[3] + m[8] * m[4];
    } else {
        m[0] = ordered_sum(losses, share, sequences, blocks, slots, scratch);
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < 9; ++i) {
            metrics[i] = m[i];
            totals[i] += m[i];
        }
        totals[9] += 1.0f;
    }
}"
    host {
        let weighted = |losses: &[f32], weights: &[f32]| sum(losses.iter().zip(weights).map(|(l, w)| l * w));
        metrics.fill(0.0);
        metrics[1] = sum(correct.iter().copied()) / (sums[1] + eps);
        metrics[2] = sums[1];
        if let (Some(base_losses), Some(base_correct), Some(lambda)) = (base_losses, base_correct, lambda) {
            let accepted = |correct: &[f32]| {
                let (sum, count) = accepted_sum(mask, correct, slots);
                sum / (count + eps)
            };
            metrics[3] = weighted(losses, weights) / (sums[0] + eps);
            metrics[4] = weighted(base_losses, weights) / (sums[0] + eps);
            metrics[5] = sum(base_correct.iter().copied()) / (sums[1] + eps);
            (metrics[6], metrics[7]) = (accepted(correct), accepted(base_correct));
            metrics[8] = lambda[0];
            metrics[0] = (1.0 - lambda[0]) * metrics[3] + lambda[0] * metrics[4];
        } else {
            metrics[0] = weighted(losses, share);
        }
        for (total, metric) in totals.iter_mut().zip(metrics.iter().chain(&[1.0])) {
            *total += metric;
        }
    }
}

/// In row order, in double precision: trailing zeros of a sequence change nothing.
#[allow(clippy::cast_possible_truncation)]
fn sum(values: impl Iterator<Item = f32>) -> f32 {
    values.map(f64::from).sum::<f64>() as f32
}

/// Over blocks of `slots` rows: the sum of 1 + the leading run of correct scored slots, and how many blocks have a scored slot.
fn accepted_sum(mask: &[f32], correct: &[f32], slots: usize) -> (f32, f32) {
    let (mut sum, mut count) = (0.0, 0.0);
    for (mask, correct) in mask.chunks_exact(slots).zip(correct.chunks_exact(slots)) {
        let scored = || mask.iter().zip(correct).filter(|(m, _)| **m > 0.0);
        if scored().next().is_some() {
            sum += 1.0 + scored().take_while(|(_, c)| **c > 0.0).count() as f32;
            count += 1.0;
        }
    }
    (sum, count)
}
