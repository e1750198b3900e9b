// GETS, the inverse of a lower triangular matrix: its diagonal blocks. The rest is products, level by level:
// with L11^-1 and L22^-1 known, the block below them becomes -L22^-1 (L21 L11^-1).
//
// The simple version: a thread for each column of the inverse substitutes down the column, row by row. What each step gains:
//   - All diagonal blocks at once, each in shared memory, 32 x 32 of it in registers; the rest is only products.
//   - A solution for few right-hand sides in one launch: blocks of threads wait for each other's part by counters, while
//     their next tile of L is being loaded, and multiply by inverted diagonal blocks instead of dividing.
//
// Operations: LEAF^2 / 3 an element of the diagonal blocks; n^3 / 3 in all. Bytes: the lower halves of the blocks in,
// the whole blocks out. Dynamic shared memory: LEAF * LEAF_PITCH elements. substitute: n^2 a right-hand side, L once.
// Source: the GETS kernel of the thesis, in blocks; N. J. Higham, Accuracy and Stability, 2nd ed., sec. 14.2.

extern __shared__ vector_t memory[];

constexpr int SUBSTITUTE_THREADS = 512;
constexpr int SUBSTITUTE_BYTES = LEAF * LEAF * sizeof(real);

// x[b] = inverse of the b-th diagonal block of l; x has consecutive LEAF x LEAF blocks, each with
// zeros above the diagonal and the identity beyond the end of l. `failed` becomes the least index of a diagonal
// element that has no reciprocal. Grid: one block of LEAF_THREADS for each diagonal block.
extern "C" __global__ void __launch_bounds__(256, 1)
invert_blocks(const real* l, long long ldl, long long n, int unit_diagonal, real* x, int* failed) {
    leaf_t* s = (leaf_t*)memory;
    const index_t k = (index_t)blockIdx.x * LEAF;
    const int m = (int)minimum<index_t>(LEAF, n - k);
    leaf_load(s, l + k * ldl + k, ldl, m);
    loads_done();
    __syncthreads();
    if (threadIdx.x < LEAF) {
        const int i = threadIdx.x;
        const real diagonal = unit_diagonal ? real(1) : s[i][i], inverse = real(1) / diagonal;
        if (!isfinite(diagonal) || !isfinite(inverse)) atomicMin(failed, (int)k + i);
        s[i][i] = inverse;
    }
    __syncthreads();
    if (threadIdx.x < LEAF) leaf_invert_32(s, (threadIdx.x >> 5) * 32);
    __syncthreads();
    leaf_combine<32>(s);
    leaf_combine<64>(s);
    leaf_store_inverse(s, x + (index_t)blockIdx.x * LEAF * LEAF, LEAF, LEAF);
}

// a[i][j] = 0 for j > i. Grid: n blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(256) clear_upper(real* a, long long lda, long long n) {
    const index_t i = blockIdx.x;
    for (index_t j = i + 1 + threadIdx.x; j < n; j += 256) a[i * lda + j] = 0;
}

// Copies the diagonal blocks of a from `blocks`, in the form of invert_blocks. Grid: (diagonal blocks, LEAF / PUT_ROWS)
// blocks of 256 threads.
constexpr int PUT_ROWS = 16;
extern "C" __global__ void __launch_bounds__(256) put_blocks(real* a, long long lda, long long n, const real* blocks) {
    const index_t k = (index_t)blockIdx.x * LEAF;
    const int c = threadIdx.x % LEAF, first = blockIdx.y * PUT_ROWS;
    UNROLL for (int i = first + threadIdx.x / LEAF; i < first + PUT_ROWS; i += 256 / LEAF)
        if (k + i < n && k + c < n) a[(k + i) * lda + k + c] = blocks[(k + i) * LEAF + c];
}

// `overflow` becomes 0 if an element on or below the diagonal is not finite. Grid: n blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(256) check_lower(const real* a, long long lda, int* overflow) {
    const index_t i = blockIdx.x;
    for (index_t j = threadIdx.x; j <= i; j += 256)
        if (!isfinite(a[i * lda + j])) *overflow = 0;
}

// Waits until `done` exceeds `count`: until that many blocks of the solution, and one more, have been written.
__device__ __forceinline__ void wait_for(const unsigned* done, unsigned count) {
    if (threadIdx.x == 0)
        while (acquire(done) <= count) continue;
    __syncthreads();
}

// Solves L x = b or L' x = b: x (n x columns, contiguous) initially holds the right-hand sides; `inverses` of the diagonal
// blocks are those of invert_blocks. A block takes the next diagonal block of the next right-hand side by a ticket, so that
// the blocks it waits for have started; while it waits, its tile of L is loaded. `counters`: 1 + columns zeros.
// Grid: ceil(n / LEAF) * columns blocks of SUBSTITUTE_THREADS; SUBSTITUTE_BYTES of dynamic shared memory.
extern "C" __global__ void __launch_bounds__(SUBSTITUTE_THREADS, 1)
substitute(const real* l, long long ldl, long long n, const real* inverses, real* x, long long columns, int trans,
           unsigned* counters) {
    real(*inverse)[LEAF] = (real(*)[LEAF])memory;
    __shared__ real part[4][LEAF];  // a block of the solution, or partial sums
    __shared__ unsigned ticket;
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5, column = t % LEAF, group = t / LEAF;
    if (t == 0) ticket = atomicAdd(counters, 1u);
    __syncthreads();
    const index_t blocks = (n + LEAF - 1) / LEAF, step = ticket / columns, side = ticket % columns;
    const index_t i = trans ? blocks - 1 - step : step;
    unsigned* done = counters + 1 + side;
    for (int e = t; e < LEAF * LEAF; e += SUBSTITUTE_THREADS) load_async(&inverse[0][e], inverses + i * LEAF * LEAF + e, true);

    real sum[8] = {};  // of rows 8 warp.., by lanes; or of one column, by groups of 32 rows, in sum[0]
    for (index_t s = 0; s < step; ++s) {
        const index_t j = trans ? blocks - 1 - s : s;
        real tile[32];
        const index_t row0 = trans ? j * LEAF + group * 32 : i * LEAF + warp * 8;
        const real* from = l + row0 * ldl + (trans ? i * LEAF + column : j * LEAF + lane);
        const int rows = (int)minimum<index_t>(trans ? 32 : 8, n - row0);  // may be negative
        if (trans) {
            UNROLL for (int q = 0; q < 32; ++q, from += ldl) tile[q] = q < rows ? *from : real(0);
        } else {
            UNROLL for (int q = 0; q < 32; q += 4, from += ldl)
                UNROLL for (int c = 0; c < 4; ++c) tile[q + c] = q / 4 < rows ? from[32 * c] : real(0);
        }
        wait_for(done, (unsigned)s);
        if (t < LEAF) part[0][t] = j * LEAF + t < n ? __ldcg(x + (j * LEAF + t) * columns + side) : real(0);
        __syncthreads();
        if (trans) {
            UNROLL for (int q = 0; q < 32; ++q) sum[0] = multiply_add(tile[q], part[0][group * 32 + q], sum[0]);
        } else {
            UNROLL for (int q = 0; q < 32; ++q) sum[q / 4] = multiply_add(tile[q], part[0][lane + 32 * (q % 4)], sum[q / 4]);
        }
        __syncthreads();
    }

    // The remaining right-hand side in part[0], then the inverse of the diagonal block times it.
    loads_done();
    if (trans) {
        part[group][column] = sum[0];
    } else {
        UNROLL for (int r = 0; r < 8; ++r) {
            const real total = warp_sum(sum[r]);
            if (lane == 0) part[0][warp * 8 + r] = total;
        }
    }
    __syncthreads();
    if (t < LEAF) {
        const index_t row = i * LEAF + t;
        const real known = trans ? part[0][t] + part[1][t] + part[2][t] + part[3][t] : part[0][t];
        part[0][t] = row < n ? x[row * columns + side] - known : real(0);
    }
    __syncthreads();
    real y = 0;
    if (trans) {
#pragma unroll 8
        for (int q = 0; q < 32; ++q)
            y = multiply_add(inverse[group * 32 + q][column], part[0][group * 32 + q], y);
        __syncthreads();
        part[group][column] = y;
    } else {
        real out[8];
        UNROLL for (int r = 0; r < 8; ++r) {
            real dot = 0;
            UNROLL for (int q = 0; q < 4; ++q)
                dot = multiply_add(inverse[warp * 8 + r][lane + 32 * q], part[0][lane + 32 * q], dot);
            out[r] = warp_sum(dot);
        }
        __syncthreads();
        if (lane == 0)
            UNROLL for (int r = 0; r < 8; ++r) part[0][warp * 8 + r] = out[r];
    }
    __syncthreads();
    if (t < LEAF && i * LEAF + t < n)
        x[(i * LEAF + t) * columns + side] = trans ? part[0][t] + part[1][t] + part[2][t] + part[3][t] : part[0][t];
    __syncthreads();
    if (t == 0) release(done, (unsigned)step + 1);
}
