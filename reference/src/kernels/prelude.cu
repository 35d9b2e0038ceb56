// Compiled by NVRTC in front of every kernel: no headers, 32-bit floats throughout.

#define WARP 32
#define FULL 0xffffffffu

// Sum over the warp, in a fixed order; every lane gets the result.
__device__ __forceinline__ float warp_sum(float v)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(FULL, v, offset);
    return v;
}

__device__ __forceinline__ float warp_max(float v)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(FULL, v, offset));
    return v;
}

// Sum over a thread block of up to 1024 threads (a multiple of 32), in a fixed order; every thread gets the result.
// `scratch` is 32 floats of shared memory, free for reuse after the call.
__device__ float block_sum(float v, float* scratch)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = warp_sum(v);
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    v = warp_sum(lane < warps ? scratch[lane] : 0.0f);
    __syncthreads();
    return v;
}

__device__ float block_max(float v, float* scratch)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = warp_max(v);
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    v = warp_max(lane < warps ? scratch[lane] : scratch[0]);
    __syncthreads();
    return v;
}

// Philox 4x32-10, first output word; the host twin is anchors::philox.
__device__ unsigned int philox(unsigned int c0, unsigned int c1, unsigned int c2, unsigned int c3, unsigned int k0,
                               unsigned int k1)
{
    for (int round = 0; round < 10; ++round) {
        unsigned int h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        unsigned int h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

// bf16 as the upper half of a float; the host twins are in gemm.rs.
__device__ __forceinline__ float from_bf16(unsigned short x) { return __uint_as_float((unsigned int)x << 16); }

__device__ __forceinline__ unsigned short to_bf16(float x)
{
    unsigned int bits = __float_as_uint(x);
    return x != x ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

// Sum of a[sequences][blocks][slots] (times b where given) by one thread block. A block's slots are summed by the thread that
// its number picks, so unused trailing blocks (zeros) change no partial sum. Every thread gets the result.
__device__ float ordered_sum(const float* a, const float* b, int sequences, int blocks, int slots, float* scratch)
{
    float sum = 0.0f;
    for (int s = 0; s < sequences; ++s)
        for (int n = threadIdx.x; n < blocks; n += blockDim.x)
            for (int k = 0; k < slots; ++k) {
                long long row = ((long long)s * blocks + n) * slots + k;
                sum += b ? a[row] * b[row] : a[row];
            }
    return block_sum(sum, scratch);
}

// Sum over the blocks with a scored slot (mask > 0) of 1 + the length of their leading run of correct scored slots, and how many
// such blocks there are. Ordered like `ordered_sum`.
__device__ float accepted_sum(const float* mask, const float* correct, int sequences, int blocks, int slots, float* count,
                              float* scratch)
{
    float sum = 0.0f, scored = 0.0f;
    for (int s = 0; s < sequences; ++s)
        for (int n = threadIdx.x; n < blocks; n += blockDim.x) {
            bool any = false, running = true;
            for (int k = 0; k < slots; ++k) {
                long long row = ((long long)s * blocks + n) * slots + k;
                if (mask[row] <= 0.0f) continue;
                running = running && correct[row] > 0.0f;
                sum += running;
                any = true;
            }
            scored += any;
            sum += any;
        }
    *count = block_sum(scored, scratch);
    return block_sum(sum, scratch);
}
