//! Matrix product with strides, for machines without cuBLAS and for the emulated device; in 32-bit floats, or from operands
//! rounded to bf16 with sums in 32-bit floats, as tensor cores compute it.
#![allow(unsafe_code)]

use super::support::kernel;

/// Edge of the tile of C that one thread block computes.
const TILE: usize = 32;

kernel! {
    /// C\[m, n\] = A B, or C += A B with `accumulate` = 1; element (i, p) of A is at `i * am + p * ak`, (p, j) of B at
    /// `p * bk + j * bn`; C is row-major and dense. Sums run over p in order.
    gemm(
        a: read f32 [m * k],
        b: read f32 [k * n],
        c: write f32 [m * n];
        m: usize, n: usize, k: usize, am: usize, ak: usize, bk: usize, bn: usize, accumulate: i32
    )
    grid [n.div_ceil(TILE), m.div_ceil(TILE), 1], block 256, shared 0;
    cuda "{
    // A 32 x 32 tile of C per block, 2 x 2 elements per thread; tiles of A and B go through shared memory, padded by
    // one column against bank conflicts.
    __shared__ float as[32][33];
    __shared__ float bs[32][33];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
    float sum[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    for (int p0 = 0; p0 < k; p0 += 32) {
        for (int e = threadIdx.x; e < 1024; e += 256) {
            // Neighbouring threads read along whichever stride is 1.
            int i = ak == 1 ? e / 32 : e % 32, p = ak == 1 ? e % 32 : e / 32;
            as[i][p] = row0 + i < m && p0 + p < k ? a[(long long)(row0 + i) * am + (long long)(p0 + p) * ak] : 0.0f;
            int q = bn == 1 ? e / 32 : e % 32, j = bn == 1 ? e % 32 : e / 32;
            bs[q][j] = p0 + q < k && col0 + j < n ? b[(long long)(p0 + q) * bk + (long long)(col0 + j) * bn] : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < 32; ++p)
            for (int r = 0; r < 2; ++r)
                for (int s = 0; s < 2; ++s) sum[r][s] += as[ty + 16 * r][p] * bs[p][tx + 16 * s];
        __syncthreads();
    }
    for (int r = 0; r < 2; ++r)
        for (int s = 0; s < 2; ++s) {
            int i = row0 + ty + 16 * r, j = col0 + tx + 16 * s;
            if (i < m && j < n) {
                float* out = c + (long long)i * n + j;
                *out = accumulate ? *out + sum[r][s] : sum[r][s];
            }
        }
}"
    host {
        multiply(a, b, c, [m, n, k], [am, ak], [bk, bn], accumulate);
    }
}

kernel! {
    /// As [`gemm`](super::gemm), from bf16 operands.
    gemm_bf16(
        a: read u16 [m * k],
        b: read u16 [k * n],
        c: write f32 [m * n];
        m: usize, n: usize, k: usize, am: usize, ak: usize, bk: usize, bn: usize, accumulate: i32
    )
    grid [n.div_ceil(TILE), m.div_ceil(TILE), 1], block 256, shared 0;
    cuda "{
    // As gemm: the tiles are widened on their way into shared memory.
    __shared__ float as[32][33];
    __shared__ float bs[32][33];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
    float sum[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    for (int p0 = 0; p0 < k; p0 += 32) {
        for (int e = threadIdx.x; e < 1024; e += 256) {
            int i = ak == 1 ? e / 32 : e % 32, p = ak == 1 ? e % 32 : e / 32;
            as[i][p] =
                row0 + i < m && p0 + p < k ? from_bf16(a[(long long)(row0 + i) * am + (long long)(p0 + p) * ak]) : 0.0f;
            int q = bn == 1 ? e / 32 : e % 32, j = bn == 1 ? e % 32 : e / 32;
            bs[q][j] =
                p0 + q < k && col0 + j < n ? from_bf16(b[(long long)(p0 + q) * bk + (long long)(col0 + j) * bn]) : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < 32; ++p)
            for (int r = 0; r < 2; ++r)
                for (int s = 0; s < 2; ++s) sum[r][s] += as[ty + 16 * r][p] * bs[p][tx + 16 * s];
        __syncthreads();
    }
    for (int r = 0; r < 2; ++r)
        for (int s = 0; s < 2; ++s) {
            int i = row0 + ty + 16 * r, j = col0 + tx + 16 * s;
            if (i < m && j < n) {
                float* out = c + (long long)i * n + j;
                *out = accumulate ? *out + sum[r][s] : sum[r][s];
            }
        }
}"
    host {
        let widen = |x: &[u16]| x.iter().map(|x| from_bf16(*x)).collect::<Vec<f32>>();
        multiply(&widen(a), &widen(b), c, [m, n, k], [am, ak], [bk, bn], accumulate);
    }
}

kernel! {
    /// out\[n\] = x rounded to bf16, to nearest, ties to even. A NaN stays one.
    round_bf16(
        x: read f32 [n],
        out: write u16 [n];
        n: usize
    )
    grid [n.div_ceil(256), 1, 1], block 256, shared 0;
    cuda "{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = to_bf16(x[i]);
}"
    host {
        for (out, x) in out.iter_mut().zip(x) {
            *out = to_bf16(*x);
        }
    }
}

/// The bf16 nearest to `x`, ties to even; its twin is in `prelude.cu`.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // the upper half is wanted
pub fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() { (bits >> 16) as u16 | 0x40 } else { ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16 }
}

/// Exact.
#[must_use]
pub fn from_bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// C = A B or C += A B for strides `[along m, along k]` of A and `[along k, along n]` of B.
fn multiply(
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    [m, n, k]: [usize; 3],
    [am, ak]: [usize; 2],
    [bk, bn]: [usize; 2],
    accumulate: i32,
) {
    let beta = if accumulate != 0 { 1.0 } else { 0.0 };
    let stride = |s: usize| s as isize;
    let last =
        |rows: usize, rs: usize, cols: usize, cs: usize| (rows.max(1) - 1) * rs + (cols.max(1) - 1) * cs;
    assert!(m * n == 0 || k == 0 || (last(m, am, k, ak) < a.len() && last(k, bk, n, bn) < b.len()));
    assert!(c.len() >= m * n);
    // SAFETY: the assertions above keep every element of A and B inside its slice; C is m * n long and dense.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.as_ptr(),
            stride(am),
            stride(ak),
            b.as_ptr(),
            stride(bk),
            stride(bn),
            beta,
            c.as_mut_ptr(),
            stride(n),
            1,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_bf16_is_to_nearest_with_ties_to_even() {
        let unit = 2.0_f32.powi(-7);
        for (x, expected) in [
            (1.0, 1.0),
            (1.0 + 0.4 * unit, 1.0),
            (1.0 + 0.5 * unit, 1.0),
            (1.0 + 0.6 * unit, 1.0 + unit),
            (1.0 + 1.5 * unit, 1.0 + 2.0 * unit),
            (-3.5e-3, from_bf16(to_bf16(-3.5e-3))),
            (f32::MAX, f32::INFINITY),
            (0.0, 0.0),
        ] {
            assert_eq!(from_bf16(to_bf16(x)), expected, "{x}");
        }
        assert!(from_bf16(to_bf16(f32::NAN)).is_nan());
        assert!(
            from_bf16(to_bf16(f32::from_bits(0x7f80_0001))).is_nan(),
            "a NaN whose upper half looks infinite"
        );
    }
}
