// Sums and sums of squares in double precision for any dtype, and the largest modulus, in one pass (reduce.cuh).
//
// The simple version squares into an array of doubles, which writes and reads twice the bytes of the image, and then adds.
// Kernels: add_up, with one row of blocks for each sum; residuals, four sums at once; largest. Bytes: the arrays, once.

#include "reduce.cuh"

constexpr int THREADS = 256;

// Index of element i of plane p.
__device__ __forceinline__ index_t place(index_t i, int p, unsigned cols, long long ld, long long stride) {
    const index_t row = i / cols;
    return p * stride + row * ld + (i - row * cols);
}

// out[k] = sum of x, or of x^2, over `per` planes from k * per on, of rows x cols elements.
extern "C" __global__ void __launch_bounds__(THREADS)
add_up(double* out, const real* x, long long ldx, long long stride, int per, unsigned rows, unsigned cols, int squares,
       double* partial, unsigned* tickets) {
    const int sum = blockIdx.y;
    const index_t plane = (index_t)rows * cols;
    const bool dense = ldx == cols;
    double total[1] = {};
    for (int p = 0; p < per; ++p) {
        const real* from = x + ((index_t)sum * per + p) * stride;
        for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
            const double value = from[dense ? i : place(i, 0, cols, ldx, 0)];
            total[0] += squares ? value * value : value;
        }
    }
    if (grid_sum<THREADS>(total, partial, tickets) && threadIdx.x == 0) out[sum] = total[0];
}

// The sum of squares of this thread's elements of planes of rows x cols.
__device__ __forceinline__ double own(const real* x, long long ld, long long stride, int planes, unsigned rows, unsigned cols) {
    const index_t plane = (index_t)rows * cols;
    double sum = 0;
    for (int p = 0; p < planes; ++p)
        for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
            const double v = x[place(i, p, cols, ld, stride)];
            sum = fma(v, v, sum);
        }
    return sum;
}

// out: sums of squares of b and a - lambda f (`planes` of rows x cols), and of g and d (`images` of image_rows x
// image_cols). Four blocks on a multiprocessor leave 64 registers a thread; with 40 registers the sums would be spilled.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
residuals(double* out, int planes, const real* b, long long ldb, long long stride_b, const real* a, long long lda, long long stride_a,
          const real* f, long long ldf, long long stride_f, real lambda, unsigned rows, unsigned cols, int images, const real* g,
          long long ldg, long long stride_g, const real* d, long long ldd, long long stride_d, unsigned image_rows,
          unsigned image_cols, double* partial, unsigned* tickets) {
    double sums[4] = {own(b, ldb, stride_b, planes, rows, cols), 0, own(g, ldg, stride_g, images, image_rows, image_cols),
                      own(d, ldd, stride_d, images, image_rows, image_cols)};
    const index_t plane = (index_t)rows * cols;
    for (int p = 0; p < planes; ++p)
        for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
            const double r = a[place(i, p, cols, lda, stride_a)] - lambda * f[place(i, p, cols, ldf, stride_f)];
            sums[1] = fma(r, r, sums[1]);
        }
    if (grid_sum<THREADS>(sums, partial, tickets) && threadIdx.x == 0)
        for (int k = 0; k < 4; ++k) out[k] = sums[k];
}

// The bits of the largest |x|, written into a zero; NaN is larger than any number. Nonnegative numbers have the order of
// their bits.
extern "C" __global__ void __launch_bounds__(THREADS) largest(unsigned long long* bits, const real* x, long long count) {
    real most = 0;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const real size = absolute(x[i]);
        most = size > most || size != size ? size : most;
    }
    unsigned long long mine = __double_as_longlong((double)most) & 0x7fffffffffffffffull;
    UNROLL for (int offset = 16; offset > 0; offset /= 2) {
        const unsigned long long other = __shfl_xor_sync(FULL_WARP, mine, offset);
        mine = other > mine ? other : mine;
    }
    if (threadIdx.x % 32 == 0) atomicMax(bits, mine);
}
