// One sum over all threads of a launch, always in the same order: what krylov.cu and terms.cu share.

// What a block's threads have summed up, in every block's own place of `partial`; true in warp 0 of the last block of
// this sum, with the total.
template <int THREADS>
__device__ __forceinline__ bool added_up(double& sum, double* partial, unsigned* ticket) {
    __shared__ double parts[THREADS / 32];
    __shared__ bool last;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto over_warp = [](double v) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(FULL_WARP, v, offset);
        return v;
    };
    sum = over_warp(sum);
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = parts[0];
        for (int w = 1; w < THREADS / 32; ++w) sum += parts[w];
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || warp > 0) return false;
    __threadfence();
    sum = 0;
    for (unsigned b = lane; b < gridDim.x; b += 32) sum += __ldcg(partial + b);
    sum = over_warp(sum);
    if (lane == 0) *ticket = 0;  // for the next launch
    return lane == 0;
}
