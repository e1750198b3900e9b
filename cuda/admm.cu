// One iteration of ADMM on a periodic domain (deblur/solvers/admm.py states the algorithm), except its transforms.
//
// The simple version is a NumPy expression for each line of the algorithm: some forty launches and sixty passes over
// arrays of the domain's size an iteration, and a number read back for each residual. What each step gains:
//   - Three kernels between the transforms, each of which reads and writes every array once: 25 passes for total
//     variation, including those of the four transforms.
//   - The step's symbol ρ|K|² + Σ ρ_p |L_p|² is computed where it is used, from K and one vector for each axis: no table
//     is read, and a new ρ costs nothing.
//   - Numbers that change between iterations (ρ, λ, tolerances) are in `control`, not in the launch, so that one
//     captured graph serves every iteration. Residuals are written there, too. Once an iteration is within the
//     tolerance, the rest of a batch changes nothing, so the host need read only every few iterations.
//
// A frame is `channels` planes of rows x cols. `store` holds arrays of frames x channels such planes, `size` elements
// each: the scene x; the data's copy u; for each regularizer its copies u, then their t = u - d; the box's u and t; the
// data's t; and the right-hand side. The last two are transformed together, and `fresh` receives the result: x and
// K x. A regularizer is named by `kind`, the number of its differences: 1 identity, 2 gradient, 3 hessian; 0 is none.
//
// Kernels (one thread for a pixel of all channels)
//   first_scene    the first scene: the image over the dc gain, continued by its edge pixels
//   first_copies   u = t = K x, L x and x
//   gather         the right-hand side Σ ρ Lᵀt
//   combine        the step in frequency: x and K x from the transforms of the data's t and of the right-hand side
//   update         every copy and its dual, the sums for the residuals and, in the last block, the residuals
//   rescale        t of a split for another ρ; the unscaled dual ρ d is kept
//   statistics     sums over the image, which determine ρ and units, and its largest value
// Bytes for total variation: gather 3 passes, combine 5, update 13.
// Source: S. Boyd et al., Found. Trends Mach. Learn. 3 (2011) 1-122, and deblur/terms.py.

#include "complex.cuh"
#include "differences.cuh"
#include "reduce.cuh"

constexpr int THREADS = 256;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int RESIDENT = REAL_IS_FLOAT ? 3 : 0;  // blocks of `update` on a multiprocessor; with four, registers spill
#else
constexpr int RESIDENT = 0;  // chosen by the compiler
#endif
constexpr int SPLITS = 4;  // the data, two regularizers, the box
constexpr int SUMS = 5;    // of a split: its term, |a - u|², |u - u before|², |a|², |u|²
constexpr int RECORD = SPLITS * SUMS;
constexpr int BATCH = 10;  // largest number of iterations between two reads by the host

// Places in `control`. DONE: the iteration has converged. COUNT: number of recorded iterations. ARMED: it may converge.
constexpr int DONE = 0, COUNT = 1, ARMED = 2, TOLERANCE = 3, LEAST_SIZE = 4, RELAXATION = 5, SCALE = 6, FLOOR = 7;
constexpr int RHO = 8;                 // of each split
constexpr int TAU = RHO + SPLITS;      // λ·weight/ρ of each regularizer
constexpr int WEIGHT = TAU + 2;        // λ·weight of each regularizer
constexpr int BACKGROUND = WEIGHT + 2, DELTA = BACKGROUND + 1, LOW = DELTA + 1, HIGH = LOW + 1, LEAST = HIGH + 1;
constexpr int CONTROL = LEAST + 1;     // then BATCH records
constexpr int GAUSSIAN = 0, POISSON = 1, L1 = 2, HUBER = 3;  // data fidelities
constexpr int STATISTICS = 6, TOTALS = 5;  // number of visible pixels, their Σg and Σg², Σ|g|, Σw; the largest g

// The properties for which an iteration is captured. The image begins at (first_row, first_col) in the domain. Weights are
// weight_frames x weight_channels planes that repeat. The copy of a `held` box is set from outside, and follows x only
// beyond the scene, where nothing constrains it. `pinned`: x is zero beyond the scene.
struct Layout {
    long long size;
    unsigned rows, cols;
    int frames, channels, image_rows, image_cols, first_row, first_col, scene_rows, scene_cols;
    int weight_frames, weight_channels, fit, kind, norm, second, second_norm, periodic, boxed, held, bounded, pinned;
};

// Number of arrays of copies and duals with the scene before them; the data's t is the next array.
__device__ __forceinline__ int parts(const Layout& l) { return 2 + 2 * (l.kind + l.second + l.boxed); }

__device__ __forceinline__ real clip(real x, real low, real high) { return x < low ? low : x > high ? high : x; }

// Lᵀ t at a pixel; t points to it in the first array of the differences, and the arrays are `size` apart.
template <int KIND> __device__ __forceinline__ real adjoint(const real* t, index_t size, const Place& o) {
    if (KIND == 1) return t[0];
    if (KIND == 2) return t[o.up] - t[0] + t[size + o.left] - t[size];
    const real* m = t + 2 * size;
    return t[o.up] + t[o.down] - 2 * t[0] + t[size + o.left] + t[size + o.right] - 2 * t[size] +
           ROOT_TWO * (m[o.up + o.left] - m[o.up] - m[o.left] + m[0]);
}

// ---------------------------------------------------------------- an iteration

extern "C" __global__ void __launch_bounds__(THREADS) gather(real* store, const Layout l, const double* control) {
    if (control[DONE] != 0) return;
    const unsigned plane = l.rows * l.cols;
    const real first_rho = control[RHO + 1], second_rho = control[RHO + 2], box_rho = control[RHO + 3];
    const real* first_t = store + (2 + l.kind) * l.size;
    const real* second_t = store + (2 + 2 * l.kind + l.second) * l.size;
    const real* box_t = store + (index_t)(parts(l) - 1) * l.size;
    real* right = store + (index_t)(parts(l) + 1) * l.size;
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < l.size; i += (index_t)gridDim.x * THREADS) {
        const unsigned pixel = (unsigned)i % plane, row = pixel / l.cols;
        const Place o(row, pixel - row * l.cols, l.rows, l.cols);
        real sum = l.boxed ? box_rho * box_t[i] : real(0);
        if (l.kind == 1) sum += first_rho * adjoint<1>(first_t + i, l.size, o);
        if (l.kind == 2) sum += first_rho * adjoint<2>(first_t + i, l.size, o);
        if (l.kind == 3) sum += first_rho * adjoint<3>(first_t + i, l.size, o);
        if (l.second == 3) sum += second_rho * adjoint<3>(second_t + i, l.size, o);
        right[i] = sum;
    }
}

// `spectra` holds two complex half spectra of all planes; k is the half spectrum of one plane. row_power and
// column_power are |1 - exp(iω)|² along each axis.
extern "C" __global__ void __launch_bounds__(THREADS)
combine(real* spectra, const Layout l, const real* k, const real* row_power, const real* column_power,
        const double* control) {
    const unsigned cols = l.cols / 2 + 1, plane = l.rows * cols;
    const int planes = l.frames * l.channels;
    const real rho = control[RHO], box = control[RHO + 3], scale = control[SCALE], floor = control[FLOOR];
    const real first_rho = control[RHO + 1], second_rho = control[RHO + 2];
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < plane; i += gridDim.x * THREADS) {
        const unsigned row = i / cols;
        const real differences = row_power[row] + column_power[i - row * cols];
        const number blur = ((const number*)k)[i];
        real total = rho * power(blur) + box;
        total += first_rho * (l.kind == 1 ? real(1) : l.kind == 2 ? differences : l.kind == 3 ? square(differences) : real(0));
        total += l.second == 3 ? second_rho * square(differences) : real(0);
        if (total < floor) total += floor;  // a frequency that no term determines stays zero
        const real inverse = scale / total, data = rho * inverse;
        for (int p = 0; p < planes; ++p) {
            number* x = (number*)spectra + (index_t)p * plane + i;
            number& seen = x[(index_t)planes * plane];
            *x = data * (conj(blur) * *x) + inverse * seen;
            seen = blur * *x;
        }
    }
}

// Stores the new copy in u and t = 2 u - q, and adds to the sums.
__device__ __forceinline__ void keep(real a, real* u, real* t, real before, real q, real now, real (&sums)[SUMS]) {
    *u = now;
    *t = 2 * now - q;
    sums[1] += square(a - now);
    sums[2] += square(before - now);
    sums[3] += square(a);
    sums[4] += square(now);
}

// The proximal step of a regularizer at a pixel; x, u and t point to its first channel, channels are `plane` apart.
template <int KIND>
__device__ __forceinline__ void penalty(const real* x, real* u, real* t, index_t size, index_t plane, int channels,
                                        const Place& o, const bool (&in)[KIND], int norm, real tau, real weight,
                                        real relax, real (&sums)[SUMS]) {
    real a[KIND], before[KIND], q[KIND], power = 0, value = 0;
    auto load = [&](index_t c) {
        differences<KIND>(x + c, o, a);
        UNROLL for (int d = 0; d < KIND; ++d) {
            before[d] = u[d * size + c];
            q[d] = relax * a[d] + (2 - relax) * before[d] - t[d * size + c];
        }
    };
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
        if (norm != VECTOR_NORM && channels > 1) break;
        load(c * plane);
        UNROLL for (int d = 0; d < KIND; ++d)
            if (in[d]) power += square(q[d]);
    }
    const real length = square_root(power);
    const real shrink = norm == SQUARE ? 1 / (1 + tau) : 1 - tau / maximum(length, tau > 0 ? tau : real(1));
    if (norm == VECTOR_NORM) value = shrink * length;
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
        if (channels > 1) load(c * plane);
        UNROLL for (int d = 0; d < KIND; ++d) {
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

// The proximal map and the value of the data fidelity; see deblur.terms.DataFidelity.
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

// The split of a regularizer at all pixels, by block number `block` of `blocks`.
template <int KIND>
__device__ void update_penalty(real* u, const real* x, const Layout& l, int norm, real tau, real weight, real relax, int block,
                               int blocks, real (&sums)[SUMS]) {
    const unsigned plane = l.rows * l.cols, count = plane * l.frames;
#pragma unroll 1
    for (unsigned i = block * THREADS + threadIdx.x; i < count; i += blocks * THREADS) {
        const unsigned frame = i / plane, pixel = i - frame * plane, row = pixel / l.cols, col = pixel - row * l.cols;
        const Place o(row, col, l.rows, l.cols);
        const index_t base = (index_t)frame * l.channels * plane + pixel;
        bool in[KIND];
        counted<KIND>(in, l.periodic, row, col, l.scene_rows, l.scene_cols);
        penalty<KIND>(x + base, u + base, u + KIND * l.size + base, l.size, plane, l.channels, o, in, norm, tau, weight, relax,
                      sums);
    }
}

// Every split has its own blocks, so that none needs the registers of all; the data's blocks also do the box. Pixels
// beyond the image have weight 0; without w all pixels of the image have weight 1.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
update(real* store, const Layout l, const real* fresh, const real* g, const real* w, double* control, double* partial,
       unsigned* ticket) {
    if (control[DONE] != 0) return;
    const int roles = 1 + (l.kind > 0) + (l.second > 0), role = blockIdx.x % roles;
    const int block = blockIdx.x / roles, blocks = gridDim.x / roles;
    const real relax = control[RELAXATION];
    if (role == 0) {
        const unsigned plane = l.rows * l.cols, count = plane * l.frames;
        const real rho = control[RHO], b = control[BACKGROUND], delta = control[DELTA];
        const real low = control[LOW], high = control[HIGH], least = control[LEAST];
        real sums[SUMS] = {}, box_sums[SUMS] = {};
#pragma unroll 1
        for (unsigned i = block * THREADS + threadIdx.x; i < count; i += blocks * THREADS) {
            const unsigned frame = i / plane, pixel = i - frame * plane, row = pixel / l.cols, col = pixel - row * l.cols;
            const int y = (int)row - l.first_row, x = (int)col - l.first_col;
            const bool seen = y >= 0 && y < l.image_rows && x >= 0 && x < l.image_cols;
            const bool scene = (int)row < l.scene_rows && (int)col < l.scene_cols;
#pragma unroll 1
            for (int c = 0; c < l.channels; ++c) {
                const index_t at = ((index_t)frame * l.channels + c) * plane + pixel;
                real value = 0, weight = 0, image = 0;
                if (seen) {
                    const index_t from = (index_t)y * l.image_cols + x, whole = (index_t)l.image_rows * l.image_cols;
                    const int set = (frame % l.weight_frames) * l.weight_channels + c % l.weight_channels;
                    image = g[((index_t)frame * l.channels + c) * whole + from];
                    weight = w ? w[set * whole + from] : real(1);
                }
                real* t = store + (index_t)parts(l) * l.size + at;
                const real a = fresh[l.size + at], before = store[l.size + at];
                const real q = relax * a + (2 - relax) * before - *t;
                const real now = fitted(l.fit, q, image, weight, rho, b, delta, least, value);
                sums[0] += value;
                keep(a, store + l.size + at, t, before, q, now, sums);
                const real own = fresh[at];
                store[at] = own;
                if (l.held) {
                    if (!scene && !l.pinned) store[(index_t)(parts(l) - 1) * l.size + at] = own;
                } else if (l.boxed) {
                    real* u = store + (index_t)(parts(l) - 2) * l.size + at;
                    const real was = *u, qb = relax * own + (2 - relax) * was - u[l.size];
                    const real nb = scene ? (l.bounded ? clip(qb, low, high) : qb) : (l.pinned ? real(0) : qb);
                    keep(own, u, u + l.size, was, qb, nb, box_sums);
                }
            }
        }
        reduce_block<THREADS, SUMS>(sums, partial + block, blocks);
        if (l.boxed) reduce_block<THREADS, SUMS>(box_sums, partial + 3 * SUMS * blocks + block, blocks);
    } else {
        real sums[SUMS] = {};
        real* u = store + (role == 1 ? 2 : 2 + 2 * l.kind) * l.size;
        const int own = role == 1 ? l.kind : l.second, own_norm = role == 1 ? l.norm : l.second_norm;
        const real tau = control[TAU + role - 1], weight = control[WEIGHT + role - 1];
        if (own == 1) update_penalty<1>(u, fresh, l, own_norm, tau, weight, relax, block, blocks, sums);
        if (own == 2) update_penalty<2>(u, fresh, l, own_norm, tau, weight, relax, block, blocks, sums);
        if (own == 3) update_penalty<3>(u, fresh, l, own_norm, tau, weight, relax, block, blocks, sums);
        reduce_block<THREADS, SUMS>(sums, partial + role * SUMS * blocks + block, blocks);
    }
    if (!comes_last(ticket, gridDim.x)) return;
    __shared__ double found[RECORD];
    for (int i = threadIdx.x / 32; i < RECORD; i += THREADS / 32) {
        const int split = i / SUMS;
        const bool there = split == 0 || (split == 1 && l.kind) || (split == 2 && l.second) || (split == 3 && l.boxed);
        const double x = there ? reduce_blocks<true>(partial + (index_t)i * blocks, blocks) : 0;
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

// Writes (g - background) / level, within the bounds, to x and `again`. It is continued by its edge pixels over the scene
// and the rest of the domain; if the domain is pinned, by zero beyond the scene.
extern "C" __global__ void __launch_bounds__(THREADS)
first_scene(real* x, real* again, const Layout l, const real* g, real background, real level, real low, real high) {
    const unsigned plane = l.rows * l.cols;
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < l.size; i += (index_t)gridDim.x * THREADS) {
        const unsigned p = (unsigned)i / plane, pixel = (unsigned)i - p * plane;
        const int row = pixel / l.cols, col = pixel % l.cols;
        real value = 0;
        if (!l.pinned || (row < l.scene_rows && col < l.scene_cols)) {
            int y = minimum(row, l.scene_rows - 1) - l.first_row, z = minimum(col, l.scene_cols - 1) - l.first_col;
            y = minimum(maximum(y, 0), l.image_rows - 1);
            z = minimum(maximum(z, 0), l.image_cols - 1);
            value = (g[((index_t)p * l.image_rows + y) * l.image_cols + z] - background) / level;
            if (l.bounded) value = clip(value, low, high);
        }
        x[i] = again[i] = value;
    }
}

template <int KIND> __device__ __forceinline__ void copy_differences(const real* x, const Place& o, real* u, index_t size) {
    real a[KIND];
    differences<KIND>(x, o, a);
    UNROLL for (int d = 0; d < KIND; ++d) u[d * size] = u[(KIND + d) * size] = a[d];
}

extern "C" __global__ void __launch_bounds__(THREADS) first_copies(real* store, const Layout l, const real* fresh) {
    const unsigned plane = l.rows * l.cols;
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < l.size; i += (index_t)gridDim.x * THREADS) {
        const unsigned pixel = (unsigned)i % plane, row = pixel / l.cols;
        const Place o(row, pixel - row * l.cols, l.rows, l.cols);
        const real* x = fresh + i;
        store[i] = *x;
        store[l.size + i] = store[(index_t)parts(l) * l.size + i] = fresh[l.size + i];
        real* u = store + 2 * l.size + i;
        if (l.kind == 1) copy_differences<1>(x, o, u, l.size);
        if (l.kind == 2) copy_differences<2>(x, o, u, l.size);
        if (l.kind == 3) copy_differences<3>(x, o, u, l.size);
        u += 2 * l.kind * l.size;
        if (l.second == 3) copy_differences<3>(x, o, u, l.size);
        u += 2 * l.second * l.size;
        if (l.boxed) u[0] = u[l.size] = *x;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
statistics(const real* g, const Layout l, const real* w, double* out, double* partial, unsigned* ticket) {
    double mine[STATISTICS] = {};
    const index_t pixels = (index_t)l.image_rows * l.image_cols, count = pixels * l.frames * l.channels;
#pragma unroll 1
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const index_t p = i / pixels;
        real weight = 1;
        if (w) {
            const int frame = (int)(p / l.channels) % l.weight_frames, channel = (int)(p % l.channels) % l.weight_channels;
            weight = w[((index_t)frame * l.weight_channels + channel) * pixels + (i - p * pixels)];
        }
        const double x = g[i];
        mine[3] += absolute(x);
        mine[4] += weight;
        mine[5] = maximum(mine[5], x);
        if (weight > 0) {
            mine[0] += 1;
            mine[1] += x;
            mine[2] += x * x;
        }
    }
    if (!grid_reduce<THREADS, TOTALS>(mine, partial, ticket) || threadIdx.x > 0) return;
    UNROLL for (int k = 0; k < STATISTICS; ++k) out[k] = mine[k];
}
