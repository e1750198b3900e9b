// Cholesky factorisation A = L L', lower triangle: a diagonal block and the strip below it in one launch. The thesis's
// third and fourth steps, the updates of the diagonal and of everything below, are one product over all tiles.
//
// Kernels
//   factor_panel    every block of LEAF_THREADS = 256 threads factors the LEAF x LEAF diagonal block for itself, which
//                   costs less than waiting for one block to do it and another launch to begin; inverts it; and then
//                   multiplies its own rows of the strip by the inverse, 32 at a time
//   mirror          the upper triangle as a copy of the lower, tile by tile through shared memory
// Operations of factor_panel: 2 LEAF^3 / 3 once (a block) and LEAF^2 a row of the strip; n^3 / 3 in all with the
// products. Bytes: the strip in and out. Dynamic shared memory: (LEAF + 32) * LEAF_PITCH elements.
// Source: the four-step blocked Cholesky of the thesis; inverted diagonal blocks as in N. J. Higham, Accuracy and
// Stability, 2nd ed., sec. 14.2.

extern __shared__ vector_t memory[];

constexpr int ROWS = 32;  // of the strip, at a time

// Column by column in the registers of one warp, lane i with row i of the 32 x 32 block at (o, o). Returns the first
// column whose pivot is not positive and finite, or 32. The diagonal of s receives 1 / L[i][i].
__device__ __forceinline__ int factor_32(leaf_t* s, int o, real* diagonal) {
    const int lane = threadIdx.x & 31;
    real x[32];
#pragma unroll
    for (int c = 0; c < 32; c += VECTOR) {
        const vector_t v = *(const vector_t*)&s[o + lane][o + c];  // above the diagonal: never used
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) x[c + i] = v.x[i];
    }
    int bad = 32;
    real own = 1, own_inverse = 1;
#pragma unroll
    for (int j = 0; j < 32; ++j) {
        const real pivot = __shfl_sync(FULL_WARP, x[j], j);
        const bool usable = pivot > real(0) && isfinite(pivot);
        if (!usable && bad == 32) bad = j;
        const real root = usable ? square_root(pivot) : real(1);
        const real inverse = real(1) / root;
        if (lane == j) own = root, own_inverse = inverse;
        x[j] *= inverse;
#pragma unroll
        for (int c = j + 1; c < 32; ++c) x[c] = multiply_add(-x[j], __shfl_sync(FULL_WARP, x[j], c), x[c]);
    }
#pragma unroll
    for (int c = 0; c < 32; ++c)
        if (c < lane) s[o + lane][o + c] = x[c];
    s[o + lane][o + lane] = own_inverse;
    diagonal[o + lane] = own;
    return bad;
}

// The trailing (LEAF - o) x (LEAF - o) lower triangle at (o, o) less the product of the 32 columns before it, by
// 4 x 4 tiles.
__device__ __forceinline__ void update_leaf(leaf_t* s, int o) {
    const int side = (LEAF - o) / 4;
    for (int t = threadIdx.x; t < side * (side + 1) / 2; t += LEAF_THREADS) {
        int ti = (int)((sqrtf(8.0f * t + 1.0f) - 1.0f) * 0.5f);
        while ((ti + 1) * (ti + 2) / 2 <= t) ++ti;
        while (ti * (ti + 1) / 2 > t) --ti;
        const int i0 = o + 4 * ti, c0 = o + 4 * (t - ti * (ti + 1) / 2);
        real x[4][4] = {};
#pragma unroll 2
        for (int k = o - 32; k < o; k += VECTOR) {
            vector_t left[4], right[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) left[i] = *(const vector_t*)&s[i0 + i][k];
#pragma unroll
            for (int c = 0; c < 4; ++c) right[c] = *(const vector_t*)&s[c0 + c][k];
#pragma unroll
            for (int v = 0; v < VECTOR; ++v)
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int c = 0; c < 4; ++c) x[i][c] = multiply_add(left[i].x[v], right[c].x[v], x[i][c]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int c = 0; c < 4; ++c)
                if (i0 + i >= c0 + c) s[i0 + i][c0 + c] -= x[i][c];
    }
}

// rows[i][c] = sum over k <= c of rows[i][k] L^-1[c][k], which is s[k][c]: 4 rows by 4 columns (32 apart) a thread.
template <int SEGMENT> __device__ __forceinline__ void add_segment(const leaf_t* s, const leaf_t* rows, real (&x)[4][4]) {
    const int lane = threadIdx.x & 31, i0 = 4 * (threadIdx.x >> 5);
#pragma unroll 2
    for (int k = 32 * SEGMENT; k < 32 * (SEGMENT + 1); k += VECTOR) {
        vector_t left[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = *(const vector_t*)&rows[i0 + i][k];
#pragma unroll
        for (int v = 0; v < VECTOR; ++v)
#pragma unroll
            for (int q = SEGMENT; q < 4; ++q) {
                const int c = lane + 32 * q;
                const real right = q > SEGMENT || k + v <= c ? s[k + v][c] : real(0);
#pragma unroll
                for (int i = 0; i < 4; ++i) x[i][q] = multiply_add(left[i].x[v], right, x[i][q]);
            }
    }
}

// The diagonal block at (k, k) and the rows below it. A's diagonal block stays, for other blocks may still have to read
// it: put_blocks of triangular.cu brings L's to its place in the end. `blocks` and `inverses` receive the b-th = (k / LEAF)-th
// diagonal block of L and its inverse, LEAF x LEAF each. `failed` becomes the least index of a pivot that is not
// positive and finite. Grid: up to one block for every ROWS rows below, at least one.
extern "C" __global__ void __launch_bounds__(256, 1)
factor_panel(real* a, long long lda, long long n, long long k, real* blocks, real* inverses, int* failed) {
    leaf_t* s = (leaf_t*)memory;
    leaf_t* rows = s + LEAF;
    __shared__ real diagonal[LEAF];
    const int t = threadIdx.x, m = (int)minimum<index_t>(LEAF, n - k);
    leaf_load(s, a + k * lda + k, lda, m);
    __syncthreads();
    for (int o = 0; o < LEAF; o += 32) {
        if (t < 32) {
            const int bad = factor_32(s, o, diagonal);
            if (bad < 32 && t == 0 && blockIdx.x == 0) atomicMin(failed, (int)k + o + bad);
        }
        __syncthreads();
        if (t < LEAF - o) {  // the first warp inverts the 32 x 32 block, the others have a row below each
            if (t < 32) {
                leaf_invert_32(s, o);
            } else {
                real y[32];
#pragma unroll
                for (int c = 0; c < 32; c += VECTOR) {
                    const vector_t v = *(const vector_t*)&s[o + t][o + c];
#pragma unroll
                    for (int i = 0; i < VECTOR; ++i) y[c + i] = v.x[i];
                }
                leaf_forward(s, o, y);
#pragma unroll
                for (int c = 0; c < 32; c += VECTOR) {
                    vector_t v;
#pragma unroll
                    for (int i = 0; i < VECTOR; ++i) v.x[i] = y[c + i];
                    *(vector_t*)&s[o + t][o + c] = v;
                }
            }
        }
        __syncthreads();
        if (o + 32 < LEAF) update_leaf(s, o + 32);
        __syncthreads();
    }
    leaf_combine<32>(s);
    leaf_combine<64>(s);

    if (blockIdx.x == 0) {
        const index_t at = k / LEAF * LEAF * LEAF;
        leaf_store_inverse(s, inverses + at, LEAF, LEAF);
        const int c = t % LEAF;
#pragma unroll 4
        for (int i = t / LEAF; i < LEAF; i += LEAF_THREADS / LEAF)
            blocks[at + i * LEAF + c] = c < i ? s[i][c] : c == i ? diagonal[i] : real(0);
    }
    const int lane = t & 31, i0 = 4 * (t >> 5);
    for (index_t row0 = k + LEAF + (index_t)blockIdx.x * ROWS; row0 < n; row0 += (index_t)gridDim.x * ROWS) {
#pragma unroll 8
        for (int i = t / LEAF; i < ROWS; i += LEAF_THREADS / LEAF)
            rows[i][t % LEAF] = row0 + i < n ? a[(row0 + i) * lda + k + t % LEAF] : real(0);
        __syncthreads();
        real x[4][4] = {};
        add_segment<0>(s, rows, x);
        add_segment<1>(s, rows, x);
        add_segment<2>(s, rows, x);
        add_segment<3>(s, rows, x);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int q = 0; q < 4; ++q)
                if (row0 + i0 + i < n) a[(row0 + i0 + i) * lda + k + lane + 32 * q] = x[i][q];
        __syncthreads();
    }
}

// a[j][i] = a[i][j] for i > j; `overflow` becomes 0 if one of them is not finite. Grid: (t, t) for t = ceil(n / 32)
// tiles a side, blocks of (32, 8) threads.
extern "C" __global__ void __launch_bounds__(256) mirror(real* a, long long lda, long long n, int* overflow) {
    if (blockIdx.x > blockIdx.y) return;
    __shared__ real tile[32][33];
    const index_t i0 = (index_t)blockIdx.y * 32, j0 = (index_t)blockIdx.x * 32;
    for (int i = threadIdx.y; i < 32; i += 8)
        if (i0 + i < n && j0 + threadIdx.x <= i0 + i) {
            const real x = a[(i0 + i) * lda + j0 + threadIdx.x];
            if (!isfinite(x)) *overflow = 0;
            tile[i][threadIdx.x] = x;
        }
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8) {
        const index_t row = j0 + i, column = i0 + threadIdx.x;
        if (column < n && row < column) a[row * lda + column] = tile[threadIdx.x][i];
    }
}
