// QR updating, upwards: p full columns beside a triangle are annihilated, from the last rows to the first. Launched by
// deblur/linalg/sweeps_gpu.py; stated in NumPy as sweep_up in deblur/linalg/sweeps.py.
//
// The algorithm: [L; Z] -> [L~; 0] for an n x p block Z below a small triangle L, with the same reflections applied to
// [S; R] and to the columns of [E Q]. S starts with zeros, and R is a triangle before and after. Z is Q'u of added columns,
// or the removed rows of Q, transposed.
//
// The simple version: rotations in the planes of one row of R and one of S, from the last row to the first, keep R a
// triangle by themselves. They are p n rotations, in one chain of launches. What each step gains:
//   - STEP rows of Z at a time, by reflections I - V T V' (qr_panel.cuh). Each step fills one square of R and nothing
//     else. A small QR of that square restores the triangle, and these are independent of each other.
//   - The reflections depend on L and Z alone. So a chain of panels runs first, in one block that accesses only Z, and
//     the long parts, R and Q, are left to products that wait for nothing.
//   - A step's reflections and its square's Q' are multiplied into one SIDE x SIDE matrix before the long parts are
//     updated: each tile of R or Q takes one product for each step, and R's squares need no separate pass.
//   - Five launches for up to NB columns, whatever n is, and three more for each further NB. Between them R keeps
//     full squares, so that these are factored once.
//
//   qr_up_chain, qr_up_open, qr_up_close   V and T of every step; I - V T' V' as a matrix, and its product with the
//                  diagonal block; the same followed by that block's own reflections. grid = 1, steps, steps.
//   qr_up_sweep    products with these matrices, independently for every tile of NB columns (or rows of Q). grid = tiles.
//
// Operations: the chain takes 4 NB^2 STEP a step; a step on a column of R or a row of Q takes 2 SIDE^2, compared with
// 4 p STEP for the reflections alone. Bytes: R and Q once in and once out for each NB columns of Z, and SIDE^2 elements a
// step for every tile, from the L2 cache. Source: the blocked form is ours; the rotations are those of S. Hammarling,
// C. Lucas, "Updating the QR factorization and the least squares problem", MIMS EPrint 2008.111.

#include "qr_panel.cuh"

constexpr int STEP = 64;  // rows of Z for each step
constexpr int SIDE = NB + STEP;

struct Chain {
    Panel<STEP / WARPS> panel;
    alignas(16) real z[2][STEP][PITCH];  // of this step, and of the next one
};

constexpr int CHAIN_BYTES = PANEL_BYTES<STEP / WARPS> + 2 * STEP * PITCH * sizeof(real);
static_assert(sizeof(Chain) == CHAIN_BYTES, "no gaps in a Chain");

// [l; z] -> [l; 0] from the last step to the first: v (steps, STEP, NB), t (steps, NB, NB) transposed; l (p, p) in place.
extern "C" __global__ void __launch_bounds__(THREADS) qr_up_chain(
    const real* z, long long ldz, int n, int p, real* l, long long ldl, real* v, real* t) {
    constexpr int ROWS = STEP / WARPS, COUNT = HELD<ROWS>;
    auto& s = *reinterpret_cast<Chain*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool holds = warp < HOLDERS;
    const auto fetch = [&](int step) {
        UNROLL for (int k = warp; k < STEP; k += WARPS) {
            const int row = step * STEP + k;
            const bool inside = row < n && lane < p;
            load_async(&s.z[step % 2][k][lane], inside ? z + row * ldz + lane : z, inside);
        }
    };
    for (int k = threadIdx.x; k < NB * NB; k += THREADS) {
        const int row = k / NB, c = k % NB;
        s.panel.corner[row][c] = row <= c && c < p ? l[row * ldl + c] : real(0);
        s.panel.turned_t[row][c] = 0;
    }
    const int steps = (n + STEP - 1) / STEP;
    fetch(steps - 1);
    for (int j = steps - 1; j >= 0; --j) {
        real (&rows)[STEP][PITCH] = s.z[j % 2];
        loads_done();
        __syncthreads();
        if (j > 0) fetch(j - 1);
        real x[COUNT];
        if (holds)
            UNROLL for (int k = 0; k < COUNT; ++k) x[k] = rows[warp * COUNT + k][lane];
        factor(x, p, s.panel, [] {});
        if (holds)
            UNROLL for (int k = 0; k < COUNT; ++k) rows[warp * COUNT + k][lane] = x[k];
        __syncthreads();
        UNROLL for (int row = warp; row < STEP; row += WARPS) v[(index_t(j) * STEP + row) * NB + lane] = rows[row][lane];
        for (int row = warp; row < NB; row += WARPS)
            t[(index_t(j) * NB + row) * NB + lane] = s.panel.turned_t[row][lane];
    }
    __syncthreads();
    for (int k = threadIdx.x; k < p * NB; k += THREADS) {
        const int row = k / NB, c = k % NB;
        if (c < p) l[row * ldl + c] = row <= c ? s.panel.corner[row][c] : real(0);
    }
}

constexpr int WIDE_PITCH = STEP + VECTOR;
constexpr int SIDE_PITCH = SIDE + VECTOR;
typedef real row_t[PITCH], wide_t[WIDE_PITCH], side_t[SIDE_PITCH];
constexpr int BUFFERS = REAL_IS_FLOAT ? 2 : 1;  // products in shared memory at a time: one ahead if there is room
// Shared memory of qr_up_open, qr_up_close and qr_up_sweep.
constexpr int OPEN_BYTES = ((2 * STEP + NB) * PITCH + 2 * STEP * WIDE_PITCH) * sizeof(real);
constexpr int CLOSE_BYTES = STEP * (WIDE_PITCH + SIDE_PITCH) * sizeof(real);
constexpr int SWEEP_BYTES = (SIDE * PITCH + BUFFERS * SIDE * SIDE_PITCH) * sizeof(real);

// 4 x 4 entries for each thread of a STEP x STEP product, rows and columns 16 apart, read by left(i, k) and right(k, c).
template <class Left, class Right>
__device__ __forceinline__ void small_product(real (&x)[4][4], int depth, Left left, Right right) {
    const int i0 = threadIdx.x / 16, c0 = threadIdx.x % 16;
    UNROLL for (int a = 0; a < 4; ++a)
        UNROLL for (int b = 0; b < 4; ++b) x[a][b] = 0;
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
        real y[4], z[4];
        UNROLL for (int a = 0; a < 4; ++a) y[a] = left(i0 + 16 * a, k);
        UNROLL for (int b = 0; b < 4; ++b) z[b] = right(k, c0 + 16 * b);
        UNROLL for (int a = 0; a < 4; ++a)
            UNROLL for (int b = 0; b < 4; ++b) x[a][b] = multiply_add(y[a], z[b], x[a][b]);
    }
}

// o (steps, SIDE, SIDE): I - V T' V' with V = [I; v]; block (steps, STEP, STEP): its products with R's diagonal blocks.
extern "C" __global__ void __launch_bounds__(256) qr_up_open(
    const real* v, const real* t, const real* r, long long ldr, int n, int squares_in, real* o, real* block) {
    row_t* const s_v = reinterpret_cast<row_t*>(memory);
    row_t* const s_t = s_v + STEP;        // T'
    row_t* const s_vt = s_t + NB;         // v T'
    wide_t* const s_h = reinterpret_cast<wide_t*>(s_vt + STEP);
    wide_t* const s_r = s_h + STEP;
    const int j = blockIdx.x, first = j * STEP, i0 = threadIdx.x / 16, c0 = threadIdx.x % 16;
    v += index_t(j) * STEP * NB;
    t += index_t(j) * NB * NB;
    o += index_t(j) * SIDE * SIDE;
    block += index_t(j) * STEP * STEP;
    for (int k = threadIdx.x; k < STEP * NB; k += 256) s_v[k / NB][k % NB] = v[k];
    for (int k = threadIdx.x; k < NB * NB; k += 256) s_t[k / NB][k % NB] = t[k];
    for (int k = threadIdx.x; k < STEP * STEP; k += 256) {
        const int row = k / STEP, c = k % STEP;
        const bool inside = first + maximum(row, c) < n && (squares_in || row <= c);
        s_r[row][c] = inside ? r[(index_t(first) + row) * ldr + first + c] : real(0);
    }
    __syncthreads();
    // v T' and, beside it, v T: columns 0..31 and 32..63 of one product.
    real x[4][4];
    small_product(x, NB, [&](int i, int k) { return s_v[i][k]; },
                  [&](int k, int c) { return c < NB ? s_t[k][c] : s_t[c - NB][k]; });
    UNROLL for (int a = 0; a < 4; ++a)
        UNROLL for (int b = 0; b < 4; ++b) {
            const int row = i0 + 16 * a, c = c0 + 16 * b;
            if (c < NB) {
                s_vt[row][c] = x[a][b];
                o[(NB + row) * SIDE + c] = -x[a][b];
            } else {
                o[(c - NB) * SIDE + NB + row] = -x[a][b];
            }
        }
    for (int k = threadIdx.x; k < NB * NB; k += 256)
        o[k / NB * SIDE + k % NB] = (k / NB == k % NB ? 1 : 0) - s_t[k / NB][k % NB];
    __syncthreads();
    small_product(x, NB, [&](int i, int k) { return s_vt[i][k]; }, [&](int k, int c) { return s_v[c][k]; });
    UNROLL for (int a = 0; a < 4; ++a)
        UNROLL for (int b = 0; b < 4; ++b) {
            const int row = i0 + 16 * a, c = c0 + 16 * b;
            s_h[row][c] = (row == c ? 1 : 0) - x[a][b];
            o[(NB + row) * SIDE + NB + c] = s_h[row][c];
        }
    __syncthreads();
    small_product(x, STEP, [&](int i, int k) { return s_h[i][k]; }, [&](int k, int c) { return s_r[k][c]; });
    UNROLL for (int a = 0; a < 4; ++a)
        UNROLL for (int b = 0; b < 4; ++b) block[(i0 + 16 * a) * STEP + c0 + 16 * b] = x[a][b];
}

// The lower STEP rows of o, multiplied by q' (steps, STEP, STEP).
extern "C" __global__ void __launch_bounds__(256) qr_up_close(const real* q, real* o) {
    wide_t* const s_q = reinterpret_cast<wide_t*>(memory);
    side_t* const s_o = reinterpret_cast<side_t*>(s_q + STEP);
    const int i0 = threadIdx.x / 16, c0 = threadIdx.x % 16;
    q += index_t(blockIdx.x) * STEP * STEP;
    o += index_t(blockIdx.x) * SIDE * SIDE + NB * SIDE;
    for (int k = threadIdx.x; k < STEP * STEP; k += 256) s_q[k / STEP][k % STEP] = q[k];
    for (int k = threadIdx.x; k < STEP * SIDE; k += 256) s_o[k / SIDE][k % SIDE] = o[k];
    __syncthreads();
    real x[4][4];
    for (int from = 0; from < SIDE; from += NB) {  // STEP columns, half of them the last time
        small_product(x, STEP, [&](int i, int k) { return s_q[k][i]; },
                      [&](int k, int c) { return s_o[k][minimum(from + c, SIDE - 1)]; });
        UNROLL for (int a = 0; a < 4; ++a)
            UNROLL for (int b = 0; b < 2; ++b) o[(i0 + 16 * a) * SIDE + from + c0 + 16 * b] = x[a][b];
    }
}

// [s; a] <- o_j [s; a] for the steps j from the last to the first, where `a` is STEP rows of a tile of NB columns. Tiles:
// the columns of r (n, columns), upper trapezoidal, with w (p, columns); those of d (n, rest) with f (p, rest); the rows
// of q (rows_q, n) with e (rows_q, p). Between two sweeps, r has full squares on its diagonal, `squares_in` and _out.
extern "C" __global__ void __launch_bounds__(256)
qr_up_sweep(const real* o, real* r, long long ldr, int n, int columns, real* w, long long ldw, int p, real* d, long long ldd,
            real* f, long long ldf, int rest, real* q, long long ldq, real* e, long long lde, int rows_q, int squares_in,
            int squares_out) {
    row_t* const y = reinterpret_cast<row_t*>(memory);  // [s; a]
    side_t* const products = reinterpret_cast<side_t*>(y + SIDE);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = lane / 8;
    const int i = thread / 8, quad = thread % 8 * 4;
    const int r_tiles = (columns + NB - 1) / NB, d_tiles = (rest + NB - 1) / NB;
    const int block = blockIdx.x;
    const bool of_r = block < r_tiles, across = block >= r_tiles + d_tiles;
    const int tile = of_r ? block : across ? block - r_tiles - d_tiles : block - r_tiles;
    const int first = tile * NB, width = minimum(NB, (of_r ? columns : across ? rows_q : rest) - first);
    const int last_row = of_r ? minimum(n, first + width) - 1 : n - 1;
    real* const matrix = of_r ? r + first : across ? q + first * ldq : d + first;
    const index_t ld = of_r ? ldr : across ? ldq : ldd;
    real* const state = of_r ? w + first : across ? e + first * lde : f + first;
    const index_t ld_state = of_r ? ldw : across ? lde : ldf;

    for (int k = thread; k < NB * NB; k += 256) {
        const int row = across ? k % NB : k / NB, c = across ? k / NB : k % NB;
        y[row][c] = row < p && c < width ? state[across ? c * ld_state + row : row * ld_state + c] : real(0);
    }
    int j = last_row / STEP;
    const auto fetch = [&](int step) {
        const real* const from = o + index_t(step) * SIDE * SIDE;
        side_t* const to = products + step % BUFFERS * SIDE;
        for (int k = thread; k < SIDE * SIDE / VECTOR; k += 256)
            load_vector_async(&to[k / (SIDE / VECTOR)][k % (SIDE / VECTOR) * VECTOR], from + k * VECTOR);
    };
    fetch(j);
    for (; j >= 0; --j) {
        const int top = j * STEP;
        UNROLL for (int half = 0; half < STEP / NB; ++half) {
            UNROLL for (int b = 0; b < 4; ++b) {
                const int row = half * NB + (across ? quad + b : i), c = across ? i : quad + b;
                const bool inside = top + row < n && c < width && (squares_in || !of_r || top + row <= first + c);
                y[NB + row][c] = inside ? matrix[across ? c * ld + top + row : (index_t(top) + row) * ld + c] : real(0);
            }
        }
        loads_done();
        __syncthreads();
        if (BUFFERS > 1 && j > 0) fetch(j - 1);
        const side_t* const product = products + j % BUFFERS * SIDE;
        constexpr int EACH = SIDE / (4 * WARPS);
        real acc[EACH][4] = {};
#pragma unroll 4
        for (int k = 0; k < SIDE; k += VECTOR) {
            real left[EACH][VECTOR];
            UNROLL for (int a = 0; a < EACH; ++a) load_row(left[a], &product[warp * 4 * EACH + group + 4 * a][k]);
            UNROLL for (int v = 0; v < VECTOR; ++v) {
                real right[4];
                load_row(right, &y[k + v][quad]);
                UNROLL for (int a = 0; a < EACH; ++a)
                    UNROLL for (int b = 0; b < 4; ++b) acc[a][b] = multiply_add(left[a][v], right[b], acc[a][b]);
            }
        }
        __syncthreads();
        if (BUFFERS == 1 && j > 0) fetch(j - 1);
        UNROLL for (int a = 0; a < EACH; ++a) store_row(&y[warp * 4 * EACH + group + 4 * a][quad], acc[a]);
        __syncthreads();
        UNROLL for (int half = 0; half < STEP / NB; ++half) {
            UNROLL for (int b = 0; b < 4; ++b) {  // as loaded: no other thread's entries are read or overwritten
                const int row = half * NB + (across ? quad + b : i), c = across ? i : quad + b;
                if (top + row < n && c < width)
                    matrix[across ? c * ld + top + row : (index_t(top) + row) * ld + c] =
                        squares_out || !of_r || top + row <= first + c ? y[NB + row][c] : real(0);
            }
        }
    }
    for (int k = thread; k < NB * NB; k += 256) {
        const int row = across ? k % NB : k / NB, c = across ? k / NB : k % NB;
        if (row < p && c < width) state[across ? c * ld_state + row : row * ld_state + c] = y[row][c];
    }
}
