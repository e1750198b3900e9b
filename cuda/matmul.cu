// C = alpha op(A) op(B) + beta C on row-major views, float32 and float64, with any m, n, k and leading
// dimension. Large float32 products on Hopper are in matmul_wgmma.cu.
//
// The simple version: a thread for each element of C reads a row of op(A) and a column of op(B), with two loads from
// memory for every multiplication. What each step gains:
//   - Tiles in shared memory: the data that a block of threads loads serve TILE rows or columns of C.
//   - 8 x 8 results for each thread: 16 reads of shared memory serve 64 multiplications in registers.
//   - STAGES of tiles: the next ones are copied, past the registers, while this one is multiplied.
//   - An order of tiles in which tiles close in time share panels of A and B in the L2 cache.
//
// Kernel: matmul_tiled, 256 threads a tile of 128 x 128 results; tiles numbered in one dimension by `tile_in_group`.
// Operations: 2 m n k, half of it with `lower_only`. Bytes of device memory, s = sizeof(real), least: s (m k + k n + m n),
// and s m n more if beta != 0. Source: register blocking: V. Volkov, J. Demmel, SC 2008.

#include "products.cuh"

constexpr int STAGES = REAL_IS_FLOAT ? 3 : 2;
constexpr int BLOCKS = REAL_IS_FLOAT ? 2 : 1;  // on a multiprocessor; float64 sums fill the registers of one block
constexpr int STAGE = 2 * TILE * PITCH;  // in elements: both operands
constexpr int STAGES_BYTES = STAGES * STAGE * sizeof(real);  // shared memory of the kernel

// Loads one operand's tiles, of rows row0.., step after step along k. Threads follow the contiguous direction of
// memory: along k if `along_k`, else along the rows.
struct Loader {
    const real* const start;
    const real* next;  // this thread's first element of the next tile
    index_t row_stride, term_stride, k_left;
    int rows_left, row, term;
    bool along_k;

    __device__ Loader(const real* x, index_t ld, bool along_k, index_t row0, index_t rows, index_t k)
        : start(x), row_stride(along_k ? ld : 1), term_stride(along_k ? 1 : ld), k_left(k),
          rows_left((int)minimum(rows - row0, (index_t)TILE)),
          row(along_k ? threadIdx.x / DEPTH : threadIdx.x % TILE),
          term(along_k ? threadIdx.x % DEPTH : threadIdx.x / TILE), along_k(along_k) {
        next = x + (row0 + row) * row_stride + term * term_stride;
    }

    template <int ROWS, int TERMS> __device__ void copy(real* tile, bool whole) const {
        const index_t stride = ROWS * row_stride + TERMS * term_stride;
        const real* from = next;
        real* to = tile + row * PITCH + term;
        if (whole) {
            UNROLL for (int i = 0; i < TILE * DEPTH / 256; ++i, from += stride)
                load_async(to + i * (ROWS * PITCH + TERMS), from, true);
        } else {
#pragma unroll 1
            for (int i = 0; i < TILE * DEPTH / 256; ++i, from += stride) {
                const bool inside = row + i * ROWS < rows_left && term + i * TERMS < k_left;
                load_async(to + i * (ROWS * PITCH + TERMS), inside ? from : start, inside);
            }
        }
    }

    __device__ void load(real* tile) {
        const bool whole = rows_left == TILE && k_left >= DEPTH;
        if (along_k) copy<256 / DEPTH, 0>(tile, whole);
        else copy<0, 256 / TILE>(tile, whole);
        next += DEPTH * term_stride;
        k_left -= DEPTH;
    }
};

struct Product {
    long long m, n, k;
    const real* a;
    long long lda;
    int a_across;  // whether op(A) is the transpose of the stored matrix
    const real* b;
    long long ldb;
    int b_across;
    real* c;
    long long ldc;
    real alpha, beta;
    int lower_only;
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS) matmul_tiled(const Product p) {
    extern __shared__ __align__(16) unsigned char shared[];
    real* stages = (real*)shared;
    const index_t m = p.m, n = p.n, ldc = p.ldc;
    const bool lower_only = p.lower_only;
    index_t i, j;
    tile_in_group(blockIdx.x, (m + TILE - 1) / TILE, (n + TILE - 1) / TILE, i, j);
    const index_t row0 = i * TILE, col0 = j * TILE;
    if (lower_only && col0 > row0 + TILE - 1) return;

    Loader load_a(p.a, p.lda, !p.a_across, row0, m, p.k), load_b(p.b, p.ldb, p.b_across, col0, n, p.k);
    int fill = 0, use = 0;  // next stage to fill and next stage to use
    // One commit group for each step, even if nothing is left to load, so that the waits can count them.
    auto load = [&]() {
        if (load_a.k_left > 0) {
            load_a.load(stages + fill * STAGE);
            load_b.load(stages + fill * STAGE + TILE * PITCH);
            fill = fill + 1 == STAGES ? 0 : fill + 1;
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    Simt engine;
    for (int stage = 0; stage < STAGES - 1; ++stage) load();
    for (index_t left = p.k; left > 0; left -= DEPTH) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // this stage has arrived for all, and all have left the one that is filled next
        load();
        engine.add<PITCH, DEPTH>(stages + use * STAGE, stages + use * STAGE + TILE * PITCH);
        use = use + 1 == STAGES ? 0 : use + 1;
    }
    const bool whole = row0 + TILE <= m && col0 + TILE <= n && !(lower_only && col0 + TILE - 1 > row0);
    auto inside = [&](int r, int q) {
        const index_t row = row0 + r, col = col0 + q;
        return whole || (row < m && col < n && (!lower_only || col <= row));
    };
    real* corner = p.c + row0 * ldc + col0;
    // All reads come before the first write, so that no read waits for a write.
    engine.each([&](int r, int q, real& value) {
        value *= p.alpha;
        if (p.beta != 0 && inside(r, q)) value += p.beta * corner[r * ldc + q];
    });
    engine.each([&](int r, int q, real& value) {
        if (inside(r, q)) corner[r * ldc + q] = value;
    });
}
