//! RMS normalisation of rows: forward, gradient of the input, gradient of the weight.
//!
//! Used for whole rows (width H) and for single heads (rows x heads rows of width `head_dim`).

use super::support::kernel;

/// Rows that one thread block of [`rms_norm`] and [`rms_norm_backward`] handles, one per warp.
const ROWS: usize = 4;

kernel! {
    /// y\[rows, width\] = x * rstd * weight with rstd\[rows\] = 1 / sqrt(mean(x^2) + eps), kept for the backward pass.
    rms_norm(
        x: read f32 [rows * width],
        weight: read f32 [width],
        y: write f32 [rows * width],
        rstd: write f32 [rows];
        rows: usize, width: usize, eps: f32
    )
    grid [rows.div_ceil(ROWS), 1, 1], block ROWS * 32, shared 0;
    cuda "{
    int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    const float* in = x + (long long)row * width;
    float* out = y + (long long)row * width;
    float sum = 0.0f;
    for (int i = lane; i < width; i += WARP) sum += in[i] * in[i];
    float r = 1.0f / sqrtf(warp_sum(sum) / width + eps);
    for (int i = lane; i < width; i += WARP) out[i] = in[i] * r * weight[i];
    if (lane == 0) rstd[row] = r;
}"
    host {
        for (row, r) in rstd.iter_mut().enumerate().take(rows) {
            let x = &x[row * width..][..width];
            *r = 1.0 / (dot(x, x) / width as f32 + eps).sqrt();
            for ((y, x), w) in y[row * width..][..width].iter_mut().zip(x).zip(weight) {
                *y = x * *r * w;
            }
        }
    }
}

kernel! {
    /// dx\[rows, width\] = rstd (w dy - xhat mean(w dy xhat)) with xhat = x rstd; added to dx with `accumulate` = 1.
    rms_norm_backward(
        dy: read f32 [rows * width],
        x: read f32 [rows * width],
        weight: read f32 [width],
        rstd: read f32 [rows],
        dx: write f32 [rows * width];
        rows: usize, width: usize, accumulate: i32
    )
    grid [rows.div_ceil(ROWS), 1, 1], block ROWS * 32, shared 0;
    cuda "{
    int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    long long at = (long long)row * width;
    float r = rstd[row], sum = 0.0f;
    for (int i = lane; i < width; i += WARP) sum += dy[at + i] * weight[i] * x[at + i];
    float mean = warp_sum(sum) * r / width;
    for (int i = lane; i < width; i += WARP) {
        float d = r * (weight[i] * dy[at + i] - x[at + i] * r * mean);
        dx[at + i] = accumulate ? dx[at + i] + d : d;
    }
}"
    host {
        for row in 0..rows {
            let (dy, x) = (&dy[row * width..][..width], &x[row * width..][..width]);
            let r = rstd[row];
            let mean = dot3(dy, weight, x) * r / width as f32;
            for (((dx, dy), x), w) in dx[row * width..][..width].iter_mut().zip(dy).zip(x).zip(weight) {
                let d = r * (w * dy - x * r * mean);
                *dx = if accumulate != 0 { *dx + d } else { d };
            }
        }
    }
}

kernel! {
    /// First pass of the weight's gradient: partial\[sequences, chunks, width\] = sum over each chunk of `chunk` rows of dy xhat.
    /// The sequence's rows are cut into chunks from its start, so that fewer rows only drop trailing zeros.
    rms_norm_weight_partial(
        dy: read f32 [sequences * rows_each * width],
        x: read f32 [sequences * rows_each * width],
        rstd: read f32 [sequences * rows_each],
        partial: write f32 [sequences * rows_each.div_ceil(chunk) * width];
        sequences: usize, rows_each: usize, width: usize, chunk: usize
    )
    grid [width.div_ceil(128), rows_each.div_ceil(chunk), sequences], block 128, shared 0;
    cuda "{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    int first = blockIdx.y * chunk, last = min(first + chunk, rows_each);
    float sum = 0.0f;
    for (int r = first; r < last; ++r) {
        long long row = (long long)blockIdx.z * rows_each + r;
        sum += dy[row * width + column] * x[row * width + column] * rstd[row];
    }
    partial[((long long)blockIdx.z * gridDim.y + blockIdx.y) * width + column] = sum;
}"
    host {
        let chunks = rows_each.div_ceil(chunk);
        partial.fill(0.0);
        for row in 0..sequences * rows_each {
            let (s, r) = (row / rows_each, row % rows_each);
            let out = &mut partial[(s * chunks + r / chunk) * width..][..width];
            let (dy, x, rstd) = (&dy[row * width..][..width], &x[row * width..][..width], rstd[row]);
            for ((out, dy), x) in out.iter_mut().zip(dy).zip(x) {
                *out += dy * x * rstd;
            }
        }
    }
}

kernel! {
    /// Second pass: out\[width\] += sum over rows of partial\[rows, width\], in row order.
    column_sum(
        partial: read f32 [rows * width],
        out: write f32 [width];
        rows: usize, width: usize
    )
    grid [width.div_ceil(128), 1, 1], block 128, shared 0;
    cuda "{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    float sum = 0.0f;
    for (int r = 0; r < rows; ++r) sum += partial[(long long)r * width + column];
    out[column] += sum;
}"
    host {
        let mut sum = vec![0.0_f32; width];
        for row in partial.chunks_exact(width) {
            for (sum, p) in sum.iter_mut().zip(row) {
                *sum += p;
            }
        }
        for (out, sum) in out.iter_mut().zip(sum) {
            *out += sum;
        }
    }
}

/// Dot product with eight running sums, so that it vectorises; the order is fixed by the length.
#[must_use]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f32 = a8.remainder().iter().zip(b8.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a8.zip(b8) {
        for i in 0..8 {
            lanes[i] += a[i] * b[i];
        }
    }
    ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7])) + tail
}

/// y += a x.
pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 8];
    for (i, ((a, b), c)) in a.iter().zip(b).zip(c).enumerate() {
        lanes[i % 8] += a * b * c;
    }
    lanes.iter().sum()
}
