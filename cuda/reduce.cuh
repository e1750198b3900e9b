// Sums and maxima over all threads of a launch, in double precision and always in the same order.
//
// The simple version is an atomic addition by every thread, whose order, and with it the rounding, changes from run to run.
// Here a block reduces its threads' numbers, within warps by shuffles and then over its warps, and writes them to its
// place in `partial`. The block that takes the last ticket finds all places written and reduces them. The ticket returns
// to zero, so that the next launch can use it. Bytes: 8 for each number of each block, written once and read once.
//
// A number is summed if its index is below SUMS; for others the largest is found. A block must have THREADS threads.

template <bool SUM> __device__ __forceinline__ double join(double x, double y) { return SUM ? x + y : maximum(x, y); }

template <bool SUM> __device__ __forceinline__ double reduce_warp(double x) {
    UNROLL for (int offset = 16; offset > 0; offset /= 2) x = join<SUM>(x, __shfl_xor_sync(FULL_WARP, x, offset));
    return x;
}

// Reduces number k of all threads of a block into partial[k * stride].
template <int THREADS, int SUMS, class T, int N>
__device__ __forceinline__ void reduce_block(const T (&mine)[N], double* partial, index_t stride) {
    __shared__ double parts[N][THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();  // an earlier call may still read `parts`
    UNROLL for (int k = 0; k < N; ++k) {
        const double x = k < SUMS ? reduce_warp<true>(mine[k]) : reduce_warp<false>(mine[k]);
        if (lane == 0) parts[k][warp] = x;
    }
    __syncthreads();
    if (threadIdx.x < N) {
        const int k = threadIdx.x;
        double x = parts[k][0];
        for (int w = 1; w < THREADS / 32; ++w) x = k < SUMS ? x + parts[k][w] : maximum(x, parts[k][w]);
        partial[k * stride] = x;
        __threadfence();
    }
}

// Whether this is the last of `blocks` blocks to arrive; then all results of reduce_block in the others can be read.
__device__ __forceinline__ bool comes_last(unsigned* ticket, unsigned blocks) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(ticket, blocks - 1) == blocks - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// The numbers of `blocks` blocks, reduced by one warp; every lane gets the result.
template <bool SUM> __device__ __forceinline__ double reduce_blocks(const double* partial, int blocks) {
    double x = SUM ? 0 : __ldcg(partial);
    for (int b = threadIdx.x % 32; b < blocks; b += 32) x = join<SUM>(x, __ldcg(partial + b));
    return reduce_warp<SUM>(x);
}

// True in all threads of the block that arrives last, with the results in x. Every row of blocks (y and z of the grid) has
// its own reduction: `partial` has N * gridDim.x doubles for each row, and `tickets` one number, which is zero.
template <int THREADS, int SUMS, int N>
__device__ __forceinline__ bool grid_reduce(double (&x)[N], double* partial, unsigned* tickets) {
    static_assert(SUMS <= N && N <= THREADS, "a thread for each number");
    const unsigned row = blockIdx.z * gridDim.y + blockIdx.y;
    partial += (index_t)row * N * gridDim.x;
    reduce_block<THREADS, SUMS>(x, partial + blockIdx.x, gridDim.x);
    if (!comes_last(tickets + row, gridDim.x)) return false;
    __shared__ double results[N];
    for (int k = threadIdx.x / 32; k < N; k += THREADS / 32) {
        const double* from = partial + (index_t)k * gridDim.x;
        const double result = k < SUMS ? reduce_blocks<true>(from, gridDim.x) : reduce_blocks<false>(from, gridDim.x);
        if (threadIdx.x % 32 == 0) results[k] = result;
    }
    __syncthreads();
    UNROLL for (int k = 0; k < N; ++k) x[k] = results[k];
    return true;
}
template <int THREADS, int N>
__device__ __forceinline__ bool grid_sum(double (&x)[N], double* partial, unsigned* tickets) {
    return grid_reduce<THREADS, N>(x, partial, tickets);
}
