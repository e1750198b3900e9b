// QR updating, downwards: p full rows below a triangle are annihilated, from the first columns to the last. Launched
// by deblur/linalg/sweeps_gpu.py; stated in NumPy as sweep_down in deblur/linalg/sweeps.py.
//
// The algorithm: [R; U] -> [R~; 0] for an n x n triangle R and p rows U, panel by panel from the left, with the same
// reflections applied to right-hand sides [D; F] and to the rows of [Q E]. U is added to a matrix or, if columns
// have been removed, U consists of the rows of R that have lost their diagonal.
//
// The simple version has for each panel of NB columns a launch that factors it (qr_panel.cuh), one that applies it to
// all columns on its right, and one for Q: 3 n / NB launches, each waiting for the one before, and each moving
// U. What each step gains:
//   - All work is in one launch, tile by tile. A block has NB columns of R or of D, or NB rows of Q, for the whole
//     sweep, and keeps its part of U in shared memory. R, D and Q are read once and written once.
//   - One block factors all panels, one after another, since handing a panel from block to block takes as long as a
//     dozen of its columns. The others apply the panels as they are published.
//   - A tile of R is handed to that block when only the last panel has not been applied to it: the block never waits for a
//     tile that waits for it, and its spare warp fetches the tile while the panel before is factored.
//   - Tiles are given out by ticket and wait for lower tickets only, so the number of blocks that run at once does not
//     matter.
//   - Q's tiles are transposed: they are turned through shared memory, and run the same code.
//
//   qr_down_ROWS   p <= 8 * ROWS. grid = tiles, block = THREADS, DOWN_BYTES<ROWS> of shared memory.
//
// Operations: 2 p n^2 for R, 4 p n rest for D, 4 p n rows_q for Q. Bytes: R, D, Q and U once in and once out; V and T of
// each panel once out, and in again for every tile that needs it. Unless p and Q are large, the time is that of n successive
// reflections. Source: R. Andrew, N. Dingle, Parallel Computing 40 (2014), section 3.3.

#include "qr_panel.cuh"

template <int ROWS> struct Down {
    Panel<ROWS> panel;
    alignas(16) real u[WARPS * ROWS][PITCH];  // the tile's columns in the rows of U
    alignas(16) real v[WARPS * ROWS][PITCH];
    alignas(16) real partial[WARPS][NB][PITCH];
    alignas(16) real x[NB][PITCH];
    alignas(16) real w[NB][PITCH];
    alignas(16) real above[NB][PITCH];  // of R, for the chain's next panel
    alignas(16) real corner[NB][PITCH];
};

template <int ROWS> constexpr int DOWN_BYTES =
    PANEL_BYTES<ROWS> + ((4 + WARPS) * NB + 2 * WARPS * ROWS) * PITCH * sizeof(real);
static_assert(sizeof(Down<4>) == DOWN_BYTES<4> && sizeof(Down<32>) == DOWN_BYTES<32>, "no gaps in a Down");

// All writes of the block before its last barrier are visible to every block that has seen this value.
__device__ __forceinline__ void publish(unsigned* counter, unsigned value) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    release(counter, value);
}

// [a; u] <- (I - V T' V') [a; u] for the tile's NB rows `a` of the matrix. Entries (i, q) of this thread are given and
// returned, with i = thread / 8, q = thread % 8 * 4 + 0..3. V and T' are in shared memory. The workers meet only at four
// barriers of all threads.
template <int ROWS> __device__ __forceinline__ void apply(real (&mine)[4], Down<ROWS>& s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 8, quad = lane % 8 * 4;
    const int i = threadIdx.x / 8;
    {  // V'u: each warp sums over its rows; in float64 in two passes, to save registers
        constexpr int GO = REAL_IS_FLOAT ? 8 : 4;
#pragma unroll 1
        for (int go = 0; go < 8; go += GO) {
            real acc[GO][4] = {};
#pragma unroll 2
            for (int k = 0; k < ROWS; ++k) {
                const int row = warp * ROWS + k;
                real left[GO], right[4];
                load_row(left, &s.v[row][8 * group + go]);
                load_row(right, &s.u[row][quad]);
                UNROLL for (int a = 0; a < GO; ++a)
                    UNROLL for (int b = 0; b < 4; ++b) acc[a][b] = multiply_add(left[a], right[b], acc[a][b]);
            }
            UNROLL for (int a = 0; a < GO; ++a) store_row(&s.partial[warp][8 * group + go + a][quad], acc[a]);
        }
    }
    __syncthreads();
    {
        real sum[4];
        UNROLL for (int b = 0; b < 4; ++b) sum[b] = mine[b];
        UNROLL for (int j = 0; j < WARPS; ++j) {
            real part[4];
            load_row(part, &s.partial[j][i][quad]);
            UNROLL for (int b = 0; b < 4; ++b) sum[b] += part[b];
        }
        store_row(&s.x[i][quad], sum);
    }
    __syncthreads();
    {
        real w[4] = {0, 0, 0, 0};
        for (int k = 0; k < 4 * (warp + 1); k += VECTOR) {  // T' is lower triangular; a warp has four of its rows
            real t[VECTOR];
            load_row(t, &s.panel.turned_t[i][k]);
            UNROLL for (int j = 0; j < VECTOR; ++j) {
                real x[4];
                load_row(x, &s.x[k + j][quad]);
                UNROLL for (int b = 0; b < 4; ++b) w[b] = multiply_add(t[j], x[b], w[b]);
            }
        }
        UNROLL for (int b = 0; b < 4; ++b) mine[b] -= w[b];
        store_row(&s.w[i][quad], w);
        store_row(&s.partial[0][i][quad], mine);  // for the threads that turn the tile round
    }
    __syncthreads();
    {
        real acc[ROWS / 4][4] = {};
#pragma unroll 2
        for (int k = 0; k < NB; k += VECTOR) {
            real v[ROWS / 4][VECTOR];
            UNROLL for (int a = 0; a < ROWS / 4; ++a) load_row(v[a], &s.v[warp * ROWS + group + 4 * a][k]);
            UNROLL for (int j = 0; j < VECTOR; ++j) {
                real w[4];
                load_row(w, &s.w[k + j][quad]);
                UNROLL for (int a = 0; a < ROWS / 4; ++a)
                    UNROLL for (int b = 0; b < 4; ++b) acc[a][b] = multiply_add(v[a][j], w[b], acc[a][b]);
            }
        }
        UNROLL for (int a = 0; a < ROWS / 4; ++a) {
            real* const at = &s.u[warp * ROWS + group + 4 * a][quad];
            real u[4];
            load_row(u, at);
            UNROLL for (int b = 0; b < 4; ++b) u[b] -= acc[a][b];
            store_row(at, u);
        }
    }
}

// A tile's columns of [r; u], of the further columns [d; f], or its rows of [q e]; see `down`.
struct Sweep {
    real* r;
    long long ldr;
    int n;
    real* u;
    long long ldu;
    int p;
    real* d;
    long long ldd;
    real* f;
    long long ldf;
    int rest;
    real* q;
    long long ldq;
    real* e;
    long long lde;
    int rows_q;
    real* v;             // (panels, WARPS * ROWS, NB): first the rows that the chain receives, then V
    real* t;             // (panels, NB, NB): T transposed
    unsigned* progress;  // tickets given out, panels finished, and whether each panel has been handed over
};

// Factors the panels one after another, all in one block, since a hand-over between blocks takes as long as a dozen columns.
// All reflections have been applied to each panel, except those of the panel before it.
template <int ROWS> __device__ __forceinline__ void chain(const Sweep& g, Down<ROWS>& s) {
    constexpr int P = WARPS * ROWS, COUNT = HELD<ROWS>;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, i = thread / 8, quad = thread % 8 * 4;
    const bool holds = warp < HOLDERS;
    const int panels = (g.n + NB - 1) / NB;
    for (int k = thread; k < P * NB; k += THREADS) {
        const int row = k / NB, c = k % NB;
        const bool inside = row < g.p && c < g.n;
        s.u[row][c] = inside ? g.u[row * g.ldu + c] : real(0);
        if (inside) g.u[row * g.ldu + c] = 0;
    }
    // R's entries for panel c: the block above the panel's square, and the square. Done by one warp.
    const auto fetch = [&](int c) {
        const int first = c * NB, width = minimum(NB, g.n - first);
        const real* const square = g.r + index_t(first) * g.ldr + first;
#pragma unroll 8
        for (int row = 0; row < NB; ++row) {
            const bool inside = lane < width, upper = inside && row <= lane;
            load_async(&s.corner[row][lane], upper ? square + row * g.ldr + lane : g.r, upper);
            if (c > 0) load_async(&s.above[row][lane], inside ? square + (row - NB) * g.ldr + lane : g.r, inside);
        }
        loads_done();
    };
    for (int k = thread; k < NB * PITCH; k += THREADS) s.panel.turned_t[0][k] = 0;
    if (warp == WARPS - 1) fetch(0);
    __syncthreads();
    for (int c = 0; c < panels; ++c) {
        const int first = c * NB, width = minimum(NB, g.n - first);
        if (c > 0) {
            real above[4];
            load_row(above, &s.above[i][quad]);
            apply(above, s);
            UNROLL for (int b = 0; b < 4; ++b)
                if (quad + b < width) g.r[(index_t(first) - NB + i) * g.ldr + first + quad + b] = above[b];
        }
        real corner[4];
        load_row(corner, &s.corner[i][quad]);
        store_row(&s.panel.corner[i][quad], corner);
        __syncthreads();
        real x[COUNT];
        if (holds)
            UNROLL for (int k = 0; k < COUNT; ++k) x[k] = s.u[warp * COUNT + k][lane];
        factor(x, width, s.panel, [&] {
            if (lane == 0 && c > 0) publish(g.progress + 1, c);  // no block is waiting here for a block that waits for this value
            if (c + 1 == panels) return;
            while (acquire(g.progress + 2 + c + 1) == 0) continue;
            __syncwarp();
            for (int k = lane; k < P * NB / VECTOR; k += 32) {
                const int row = k / (NB / VECTOR), column = k % (NB / VECTOR) * VECTOR;
                load_vector_async(&s.u[row][column], g.v + (index_t(c + 1) * P + row) * NB + column);
            }
            fetch(c + 1);
        });
        if (holds)
            UNROLL for (int k = 0; k < COUNT; ++k) s.v[warp * COUNT + k][lane] = x[k];
        __syncthreads();
#pragma unroll 4
        for (int row = warp; row < P; row += WARPS) g.v[(index_t(c) * P + row) * NB + lane] = s.v[row][lane];
        for (int row = warp; row < NB; row += WARPS)
            g.t[(index_t(c) * NB + row) * NB + lane] = s.panel.turned_t[row][lane];
        real entry[4];
        load_row(entry, &s.panel.corner[i][quad]);
        UNROLL for (int b = 0; b < 4; ++b)
            if (i <= quad + b && quad + b < width) g.r[(index_t(first) + i) * g.ldr + first + quad + b] = entry[b];
    }
    __syncthreads();
    if (thread == 0) publish(g.progress + 1, panels);
}

// All tiles off the chain: a tile's columns of R, which are handed over when only the last reflections are missing;
// further columns; and, `across`, rows of Q.
template <int ROWS> __device__ __forceinline__ void follow(const Sweep& g, int ticket, Down<ROWS>& s) {
    constexpr int P = WARPS * ROWS;
    const int thread = threadIdx.x, i = thread / 8, quad = thread % 8 * 4;
    const int panels = (g.n + NB - 1) / NB, d_tiles = (g.rest + NB - 1) / NB;
    const bool of_r = ticket < panels, across = ticket >= panels + d_tiles;
    const int tile = of_r ? ticket : across ? ticket - panels - d_tiles : ticket - panels;
    const int first = tile * NB, width = minimum(NB, (of_r ? g.n : across ? g.rows_q : g.rest) - first);
    const int steps = of_r ? tile - 1 : panels;
    real* const matrix = of_r ? g.r + first : across ? g.q + first * g.ldq : g.d + first;
    const index_t ld = of_r ? g.ldr : across ? g.ldq : g.ldd;
    real* const state = of_r ? g.u + first : across ? g.e + first * g.lde : g.f + first;
    const index_t ld_state = of_r ? g.ldu : across ? g.lde : g.ldf;

    for (int k = thread; k < P * NB; k += THREADS) {
        const int row = across ? k % P : k / NB, c = across ? k / P : k % NB;
        const bool inside = row < g.p && c < width;
        real* const at = state + (across ? c * ld_state + row : row * ld_state + c);
        s.u[row][c] = inside ? *at : real(0);
        if (inside && of_r) *at = 0;
    }
    unsigned finished = 0;
    for (int j = 0; j < steps; ++j) {
        real mine[4] = {0, 0, 0, 0};
        real* const at = matrix + (across ? i * ld + j * NB + quad : (index_t(j) * NB + i) * ld + quad);
        const bool row_inside = (across ? i < width : j * NB + i < g.n);
        const int limit = across ? g.n - j * NB : width;
        if (row_inside)
            UNROLL for (int b = 0; b < 4; ++b)
                if (quad + b < limit) mine[b] = at[b];
        if (thread == 0)
            while (finished <= unsigned(j)) finished = acquire(g.progress + 1);
        __syncthreads();  // also: shared memory that the last step read is free
        for (int k = thread; k < P * NB / VECTOR; k += THREADS) {
            const int row = k / (NB / VECTOR), column = k % (NB / VECTOR) * VECTOR;
            load_vector_async(&s.v[row][column], g.v + (index_t(j) * P + row) * NB + column);
        }
        for (int k = thread; k < NB * NB / VECTOR; k += THREADS) {
            const int row = k / (NB / VECTOR), column = k % (NB / VECTOR) * VECTOR;
            load_vector_async(&s.panel.turned_t[row][column], g.t + (index_t(j) * NB + row) * NB + column);
        }
        if (across)
            UNROLL for (int b = 0; b < 4; ++b) s.w[quad + b][i] = mine[b];
        loads_done();
        __syncthreads();
        if (across) load_row(mine, &s.w[i][quad]);
        apply(mine, s);
        if (across)
            UNROLL for (int b = 0; b < 4; ++b) mine[b] = s.partial[0][quad + b][i];
        if (row_inside)
            UNROLL for (int b = 0; b < 4; ++b)
                if (quad + b < limit) at[b] = mine[b];
    }
    __syncthreads();
    if (!of_r) {
        for (int k = thread; k < P * NB; k += THREADS) {
            const int row = across ? k % P : k / NB, c = across ? k / P : k % NB;
            if (row < g.p && c < width) state[across ? c * ld_state + row : row * ld_state + c] = s.u[row][c];
        }
        return;
    }
    for (int k = thread; k < P * NB; k += THREADS) g.v[index_t(tile) * P * NB + k] = s.u[k / NB][k % NB];
    __syncthreads();
    if (thread == 0) publish(g.progress + 2 + tile, 1);
}

template <int ROWS> __device__ __forceinline__ void down(const Sweep& g) {
    auto& s = *reinterpret_cast<Down<ROWS>*>(memory);
    __shared__ int ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(g.progress, 1u);
    __syncthreads();
    if (ticket == 0) chain(g, s);
    else follow(g, ticket, s);
}

#if __CUDA_ARCH__ >= 900
constexpr int AT_ONCE = REAL_IS_FLOAT ? 2 : 1;  // blocks on a multiprocessor, for the smallest variant
#else
constexpr int AT_ONCE = 1;
#endif

extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE) qr_down_4(const Sweep g) { down<4>(g); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) qr_down_8(const Sweep g) { down<8>(g); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) qr_down_16(const Sweep g) { down<16>(g); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) qr_down_32(const Sweep g) {
    if constexpr (REAL_IS_FLOAT) down<32>(g);  // double would need more shared memory
}
