// Sums and sums of squares in double precision, whatever the dtype, and the largest modulus; in one pass, and sums always
// in the same order.
//
// The simple version squares into an array of doubles, twice the bytes of the image written and read again, and adds that
// up. Here a block adds up its pixels, and the last block of a sum to be done the blocks' numbers.
//
// Kernels: add_up, one row of blocks for each sum; largest. Bytes: the array, once.

// A call launches few of these kernels.
constexpr bool ALONE = true;

constexpr int THREADS = 256;

// out[k] = sum of x, or of x^2, over the `per` planes k * per, ... of rows x cols elements; planes are `stride` apart and rows ldx.
extern "C" __global__ void __launch_bounds__(THREADS)
add_up(double* out, const real* x, long long ldx, long long stride, int per, unsigned rows, unsigned cols, int squares,
       double* partial, unsigned* ticket) {
    __shared__ double parts[THREADS / 32];
    __shared__ bool last;
    const int sum = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const index_t plane = (index_t)rows * cols;
    const bool dense = ldx == cols;
    double total = 0;
    for (int p = 0; p < per; ++p) {
        const real* from = x + ((index_t)sum * per + p) * stride;
        for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
            index_t at = i;
            if (!dense) {
                const index_t row = i / cols;
                at = row * ldx + (i - row * cols);
            }
            const double value = from[at];
            total += squares ? value * value : value;
        }
    }
    auto over_warp = [](double v) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(FULL_WARP, v, offset);
        return v;
    };
    total = over_warp(total);
    if (lane == 0) parts[warp] = total;
    __syncthreads();
    double* mine = partial + (index_t)sum * gridDim.x;
    if (threadIdx.x == 0) {
        total = parts[0];
        for (int w = 1; w < THREADS / 32; ++w) total += parts[w];
        mine[blockIdx.x] = total;
        __threadfence();
        last = atomicAdd(ticket + sum, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || warp > 0) return;
    __threadfence();
    total = 0;
    for (unsigned b = lane; b < gridDim.x; b += 32) total += __ldcg(mine + b);
    total = over_warp(total);
    if (lane == 0) out[sum] = total;
}

// The bits of the largest |x|, into a zero; NaN is larger than any number. For numbers that are not negative the order of
// the bits is that of the numbers.
extern "C" __global__ void __launch_bounds__(THREADS) largest(unsigned long long* bits, const real* x, long long count) {
    real most = 0;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const real size = absolute(x[i]);
        most = size > most || size != size ? size : most;
    }
    unsigned long long mine = __double_as_longlong((double)most) & 0x7fffffffffffffffull;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const unsigned long long other = __shfl_xor_sync(FULL_WARP, mine, offset);
        mine = other > mine ? other : mine;
    }
    if (threadIdx.x % 32 == 0) atomicMax(bits, mine);
}
