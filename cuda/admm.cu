// One iteration of ADMM on a periodic domain (deblur/solvers/admm.py states it), all but its transforms.
//
// The simple version is a NumPy expression for each line of the algorithm: some forty launches and sixty passes over
// arrays of the domain's size an iteration, and a number read back for each residual. What each step buys:
//   - Three kernels between the transforms, each of which reads and writes every array once: 25 passes for total
//     variation, the four transforms' own included.
//   - The step's symbol ρ|K|² + Σ ρ_p |L_p|² is made where it is used, from K and one vector an axis: no table is
//     read, and a new ρ costs nothing.
//   - Numbers that change between iterations (ρ, λ, what counts as converged) lie in `control`, not in the launch, so
//     that one captured graph serves every iteration; residuals go there, too. Once an iteration is within the
//     tolerance the rest of a batch leaves everything as it is, so that the host may look every few iterations only.
//
// A frame is `channels` planes of rows x cols; `store` holds arrays of frames x channels such planes, of `size` elements
// each: the scene x, the data's copy u; for each penalty its copies u, then their t = u - d; the box's u and t; the
// data's t, and the right-hand side. The last two are transformed together, and `fresh` holds what comes back: x and
// K x. A penalty is named by `kind`, the number of its differences: 1 identity, 2 gradient, 3 hessian; 0 is none.
//
// Kernels (blocks of THREADS threads, a pixel of all channels a thread, grid-stride)
//   first_scene    the image over the brightness, continued by its edge pixels: where an iteration begins
//   first_copies   u = t = K x, L x and x
//   gather         the right-hand side Σ ρ Lᵀt
//   combine        the step in frequency: x and K x from the transforms of the data's t and of the right-hand side
//   update         every copy and its dual, the sums that residuals need, and, by the last block, the residuals; each
//                  split has blocks of its own, so that none needs the registers of all
//   rescale        t of a split for another ρ: the dual ρ d stays what it is
//   statistics     sums and largest values of an image that penalties and units are chosen by
// Bytes, total variation: gather 3 passes, combine 5, update 13.
// Source: S. Boyd et al., Found. Trends Mach. Learn. 3 (2011) 1-122, and deblur/terms.py.

#include "differences.cuh"

constexpr int THREADS = 256;
constexpr int SPLITS = 4;  // the data, two penalties, the box
constexpr int SUMS = 5;    // of a split: its term, |a - u|², |u - u before|², |a|², |u|²
constexpr int RECORD = SPLITS * SUMS;
constexpr int BATCH = 10;  // most iterations between two looks of the host

// Places in `control`. DONE: the iteration has converged. COUNT: iterations recorded. ARMED: it may converge.
constexpr int DONE = 0, COUNT = 1, ARMED = 2, TOLERANCE = 3, LEAST_SIZE = 4, RELAXATION = 5, SCALE = 6, FLOOR = 7;
constexpr int RHO = 8;                 // of each split
constexpr int TAU = RHO + SPLITS;      // λ·weight/ρ of each penalty
constexpr int WEIGHT = TAU + 2;        // λ·weight of each penalty
constexpr int BACKGROUND = WEIGHT + 2, DELTA = BACKGROUND + 1, LOW = DELTA + 1, HIGH = LOW + 1, LEAST = HIGH + 1;
constexpr int CONTROL = LEAST + 1;     // then BATCH records
constexpr int GAUSSIAN = 0, POISSON = 1, L1 = 2, HUBER = 3;  // fits
constexpr int STATISTICS = 7;  // visible pixels, their Σg and Σg², Σ|g|, Σw; the largest visible |g|, the largest g

__device__ __forceinline__ real clip(real x, real low, real high) { return x < low ? low : x > high ? high : x; }

// Lᵀ t at a pixel; t points to it in the first of the differences' arrays, which lie `size` apart.
template <int KIND> __device__ __forceinline__ real adjoint(const real* t, index_t size, const Place& o) {
    if (KIND == 1) return t[0];
    if (KIND == 2) return t[o.up] - t[0] + t[size + o.left] - t[size];
    const real* m = t + 2 * size;
    return t[o.up] + t[o.down] - 2 * t[0] + t[size + o.left] + t[size + o.right] - 2 * t[size] +
           ROOT_TWO * (m[o.up + o.left] - m[o.up] - m[o.left] + m[0]);
}

__device__ __forceinline__ double warp_total(double x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL_WARP, x, offset);
    return x;
}
__device__ __forceinline__ double warp_largest(double x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = maximum(x, __shfl_xor_sync(FULL_WARP, x, offset));
    return x;
}

// Totals over a block of its threads' N numbers, or the largest of the last N - TOTALS, into partial[i * stride].
template <int N, int TOTALS, class T> __device__ void reduce_block(const T (&mine)[N], double* partial, index_t stride) {
    __shared__ double parts[N][THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const double x = i < TOTALS ? warp_total(mine[i]) : warp_largest(mine[i]);
        if (lane == 0) parts[i][warp] = x;
    }
    __syncthreads();
    if (threadIdx.x < N) {
        const int i = threadIdx.x;
        double x = parts[i][0];
        for (int w = 1; w < THREADS / 32; ++w) x = i < TOTALS ? x + parts[i][w] : maximum(x, parts[i][w]);
        partial[i * stride] = x;
        __threadfence();
    }
}

// Whether this block is the last of the grid to come here; the ticket is back at 0 for the next launch.
__device__ bool comes_last(unsigned* ticket) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// The same of `count` numbers, by one warp, always in the same order.
__device__ __forceinline__ double reduce_partial(const double* from, int count, bool total) {
    const int lane = threadIdx.x % 32;
    double x = total ? 0 : __ldcg(from);
    for (int b = lane; b < count; b += 32) x = total ? x + __ldcg(from + b) : maximum(x, __ldcg(from + b));
    return total ? warp_total(x) : warp_largest(x);
}

// ---------------------------------------------------------------- an iteration

extern "C" __global__ void __launch_bounds__(THREADS)
gather(real* store, long long size, int frames, int channels, unsigned rows, unsigned cols, int kind, int second,
       int boxed, const double* control) {
    if (control[DONE] != 0) return;
    const unsigned plane = rows * cols, planes = frames * channels;
    const int parts = 2 + 2 * kind + 2 * second + 2 * boxed;
    const real first_rho = control[RHO + 1], second_rho = control[RHO + 2], box_rho = control[RHO + 3];
    const real* first_t = store + (2 + kind) * size;
    const real* second_t = store + (2 + 2 * kind + second) * size;
    const real* box_t = store + (index_t)(parts - 1) * size;
    real* right = store + (index_t)(parts + 1) * size;
    const index_t count = (index_t)plane * planes;
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const unsigned pixel = (unsigned)i % plane, row = pixel / cols;
        const Place o(row, pixel - row * cols, rows, cols);
        real sum = boxed ? box_rho * box_t[i] : real(0);
        if (kind == 1) sum += first_rho * adjoint<1>(first_t + i, size, o);
        if (kind == 2) sum += first_rho * adjoint<2>(first_t + i, size, o);
        if (kind == 3) sum += first_rho * adjoint<3>(first_t + i, size, o);
        if (second == 3) sum += second_rho * adjoint<3>(second_t + i, size, o);
        right[i] = sum;
    }
}

// `spectra` holds two spectra of `planes` planes of rows x cols complex numbers; k is one plane, row_power and
// column_power are |1 - exp(iω)|² along each axis.
extern "C" __global__ void __launch_bounds__(THREADS)
combine(real* spectra, int planes, unsigned rows, unsigned cols, const real* k, const real* row_power,
        const real* column_power, int kind, int second, const double* control) {
    const unsigned plane = rows * cols;
    const real rho = control[RHO], box = control[RHO + 3], scale = control[SCALE], floor = control[FLOOR];
    const real first_rho = control[RHO + 1], second_rho = control[RHO + 2];
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < plane; i += gridDim.x * THREADS) {
        const unsigned row = i / cols;
        const real power = row_power[row] + column_power[i - row * cols];
        const real kr = k[2 * (index_t)i], ki = k[2 * (index_t)i + 1];
        real total = rho * (kr * kr + ki * ki) + box;
        total += first_rho * (kind == 1 ? real(1) : kind == 2 ? power : kind == 3 ? power * power : real(0));
        total += second == 3 ? second_rho * (power * power) : real(0);
        if (total < floor) total += floor;  // what nothing determines is left where it is zero
        const real inverse = scale / total, data = rho * inverse;
        for (int p = 0; p < planes; ++p) {
            real* a = spectra + 2 * ((index_t)p * plane + i);
            real* b = a + 2 * (index_t)planes * plane;
            const real ar = a[0], ai = a[1], br = b[0], bi = b[1];
            const real xr = data * (kr * ar + ki * ai) + inverse * br, xi = data * (kr * ai - ki * ar) + inverse * bi;
            a[0] = xr;
            a[1] = xi;
            b[0] = kr * xr - ki * xi;
            b[1] = kr * xi + ki * xr;
        }
    }
}

// A new copy in the place of the old, t = 2 u - q beside it, and the sums.
__device__ __forceinline__ void keep(real a, real* u, real* t, real before, real q, real now, real (&sums)[SUMS]) {
    *u = now;
    *t = 2 * now - q;
    sums[1] += square(a - now);
    sums[2] += square(before - now);
    sums[3] += square(a);
    sums[4] += square(now);
}

// The proximal step of a penalty at a pixel; x, u and t point to it in the first channel, channels lie `plane` apart.
template <int KIND>
__device__ __forceinline__ void penalty(const real* x, real* u, real* t, index_t size, index_t plane, int channels,
                                        const Place& o, const bool (&in)[KIND], int norm, real tau, real weight,
                                        real relax, real (&sums)[SUMS]) {
    real a[KIND], before[KIND], q[KIND], power = 0, value = 0;
    auto load = [&](index_t c) {
        differences<KIND>(x + c, o, a);
#pragma unroll
        for (int d = 0; d < KIND; ++d) {
            before[d] = u[d * size + c];
            q[d] = relax * a[d] + (2 - relax) * before[d] - t[d * size + c];
        }
    };
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
        if (norm != VECTOR_NORM && channels > 1) break;
        load(c * plane);
#pragma unroll
        for (int d = 0; d < KIND; ++d)
            if (in[d]) power += square(q[d]);
    }
    const real length = square_root(power);
    const real shrink = norm == SQUARE ? 1 / (1 + tau) : 1 - tau / maximum(length, tau > 0 ? tau : real(1));
    if (norm == VECTOR_NORM) value = shrink * length;
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
        if (channels > 1) load(c * plane);
#pragma unroll
        for (int d = 0; d < KIND; ++d) {
            real now = q[d];
            if (in[d]) {
                now = norm == ABSOLUTE ? q[d] - clip(q[d], -tau, tau) : shrink * q[d];
                if (norm == SQUARE) value += real(0.5) * square(now);
                if (norm == ABSOLUTE) value += absolute(now);
            }
            keep(a[d], u + d * size + c * plane, t + d * size + c * plane, before[d], q[d], now, sums);
        }
    }
    sums[0] += weight * value;
}

// The fit's proximal map and value; see deblur.terms.Fit.
__device__ __forceinline__ real fitted(int fit, real q, real g, real w, real rho, real b, real delta, real least,
                                       real& value) {
    real v;
    if (fit == GAUSSIAN) {
        v = (w * (g - b) + rho * q) / (w + rho);
    } else if (fit == POISSON) {
        const real c = q + b - w / rho, wg = w * g, root = square_root(c * c + 4 / rho * wg);
        const real below = root - c;
        const real t = c > 0 ? real(0.5) * (c + root) : 2 / rho * wg / (below == 0 ? real(1) : below);
        v = w > 0 ? t - b : q;
    } else {
        const real e = q - (g - b), most = w / rho;
        v = fit == L1 ? q - clip(e, -most, most) : q - clip(e * (w / (w + rho)), -most * delta, most * delta);
    }
    if (w == 0) return v;
    real t = v + b, term;
    if (fit == GAUSSIAN) {
        term = real(0.5) * square(t - g);
    } else if (fit == POISSON) {
        t = maximum(t, least);
        term = t - g + (g > 0 ? g * log(g / t) : real(0));
    } else {
        const real e = absolute(t - g);
        term = fit == L1 ? e : e <= delta ? real(0.5) * e * e : delta * (e - real(0.5) * delta);
    }
    value += w * term;
    return v;
}

// A penalty's split at all pixels of the blocks that do it: number `block` of `blocks`.
template <int KIND>
__device__ void update_penalty(real* u, const real* x, index_t size, int frames, int channels, unsigned rows,
                               unsigned cols, int scene_rows, int scene_cols, bool all, int norm, real tau, real weight,
                               real relax, int block, int blocks, real (&sums)[SUMS]) {
    const unsigned plane = rows * cols, count = plane * frames;
#pragma unroll 1
    for (unsigned i = block * THREADS + threadIdx.x; i < count; i += blocks * THREADS) {
        const unsigned frame = i / plane, pixel = i - frame * plane, row = pixel / cols, col = pixel - row * cols;
        const Place o(row, col, rows, cols);
        const index_t base = (index_t)frame * channels * plane + pixel;
        bool in[KIND];
        counted<KIND>(in, all, row, col, scene_rows, scene_cols);
        penalty<KIND>(x + base, u + base, u + KIND * size + base, size, plane, channels, o, in, norm, tau, weight, relax,
                      sums);
    }
}

// Every split has blocks of its own, but for the box, which the data's do. `g` has the image's size, and lies in the
// domain from (first_row, first_col) on; so has `w`, as sets of weight_frames x weight_channels planes that go round;
// without it all of the image weighs 1. What lies beyond the image weighs nothing. Where the box is `held` its copy is set
// from outside, and only what nothing is asked of, beyond the scene, follows x.
extern "C" __global__ void __launch_bounds__(THREADS)
update(real* store, long long size, int frames, int channels, unsigned rows, unsigned cols, const real* fresh,
       const real* g, const real* w, int weight_frames, int weight_channels, int image_rows, int image_cols,
       int first_row, int first_col, int scene_rows, int scene_cols, int fit, int kind, int norm, int second,
       int second_norm, int all_counted, int boxed, int held, int bounded, int pinned, double* control, double* partial,
       unsigned* ticket) {
    if (control[DONE] != 0) return;
    const int roles = 1 + (kind > 0) + (second > 0), role = blockIdx.x % roles;
    const int block = blockIdx.x / roles, blocks = gridDim.x / roles;
    const real relax = control[RELAXATION];
    if (role == 0) {
        const unsigned plane = rows * cols, count = plane * frames;
        const int parts = 2 + 2 * kind + 2 * second + 2 * boxed;
        const real* kx = fresh + size;
        real* data_t = store + (index_t)parts * size;
        const real rho = control[RHO], b = control[BACKGROUND], delta = control[DELTA];
        const real low = control[LOW], high = control[HIGH], least = control[LEAST];
        real sums[SUMS] = {}, box_sums[SUMS] = {};
#pragma unroll 1
        for (unsigned i = block * THREADS + threadIdx.x; i < count; i += blocks * THREADS) {
            const unsigned frame = i / plane, pixel = i - frame * plane, row = pixel / cols, col = pixel - row * cols;
            const int y = (int)row - first_row, x = (int)col - first_col;
            const bool seen = y >= 0 && y < image_rows && x >= 0 && x < image_cols;
            const bool scene = (int)row < scene_rows && (int)col < scene_cols;
#pragma unroll 1
            for (int c = 0; c < channels; ++c) {
                const index_t at = ((index_t)frame * channels + c) * plane + pixel;
                real value = 0, weight = 0, image = 0;
                if (seen) {
                    const index_t from = (index_t)y * image_cols + x, whole = (index_t)image_rows * image_cols;
                    const int set = (frame % weight_frames) * weight_channels + c % weight_channels;
                    image = g[((index_t)frame * channels + c) * whole + from];
                    weight = w ? w[set * whole + from] : real(1);
                }
                const real a = kx[at], before = store[size + at];
                const real q = relax * a + (2 - relax) * before - data_t[at];
                const real now = fitted(fit, q, image, weight, rho, b, delta, least, value);
                sums[0] += value;
                keep(a, store + size + at, data_t + at, before, q, now, sums);
                const real own = fresh[at];
                store[at] = own;
                if (held) {
                    if (!scene && !pinned) store[(index_t)(parts - 1) * size + at] = own;
                } else if (boxed) {
                    real* u = store + (index_t)(parts - 2) * size + at;
                    const real was = *u, qb = relax * own + (2 - relax) * was - u[size];
                    const real nb = scene ? (bounded ? clip(qb, low, high) : qb) : (pinned ? real(0) : qb);
                    keep(own, u, u + size, was, qb, nb, box_sums);
                }
            }
        }
        reduce_block<SUMS, SUMS>(sums, partial + block, blocks);
        if (boxed) reduce_block<SUMS, SUMS>(box_sums, partial + 3 * SUMS * blocks + block, blocks);
    } else {
        real sums[SUMS] = {};
        real* u = store + (role == 1 ? 2 : 2 + 2 * kind) * size;
        const int own = role == 1 ? kind : second, own_norm = role == 1 ? norm : second_norm;
        const real tau = control[TAU + role - 1], weight = control[WEIGHT + role - 1];
        if (own == 1)
            update_penalty<1>(u, fresh, size, frames, channels, rows, cols, scene_rows, scene_cols, all_counted, own_norm,
                              tau, weight, relax, block, blocks, sums);
        if (own == 2)
            update_penalty<2>(u, fresh, size, frames, channels, rows, cols, scene_rows, scene_cols, all_counted, own_norm,
                              tau, weight, relax, block, blocks, sums);
        if (own == 3)
            update_penalty<3>(u, fresh, size, frames, channels, rows, cols, scene_rows, scene_cols, all_counted, own_norm,
                              tau, weight, relax, block, blocks, sums);
        reduce_block<SUMS, SUMS>(sums, partial + role * SUMS * blocks + block, blocks);
    }
    if (!comes_last(ticket)) return;
    __shared__ double found[RECORD];
    for (int i = threadIdx.x / 32; i < RECORD; i += THREADS / 32) {
        const int split = i / SUMS;
        const bool there = split == 0 || (split == 1 && kind) || (split == 2 && second) || (split == 3 && boxed);
        const double x = there ? reduce_partial(partial + (index_t)i * blocks, blocks, true) : 0;
        if (threadIdx.x % 32 == 0) found[i] = x;
    }
    __syncthreads();
    double* record = control + CONTROL + (int)control[COUNT] % BATCH * RECORD;
    if (threadIdx.x < RECORD) record[threadIdx.x] = found[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        double worst = 0;
        bool number = true;
        for (int s = 0; s < SPLITS; ++s) {
            const double* r = found + s * SUMS;
            const double left = maximum(r[1], r[2]) / maximum(maximum(r[3], r[4]), control[LEAST_SIZE]);
            number = number && r[1] == r[1] && r[2] == r[2];
            worst = maximum(worst, left);
        }
        const double tolerance = control[TOLERANCE];
        control[COUNT] += 1;
        if (number && control[ARMED] != 0 && worst <= tolerance * tolerance) control[DONE] = 1;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) rescale(real* u, real* t, long long count, real factor) {
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS)
        t[i] = u[i] + (t[i] - u[i]) * factor;
}

// ---------------------------------------------------------------- the beginning

// Into both of x and `again`: (g - background) / level within the bounds, continued by its edge pixels over the scene,
// and over the rest of the domain, or by zero there if it is `pinned`. The image lies in the scene from (first_row,
// first_col) on.
extern "C" __global__ void __launch_bounds__(THREADS)
first_scene(real* x, real* again, int planes, unsigned rows, unsigned cols, const real* g, int image_rows, int image_cols,
            int first_row, int first_col, int scene_rows, int scene_cols, real background, real level, int bounded,
            real low, real high, int pinned) {
    const unsigned plane = rows * cols;
    const index_t count = (index_t)plane * planes;
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const unsigned p = (unsigned)i / plane, pixel = (unsigned)i - p * plane;
        const int row = pixel / cols, col = pixel % cols;
        real value = 0;
        if (!pinned || (row < scene_rows && col < scene_cols)) {
            int y = minimum(row, scene_rows - 1) - first_row, z = minimum(col, scene_cols - 1) - first_col;
            y = minimum(maximum(y, 0), image_rows - 1);
            z = minimum(maximum(z, 0), image_cols - 1);
            value = (g[((index_t)p * image_rows + y) * image_cols + z] - background) / level;
            if (bounded) value = clip(value, low, high);
        }
        x[i] = again[i] = value;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
first_copies(real* store, long long size, int planes, unsigned rows, unsigned cols, const real* fresh, int kind, int second,
             int boxed) {
    const unsigned plane = rows * cols;
    const int parts = 2 + 2 * kind + 2 * second + 2 * boxed;
    const index_t count = (index_t)plane * planes;
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const unsigned pixel = (unsigned)i % plane, row = pixel / cols;
        const Place o(row, pixel - row * cols, rows, cols);
        const real* x = fresh + i;
        store[i] = *x;
        store[size + i] = store[(index_t)parts * size + i] = fresh[size + i];
        real* u = store + 2 * size + i;
        if (kind == 1) u[0] = u[size] = *x;
        if (kind == 2) {
            real a[2];
            differences<2>(x, o, a);
            for (int d = 0; d < 2; ++d) u[d * size] = u[(2 + d) * size] = a[d];
        }
        if (kind == 3) {
            real a[3];
            differences<3>(x, o, a);
            for (int d = 0; d < 3; ++d) u[d * size] = u[(3 + d) * size] = a[d];
        }
        u += 2 * kind * size;
        if (second == 3) {
            real a[3];
            differences<3>(x, o, a);
            for (int d = 0; d < 3; ++d) u[d * size] = u[(3 + d) * size] = a[d];
        }
        u += 2 * second * size;
        if (boxed) u[0] = u[size] = *x;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
statistics(const real* g, int frames, int channels, long long pixels, const real* w, int weight_frames,
           int weight_channels, double* out, double* partial, unsigned* ticket) {
    double mine[STATISTICS] = {};
    const index_t count = (index_t)pixels * frames * channels;
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const index_t p = i / pixels;
        real weight = 1;
        if (w) {
            const int frame = (int)(p / channels) % weight_frames, channel = (int)(p % channels) % weight_channels;
            weight = w[((index_t)frame * weight_channels + channel) * pixels + (i - p * pixels)];
        }
        const double x = g[i];
        const double size = absolute(x);
        mine[3] += size;
        mine[4] += weight;
        mine[6] = maximum(mine[6], x);
        if (weight > 0) {
            mine[0] += 1;
            mine[1] += x;
            mine[2] += x * x;
            mine[5] = maximum(mine[5], size);
        }
    }
    reduce_block<STATISTICS, 5>(mine, partial + blockIdx.x, gridDim.x);
    if (!comes_last(ticket)) return;
    for (int i = threadIdx.x / 32; i < STATISTICS; i += THREADS / 32) {
        const double x = reduce_partial(partial + (index_t)i * gridDim.x, gridDim.x, i < 5);
        if (threadIdx.x % 32 == 0) out[i] = x;
    }
}
