//! Matrix product with strides, for machines without cuBLAS and for the emulated device.
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
        let beta = if accumulate != 0 { 1.0 } else { 0.0 };
        let stride = |s: usize| s as isize;
        let last = |rows: usize, rs: usize, cols: usize, cs: usize| (rows.max(1) - 1) * rs + (cols.max(1) - 1) * cs;
        assert!(m * n == 0 || k == 0 || (last(m, am, k, ak) < a.len() && last(k, bk, n, bn) < b.len()));
        // SAFETY: the assertion above keeps every element of A and B inside its slice; C is m * n long and dense.
        unsafe {
            matrixmultiply::sgemm(
                m, k, n, 1.0,
                a.as_ptr(), stride(am), stride(ak),
                b.as_ptr(), stride(bk), stride(bn),
                beta, c.as_mut_ptr(), stride(n), 1,
            );
        }
    }
}
