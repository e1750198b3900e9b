// One accelerated Richardson-Lucy iteration between its transforms (deblur/solvers/richardson_lucy.py states it).
//
// The simple version is a NumPy expression a line: some thirty passes over the image, and a number read back for the
// divergence, the change, and each of two inner products. Here three kernels read and write every array once, and the
// numbers stay on the device until the next iteration looks at all of them together.
//
// Kernels (THREADS threads a block, a pixel a thread, grid-stride)
//   expect       what the scene should have given: e = max(H f + b, floor); w g / e; the divergence of the counts from e
//   advance      the multiplicative step, and the sums that its length and the extrapolation are made of
//   extrapolate  how far to go on along the last move (Biggs and Andrews), and the point that is reached
// `sums`: the divergence; step·step before, |step before|², |move|², |scene|².
// An iteration that the host does not look at is told by `control` what to do, and leaves its numbers there; once it is
// done it changes nothing more. Without it (null) the host decides.
// H f and Hᵀ of an image come as views of the torus: rows ld apart, planes `stride` apart.

constexpr int THREADS = 256;
constexpr int SUMS = 5;

// Places in `control`. PREVIOUS: the last divergence. GOES_ON: the last step counts in the extrapolation.
constexpr int DONE = 0, COUNT = 1, TOLERANCE = 2, LIMIT = 3, FLOOR = 4, PREVIOUS = 5, GOES_ON = 6, CONTROL = 7;
constexpr int BATCH = 10;  // most iterations between two looks of the host; a record is the divergence and the change

// Totals over the grid of N numbers a thread into out, always in the same order.
// True in the block that was last, for all its threads.
template <int N> __device__ bool add_up(const double (&mine)[N], double* out, double* partial, unsigned* ticket) {
    __shared__ double parts[N][THREADS / 32];
    __shared__ bool last;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto over_warp = [](double v) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(FULL_WARP, v, offset);
        return v;
    };
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const double total = over_warp(mine[i]);
        if (lane == 0) parts[i][warp] = total;
    }
    __syncthreads();
    if (threadIdx.x < N) {
        double total = parts[threadIdx.x][0];
        for (int w = 1; w < THREADS / 32; ++w) total += parts[threadIdx.x][w];
        partial[(index_t)threadIdx.x * gridDim.x + blockIdx.x] = total;
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;  // back to 0 for the next launch
    __syncthreads();
    if (!last) return false;
    __threadfence();
    for (int i = warp; i < N; i += THREADS / 32) {
        double total = 0;
        for (unsigned b = lane; b < gridDim.x; b += 32) total += __ldcg(partial + (index_t)i * gridDim.x + b);
        total = over_warp(total);
        if (lane == 0) out[i] = total;
    }
    __syncthreads();
    return true;
}

// `expected` may be null. g, w, ratio and expected are whole images.
extern "C" __global__ void __launch_bounds__(THREADS)
expect(const real* hf, long long ldhf, long long stride, int planes, unsigned rows, unsigned cols, const real* g,
       const real* w, real background, real floor, real* ratio, real* expected, double* control, double* sums,
       double* partial, unsigned* ticket) {
    if (control && control[DONE] != 0) return;
    const index_t plane = (index_t)rows * cols;
    double mine[1] = {0};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const index_t row = i / cols;
#pragma unroll 1
        for (int p = 0; p < planes; ++p) {
            const index_t at = p * plane + i;
            const real e = maximum(hf[p * stride + row * ldhf + (i - row * cols)] + background, floor);
            const real counts = g[at], weight = w[at];
            ratio[at] = weight * (counts / e);
            if (expected) expected[at] = e;
            mine[0] += weight * (e - counts + (counts > 0 ? counts * log(counts / e) : real(0)));
        }
    }
    if (!add_up<1>(mine, sums, partial, ticket) || !control || threadIdx.x > 0) return;
    const int n = (int)control[COUNT];
    const double divergence = sums[0], infinite = __longlong_as_double(0x7ff0000000000000ll);
    const double change = n > 0 ? sqrt(sums[3]) / (sqrt(sums[4]) + control[FLOOR]) : infinite;
    double* record = control + CONTROL + n % BATCH * 2;
    record[0] = divergence;
    record[1] = change;
    control[GOES_ON] = n > 0 && !(divergence > control[PREVIOUS]);
    control[PREVIOUS] = divergence;
    control[COUNT] = n + 1;
    if (!(absolute(divergence) < infinite) || change <= control[TOLERANCE] || n >= control[LIMIT]) control[DONE] = 1;
}

// `near` and `below` are those of the variation's derivative, null without it; `before` is the step before, null if there
// is none to go by. `scene`, `move` from the scene before, `old`, and `step` are written; they may take the place of
// `old` and `before`.
extern "C" __global__ void __launch_bounds__(THREADS)
advance(const real* top, long long ldtop, long long stride, int planes, unsigned rows, unsigned cols, const real* point,
        const real* old, const unsigned char* seen, const real* sensitivity, const real* near, const real* below,
        real lambda, real low, real high, const real* before, real* scene, real* move, real* step,
        const double* control, double* sums, double* partial, unsigned* ticket) {
    if (control && control[DONE] != 0) return;
    const index_t plane = (index_t)rows * cols;
    double mine[SUMS - 1] = {0, 0, 0, 0};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const index_t row = i / cols;
#pragma unroll 1
        for (int p = 0; p < planes; ++p) {
            const index_t at = p * plane + i;
            const real from = point[at];
            real up = top[p * stride + row * ldtop + (i - row * cols)], down = sensitivity[at];
            if (near) {
                up += lambda * near[at];
                down += lambda * below[at];
            }
            real f = seen[at] ? from * maximum(up, real(0)) / down : from;
            f = f < low ? low : f > high ? high : f;
            const real s = f - from, moved = f - old[at];
            if (before) {
                const real b = before[at];
                mine[0] += (double)s * b;
                mine[1] += (double)b * b;
            }
            mine[2] += (double)moved * moved;
            mine[3] += (double)f * f;
            scene[at] = f;
            move[at] = moved;
            step[at] = s;
        }
    }
    add_up<SUMS - 1>(mine, sums + 1, partial, ticket);
}

extern "C" __global__ void __launch_bounds__(THREADS)
extrapolate(real* point, const real* scene, const real* move, long long count, real kept, real low, real high,
            const double* control, const double* sums) {
    if (control && control[DONE] != 0) return;
    const bool goes_on = !control || control[GOES_ON] != 0;
    const double ratio = goes_on && sums[2] > 0 ? sums[1] / sums[2] : 0.0;
    const real a = minimum(maximum(ratio, 0.0), 1.0);
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        // Not down to zero, from which no product returns.
        const real f = scene[i], x = maximum(f + a * move[i], kept * f);
        point[i] = x < low ? low : x > high ? high : x;
    }
}
