// Householder QR of a stack of small matrices, one block of threads for each matrix, in one launch: for deblur/linalg/qr_gpu.py.
//
// The results and the number of operations are those of qr.cu, by panels of SMALL columns.
//
// The simple version has a launch for each column of all matrices. What each step gains:
//   - A whole matrix is in one block's shared memory, and all work in one launch: a stack of matrices fills the GPU.
//   - Panels: the columns on the right are updated once for each panel, by products.
//   - Q replaces V, from the last panel to the first, so no other memory is needed.
//
//   qr_batched_*   one matrix for each block. `shared` variants hold the matrix in shared memory, `global` ones in the
//                  output Q (which the L2 cache holds). grid = matrices, block = 64, 128 or 256; rows <= block * ROWS.
//
// Bytes: each matrix once in, Q and R once out.

#include "cluster.cuh"
#include "qr_reflections.cuh"

extern __shared__ __align__(16) unsigned char memory[];

constexpr int SMALL = 16;  // columns of a panel
constexpr int V_DISTANCE = SMALL + VECTOR;  // between rows of V in shared memory: aligned, and in different banks
constexpr int BANKS = REAL_IS_FLOAT ? 32 : 16;

// Bytes of shared memory of `factor_one`, in the order of its use; `WHOLE`: including the matrix.
constexpr int SCRATCH_BYTES = SMALL * (3 * MAX_WARPS + 4 + SMALL + 1) * sizeof(real);
static_assert(sizeof(PanelScratch<SMALL, 1>) == SCRATCH_BYTES, "no gaps in PanelScratch");
template <int ROWS, int COLUMNS, bool WHOLE> constexpr int FACTOR_BYTES = SCRATCH_BYTES
    + (((ROWS < COLUMNS ? ROWS : COLUMNS) + SMALL - 1) / SMALL * SMALL * SMALL
       + (ROWS > SMALL ? ROWS : SMALL) * V_DISTANCE + SMALL * SMALL) * sizeof(real)
    + (COLUMNS + 3) / 4 * 4 * 4
    + (WHOLE ? ROWS * ((COLUMNS + BANKS - 9) / BANKS * BANKS + 8) * sizeof(real) : 0);

// C <- C - V T V'C, or with T' (TRANSPOSE), for C of `rows` by `columns`. A warp takes eight columns at a time. Lane c + 8g
// has column c and rows g, g + 4, g + 8, ... It keeps the column's 16 products in registers, and no barrier is
// needed inside.
template <bool TRANSPOSE>
__device__ __forceinline__ void apply_block(real* c, index_t ldc, int rows, int columns, const real* v, const real* t) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int first = warp * 8; first < columns; first += warps * 8) {
        const int column = first + lane % 8;
        const bool inside = column < columns;
        real* const mine = c + (inside ? column : first);
        real w[SMALL];
        UNROLL for (int q = 0; q < SMALL; ++q) w[q] = 0;
#pragma unroll 4
        for (int r = lane / 8; r < rows; r += 4) {
            const real x = mine[r * ldc];
            real v_row[SMALL];
            load_row(v_row, v + r * V_DISTANCE);
            UNROLL for (int q = 0; q < SMALL; ++q) w[q] = multiply_add(v_row[q], x, w[q]);
        }
        UNROLL for (int q = 0; q < SMALL; ++q) {
            w[q] += __shfl_xor_sync(FULL_WARP, w[q], 8);
            w[q] += __shfl_xor_sync(FULL_WARP, w[q], 16);
        }
        if (TRANSPOSE) {
            UNROLL for (int i = SMALL - 1; i >= 0; --i) {
                real sum = 0;
                UNROLL for (int j = 0; j <= i; ++j) sum = multiply_add(t[j * SMALL + i], w[j], sum);
                w[i] = sum;
            }
        } else {
            UNROLL for (int i = 0; i < SMALL; ++i) {
                real sum = 0;
                UNROLL for (int j = i; j < SMALL; ++j) sum = multiply_add(t[i * SMALL + j], w[j], sum);
                w[i] = sum;
            }
        }
        if (inside) {
#pragma unroll 4
            for (int r = lane / 8; r < rows; r += 4) {
                real v_row[SMALL], sum = 0;  // summed separately first, so that C is rounded once for each panel, not each column
                load_row(v_row, v + r * V_DISTANCE);
                UNROLL for (int q = 0; q < SMALL; ++q) sum = multiply_add(v_row[q], w[q], sum);
                mine[r * ldc] -= sum;
            }
        }
        __syncwarp();
    }
}

struct Stack {
    const real* a;
    real* q;
    real* r;
    int rows, columns, want_q;
};

template <int ROWS, bool SHARED> __device__ __forceinline__ void factor_one(const Stack& stack) {
    const int rows = stack.rows, columns = stack.columns;
    const int k_all = minimum(rows, columns), panels = (k_all + SMALL - 1) / SMALL;
    const int threads = blockDim.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = threads / 32;
    auto& scratch = *reinterpret_cast<PanelScratch<SMALL, 1>*>(memory);
    real* const t_all = reinterpret_cast<real*>(memory + sizeof(scratch));
    real* const v = t_all + panels * SMALL * SMALL;
    real* const product = v + maximum(rows, SMALL) * V_DISTANCE;
    int* const exponent = reinterpret_cast<int*>(product + SMALL * SMALL);
    real* const matrix_shared = reinterpret_cast<real*>(exponent + (columns + 3) / 4 * 4);

    const real* const a = stack.a + index_t(blockIdx.x) * rows * columns;
    real* const r = stack.r + index_t(blockIdx.x) * k_all * columns;
    real* const q = stack.q ? stack.q + index_t(blockIdx.x) * rows * k_all : nullptr;
    // Rows of the matrix are eight banks apart: the 4 rows of 8 entries that a warp accesses are in 32 different banks.
    const int ld = SHARED ? (columns + BANKS - 9) / BANKS * BANKS + 8 : columns;
    real* const matrix = SHARED ? matrix_shared : q;

    for (int c = threadIdx.x; c < columns; c += threads) {
        real largest = 0;
#pragma unroll 8
        for (int i = 0; i < rows; ++i) largest = maximum(largest, absolute(a[index_t(i) * columns + c]));
        exponent[c] = exponent_of(largest);
    }
    __syncthreads();
    for (int i = warp; i < rows; i += warps)
        for (int c = lane; c < columns; c += 32)
            matrix[i * ld + c] = scalbn(a[index_t(i) * columns + c], -exponent[c]);
    __syncthreads();

    for (int p = 0; p < panels; ++p) {
        const int j = p * SMALL, height = rows - j, width = minimum(SMALL, k_all - j);
        real* const corner = matrix + j * ld + j;
        real x[ROWS][SMALL];
        UNROLL for (int i = 0; i < ROWS; ++i) {
            const int row = threadIdx.x + i * threads;
            UNROLL for (int c = 0; c < SMALL; ++c) x[i][c] = row < height && c < width ? corner[row * ld + c] : real(0);
        }
        factor_panel<SMALL, ROWS, 1>(x, threadIdx.x, width, warps, scratch, t_all + p * SMALL * SMALL, SMALL);
        UNROLL for (int i = 0; i < ROWS; ++i) {
            const int row = threadIdx.x + i * threads;
            if (row < height) {
                UNROLL for (int c = 0; c < SMALL; ++c) {
                    if (c < width) corner[row * ld + c] = x[i][c];
                    v[row * V_DISTANCE + c] = c >= width || row < c ? real(0) : row == c ? real(1) : x[i][c];
                }
            }
        }
        __syncthreads();
        apply_block<true>(corner + width, ld, height, columns - j - width, v, t_all + p * SMALL * SMALL);
        __syncthreads();
    }

    for (int i = warp; i < k_all; i += warps)
        for (int c = lane; c < columns; c += 32)
            r[index_t(i) * columns + c] = c >= i ? scalbn(matrix[i * ld + c], exponent[c]) : real(0);
    if (!stack.want_q) return;
    __syncthreads();

    // Q replaces V, from the last panel to the first: the columns to the right of a panel already belong to Q.
    for (int p = panels - 1; p >= 0; --p) {
        const int j = p * SMALL, height = rows - j, width = minimum(SMALL, k_all - j);
        const real* const t = t_all + p * SMALL * SMALL;
        real* const corner = matrix + j * ld + j;
        for (int i = threadIdx.x; i < height * SMALL; i += threads) {
            const int row = i / SMALL, c = i % SMALL;
            v[row * V_DISTANCE + c] = c >= width || row < c ? real(0) : row == c ? real(1) : corner[row * ld + c];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < SMALL * SMALL; i += threads) {  // T V' of the panel's columns
            const int row = i / SMALL, c = i % SMALL;
            real sum = 0;
            if (c < width)
                for (int s = row; s <= c; ++s) sum = multiply_add(t[row * SMALL + s], v[c * V_DISTANCE + s], sum);
            product[i] = sum;
        }
        apply_block<false>(corner + width, ld, height, k_all - j - width, v, t);
        __syncthreads();
        for (int i = threadIdx.x; i < rows * SMALL; i += threads) {
            const int row = i / SMALL - j, c = i % SMALL;
            if (c < width) {
                real sum = 0;
                if (row >= 0)
                    UNROLL for (int s = 0; s < SMALL; ++s)
                        sum = multiply_add(v[row * V_DISTANCE + s], product[s * SMALL + c], sum);
                corner[row * ld + c] = (row == c ? 1 : 0) - sum;
            }
        }
        __syncthreads();
    }
    if (SHARED)
        for (int i = warp; i < rows; i += warps)
            for (int c = lane; c < k_all; c += 32) q[index_t(i) * k_all + c] = matrix[i * ld + c];
}

constexpr int AT_ONCE = REAL_IS_FLOAT ? 2 : 1;  // blocks on a multiprocessor, for variants with few registers

extern "C" __global__ void __launch_bounds__(256, AT_ONCE) qr_batched_shared_1(const Stack s) { factor_one<1, true>(s); }
extern "C" __global__ void __launch_bounds__(256) qr_batched_shared_4(const Stack s) { factor_one<4, true>(s); }
extern "C" __global__ void __launch_bounds__(256, AT_ONCE) qr_batched_global_2(const Stack s) { factor_one<2, false>(s); }
extern "C" __global__ void __launch_bounds__(256) qr_batched_global_4(const Stack s) { factor_one<4, false>(s); }
