// One accelerated Richardson-Lucy iteration between its transforms (deblur/solvers/richardson_lucy.py states it).
//
// The simple version is a NumPy expression a line: some thirty passes over the image, and a number read back for the
// divergence, the change, and each of two inner products. Here three kernels read and write every array once, and the
// numbers stay on the device until the next iteration looks at all of them together.
//
// Kernels (THREADS threads a block, a pixel a thread, grid-stride)
//   expect       what the scene should have given: e = max(H f + b, floor); w g / e; the divergence of the counts from
//                e, and the squares by which e misses the pixels that were held out
//   advance      the multiplicative step, and the sums that its length and the extrapolation are made of
//   extrapolate  how far to go on along the last move (Biggs and Andrews), and the point that is reached
// `sums`: the divergence, the misses; step·step before, |step before|², |move|², |scene|².
// The host does not look at an iteration: `control` tells it what to do, and it leaves its numbers there; once the
// iteration is done it changes nothing more.
// H f and Hᵀ of an image come as views of the torus: rows ld apart, planes `stride` apart.

#include "reduce.cuh"

constexpr int THREADS = 256;
constexpr int SUMS = 6, OF_EXPECT = 2;

// Places in `control`. PREVIOUS: the last divergence. GOES_ON: the last step counts in the extrapolation.
constexpr int DONE = 0, COUNT = 1, TOLERANCE = 2, LIMIT = 3, FLOOR = 4, PREVIOUS = 5, GOES_ON = 6, CONTROL = 7;
constexpr int BATCH = 10;  // most iterations between two looks of the host
constexpr int RECORD = 3;  // the divergence, the change, the misses

// g, w, held (which may be null) and ratio are whole images.
extern "C" __global__ void __launch_bounds__(THREADS)
expect(const real* hf, long long ldhf, long long stride, int planes, unsigned rows, unsigned cols, const real* g,
       const real* w, const real* held, real background, real floor, real* ratio, double* control, double* sums,
       double* partial, unsigned* tickets) {
    if (control[DONE] != 0) return;
    const index_t plane = (index_t)rows * cols;
    double mine[OF_EXPECT] = {0, 0};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const index_t row = i / cols;
#pragma unroll 1
        for (int p = 0; p < planes; ++p) {
            const index_t at = p * plane + i;
            const real e = maximum(hf[p * stride + row * ldhf + (i - row * cols)] + background, floor);
            const real counts = g[at], weight = w[at], off = e - counts;
            ratio[at] = weight * (counts / e);
            mine[0] += weight * (off + (counts > 0 ? counts * log(counts / e) : real(0)));
            if (held) mine[1] += held[at] * off * off;
        }
    }
    if (!grid_sum<THREADS>(mine, partial, tickets) || threadIdx.x > 0) return;
    const int n = (int)control[COUNT];
    const double divergence = mine[0], infinite = __longlong_as_double(0x7ff0000000000000ll);
    const double change = n > 0 ? sqrt(sums[4]) / (sqrt(sums[5]) + control[FLOOR]) : infinite;
    double* record = control + CONTROL + n % BATCH * RECORD;
    record[0] = divergence;
    record[1] = change;
    record[2] = mine[1];
    control[GOES_ON] = n > 0 && !(divergence > control[PREVIOUS]);
    control[PREVIOUS] = divergence;
    control[COUNT] = n + 1;
    if (!(absolute(divergence) < infinite) || change <= control[TOLERANCE] || n >= control[LIMIT]) control[DONE] = 1;
}

// The scene `f`, the step and `move`, from the scene before, take the place of those of the iteration before.
extern "C" __global__ void __launch_bounds__(THREADS)
advance(const real* top, long long ldtop, long long stride, int planes, unsigned rows, unsigned cols, const real* point,
        const unsigned char* seen, const real* sensitivity, real low, real high, real* f, real* move, real* step,
        const double* control, double* sums, double* partial, unsigned* tickets) {
    if (control[DONE] != 0) return;
    const index_t plane = (index_t)rows * cols;
    double mine[SUMS - OF_EXPECT] = {0, 0, 0, 0};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const index_t row = i / cols;
#pragma unroll 1
        for (int p = 0; p < planes; ++p) {
            const index_t at = p * plane + i;
            const real from = point[at], up = top[p * stride + row * ldtop + (i - row * cols)];
            real now = seen[at] ? from * maximum(up, real(0)) / sensitivity[at] : from;
            now = now < low ? low : now > high ? high : now;
            const real s = now - from, before = step[at], moved = now - f[at];
            mine[0] += (double)s * before;
            mine[1] += (double)before * before;
            mine[2] += (double)moved * moved;
            mine[3] += (double)now * now;
            f[at] = now;
            move[at] = moved;
            step[at] = s;
        }
    }
    if (!grid_sum<THREADS>(mine, partial, tickets) || threadIdx.x > 0) return;
    UNROLL for (int k = OF_EXPECT; k < SUMS; ++k) sums[k] = mine[k - OF_EXPECT];
}

extern "C" __global__ void __launch_bounds__(THREADS)
extrapolate(real* point, const real* f, const real* move, long long count, real kept, real low, real high,
            const double* control, const double* sums) {
    if (control[DONE] != 0) return;
    const double ratio = control[GOES_ON] != 0 && sums[3] > 0 ? sums[2] / sums[3] : 0.0;
    const real a = minimum(maximum(ratio, 0.0), 1.0);
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        // Not down to zero, from which no product returns.
        const real x = maximum(f[i] + a * move[i], kept * f[i]);
        point[i] = x < low ? low : x > high ? high : x;
    }
}
