// Cholesky factorisation A = L L', lower triangle: a diagonal block and the strip below it in one launch. The thesis's
// third and fourth steps, the updates of the diagonal and of everything below, are one product over all tiles.
//
// The simple version: column by column, a root, a division of what is below, and a rank-one update of all that is on
// the right. What each step buys:
//   - Blocks of LEAF columns: all but LEAF / n of the operations become products.
//   - The diagonal block in shared memory, 32 columns of it at a time in registers, without barriers between columns.
//   - The inverses of its 32 x 32 blocks on the way: the rows below are then multiplied, not substituted.
//   - Block and strip in one launch: every block of threads factors the same LEAF x LEAF block for itself.
//
// Kernels
//   factor_panel    every block of LEAF_THREADS = 256 threads factors the LEAF x LEAF diagonal block for itself, which
//                   costs less than waiting for one block to do it and another launch to begin; and then solves for
//                   its own rows of the strip, 32 at a time, with the inverses of the 32 x 32 blocks on the diagonal
//   take_unit       the columns of a unit, moved out of the matrix: they leave zeros, into which products are added
//   store_factor    L as the caller gets it, from the strips and the diagonal blocks
//   mirror          a whole symmetric matrix from its lower triangle, tile by tile through shared memory
// Operations of factor_panel: LEAF^3 / 3 once (a block) and LEAF^2 a row of the strip; n^3 / 3 in all with the
// products. Bytes: the strip in and out. Dynamic shared memory: PANEL_BYTES.
// Source: the four-step blocked Cholesky of the thesis; inverted diagonal blocks as in N. J. Higham, Accuracy and
// Stability, 2nd ed., sec. 14.2.

// A call launches few of these kernels.
constexpr bool ALONE = true;

extern __shared__ vector_t memory[];

constexpr int ROWS = 32;  // of the strip, at a time
constexpr int PANEL_BYTES = LEAF_BYTES + ROWS * LEAF_PITCH * sizeof(real);  // shared memory of factor_panel
constexpr int TILE = 32;  // of mirror

// Eight columns of factor_columns, from column `first` on; the ACTIVE columns not finished before are in x and y. The
// registers move on by one place with each column, so that the code is a short loop and column j is always x[0]; the
// columns finished here end up in the last eight places.
template <int ACTIVE>
__device__ __forceinline__ void factor_eight(real (&x)[32], real (&y)[32], int first, vector_t* column, real& own,
                                             int& bad) {
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int j = first; j < first + 8; ++j) {
        // Column j from row j on, then zeros, which leave the finished columns as they are. (So must a finished row's
        // multiplier: above the diagonal there may be anything.)
        vector_t* now = column + j % 2 * (32 / VECTOR);
        const real first_x = lane < j ? real(0) : x[0], first_y = y[0];
        ((real*)now)[(lane - j) & 31] = first_x;
        __syncwarp();
        const bool usable = has_reciprocal(now[0].x[0]);
        const real pivot = usable ? now[0].x[0] : real(1), inverse = reciprocal(pivot);
        bad = usable ? bad : minimum(bad, j);
        own = lane == j ? pivot : own;
        const real of_x = -first_x * inverse, of_y = -first_y * inverse;
#pragma unroll
        for (int v = 0; v < ACTIVE / VECTOR; ++v) {
            const vector_t other = now[v];
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                const int c = v * VECTOR + i;
                if (c > 0) {
                    x[c - 1] = multiply_add(of_x, other.x[i], x[c]);
                    y[c - 1] = multiply_add(of_y, other.x[i], y[c]);
                }
            }
        }
        x[ACTIVE - 1] = first_x;
        y[ACTIVE - 1] = first_y;
    }
}

// Columns o..o+32 of the block, by one warp for each 32 rows from o on, without waiting for one another: every warp
// factors the 32 x 32 diagonal block in registers, lane i with its row i, and with the same columns solves for a
// second row. That row y is one of the block below, and becomes y L'^-1; for the first warp it is a row of the
// identity, and becomes a row of L'^-1, whose place is above the diagonal. The pivots' roots are left to the end, so
// that from one pivot to the next there are a reciprocal and two multiplications. Returns the first column whose pivot
// is not positive, or has no reciprocal, or 32. `column`: 2 x 32 elements for this warp.
__device__ __forceinline__ int factor_columns(leaf_t* s, int o, real* diagonal, vector_t* column) {
    const int lane = threadIdx.x & 31, row = o + (int)threadIdx.x;
    real x[32], y[32];
#pragma unroll
    for (int c = 0; c < 32; c += VECTOR) {
        const vector_t v = *(const vector_t*)&s[o + lane][o + c];  // above the diagonal: never used
        const vector_t w = *(const vector_t*)&s[row][o + c];
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            x[c + i] = v.x[i];
            y[c + i] = threadIdx.x >= 32 ? w.x[i] : c + i == lane ? real(1) : real(0);
        }
    }
    int bad = 32;
    real own = 1;  // the pivot of this lane's row
    factor_eight<32>(x, y, 0, column, own, bad);
    factor_eight<24>(x, y, 8, column, own, bad);
    factor_eight<16>(x, y, 16, column, own, bad);
    factor_eight<8>(x, y, 24, column, own, bad);
    // Eights of columns now lie from the last place to the first.
#pragma unroll
    for (int c = 0; c < 16; ++c) {
        const int other = 24 - c / 8 * 8 + c % 8;
        const real old_x = x[c], old_y = y[c];
        x[c] = x[other], y[c] = y[other];
        x[other] = old_x, y[other] = old_y;
    }
    const real own_root = reciprocal_root(own);
    __syncthreads();  // all have read the diagonal block
#pragma unroll
    for (int c = 0; c < 32; ++c) {
        const real root = __shfl_sync(FULL_WARP, own_root, c);
        x[c] *= root;
        y[c] *= root;
    }
    if (threadIdx.x < 32) {
#pragma unroll
        for (int c = 0; c < 32; ++c) s[o + lane][o + c] = c < lane ? x[c] : c == lane ? own_root : y[c];
        diagonal[o + lane] = own * own_root;
    } else {
#pragma unroll
        for (int c = 0; c < 32; c += VECTOR) {
            vector_t v;
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) v.x[i] = y[c + i];
            *(vector_t*)&s[row][o + c] = v;
        }
    }
    return bad;
}

// The trailing SIZE x SIZE lower triangle less the product of the 32 columns before it: EDGE x EDGE results a thread,
// 16 apart, so that neighbouring threads read neighbouring rows and almost half of the results need no work.
template <int SIZE> __device__ __forceinline__ void update_leaf(leaf_t* s) {
    constexpr int EDGE = SIZE / 16, o = LEAF - SIZE;
    const int i0 = o + threadIdx.x / 16, c0 = o + threadIdx.x % 16;
    real x[EDGE][EDGE] = {};
#pragma unroll 2
    for (int k = o - 32; k < o; k += VECTOR) {
        vector_t left[EDGE], right[EDGE];
#pragma unroll
        for (int i = 0; i < EDGE; ++i) left[i] = *(const vector_t*)&s[i0 + 16 * i][k];
#pragma unroll
        for (int c = 0; c < EDGE; ++c) right[c] = *(const vector_t*)&s[c0 + 16 * c][k];
#pragma unroll
        for (int v = 0; v < VECTOR; ++v)
#pragma unroll
            for (int i = 0; i < EDGE; ++i)
#pragma unroll
                for (int c = 0; c <= i; ++c) x[i][c] = multiply_add(left[i].x[v], right[c].x[v], x[i][c]);
    }
#pragma unroll
    for (int i = 0; i < EDGE; ++i)
#pragma unroll
        for (int c = 0; c <= i; ++c)
            if (i0 + 16 * i >= c0 + 16 * c) s[i0 + 16 * i][c0 + 16 * c] -= x[i][c];
    __syncthreads();
}

// Four rows of the strip times L'^-1, by one warp: 32 columns at a time, each first less the product of those before.
__device__ __forceinline__ void solve_rows(const leaf_t* s, leaf_t* rows) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int o = 0; o < LEAF; o += 32) {
        real x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = rows[i][o + lane], y[i] = 0;
#pragma unroll 8
        for (int k = 0; k < o; k += VECTOR) {
            const vector_t right = *(const vector_t*)&s[o + lane][k];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const vector_t left = *(const vector_t*)&rows[i][k];
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) x[i] = multiply_add(-left.x[v], right.x[v], x[i]);
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[i][o + lane] = x[i];
        __syncwarp();
#pragma unroll 8
        for (int k = 0; k < 32; k += VECTOR) {
            vector_t left[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) left[i] = *(const vector_t*)&rows[i][o + k];
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) {
                const real right = k + v <= lane ? s[o + k + v][o + lane] : real(0);
#pragma unroll
                for (int i = 0; i < 4; ++i) y[i] = multiply_add(left[i].x[v], right, y[i]);
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[i][o + lane] = y[i];
        __syncwarp();
    }
}

// ROWS rows of the strip from row0 on, into shared memory. For loads_done().
__device__ __forceinline__ void load_strip(leaf_t* rows, const real* a, index_t lda, index_t n, index_t row0) {
    const int t = threadIdx.x;
    if (row0 + ROWS <= n && vectors_lie_aligned(a, lda)) {
        const int c = t % (LEAF / VECTOR) * VECTOR;
#pragma unroll
        for (int i = t / (LEAF / VECTOR); i < ROWS; i += LEAF_THREADS / (LEAF / VECTOR))
            load_vector_async(&rows[i][c], a + (row0 + i) * lda + c);
        return;
    }
#pragma unroll 8
    for (int i = t / LEAF; i < ROWS; i += LEAF_THREADS / LEAF)
        load_async(&rows[i][t % LEAF], row0 + i < n ? a + (row0 + i) * lda + t % LEAF : a, row0 + i < n);
}

// The diagonal block at (k, k) and the rows below it. A's diagonal block stays, for other blocks may still have to read
// it: put_blocks of triangular.cu brings L's to its place in the end. `blocks` receives the diagonal blocks of L, LEAF x
// LEAF each, this one as number k / LEAF. `failed` becomes the least index of a pivot that is not positive and finite.
// Grid: one block for L, and up to one for every ROWS rows below.
extern "C" __global__ void __launch_bounds__(256, 1)
factor_panel(real* a, long long lda, long long n, long long k, real* blocks, int* failed) {
    leaf_t* s = (leaf_t*)memory;
    leaf_t* rows = s + LEAF;
    __shared__ real diagonal[LEAF];
    __shared__ vector_t columns[4][2 * 32 / VECTOR];
    const int t = threadIdx.x;
    const index_t first = k + LEAF + (index_t)blockIdx.x * ROWS;
    leaf_load(s, a + k * lda + k, lda, (int)minimum<index_t>(LEAF, n - k));
    if (first < n) load_strip(rows, a + k, lda, n, first);
    loads_done();
    __syncthreads();
    int bad = LEAF;
#pragma unroll 1
    for (int o = 0; o < LEAF; o += 32) {
        if (t < LEAF - o) {
            const int found = factor_columns(s, o, diagonal, columns[t >> 5]);
            if (found < 32) bad = minimum(bad, o + found);
        } else {
            __syncthreads();  // the one in factor_columns
        }
        __syncthreads();
        if (o == 0) update_leaf<96>(s);
        if (o == 32) update_leaf<64>(s);
        if (o == 64) update_leaf<32>(s);
    }
    if (blockIdx.x == gridDim.x - 1) {
        if (t == 0 && bad < LEAF) atomicMin(failed, (int)k + bad);
        const int c = t % LEAF;
#pragma unroll 8
        for (int i = t / LEAF; i < LEAF; i += LEAF_THREADS / LEAF)
            blocks[(k + i) * LEAF + c] = c < i ? s[i][c] : c == i ? diagonal[i] : real(0);
        return;
    }
    for (index_t row0 = first; row0 < n; row0 += (index_t)(gridDim.x - 1) * ROWS) {
        if (row0 > first) {
            __syncthreads();
            load_strip(rows, a + k, lda, n, row0);
            loads_done();
            __syncthreads();
        }
        leaf_t* own = rows + 4 * (t >> 5);
        solve_rows(s, own);
        const index_t row = row0 + 4 * (t >> 5);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int o = 0; o < LEAF; o += 32)
                if (row + i < n) a[(row + i) * lda + k + o + (t & 31)] = own[i][o + (t & 31)];
    }
}

// Columns start..stop of a, from row `start` down: the square on the diagonal goes into q, from its column `start` on,
// and the rows below it into `below`. Zeros take their place. Grid: one block for each of these rows.
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

// L from the strips in a and the diagonal blocks, with zeros above; l may be a. Grid: (n, ceil(n / STORED)) blocks of 256
// threads.
constexpr int STORED = 1024;  // elements of a row to a block
extern "C" __global__ void __launch_bounds__(256)
store_factor(const real* a, long long lda, long long n, const real* blocks, real* l, long long ldl) {
    const index_t i = blockIdx.x;
#pragma unroll
    for (int q = 0; q < STORED; q += 256) {
        const index_t j = (index_t)blockIdx.y * STORED + q + threadIdx.x;
        if (j < n) l[i * ldl + j] = j > i ? real(0) : j / LEAF == i / LEAF ? blocks[i * LEAF + j % LEAF] : a[i * lda + j];
    }
}

// x[i][j] = x[j][i] = a[i][j] for i >= j; x may be a. `overflow` becomes 0 if one of them is not finite. Grid: (t, t) for
// t = ceil(n / TILE) tiles a side, blocks of (TILE, 8) threads.
extern "C" __global__ void __launch_bounds__(256)
mirror(const real* a, long long lda, long long n, real* x, long long ldx, int* overflow) {
    if (blockIdx.x > blockIdx.y) return;
    __shared__ real tile[TILE][TILE + 1];
    const index_t i0 = (index_t)blockIdx.y * TILE, j0 = (index_t)blockIdx.x * TILE;
    for (int i = threadIdx.y; i < TILE; i += 8)
        if (i0 + i < n && j0 + threadIdx.x <= i0 + i) {
            const real value = a[(i0 + i) * lda + j0 + threadIdx.x];
            if (!isfinite(value)) *overflow = 0;
            tile[i][threadIdx.x] = value;
            if (x != a) x[(i0 + i) * ldx + j0 + threadIdx.x] = value;
        }
    __syncthreads();
    for (int i = threadIdx.y; i < TILE; i += 8) {
        const index_t row = j0 + i, column = i0 + threadIdx.x;
        if (column < n && row < column) x[row * ldx + column] = tile[threadIdx.x][i];
    }
}
