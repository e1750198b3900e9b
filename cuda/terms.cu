// The value of a regularizer: the sum over pixels of a norm of differences of neighbouring pixels, in one pass.
//
// The simple version is an array for the scene with a border, one for each difference, their squares, and roots: some
// twenty passes and launches. Here a thread computes the differences at its pixel, in all channels, and adds up
// their contributions. Bytes: the scene, once.

#include "differences.cuh"
#include "reduce.cuh"

constexpr int THREADS = 256;

// The contribution of a pixel's differences; x points to its first channel, channels are `plane` apart.
template <int KIND>
__device__ __forceinline__ double counts(const real* x, index_t plane, int channels, const Place& o, int row, int col,
                                         int rows, int cols, int norm, int wraps) {
    bool in[KIND];
    counted<KIND>(in, wraps, row, col, rows, cols);
    double sum = 0;
    real power = 0;
    for (int c = 0; c < channels; ++c) {
        real a[KIND];
        differences<KIND>(x + c * plane, o, a);
        UNROLL for (int d = 0; d < KIND; ++d) {
            if (!in[d]) continue;
            if (norm == VECTOR_NORM) power += square(a[d]);
            else sum += norm == SQUARE ? 0.5 * ((double)a[d] * a[d]) : (double)absolute(a[d]);
        }
    }
    return norm == VECTOR_NORM ? (double)square_root(power) : sum;
}

// The sum over scenes x of `channels` planes of rows x cols each, which are periodic if `wraps`, to out[0]. `kind` is the
// number of differences: 1 identity, 2 gradient, 3 hessian.
extern "C" __global__ void __launch_bounds__(THREADS)
value(const real* x, int scenes, int channels, int rows, int cols, int kind, int norm, int wraps, double* out, double* partial,
      unsigned* tickets) {
    const index_t plane = (index_t)rows * cols, count = plane * scenes;
    double sums[1] = {};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const index_t scene = i / plane, pixel = i - scene * plane;
        const int row = (int)(pixel / cols), col = (int)(pixel - (index_t)row * cols);
        const Place o(row, col, rows, cols);
        const real* at = x + scene * channels * plane + pixel;
        if (kind == 1) sums[0] += counts<1>(at, plane, channels, o, row, col, rows, cols, norm, wraps);
        else if (kind == 2) sums[0] += counts<2>(at, plane, channels, o, row, col, rows, cols, norm, wraps);
        else sums[0] += counts<3>(at, plane, channels, o, row, col, rows, cols, norm, wraps);
    }
    if (grid_sum<THREADS>(sums, partial, tickets) && threadIdx.x == 0) *out = sums[0];
}
