//! Gradient norm, clipping, learning rate, AdamW, and the metrics row: the end of a step, all on the device.

use super::loss::METRICS;
use super::support::kernel;
use crate::optim::{Metrics, Schedule};

/// Elements that one thread block of [`square_sums`] adds up.
pub const CHUNK: usize = 16_384;

kernel! {
    /// partial\[n / chunk, rounded up\] = sum of squares of each chunk of g\[n\].
    square_sums(
        g: read f32 [n],
        partial: write f32 [n.div_ceil(chunk)];
        n: usize, chunk: usize
    )
    grid [n.div_ceil(chunk), 1, 1], block 256, shared 0;
    cuda "{
    __shared__ float scratch[32];
    long long first = (long long)blockIdx.x * chunk, last = min(first + chunk, (long long)n);
    float sum = 0.0f;
    for (long long i = first + threadIdx.x; i < last; i += blockDim.x) sum += g[i] * g[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}"
    host {
        for (partial, chunk) in partial.iter_mut().zip(g.chunks(chunk)) {
            *partial = super::super::norm::dot(chunk, chunk);
        }
    }
}

kernel! {
    /// scalars\[5\] = (gradient norm, learning rate, clip factor, 1 - beta1^t, 1 - beta2^t) for optimiser step t = steps\[0\] + 1.
    /// Clip factor min(1, max_norm / (norm + 1e-6)); learning rate as [`Schedule`] says.
    step_scalars(
        partial: read f32 [chunks],
        steps: read u32 [1],
        scalars: write f32 [5];
        chunks: usize, max_norm: f32, peak: f32, warmup_steps: u32, total_steps: u32, beta1: f32, beta2: f32
    )
    grid [1, 1, 1], block 256, shared 0;
    cuda "{
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < chunks; i += blockDim.x) sum += partial[i];
    float norm = sqrtf(block_sum(sum, scratch));
    if (threadIdx.x != 0) return;
    unsigned int step = steps[0];
    float lr;
    if (step < warmup_steps) {
        lr = peak * (float)(step + 1) / (float)warmup_steps;
    } else {
        unsigned int span = total_steps > warmup_steps ? total_steps - warmup_steps : 1;
        float progress = fminf((float)(step - warmup_steps) / (float)span, 1.0f);
        lr = peak * 0.5f * (1.0f + cosf(3.14159274f * progress));
    }
    scalars[0] = norm;
    scalars[1] = lr;
    scalars[2] = fminf(1.0f, max_norm / (norm + 1e-6f));
    scalars[3] = (float)(1.0 - pow((double)beta1, (double)(step + 1)));
    scalars[4] = (float)(1.0 - pow((double)beta2, (double)(step + 1)));
}"
    host {
        let sum: f64 = partial.iter().map(|p| f64::from(*p)).sum();
        #[allow(clippy::cast_possible_truncation)]
        let norm = sum.sqrt() as f32;
        let step = steps[0];
        let correction = |beta: f32| {
            #[allow(clippy::cast_possible_truncation)]
            let c = (1.0 - f64::from(beta).powf(f64::from(step) + 1.0)) as f32;
            c
        };
        scalars[0] = norm;
        scalars[1] = Schedule { peak, warmup_steps, total_steps }.learning_rate(step);
        scalars[2] = (max_norm / (norm + 1e-6)).min(1.0);
        scalars[3] = correction(beta1);
        scalars[4] = correction(beta2);
    }
}

kernel! {
    /// One AdamW update of weight\[n\] and its moments from gradient\[n\] times the clip factor; decoupled weight decay.
    adamw(
        weight: write f32 [n],
        gradient: read f32 [n],
        first: write f32 [n],
        second: write f32 [n],
        scalars: read f32 [5];
        n: usize, beta1: f32, beta2: f32, eps: f32, weight_decay: f32
    )
    grid [n.div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float lr = scalars[1], g = gradient[i] * scalars[2];
    float m = beta1 * first[i] + (1.0f - beta1) * g;
    float v = beta2 * second[i] + (1.0f - beta2) * g * g;
    first[i] = m;
    second[i] = v;
    float denominator = sqrtf(v) / sqrtf(scalars[4]) + eps;
    weight[i] = weight[i] * (1.0f - lr * weight_decay) - lr / scalars[3] * m / denominator;
}"
    host {
        let (lr, clip) = (scalars[1], scalars[2]);
        let (rate, root) = (lr / scalars[3], scalars[4].sqrt());
        for i in 0..n {
            let g = gradient[i] * clip;
            let m = beta1 * first[i] + (1.0 - beta1) * g;
            let v = beta2 * second[i] + (1.0 - beta2) * g * g;
            first[i] = m;
            second[i] = v;
            weight[i] = weight[i] * (1.0 - lr * weight_decay) - rate * m / (v.sqrt() / root + eps);
        }
    }
}

kernel! {
    /// Writes ring\[step mod rows\] = (step + 1, gradient norm, learning rate, the step's metrics), where metrics are means over the
    /// step's micro-batches of totals\[10\], the accuracy denominator their sum; then steps\[0\] += 1.
    step_finish(
        scalars: read f32 [5],
        totals: read f32 [METRICS + 1],
        steps: write u32 [1],
        ring: write f32 [rows * Metrics::FIELDS];
        rows: usize
    )
    grid [1, 1, 1], block 32, shared 0;
    cuda "{
    if (threadIdx.x != 0) return;
    unsigned int step = steps[0];
    float* row = ring + (step % rows) * 12;
    float count = fmaxf(totals[9], 1.0f);
    row[0] = (float)(step + 1);
    row[1] = scalars[0];
    row[2] = scalars[1];
    for (int i = 0; i < 9; ++i) row[3 + i] = i == 2 ? totals[i] : totals[i] / count;
    steps[0] = step + 1;
}"
    host {
        let step = steps[0];
        let row = &mut ring[step as usize % rows * Metrics::FIELDS..][..Metrics::FIELDS];
        let count = totals[METRICS].max(1.0);
        (row[0], row[1], row[2]) = ((step + 1) as f32, scalars[0], scalars[1]);
        for (i, total) in totals[..METRICS].iter().enumerate() {
            row[3 + i] = if i == 2 { *total } else { total / count };
        }
        steps[0] = step + 1;
    }
}
