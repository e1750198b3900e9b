// Bases of Krylov spaces, grown vector by vector: for GMRES, and the two of Golub-Kahan bidiagonalisation.
//
// The simple version requests each inner product and each norm, waits for it, and sends back the factors. Here numbers
// stay where they are used, and the host reads them once a step, or once for many steps. Each frame has its own space,
// with vectors of n elements. Bytes: each kernel reads and writes each vector that it names once.
// An exhausted space continues with vectors of zeros, which change nothing.

#include "reduce.cuh"

constexpr int THREADS = 256;
constexpr int NORM = 0, COUNT = 1;  // the largest norm so far, a lower bound of ||H||; number of steps
constexpr int LOG = 64;                          // number of steps whose norms are stored

// v = w / norm, v's frames ldv apart; zero if the norm is zero. It may be in place.
extern "C" __global__ void __launch_bounds__(THREADS)
scaled(const real* w, const double* squared, int n, real* v, long long ldv) {
    const double square = squared[blockIdx.y];
    const real scale = square > 0 ? (real)(1 / sqrt(square)) : real(0);
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        v[blockIdx.y * ldv + i] = scale * w[(index_t)blockIdx.y * n + i];
}

// h[ldh * i] of each frame = <v_i, w>; h's frames are adjacent. Blocks (parts of n, vectors, frames).
extern "C" __global__ void __launch_bounds__(THREADS)
project(const real* basis, long long apart, const real* w, int n, double* h, long long ldh, double* partial, unsigned* tickets) {
    const int i = blockIdx.y, frame = blockIdx.z;
    const real *v = basis + frame * apart + (index_t)i * n, *x = w + (index_t)frame * n;
    double sum[1] = {};
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < n; at += gridDim.x * THREADS) sum[0] += (double)v[at] * x[at];
    if (grid_sum<THREADS>(sum, partial, tickets) && threadIdx.x == 0) h[i * ldh + frame] = sum[0];
}

// w -= sum over i of h[ldh * i] v_i, with the new squared norm unless `squared` is null. Blocks (parts of n, frames).
extern "C" __global__ void __launch_bounds__(THREADS)
subtract(real* w, const real* basis, long long apart, int count, int n, const double* h, long long ldh, double* squared,
         double* partial, unsigned* tickets) {
    const int frame = blockIdx.y;
    const real* v = basis + frame * apart;
    real* x = w + (index_t)frame * n;
    double sum[1] = {};
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < n; at += gridDim.x * THREADS) {
        real left = x[at];
        for (int i = 0; i < count; ++i) left = multiply_add(-(real)h[i * ldh + frame], v[(index_t)i * n + at], left);
        x[at] = left;
        sum[0] += (double)left * left;
    }
    if (squared && grid_sum<THREADS>(sum, partial, tickets) && threadIdx.x == 0) squared[frame] = sum[0];
}

// out = x - factor * old, old's frames ldold apart, and its squared norm; without `old` out = x. x may be a part of larger
// images of rows x cols, with rows ldx and frames `stride` apart. It may be in place. Blocks (parts of n, frames).
extern "C" __global__ void __launch_bounds__(THREADS)
recur(real* out, const real* x, long long ldx, long long stride, unsigned cols, int n, const double* factor, const real* old,
      long long ldold, double* squared, double* partial, unsigned* tickets) {
    const int frame = blockIdx.y;
    const real by = old ? (real)factor[frame] : real(0);
    double sum[1] = {};
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < n; at += gridDim.x * THREADS) {
        const unsigned row = at / cols, col = at - row * cols;
        real value = x[frame * stride + row * ldx + col];
        if (old) value = multiply_add(-by, old[frame * ldold + at], value);
        out[(index_t)frame * n + at] = value;
        sum[0] += (double)value * value;
    }
    if (grid_sum<THREADS>(sum, partial, tickets) && threadIdx.x == 0) squared[frame] = sum[0];
}

// norms = sqrt(squared), or zero where that is at most `tiny` of the largest norm so far; `second` is 1 for the second norm
// of a step, which counts the step. One block.
extern "C" __global__ void __launch_bounds__(THREADS)
settle(double* squared, int frames, double tiny, int second, int first_of_all, double* norms, double* scalars, double* log) {
    const double before = scalars[NORM], floor = first_of_all ? 0.0 : tiny * before;
    const long long row = ((long long)scalars[COUNT] % LOG) * 2 + second;
    double largest = 0;
#pragma unroll 1  // several square roots at once need more registers than a call leaves
    for (int f = threadIdx.x; f < frames; f += THREADS) {
        double norm = sqrt(squared[f]);
        if (norm <= floor) norm = 0;  // NaN stays NaN
        norms[f] = norm;
        log[row * frames + f] = norm;
        squared[f] = norm * norm;
        largest = fmax(largest, norm);
    }
    __shared__ double most;
    const double mine[1] = {largest};
    reduce_block<THREADS, 0>(mine, &most, 1);
    if (threadIdx.x == 0) {
        if (second || !first_of_all) scalars[NORM] = fmax(before, most);
        if (second) scalars[COUNT] += 1;
    }
}
