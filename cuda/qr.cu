// Householder QR of large matrices, panel by panel: the kernels of deblur/linalg/qr_gpu.py. Stacks of small matrices are in
// qr_batched.cu.
//
// The algorithm: a panel of NB columns is reduced by reflections I - V T V' (qr_reflections.cuh). They are applied to the
// columns on the right with T' and, from the last panel to the first, to the identity with T, which gives Q.
//
// The simple version computes for each column its norm, its inner products with all columns on its right, and their update:
// the whole matrix is read twice for each column, in two launches. What each step gains:
//   - Panels: the columns on the right are updated once for each panel, by products.
//   - The panel is in the registers of a block, or of a cluster of up to 16 blocks.
//   - Several panels are combined before the far columns are updated (qr_merge_t): wider products run faster.
//
//   qr_panel_C_R   one launch for each panel, in a cluster of C blocks of 256 threads with R rows each;
//                  grid = (C, 1, matrices); rows <= 256 * C * R. 16_8 has panels of NARROW, the others of WIDE columns.
//   qr_update_*    C <- (I - V T V') C or with T'. grid = (CLUSTER, columns / TILE, matrices), block = UPDATE_THREADS.
//   qr_exponents, qr_scale, qr_merge_t   the scales of columns; columns times their scales; T of several panels.
//
// Operations: 2mn^2 - 2n^3/3 for m >= n, and as much again to form Q. Bytes: each pass over a trailing matrix reads it
// twice and writes it once.
// Source: R. Schreiber, C. Van Loan, SIAM J. Sci. Stat. Comput. 10 (1989) 53; LAPACK's geqrt and orgqr.

#include "cluster.cuh"
#include "qr_reflections.cuh"

extern __shared__ __align__(16) unsigned char memory[];

constexpr int WIDE = REAL_IS_FLOAT ? 32 : 16;  // columns of a panel, as many as the registers hold
constexpr int NARROW = WIDE / 2;               // columns of the tallest panels
constexpr int UPDATE_THREADS = REAL_IS_FLOAT ? 512 : 256;
constexpr int TILE = 16;  // columns for each cluster of qr_update_*

// V and T of the columns in a, which are replaced by R, for each matrix; matrices are `stride` apart.
struct Panel {
    real* a;
    long long lda, stride_a;
    real* v;
    long long ldv, stride_v;
    real* t;
    long long ldt, stride_t;
    int rows, columns;
};

template <int NB, int ROWS, int CLUSTER> __device__ __forceinline__ void panel(const Panel& g) {
    __shared__ PanelScratch<NB, CLUSTER> scratch;
    // A thread works on whole rows, but memory is read along them: each warp transposes its rows in its own tile.
    __shared__ real tiles[MAX_WARPS][32][NB + 1];
    real (&tile)[32][NB + 1] = tiles[threadIdx.x / 32];
    const int all = CLUSTER * 256, first = blockIdx.x * 256 + threadIdx.x;
    const int lane = threadIdx.x % 32, c = lane % NB;
    const index_t lda = g.lda, ldv = g.ldv;
    const int rows = g.rows, columns = g.columns;
    real* const a = g.a + blockIdx.z * g.stride_a;
    real* const v = g.v + blockIdx.z * g.stride_v;
    real x[ROWS][NB];
    UNROLL for (int i = 0; i < ROWS; ++i) {
#pragma unroll 4
        for (int r = lane / NB; r < 32; r += 32 / NB) {
            const int row = first - lane + r + i * all;
            tile[r][c] = row < rows && c < columns ? a[row * lda + c] : real(0);
        }
        __syncwarp();
        UNROLL for (int p = 0; p < NB; ++p) x[i][p] = tile[lane][p];
        __syncwarp();
    }
    factor_panel<NB, ROWS, CLUSTER>(x, first, columns, MAX_WARPS, scratch, g.t + blockIdx.z * g.stride_t, g.ldt);
    UNROLL for (int i = 0; i < ROWS; ++i) {
        UNROLL for (int p = 0; p < NB; ++p) tile[lane][p] = x[i][p];
        __syncwarp();
#pragma unroll 4
        for (int r = lane / NB; r < 32; r += 32 / NB) {
            const int row = first - lane + r + i * all;
            if (row < rows) {
                const real entry = tile[r][c];
                if (c < columns) a[row * lda + c] = row <= c ? entry : real(0);
                v[row * ldv + c] = c >= columns || row < c ? real(0) : row == c ? real(1) : entry;
            }
        }
        __syncwarp();
    }
}

// C <- (I - V T V') C, or with T' (transpose), for each matrix.
struct Update {
    real* c;
    long long ldc, stride_c;
    const real* v;
    long long ldv, stride_v;
    const real* t;
    long long ldt, stride_t;
    int rows, columns, transpose;
};

// The inner products V'C of 16 columns: in registers by row groups, over the warp by exchange, over the block and the
// cluster through shared memory. Lane c + 8g has columns c and c + 8, and every 4th row of its warp's rows.
template <int NB, int CLUSTER> __device__ __forceinline__ void update(const Update& g) {
    constexpr int THREADS = UPDATE_THREADS, WARPS = THREADS / 32;
    __shared__ real partial[WARPS][NB][TILE];
    __shared__ real block_sum[NB][TILE];
    __shared__ real sum[NB][TILE];
    __shared__ real weight[NB][TILE];
    __shared__ real factor[NB][NB + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 8;
    const int rank = CLUSTER == 1 ? 0 : cluster_rank();
    const index_t ldc = g.ldc, ldv = g.ldv;
    const int rows = g.rows, columns = g.columns;
    real* const c = g.c + blockIdx.z * g.stride_c;
    const real* const v = g.v + blockIdx.z * g.stride_v;
    const real* const t = g.t + blockIdx.z * g.stride_t;
    const int column = blockIdx.y * TILE + lane % 8;
    const bool has_first = column < columns, has_second = column + 8 < columns;
    const int share = (rows + CLUSTER - 1) / CLUSTER;
    const int begin = rank * share + warp * 4 + group, end = minimum(rows, (rank + 1) * share);

    for (int i = threadIdx.x; i < NB * NB; i += THREADS) {
        const int p = i / NB, q = i % NB;
        factor[p][q] = g.transpose ? t[q * g.ldt + p] : t[p * g.ldt + q];
    }
    {
        real w[2 * NB];
        UNROLL for (int q = 0; q < 2 * NB; ++q) w[q] = 0;
#pragma unroll 2
        for (int row = begin; row < end; row += 4 * WARPS) {
            const real first = has_first ? c[row * ldc + column] : real(0);
            const real second = has_second ? c[row * ldc + column + 8] : real(0);
            real v_row[NB];
            load_row(v_row, v + row * ldv);
            UNROLL for (int q = 0; q < NB; ++q) {
                w[q] = multiply_add(v_row[q], first, w[q]);
                w[NB + q] = multiply_add(v_row[q], second, w[NB + q]);
            }
        }
        // Of the four groups, the odd ones keep the second column, and the upper two the upper half of V's columns.
        const bool keeps_second = group & 1, keeps_upper = group & 2;
        UNROLL for (int q = 0; q < NB; ++q) {
            const real give = keeps_second ? w[q] : w[NB + q];
            w[q] = (keeps_second ? w[NB + q] : w[q]) + __shfl_xor_sync(FULL_WARP, give, 8);
        }
        UNROLL for (int q = 0; q < NB / 2; ++q) {
            const real give = keeps_upper ? w[q] : w[q + NB / 2];
            w[q] = (keeps_upper ? w[q + NB / 2] : w[q]) + __shfl_xor_sync(FULL_WARP, give, 16);
            partial[warp][q + (keeps_upper ? NB / 2 : 0)][lane % 8 + (keeps_second ? 8 : 0)] = w[q];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < NB * TILE; i += THREADS) {
        real s = 0;
        UNROLL for (int j = 0; j < WARPS; ++j) s += partial[j][i / TILE][i % TILE];
        (CLUSTER == 1 ? sum : block_sum)[i / TILE][i % TILE] = s;
    }
    if constexpr (CLUSTER > 1) {
        cluster_barrier();
        for (int i = threadIdx.x; i < NB * TILE; i += THREADS) {
            real s = 0;
            UNROLL for (int j = 0; j < CLUSTER; ++j) s += remote_load(&block_sum[i / TILE][i % TILE], j);
            sum[i / TILE][i % TILE] = s;
        }
        cluster_barrier();  // no block may end while another still reads its sums
    } else {
        __syncthreads();
    }
    for (int i = threadIdx.x; i < NB * TILE; i += THREADS) {
        real s = 0;
        UNROLL for (int q = 0; q < NB; ++q) s = multiply_add(factor[i / TILE][q], sum[q][i % TILE], s);
        weight[i / TILE][i % TILE] = s;
    }
    __syncthreads();
    real w[2 * NB];
    UNROLL for (int q = 0; q < NB; ++q) {
        w[q] = weight[q][lane % 8];
        w[NB + q] = weight[q][lane % 8 + 8];
    }
#pragma unroll 2
    for (int row = begin; row < end; row += 4 * WARPS) {
        real v_row[NB], first = 0, second = 0;  // summed separately first, so that C is rounded once for each panel
        load_row(v_row, v + row * ldv);
        UNROLL for (int q = 0; q < NB; ++q) {
            first = multiply_add(v_row[q], w[q], first);
            second = multiply_add(v_row[q], w[NB + q], second);
        }
        if (has_first) c[row * ldc + column] -= first;
        if (has_second) c[row * ldc + column + 8] -= second;
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) qr_panel_1_2(const Panel g) { panel<WIDE, 2, 1>(g); }
extern "C" __global__ void __launch_bounds__(256, 1) qr_panel_1_4(const Panel g) { panel<WIDE, 4, 1>(g); }
extern "C" __global__ void __launch_bounds__(UPDATE_THREADS) qr_update_1(const Update g) { update<WIDE, 1>(g); }
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(8, 1, 1)
qr_panel_8_2(const Panel g) { panel<WIDE, 2, 8>(g); }
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(16, 1, 1)
qr_panel_16_2(const Panel g) { panel<WIDE, 2, 16>(g); }
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(16, 1, 1)
qr_panel_16_4(const Panel g) { panel<WIDE, 4, 16>(g); }
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(16, 1, 1)
qr_panel_16_5(const Panel g) { panel<WIDE, 5, 16>(g); }
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(16, 1, 1)
qr_panel_16_8(const Panel g) { panel<NARROW, 8, 16>(g); }
extern "C" __global__ void __launch_bounds__(UPDATE_THREADS) __cluster_dims__(8, 1, 1)
qr_update_8(const Update g) { update<WIDE, 8>(g); }
extern "C" __global__ void __launch_bounds__(UPDATE_THREADS) __cluster_dims__(16, 1, 1)
qr_update_16(const Update g) { update<WIDE, 16>(g); }
extern "C" __global__ void __launch_bounds__(UPDATE_THREADS) __cluster_dims__(16, 1, 1)
qr_update_narrow_16(const Update g) { update<NARROW, 16>(g); }
#endif

// For each column the exponent e with largest entry / 2^e in [1/2, 1), by atomic maximum over row chunks into
// `exponent`, which starts at NO_EXPONENT. grid = (columns / 32, row chunks, matrices), block = (32, 8).
constexpr int NO_EXPONENT = -1000000;
extern "C" __global__ void __launch_bounds__(256) qr_exponents(const real* a, int* exponent, int rows, int columns) {
    __shared__ real part[8][32];
    const int c = blockIdx.x * 32 + threadIdx.x;
    a += index_t(blockIdx.z) * rows * columns;
    real largest = 0;
    if (c < columns) {
#pragma unroll 4
        for (int i = blockIdx.y * 8 + threadIdx.y; i < rows; i += gridDim.y * 8)
            largest = maximum(largest, absolute(a[index_t(i) * columns + c]));
    }
    part[threadIdx.y][threadIdx.x] = largest;
    __syncthreads();
    if (threadIdx.y == 0 && c < columns) {
        for (int i = 1; i < 8; ++i) largest = maximum(largest, part[i][threadIdx.x]);
        if (largest > 0) atomicMax(exponent + index_t(blockIdx.z) * columns + c, exponent_of(largest));
    }
}

// y = x with column c multiplied by 2^(sign * exponent[c]); y is contiguous. Grid and block as above.
extern "C" __global__ void __launch_bounds__(256)
qr_scale(const real* x, long long ldx, long long stride_x, const int* exponent, real* y, int rows, int columns, int sign) {
    const int c = blockIdx.x * 32 + threadIdx.x;
    if (c >= columns) return;
    x += blockIdx.z * stride_x;
    y += index_t(blockIdx.z) * rows * columns;
    const int found = exponent[index_t(blockIdx.z) * columns + c], e = found == NO_EXPONENT ? 0 : sign * found;
#pragma unroll 4
    for (int i = blockIdx.y * 8 + threadIdx.y; i < rows; i += gridDim.y * 8)
        y[index_t(i) * columns + c] = scalbn(x[i * ldx + c], e);
}

// T of `width` columns of V, whose panels of `inner` columns already have theirs on the diagonal, from the upper
// triangle of V'V. With T11 and T22 known, T12 = -T11 (V1'V2) T22, for all pairs of neighbours at once, then for pairs of
// the results. `width` is `inner` times a power of two. grid = (1, 1, matrices), block = MERGE_THREADS.
constexpr int MERGED = 128;                    // largest `width`
constexpr int MERGE_AREA = MERGED * MERGED / 4;  // largest number of elements of one factor of all pairs of a step
constexpr int MERGE_BYTES = 3 * MERGE_AREA * sizeof(real);
constexpr int MERGE_THREADS = 256;  // each has 4 x 4 elements of the products

__device__ __forceinline__ void multiply_tile(const real* left, const real* right, int size, real (&sum)[4][4]) {
    UNROLL for (int i = 0; i < 4; ++i)
        UNROLL for (int c = 0; c < 4; ++c) sum[i][c] = 0;
#pragma unroll 4
    for (int k = 0; k < size; ++k, right += size) {
        real row[4];
        load_row(row, right);
        UNROLL for (int i = 0; i < 4; ++i) {
            const real factor = left[i * size + k];
            UNROLL for (int c = 0; c < 4; ++c) sum[i][c] = multiply_add(factor, row[c], sum[i][c]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(MERGE_THREADS) qr_merge_t(real* t, const real* gram, int width, int inner) {
    real* const product = reinterpret_cast<real*>(memory);  // V1'V2 at first
    real* const right = product + MERGE_AREA;
    real* const left = right + MERGE_AREA;
    t += index_t(blockIdx.z) * width * width;
    gram += index_t(blockIdx.z) * width * width;
    for (int size = inner; size < width; size *= 2) {
        const int area = size * size, all = width / (2 * size) * area;
        for (int e = threadIdx.x; e < all; e += MERGE_THREADS) {
            const int first = e / area * 2 * size, i = first + e / size % size, c = first + e % size;
            load_async(product + e, gram + i * width + c + size, true);
            load_async(right + e, t + (i + size) * width + c + size, true);
            load_async(left + e, t + i * width + c, true);
        }
        loads_done();
        __syncthreads();
        const int side = size / 4, pair = threadIdx.x / (side * side);
        const int i = threadIdx.x / side % side * 4, c = threadIdx.x % side * 4;
        const bool works = 16 * int(threadIdx.x) < all;
        real sum[4][4];
        if (works) multiply_tile(product + pair * area + i * size, right + pair * area + c, size, sum);
        __syncthreads();
        if (works)
            UNROLL for (int q = 0; q < 16; ++q) product[pair * area + (i + q / 4) * size + c + q % 4] = sum[q / 4][q % 4];
        __syncthreads();
        if (works) {
            multiply_tile(left + pair * area + i * size, product + pair * area + c, size, sum);
            real* const corner = t + (2 * size * pair + i) * width + 2 * size * pair + size + c;
            UNROLL for (int q = 0; q < 16; ++q) corner[q / 4 * width + q % 4] = -sum[q / 4][q % 4];
        }
        __syncthreads();
    }
}
