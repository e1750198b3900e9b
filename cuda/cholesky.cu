// Cholesky factorisation A = L L', lower triangle: many block columns in one launch, tile by tile. A tile takes the thesis's
// four steps: the product of the finished tiles to its left is subtracted; then it is factored if it is on the diagonal,
// or else multiplied by the inverse of the factor above it.
//
// The simple version works column by column: a root, a division of the entries below, and a rank-one update of all entries
// to the right. What each step gains:
//   - Tiles of LEAF x LEAF: all operations except LEAF / n become products.
//   - A tile waits for the tiles that it needs, not for all blocks of threads. While one diagonal tile is factored, which
//     takes long, products continue wherever possible, and nothing is launched or read twice in between.
//   - The wait for the next diagonal tile is kept short: products are computed as far as possible, and finished tiles
//     are published 32 columns at a time.
//   - The diagonal tile and those below it are in shared memory and registers: cholesky_leaf.cuh.
//
// Operations of factor_unit: n^3 / 3. Bytes: each tile in and out, and for its product two rows of tiles, mostly from the L2
// cache. Dynamic shared memory: UNIT_BYTES. Source: the four-step blocked Cholesky of the thesis; inverted diagonal blocks
// as in N. J. Higham, Accuracy and Stability, 2nd ed., sec. 14.2.

#include "products.cuh"
#include "cholesky_leaf.cuh"

extern __shared__ vector_t memory[];

constexpr int STAGES = REAL_IS_FLOAT ? 3 : 2;
constexpr int STAGE = 2 * TILE * PITCH;  // in elements: both operands of a product
constexpr int UNIT_BYTES = LEAF_BYTES + STAGES * STAGE * sizeof(real);  // shared memory of factor_unit
constexpr int EDGE = 32;  // side of a tile of mirror

template <bool> struct Engine {
    typedef Simt type;
};
#if __CUDA_ARCH__ >= 800
template <> struct Engine<false> {
    typedef Tensor type;
};
#endif
typedef Engine<REAL_IS_FLOAT>::type Sums;

// ---------------------------------------------------------------- tiles that wait for each other

// The progress of a row of tiles is counted in quarters of a tile, from the matrix's first column on, since the four warps
// publish the four quarters of a diagonal tile. One thread of a block or warp waits; the others meet it at a barrier.
constexpr int PARTS = 16;
__device__ __forceinline__ unsigned wait_for(const unsigned* progress, unsigned least) {
    unsigned seen;
    do seen = acquire(progress);
    while (seen < least);
    return seen;
}

// threadIdx.x, computed anew for code that seldom needs it. The compiler would otherwise keep derived values in registers
// from the kernel's beginning, and has none left.
__device__ __forceinline__ int thread_anew() {
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

// Loads a tile of m rows and n columns into shared memory; for loads_done(). `vectors`: it is aligned and full.
__device__ __forceinline__ void load_tile(leaf_t* s, const real* from, index_t lda, int m, int n, bool vectors) {
    constexpr int ROW = LEAF / VECTOR;
    const int t = threadIdx.x, c = t % ROW * VECTOR;
    if (vectors) {
#pragma unroll 4
        for (int r = t / ROW; r < m; r += LEAF_THREADS / ROW) load_vector_async(&s[r][c], from + r * lda + c);
    } else if (t % LEAF < n) {
#pragma unroll 4
        for (int r = t / LEAF; r < m; r += LEAF_THREADS / LEAF) load_async(&s[r][t % LEAF], from + r * lda + t % LEAF, true);
    }
}

// Stores columns o..o+32 of the tile from shared memory.
__device__ __forceinline__ void store_columns(real* to, const leaf_t* s, index_t lda, int m, int n, int o, bool vectors) {
    constexpr int ROW = 32 / VECTOR;
    const int t = threadIdx.x, c = o + t % ROW * VECTOR;
    if (vectors) {
#pragma unroll 4
        for (int r = t / ROW; r < m; r += LEAF_THREADS / ROW) *(vector_t*)(to + r * lda + c) = *(const vector_t*)&s[r][c];
    } else if (o + t % 32 < n) {
#pragma unroll 4
        for (int r = t / 32; r < m; r += LEAF_THREADS / 32) to[r * lda + o + t % 32] = s[r][o + t % 32];
    }
}

// Subtracts the product of tile rows i and j (transposed), over the columns of tiles from `first` to `stop`, from the tile
// in s: 32 columns as soon as both rows have them, and all that has arrived before another wait. Partial sums are added to
// s from time to time, so that they do not grow long. `limit`: room for two numbers.
__device__ __forceinline__ void multiply_rows(leaf_t* s, real* stages, int* limit, const real* a, index_t lda, index_t n,
                                              int i, int j, int first, int stop, const unsigned* progress, bool aligned) {
    constexpr int PART = 32 / DEPTH, LONGEST = 4 * LEAF / DEPTH;
    const int steps = (stop - first) * (LEAF / DEPTH), t = threadIdx.x;
    Sums sums;
    // Beyond the last row, the last row is read again; its products are not used.
    constexpr int ROW = DEPTH / VECTOR, STEP = LEAF_THREADS / ROW;
    auto row_of = [&](int tile, int q) { return minimum((index_t)tile * LEAF + q, n - 1) * lda + (index_t)first * LEAF; };
    const real* from[2][TILE / STEP];
    UNROLL for (int q = 0; q < TILE / STEP; ++q) {
        from[0][q] = a + row_of(i, q * STEP + t / ROW) + t % ROW * VECTOR;
        from[1][q] = a + row_of(j, q * STEP + t / ROW) + t % ROW * VECTOR;
    }
    auto load = [&](int step) {
        real* to = stages + step % STAGES * STAGE;
        if (aligned) {
            real* place = to + t / ROW * PITCH + t % ROW * VECTOR;
            UNROLL for (int q = 0; q < TILE / STEP; ++q) load_vector_async(place + q * STEP * PITCH, from[0][q] + step * DEPTH);
            if (i != j)
                UNROLL for (int q = 0; q < TILE / STEP; ++q)
                    load_vector_async(place + (TILE + q * STEP) * PITCH, from[1][q] + step * DEPTH);
        } else {
            const int u = thread_anew(), c = u % DEPTH;
#pragma unroll 1
            for (int q = u / DEPTH; q < (i == j ? TILE : 2 * TILE); q += LEAF_THREADS / DEPTH)
                load_async(to + q * PITCH + c, a + row_of(q < TILE ? i : j, q % TILE) + step * DEPTH + c, true);
        }
    };
    int known = 0, loaded = 0, steady = 0;  // steps that may be loaded (first thread); loaded steps; steps done one at a time so far
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        if (t == 0) {
            const int wanted = minimum(steps, step + STAGES);
            if (known < wanted) {
                const unsigned before = PARTS * first, least = before + PARTS / 4 * (step / PART + 1);
                const bool must = loaded == step;
                const unsigned seen = minimum(must ? wait_for(progress + i, least) : acquire(progress + i),
                                              must ? wait_for(progress + j, least) : acquire(progress + j));
                known = (int)(seen - before) / (PARTS / 4) * PART;
            }
            limit[step % 2] = minimum(known, wanted);
        }
        const bool late = loaded == step;
        if (steady >= STAGES - 1) asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        else loads_done();
        __syncthreads();  // this stage has arrived for all, and all have left the one that is filled next
        const int before = loaded, reached = limit[step % 2];
        for (; loaded < reached; ++loaded) load(loaded);
        asm volatile("cp.async.commit_group;" ::: "memory");
        steady = loaded == before + 1 ? steady + 1 : 0;
        if (late) {
            loads_done();
            __syncthreads();
        }
        const real* stage = stages + step % STAGES * STAGE;
        constexpr int AT_ONCE = REAL_IS_FLOAT ? DEPTH : 8;  // more fragments would take more registers than there are
#pragma unroll 1
        for (int q = 0; q < DEPTH; q += AT_ONCE) {
            if (i == j) sums.template add<PITCH, AT_ONCE, true>(stage + q, stage + q);
            else sums.template add<PITCH, AT_ONCE>(stage + q, stage + TILE * PITCH + q);
        }
        if (step % LONGEST == LONGEST - 1) sums.each([&](int r, int q, real& x) { s[r][q] -= x, x = 0; });
    }
    loads_done();
    __syncthreads();
    sums.each([&](int r, int q, real& x) { s[r][q] -= x; });
    __syncthreads();
}

// Publishes the finished columns o..o+32 of a diagonal tile from row o on, with the inverse of their 32 x 32 block above the
// diagonal. Called by the last four warps.
__device__ __forceinline__ void show_columns(const leaf_t* s, real* to, int o, unsigned* progress) {
    constexpr int ROW = 32 / VECTOR;
    const int t = threadIdx.x - 128, c = o + t % ROW * VECTOR;
#pragma unroll 4
    for (int i = o + t / ROW; i < LEAF; i += 128 / ROW) *(vector_t*)(to + i * LEAF + c) = *(const vector_t*)&s[i][c];
    __syncwarp();
    if (t % 32 == 0) release_one_more(progress);
}

// The row i and column j of the tile with a ticket: column by column from the diagonal down, so that a tile waits for
// lower tickets only, which running blocks have taken. So not all blocks need to run at once.
__device__ __forceinline__ bool tile_of(int ticket, int first, int last, int rows, int& i, int& j) {
    for (j = first; j < last; ++j) {
        i = j + ticket;
        if (i < rows) return true;
        ticket -= rows - j;
    }
    return false;
}

// Factors block columns first..last of the matrix, down to the last row; all columns before have been subtracted. `blocks`:
// room for the diagonal tiles in the form of show_columns. `progress`: the finished part of each row of tiles, zeros before
// the first unit. `ticket`: zero. `failed` becomes the least index of a pivot that is not positive and finite. Grid: any
// number of blocks of LEAF_THREADS threads.
extern "C" __global__ void __launch_bounds__(256, 1)
factor_unit(real* a, long long lda, long long n, int first, int last, real* blocks, unsigned* progress, unsigned* ticket,
            int* failed) {
    leaf_t* s = (leaf_t*)memory;
    real* stages = (real*)(s + LEAF);
    real(*strip)[STRIP_PITCH] = (real(*)[STRIP_PITCH])stages;  // 32 columns of L
    __shared__ real diagonal[LEAF];
    __shared__ int taken, limit[2];
    const int t = threadIdx.x, rows = (int)((n + LEAF - 1) / LEAF);
    const bool aligned = vectors_lie_aligned(a, lda);
#pragma unroll 1
    for (;;) {
        __syncthreads();  // all have left shared memory
        if (t == 0) taken = (int)atomicAdd(ticket, 1u);
        __syncthreads();
        int i, j;
        if (!tile_of(taken, first, last, rows, i, j)) return;
        const int m = (int)minimum<index_t>(LEAF, n - (index_t)i * LEAF), width = i == j ? m : LEAF;
        const bool vectors = aligned && width == LEAF;
        real* tile = a + (index_t)i * LEAF * lda + (index_t)j * LEAF;
        load_tile(s, tile, lda, m, width, vectors);
        multiply_rows(s, stages, limit, a, lda, n, i, j, first, j, progress, aligned);
        if (i > j) {
#pragma unroll 1
            for (int o = 0; o < LEAF; o += 32) {
                if (t == 0) wait_for(progress + j, PARTS * j + PARTS / 4 * (o / 32 + 1));
                __syncthreads();
                constexpr int ROW = 32 / VECTOR;
                const int u = thread_anew(), c = u % ROW * VECTOR;
                for (int q = u / ROW; q < LEAF - o; q += LEAF_THREADS / ROW)
                    load_vector_async(&strip[q][c], blocks + ((index_t)j * LEAF + o + q) * LEAF + o + c);
                loads_done();
                __syncthreads();
                solve_columns(s, strip, o);
                __syncthreads();
                store_columns(tile, s, lda, m, width, o, vectors);
                __syncthreads();
                if (t == 0) release(progress + i, PARTS * j + PARTS / 4 * (o / 32 + 1));
                update_columns(s, strip, o);
            }
            continue;
        }
        if (m < LEAF) {  // fill with the identity
            for (int e = m * LEAF + t; e < LEAF * LEAF; e += LEAF_THREADS) s[e / LEAF][e % LEAF] = e / LEAF == e % LEAF;
            __syncthreads();
        }
        real* block = blocks + (index_t)i * LEAF * LEAF;
        int bad = LEAF;
        const int pair = t / 64;  // index of a pair of warps
#pragma unroll 1
        for (int o = 0; o < LEAF; o += 32) {
            if (t < LEAF - o) {
                const int found = factor_columns(s, o, diagonal, stages + (t >> 5) * SHOWN);
                if (found < 32) bad = minimum(bad, o + found);
            } else {
                if (o > 0 && t >= 128) {  // idle warps: products of earlier columns that can wait
                    show_columns(s, block, o - 32, progress + i);
                    if (o == 32) take_off(s, pair == 2 ? 64 : 96, 64, 0);
                    if (pair == 2 && o < 96) take_off(s, 96, 96, o - 32);
                }
                __syncthreads();  // pairs with the barrier in factor_columns
            }
            __syncthreads();
            if (o + 32 + 32 * pair < LEAF) take_off(s, o + 32 + 32 * pair, o + 32, o);
            __syncthreads();
        }
        if (t >= 128) show_columns(s, block, LEAF - 32, progress + i);
        if (t == 0 && bad < LEAF) atomicMin(failed, i * LEAF + bad);
        const int u = thread_anew(), c = u % LEAF;
#pragma unroll 8
        for (int r = u / LEAF; r < LEAF; r += LEAF_THREADS / LEAF)
            if (c <= r && r < m) tile[(index_t)r * lda + c] = c < r ? s[r][c] : diagonal[r];
    }
}

// Copies columns start..stop of a, from row `start` down: the square on the diagonal to q, from its column `start` on,
// and the rows below it to `below`. Zeros replace them, since products are added there. Grid: one block for each row.
extern "C" __global__ void __launch_bounds__(256)
take_unit(real* a, long long lda, long long start, long long stop, real* q, long long ldq, real* below,
          long long ldbelow) {
    const index_t width = stop - start, i = blockIdx.x;
    real* from = a + (start + i) * lda + start;
    real* to = i < width ? q + i * ldq + start : below + (i - width) * ldbelow;
    for (index_t j = threadIdx.x; j < width; j += 256) {
        to[j] = from[j];
        from[j] = 0;
    }
}

// Copies L from a, with zeros above the diagonal; l may be a. Grid: (n, ceil(n / STORED)) blocks of 256 threads.
constexpr int STORED = 1024;  // elements of a row for each block
extern "C" __global__ void __launch_bounds__(256)
store_factor(const real* a, long long lda, long long n, real* l, long long ldl) {
    const index_t i = blockIdx.x;
    UNROLL for (int q = 0; q < STORED; q += 256) {
        const index_t j = (index_t)blockIdx.y * STORED + q + threadIdx.x;
        if (j < n) l[i * ldl + j] = j > i ? real(0) : a[i * lda + j];
    }
}

// x[i][j] = x[j][i] = a[i][j] for i >= j; x may be a. `overflow` becomes 0 if an element is not finite. Grid: (t, t) for
// t = ceil(n / EDGE) tiles a side, blocks of (EDGE, 8) threads.
extern "C" __global__ void __launch_bounds__(256)
mirror(const real* a, long long lda, long long n, real* x, long long ldx, int* overflow) {
    if (blockIdx.x > blockIdx.y) return;
    __shared__ real tile[EDGE][EDGE + 1];
    const index_t i0 = (index_t)blockIdx.y * EDGE, j0 = (index_t)blockIdx.x * EDGE;
    for (int i = threadIdx.y; i < EDGE; i += 8)
        if (i0 + i < n && j0 + threadIdx.x <= i0 + i) {
            const real value = a[(i0 + i) * lda + j0 + threadIdx.x];
            if (!isfinite(value)) *overflow = 0;
            tile[i][threadIdx.x] = value;
            if (x != a) x[(i0 + i) * ldx + j0 + threadIdx.x] = value;
        }
    __syncthreads();
    for (int i = threadIdx.y; i < EDGE; i += 8) {
        const index_t row = j0 + i, column = i0 + threadIdx.x;
        if (column < n && row < column) x[row * ldx + column] = tile[threadIdx.x][i];
    }
}
