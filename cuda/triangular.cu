// GETS, the inverse of a lower triangular matrix: its diagonal blocks. The rest is products, level by level:
// with L11^-1 and L22^-1 known, the block below them becomes -L22^-1 (L21 L11^-1).
//
// Kernels
//   invert_blocks   one block of LEAF_THREADS = 256 threads for each diagonal block of LEAF = 128: its inverse
//   put_blocks      256 threads a diagonal block: from one after another to their places
//   clear_upper     256 threads a row: zeros above the diagonal
//   check_lower     256 threads a row: whether all on and below the diagonal is finite
// Operations: LEAF^2 / 3 an element of the diagonal blocks; n^3 / 3 in all. Bytes: the lower halves of the blocks in,
// the whole blocks out. Dynamic shared memory: LEAF * LEAF_PITCH elements.
// Source: the GETS kernel of the thesis, by blocks; N. J. Higham, Accuracy and Stability, 2nd ed., sec. 14.2.

extern __shared__ vector_t memory[];

// x[b] = inverse of the b-th diagonal block of l; x holds LEAF x LEAF blocks one after another, each filled up with
// zeros above the diagonal and with the identity beyond the end of l. `failed` becomes the least index of a diagonal
// element that has no reciprocal.
extern "C" __global__ void __launch_bounds__(256, 1)
invert_blocks(const real* l, long long ldl, long long n, real* x, int* failed) {
    leaf_t* s = (leaf_t*)memory;
    const index_t k = (index_t)blockIdx.x * LEAF;
    const int m = (int)minimum<index_t>(LEAF, n - k);
    leaf_load(s, l + k * ldl + k, ldl, m);
    __syncthreads();
    if (threadIdx.x < LEAF) {
        const int i = threadIdx.x;
        const real inverse = real(1) / s[i][i];
        if (!isfinite(s[i][i]) || !isfinite(inverse)) atomicMin(failed, (int)k + i);
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

// The diagonal blocks of a from `blocks`, as invert_blocks writes them. Grid: one block of 256 threads each.
extern "C" __global__ void __launch_bounds__(256)
put_blocks(real* a, long long lda, long long n, const real* blocks) {
    const index_t k = (index_t)blockIdx.x * LEAF;
    const int c = threadIdx.x % LEAF;
    for (int i = threadIdx.x / LEAF; i < LEAF; i += 256 / LEAF)
        if (k + i < n && k + c < n) a[(k + i) * lda + k + c] = blocks[(k + i) * LEAF + c];
}

// `overflow` becomes 0 if an element on or below the diagonal is not finite. Grid: n blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(256) check_lower(const real* a, long long lda, int* overflow) {
    const index_t i = blockIdx.x;
    for (index_t j = threadIdx.x; j <= i; j += 256)
        if (!isfinite(a[i * lda + j])) *overflow = 0;
}
