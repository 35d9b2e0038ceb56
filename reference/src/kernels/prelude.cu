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
