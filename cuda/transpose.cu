// Transpose of a row-major matrix, and the mirror of its lower triangle; any size and leading dimension.
//
// Kernels (256 threads; one block for each square tile of 256 bytes a side, numbered in one dimension by rows of tiles:
//          float32 64 x 64 elements by 64 x 4 threads, float64 32 x 32 by 32 x 8)
//   transpose            b = a', out of place, one block for each tile of a
//   transpose_in_place   a = a', square: the block of an upper tile swaps it with its mirror image
//   transpose_mirror     the strictly upper triangle becomes the transpose of the lower one
// Operations: none. Bytes: every element is read once and written once (mirror: half of them), in rows of
//   256 bytes on both sides, because a tile is transposed in shared memory. The simple version, b[j][i] = a[i][j], accesses
//   one of the two with a stride of a row, and moves 32 bytes for each element there. A tile's rows are one element longer
//   than needed, so that its columns are in different banks; swapping two tiles at once needs no second matrix.
// Source: M. Scarpino, "OpenCL in Action", Manning 2012, chapter 12 (tile pairs over the upper triangle).

constexpr int SIDE = 256 / sizeof(real), ROWS = 256 / SIDE;

// Copy the tile with the given corner to shared memory, and back; elements outside the matrix are skipped.
__device__ inline void read_tile(real (&tile)[SIDE][SIDE + 1], const real* x, index_t ld, index_t row0, index_t col0,
                                 index_t rows, index_t cols) {
    const index_t col = col0 + threadIdx.x;
    UNROLL for (int i = threadIdx.y; i < SIDE; i += ROWS)
        if (row0 + i < rows && col < cols) tile[i][threadIdx.x] = x[(row0 + i) * ld + col];
}

// Writes the transpose of a tile; with `above` only its elements strictly above the diagonal.
__device__ inline void write_turned(const real (&tile)[SIDE][SIDE + 1], real* x, index_t ld, index_t row0,
                                    index_t col0, index_t rows, index_t cols, bool above = false) {
    const index_t col = col0 + threadIdx.x;
    UNROLL for (int i = threadIdx.y; i < SIDE; i += ROWS)
        if (row0 + i < rows && col < cols && (!above || col > row0 + i))
            x[(row0 + i) * ld + col] = tile[threadIdx.x][i];
}

extern "C" __global__ void __launch_bounds__(256)
transpose(long long rows, long long cols, const real* a, long long lda, real* b, long long ldb) {
    __shared__ real tile[SIDE][SIDE + 1];
    const index_t across = (cols + SIDE - 1) / SIDE;
    const index_t row0 = blockIdx.x / across * SIDE, col0 = blockIdx.x % across * SIDE;
    read_tile(tile, a, lda, row0, col0, rows, cols);
    __syncthreads();
    write_turned(tile, b, ldb, col0, row0, cols, rows);
}

extern "C" __global__ void __launch_bounds__(256) transpose_in_place(long long n, real* a, long long lda) {
    __shared__ real upper[SIDE][SIDE + 1], lower[SIDE][SIDE + 1];
    const index_t across = (n + SIDE - 1) / SIDE;
    const index_t row0 = blockIdx.x / across * SIDE, col0 = blockIdx.x % across * SIDE;
    if (col0 < row0) return;  // the block of the mirror image does it
    read_tile(upper, a, lda, row0, col0, n, n);
    read_tile(lower, a, lda, col0, row0, n, n);
    __syncthreads();
    write_turned(upper, a, lda, col0, row0, n, n);
    if (col0 > row0) write_turned(lower, a, lda, row0, col0, n, n);
}

extern "C" __global__ void __launch_bounds__(256) transpose_mirror(long long n, real* a, long long lda) {
    __shared__ real lower[SIDE][SIDE + 1];
    const index_t across = (n + SIDE - 1) / SIDE;
    const index_t row0 = blockIdx.x / across * SIDE, col0 = blockIdx.x % across * SIDE;
    if (col0 > row0) return;
    read_tile(lower, a, lda, row0, col0, n, n);
    __syncthreads();
    write_turned(lower, a, lda, col0, row0, n, n, true);
}
