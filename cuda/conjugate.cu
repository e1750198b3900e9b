// Conjugate gradients for systems side by side, except the products with A and with the preconditioner.
//
// The simple version is a dozen array operations an iteration, each with its own launch and passes over the arrays, and
// numbers that are copied to the host and back. Here an iteration is four launches. Their numbers are in `control`, with
// one row for each system, which the host reads when it needs them.
//
// Kernels (one row of blocks for each system of n contiguous elements)
//   curve     alpha = <r, z> / <p, A p>                                   reads 2 n
//   advance   x += alpha p, r -= alpha A p, and sums for the convergence test   reads 5 n, writes 2 n
//   energy    beta = <r, z> / <r, z> before                               reads 2 n
//   turn      p = z + beta p                                              reads 2 n, writes n
// z may be a part of larger arrays.

#include "reduce.cuh"

constexpr int THREADS = 256;
// Places in a system's row of `control`: the last alpha, beta and <r, z>; and, for the last x and r,
// <r, r>, <x, b + r>, <p, p> and <x, x>.
constexpr int ALPHA = 0, BETA = 1, ENERGY = 2, RESIDUAL = 3, VALUE = 4, MOVED = 5, SIZE = 6, CONTROL = 7;

__device__ __forceinline__ double over(double a, double b) { return a / (b == 0 ? 1 : b); }

extern "C" __global__ void __launch_bounds__(THREADS)
curve(const real* p, const real* ap, long long n, double* control, double* partial, unsigned* tickets) {
    double sums[1] = {};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (index_t)gridDim.x * THREADS)
        sums[0] += (double)p[blockIdx.y * n + i] * ap[blockIdx.y * n + i];
    double* c = control + blockIdx.y * CONTROL;
    if (grid_sum<THREADS>(sums, partial, tickets) && threadIdx.x == 0) c[ALPHA] = over(c[ENERGY], sums[0]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
advance(real* x, real* r, const real* p, const real* ap, const real* b, long long n, double* control, double* partial,
        unsigned* tickets) {
    double* c = control + blockIdx.y * CONTROL;
    const real alpha = (real)c[ALPHA];
    double sums[4] = {};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (index_t)gridDim.x * THREADS) {
        const index_t at = blockIdx.y * n + i;
        const real way = p[at];
        const real to = multiply_add(alpha, way, x[at]), left = multiply_add(-alpha, ap[at], r[at]);
        x[at] = to;
        r[at] = left;
        sums[0] += (double)left * left;
        sums[1] += (double)to * ((double)b[at] + left);
        sums[2] += (double)way * way;
        sums[3] += (double)to * to;
    }
    if (grid_sum<THREADS>(sums, partial, tickets) && threadIdx.x == 0) {
        c[RESIDUAL] = sums[0];
        c[VALUE] = sums[1];
        c[MOVED] = sums[2];
        c[SIZE] = sums[3];
    }
}

// Index in z of element i of a system; `plane` elements a plane.
__device__ __forceinline__ index_t place(index_t i, unsigned cols, index_t plane, long long ldz, long long stride) {
    const index_t which = i / plane, inner = i - which * plane, row = inner / cols;
    return which * stride + row * ldz + inner - row * cols;
}

extern "C" __global__ void __launch_bounds__(THREADS)
energy(const real* r, const real* z, long long ldz, long long stride, unsigned rows, unsigned cols, long long n, double* control,
       double* partial, unsigned* tickets) {
    const index_t plane = (index_t)rows * cols, planes = n / plane;
    const real* from = z + blockIdx.y * planes * stride;
    double sums[1] = {};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (index_t)gridDim.x * THREADS)
        sums[0] += (double)r[blockIdx.y * n + i] * from[place(i, cols, plane, ldz, stride)];
    double* c = control + blockIdx.y * CONTROL;
    if (grid_sum<THREADS>(sums, partial, tickets) && threadIdx.x == 0) {
        c[BETA] = over(sums[0], c[ENERGY]);
        c[ENERGY] = sums[0];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
turn(real* p, const real* z, long long ldz, long long stride, unsigned rows, unsigned cols, long long n,
     const double* control) {
    const index_t plane = (index_t)rows * cols, planes = n / plane;
    const real* from = z + blockIdx.y * planes * stride;
    const real beta = (real)control[blockIdx.y * CONTROL + BETA];
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (index_t)gridDim.x * THREADS)
        p[blockIdx.y * n + i] = multiply_add(beta, p[blockIdx.y * n + i], from[place(i, cols, plane, ldz, stride)]);
}
