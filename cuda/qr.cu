// Householder QR: the kernels behind deblur/linalg/qr_gpu.py.
//
// What is computed. A panel of NB columns is reduced by reflections I - tau v v', gathered as I - V T V' (compact
// WY; Schreiber & Van Loan 1989), applied to the columns on the right with T', and, from the last panel to the
// first, to the identity with T: that is Q. The columns come scaled by powers of two to a largest entry in
// [1/2, 1), which changes no bit of V, T or Q, and keeps every square within range.
//
// The simple version: for each column its norm, its inner products with all columns on its right, and their update: the
// whole matrix through memory twice a column, in two launches. What each step buys:
//   - Panels: the columns on the right are touched once a panel, by products.
//   - The panel in registers, whole rows to a thread, so that a column costs one pass over the registers for all inner
//     products (those with finished columns are what T needs), one reduction with one barrier, and one pass for the
//     update.
//   - A small matrix in one block's shared memory, everything in one launch: a stack of them fills the GPU.
//   - A cluster of up to 16 blocks for a tall panel: sums go straight into the other blocks' shared memory, where they
//     are counted; no block waits for more than the sums.
//   - Several panels gathered before the far columns are touched (qr_merge_t): wider products run faster.
//
//   qr_batched_*   one matrix to a block, everything in one launch, panels of 16. `shared` variants hold the matrix
//                  in shared memory, `global` ones in the output Q (which the L2 cache holds). grid = matrices,
//                  block = 64, 128 or 256 threads; rows <= block * ROWS.
//   qr_panel_C_R   the panel of the large matrices: one launch a panel, in a cluster of C blocks of 256 threads of
//                  R rows; grid = (C, 1, matrices); rows <= 256 * C * R. 16_8 has panels of NARROW, the others of
//                  WIDE columns.
//   qr_update_*    C <- (I - V T V') C or with T'. grid = (CLUSTER, columns / TILE, matrices), block = UPDATE_THREADS.
//   qr_exponents   the largest exponent of each column, and
//   qr_scale       columns times powers of two. grid = (columns / 32, row chunks, matrices), block = (32, 8).
//   qr_merge_t     the T of several neighbouring panels from theirs and V'V. grid = (1, 1, matrices), block = 256.
//
// Operations: 2mn^2 - 2n^3/3 for m >= n, and as much again to form Q. Bytes: each pass over a trailing matrix moves it
// twice from, and once to, where it lives. The kernels with clusters need compute capability 9.0; without them the rows
// of a panel are limited to those of one block.
// Source: R. Schreiber, C. Van Loan, SIAM J. Sci. Stat. Comput. 10 (1989) 53; LAPACK's geqrt and orgqr.

// A call launches few of these kernels.
constexpr bool ALONE = true;

extern __shared__ __align__(16) unsigned char memory[];

constexpr int MAX_WARPS = 8;
constexpr int SMALL = 16;                      // panel width of the batched kernel
constexpr int WIDE = REAL_IS_FLOAT ? 32 : 16;  // of the streaming kernels: what the registers hold
constexpr int NARROW = WIDE / 2;               // for the tallest panels
constexpr int UPDATE_THREADS = REAL_IS_FLOAT ? 512 : 256;
constexpr int TILE = 16;  // columns that one cluster of qr_update_* works on

__device__ __forceinline__ float scale_by_power(float x, int e) { return scalbnf(x, e); }
__device__ __forceinline__ double scale_by_power(double x, int e) { return scalbn(x, e); }
// e with x / 2^e in [1/2, 1); 0 for zero and for what is no number.
__device__ __forceinline__ int exponent_of(float x) { return x > 0 && isfinite(x) ? ilogbf(x) + 1 : 0; }
__device__ __forceinline__ int exponent_of(double x) { return x > 0 && isfinite(x) ? ilogb(x) + 1 : 0; }

// ---------------------------------------------------------------- clusters of blocks (Hopper and later)

__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// Barrier over the cluster; what was written before it, also to other blocks' shared memory, is seen after it.
__device__ __forceinline__ void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ unsigned remote_address(const real* here, unsigned rank) {
    unsigned there = 0;
#if __CUDA_ARCH__ >= 900
    const unsigned local = static_cast<unsigned>(__cvta_generic_to_shared(here));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(local), "r"(rank));
#endif
    return there;
}

// Write x to where `here` lies in the shared memory of the cluster's block `rank`, counted at a barrier object of that
// block: who waits there for so many bytes need wait for nothing else.
__device__ __forceinline__ void remote_send(real* here, unsigned rank, real x, unsigned long long* arrived) {
#if __CUDA_ARCH__ >= 900
    const unsigned there = remote_address(here, rank), counter = remote_address((const real*)arrived, rank);
    if constexpr (REAL_IS_FLOAT) {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there),
                     "r"(__float_as_uint(static_cast<float>(x))), "r"(counter)
                     : "memory");
    } else {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(there),
                     "l"(__double_as_longlong(static_cast<double>(x))), "r"(counter)
                     : "memory");
    }
#endif
}
__device__ __forceinline__ void start_counting(unsigned long long* arrived) {
#if __CUDA_ARCH__ >= 900
    const unsigned counter = static_cast<unsigned>(__cvta_generic_to_shared(arrived));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(counter)
                 : "memory");
#endif
}
__device__ __forceinline__ void expect_bytes(unsigned long long* arrived, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    const unsigned counter = static_cast<unsigned>(__cvta_generic_to_shared(arrived));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(counter), "r"(bytes) : "memory");
#endif
}
__device__ __forceinline__ void wait_for_bytes(unsigned long long* arrived, unsigned phase) {
#if __CUDA_ARCH__ >= 900
    const unsigned counter = static_cast<unsigned>(__cvta_generic_to_shared(arrived));
    asm volatile(
        "{\n\t.reg .pred done;\n\t"
        "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra again;\n\t}" ::"r"(counter),
        "r"(phase)
        : "memory");
#endif
}

__device__ __forceinline__ real remote_load(const real* here, unsigned rank) {
#if __CUDA_ARCH__ >= 900
    const unsigned there = remote_address(here, rank);
    if constexpr (REAL_IS_FLOAT) {
        float x;
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(there) : "memory");
        return static_cast<real>(x);
    } else {
        double x;
        asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(x) : "r"(there) : "memory");
        return static_cast<real>(x);
    }
#else
    return *here;
#endif
}

// ---------------------------------------------------------------- the panel

template <int NB, int CLUSTER> struct PanelScratch {
    alignas(16) real partial[2][MAX_WARPS][NB];  // sums of each warp; two sets, so that one barrier a column is enough
    alignas(16) real total[2][CLUSTER][NB];      // sums of each block of the cluster
    alignas(16) real pivot_row[2][NB];
    alignas(16) real weight[MAX_WARPS][NB];  // what each warp multiplies v by, column by column
    alignas(16) real gram[NB][NB];           // gram[k][j] = v_j'v_k for j < k
    real tau[NB];
};

// Sum s[j] over the warp for all j at once: at each step a lane hands over the half that it does not keep.
// On return s[0] is the sum of s[lane / (32 / NB)].
template <int NB, int HALF = NB / 2> __device__ __forceinline__ void reduce_scatter(real (&s)[NB], int lane) {
    constexpr int DISTANCE = HALF * 32 / NB;
    const bool keeps_upper = lane & DISTANCE;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const real give = keeps_upper ? s[i] : s[i + HALF];
        const real keep = keeps_upper ? s[i + HALF] : s[i];
        s[i] = keep + __shfl_xor_sync(FULL_WARP, give, DISTANCE);
    }
    if constexpr (HALF > 1) {
        reduce_scatter<NB, HALF / 2>(s, lane);
    } else {
#pragma unroll
        for (int rest = DISTANCE / 2; rest >= 1; rest /= 2) s[0] += __shfl_xor_sync(FULL_WARP, s[0], rest);
    }
}

// Factor the panel whose row `first_row` + r * (all threads of the cluster) is x[r][:] of this thread; rows past the
// end are zero. On return x holds R on and above the diagonal and V below, and `t` (row distance ldt) holds T.
//
// The column in work is always x[:][0]: the update writes column p to place p - 1 and the finished column to the
// end, so that the loop need not be unrolled for its registers to have fixed names. Finished columns go round with
// weight zero; after NB steps everything is where it was.
template <int NB, int ROWS, int CLUSTER>
__device__ __forceinline__ void factor_panel(real (&x)[ROWS][NB], int first_row, int columns, int warps,
                                             PanelScratch<NB, CLUSTER>& scratch, real* t, index_t ldt) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned rank = CLUSTER == 1 ? 0 : cluster_rank();
    const int own = lane % NB;
    __shared__ unsigned long long arrived[2];
    if (CLUSTER > 1) {
        if (threadIdx.x < 2) start_counting(&arrived[threadIdx.x]);
        cluster_barrier();  // every block of the cluster must have begun before one writes to it
    }
#pragma unroll 1
    for (int k = 0; k < NB; ++k) {
        const int set = k & 1;
        const bool below_first = first_row > k;
        real s[NB];
#pragma unroll
        for (int p = 0; p < NB; ++p) s[p] = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const real factor = r > 0 || below_first ? x[r][0] : real(0);
#pragma unroll
            for (int p = 0; p < NB; ++p) s[p] = multiply_add(factor, x[r][p], s[p]);
        }
        reduce_scatter<NB>(s, lane);
        if (lane % (32 / NB) == 0) scratch.partial[set][warp][lane / (32 / NB)] = s[0];
        if (first_row == k) {
#pragma unroll
            for (int p = 0; p < NB; ++p) scratch.pivot_row[set][p] = x[0][p];
        }
        __syncthreads();
        real sum = 0;
        for (int i = lane / NB; i < warps; i += 32 / NB) sum += scratch.partial[set][i][own];
        if (CLUSTER > 1) {
            // Every warp has the block's sums, and sends them to its share of the blocks. What is overwritten there has
            // been read: this block has the last column's sums of that one, which came after it had read these.
            if (threadIdx.x == 0) expect_bytes(&arrived[set], (CLUSTER + (rank > 0)) * NB * sizeof(real));
#pragma unroll
            for (int distance = NB; distance < 32; distance *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, distance);
            for (unsigned block = warp * (32 / NB) + lane / NB; block < CLUSTER; block += warps * (32 / NB)) {
                remote_send(&scratch.total[set][rank][own], block, sum, &arrived[set]);
                if (rank == 0 && block > 0)
                    remote_send(&scratch.pivot_row[set][own], block, scratch.pivot_row[set][own], &arrived[set]);
            }
            wait_for_bytes(&arrived[set], k / 2 % 2);
            sum = 0;
#pragma unroll
            for (int i = lane / NB; i < CLUSTER; i += 32 / NB) sum += scratch.total[set][i][own];
        }
#pragma unroll
        for (int distance = NB; distance < 32; distance *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, distance);
        const real tail = __shfl_sync(FULL_WARP, sum, 0);  // squared norm below the diagonal
        const real alpha = scratch.pivot_row[set][0];
        real mu = alpha, inverse = 0, tau = 0;
        if (k < columns && !(tail <= NEGLIGIBLE)) {  // NaN goes on, and shows
            // By estimates and Newton steps: everything waits for this, and a root and two divisions take long.
            const real square = multiply_add(alpha, alpha, tail), root = reciprocal_root(square);
            const real norm = square * root, size = absolute(alpha);
            inverse = reciprocal(size + norm);
            tau = multiply_add(size, root, real(1));
            mu = alpha < 0 ? norm : -norm;
            if (alpha < 0) inverse = -inverse;
        }
        const real product = multiply_add(sum, inverse, scratch.pivot_row[set][own]);  // v'(column `own`)
        if (lane < NB) {
            scratch.weight[warp][own] = own > 0 && k + own < NB ? tau * product : real(0);
            if (warp == 0) {
                if (k + own >= NB) scratch.gram[k][k + own - NB] = product;
                if (own == 0) scratch.tau[k] = tau;
            }
        }
        __syncwarp();
        real weight[NB];
#pragma unroll
        for (int p = 0; p < NB; p += VECTOR) {
            const vector_t part = *reinterpret_cast<const vector_t*>(&scratch.weight[warp][p]);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) weight[p + i] = part.x[i];
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const real first = x[r][0];
            real v = first * inverse, kept = v;
            if (r == 0 && !below_first) {
                v = first_row == k ? 1 : 0;
                kept = first_row == k ? mu : first;
            }
#pragma unroll
            for (int p = 1; p < NB; ++p) x[r][p - 1] = multiply_add(-v, weight[p], x[r][p]);
            x[r][NB - 1] = kept;
        }
    }
    // T, a row to a lane: T[i][k] = -tau_k sum_{j<k} T[i][j] v_j'v_k needs nothing but row i.
    if (warp == 0 && rank == 0) {
        __syncwarp();
        real row[NB];
#pragma unroll
        for (int k = 0; k < NB; ++k) {
            real sum[2] = {0, 0};  // two chains of additions hide each other's latency
#pragma unroll
            for (int j = 0; j < NB; ++j) {
                if (j < k) sum[j % 2] = multiply_add(row[j], scratch.gram[k][j], sum[j % 2]);
            }
            row[k] = own == k ? scratch.tau[k] : own < k ? -scratch.tau[k] * (sum[0] + sum[1]) : real(0);
        }
        if (lane < NB) {
#pragma unroll
            for (int k = 0; k < NB; ++k) t[own * ldt + k] = row[k];
        }
    }
}

// ---------------------------------------------------------------- one matrix to a block

constexpr int V_DISTANCE = SMALL + VECTOR;  // between rows of V in shared memory: aligned, and in other banks
constexpr int BANKS = REAL_IS_FLOAT ? 32 : 16;

// Bytes of shared memory that `factor_one` takes, in the order in which it takes them; `WHOLE`: with the matrix.
constexpr int SCRATCH_BYTES = SMALL * (3 * MAX_WARPS + 4 + SMALL + 1) * sizeof(real);
static_assert(sizeof(PanelScratch<SMALL, 1>) == SCRATCH_BYTES, "no gaps in PanelScratch");
template <int ROWS, int COLUMNS, bool WHOLE> constexpr int FACTOR_BYTES = SCRATCH_BYTES
    + (((ROWS < COLUMNS ? ROWS : COLUMNS) + SMALL - 1) / SMALL * SMALL * SMALL
       + (ROWS > SMALL ? ROWS : SMALL) * V_DISTANCE + SMALL * SMALL) * sizeof(real)
    + (COLUMNS + 3) / 4 * 4 * 4
    + (WHOLE ? ROWS * ((COLUMNS + BANKS - 9) / BANKS * BANKS + 8) * sizeof(real) : 0);

// C <- C - V T V'C, or with T' (TRANSPOSE), C of `rows` by `columns`. A warp takes eight columns at a time; lane c + 8g
// has column c and the rows g, g + 4, g + 8, ...: it keeps the column's 16 products in registers, and no barrier is
// needed inside.
template <bool TRANSPOSE>
__device__ __forceinline__ void apply_block(real* c, index_t ldc, int rows, int columns, const real* v, const real* t) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int first = warp * 8; first < columns; first += warps * 8) {
        const int column = first + lane % 8;
        const bool inside = column < columns;
        real* const mine = c + (inside ? column : first);
        real w[SMALL];
#pragma unroll
        for (int q = 0; q < SMALL; ++q) w[q] = 0;
#pragma unroll 4
        for (int r = lane / 8; r < rows; r += 4) {
            const real x = mine[r * ldc];
            const vector_t* const v_row = reinterpret_cast<const vector_t*>(v + r * V_DISTANCE);
#pragma unroll
            for (int q = 0; q < SMALL / VECTOR; ++q) {
                const vector_t part = v_row[q];
#pragma unroll
                for (int i = 0; i < VECTOR; ++i)
                    w[q * VECTOR + i] = multiply_add(part.x[i], x, w[q * VECTOR + i]);
            }
        }
#pragma unroll
        for (int q = 0; q < SMALL; ++q) {
            w[q] += __shfl_xor_sync(FULL_WARP, w[q], 8);
            w[q] += __shfl_xor_sync(FULL_WARP, w[q], 16);
        }
        if (TRANSPOSE) {
#pragma unroll
            for (int i = SMALL - 1; i >= 0; --i) {
                real sum = 0;
#pragma unroll
                for (int j = 0; j <= i; ++j) sum = multiply_add(t[j * SMALL + i], w[j], sum);
                w[i] = sum;
            }
        } else {
#pragma unroll
            for (int i = 0; i < SMALL; ++i) {
                real sum = 0;
#pragma unroll
                for (int j = i; j < SMALL; ++j) sum = multiply_add(t[i * SMALL + j], w[j], sum);
                w[i] = sum;
            }
        }
        if (inside) {
#pragma unroll 4
            for (int r = lane / 8; r < rows; r += 4) {
                const vector_t* const v_row = reinterpret_cast<const vector_t*>(v + r * V_DISTANCE);
                real sum = 0;  // by itself first: C is then rounded once a panel, not once a column
#pragma unroll
                for (int q = 0; q < SMALL / VECTOR; ++q) {
                    const vector_t part = v_row[q];
#pragma unroll
                    for (int i = 0; i < VECTOR; ++i) sum = multiply_add(part.x[i], w[q * VECTOR + i], sum);
                }
                mine[r * ldc] -= sum;
            }
        }
        __syncwarp();
    }
}

template <int ROWS, bool SHARED>
__device__ __forceinline__ void factor_one(const real* a, real* q, real* r, int rows, int columns, int want_q) {
    const int k_all = minimum(rows, columns), panels = (k_all + SMALL - 1) / SMALL;
    const int threads = blockDim.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = threads / 32;
    auto& scratch = *reinterpret_cast<PanelScratch<SMALL, 1>*>(memory);
    real* const t_all = reinterpret_cast<real*>(memory + sizeof(scratch));
    real* const v = t_all + panels * SMALL * SMALL;
    real* const product = v + maximum(rows, SMALL) * V_DISTANCE;
    int* const exponent = reinterpret_cast<int*>(product + SMALL * SMALL);
    real* const matrix_shared = reinterpret_cast<real*>(exponent + (columns + 3) / 4 * 4);

    a += index_t(blockIdx.x) * rows * columns;
    r += index_t(blockIdx.x) * k_all * columns;
    if (q) q += index_t(blockIdx.x) * rows * k_all;
    // Rows of the matrix eight banks apart: the 4 rows of 8 entries that a warp touches lie in 32 different banks.
    const int ld = SHARED ? (columns + BANKS - 9) / BANKS * BANKS + 8 : columns;
    real* const matrix = SHARED ? matrix_shared : q;

    for (int c = threadIdx.x; c < columns; c += threads) {
        real largest = 0;
#pragma unroll 8
        for (int i = 0; i < rows; ++i) largest = maximum(largest, absolute(a[index_t(i) * columns + c]));
        exponent[c] = exponent_of(largest);
    }
    __syncthreads();
    for (int i = warp; i < rows; i += warps) {
        for (int c = lane; c < columns; c += 32)
            matrix[i * ld + c] = scale_by_power(a[index_t(i) * columns + c], -exponent[c]);
    }
    __syncthreads();

    for (int p = 0; p < panels; ++p) {
        const int j = p * SMALL, height = rows - j, width = minimum(SMALL, k_all - j);
        real* const corner = matrix + j * ld + j;
        real x[ROWS][SMALL];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const int row = threadIdx.x + i * threads;
#pragma unroll
            for (int c = 0; c < SMALL; ++c) x[i][c] = row < height && c < width ? corner[row * ld + c] : real(0);
        }
        factor_panel<SMALL, ROWS, 1>(x, threadIdx.x, width, warps, scratch, t_all + p * SMALL * SMALL, SMALL);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const int row = threadIdx.x + i * threads;
            if (row < height) {
#pragma unroll
                for (int c = 0; c < SMALL; ++c) {
                    if (c < width) corner[row * ld + c] = x[i][c];
                    v[row * V_DISTANCE + c] = c >= width || row < c ? real(0) : row == c ? real(1) : x[i][c];
                }
            }
        }
        __syncthreads();
        apply_block<true>(corner + width, ld, height, columns - j - width, v, t_all + p * SMALL * SMALL);
        __syncthreads();
    }

    for (int i = warp; i < k_all; i += warps) {
        for (int c = lane; c < columns; c += 32)
            r[index_t(i) * columns + c] = c >= i ? scale_by_power(matrix[i * ld + c], exponent[c]) : real(0);
    }
    if (!want_q) return;
    __syncthreads();

    // Q in the place of V, from the last panel to the first: the columns to the right of a panel are Q's already.
    for (int p = panels - 1; p >= 0; --p) {
        const int j = p * SMALL, height = rows - j, width = minimum(SMALL, k_all - j);
        const real* const t = t_all + p * SMALL * SMALL;
        real* const corner = matrix + j * ld + j;
        for (int i = threadIdx.x; i < height * SMALL; i += threads) {
            const int row = i / SMALL, c = i % SMALL;
            v[row * V_DISTANCE + c] =
                c >= width || row < c ? real(0) : row == c ? real(1) : corner[row * ld + c];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < SMALL * SMALL; i += threads) {  // T V' of the panel's own columns
            const int row = i / SMALL, c = i % SMALL;
            real sum = 0;
            if (c < width) {
                for (int s = row; s <= c; ++s) sum = multiply_add(t[row * SMALL + s], v[c * V_DISTANCE + s], sum);
            }
            product[i] = sum;
        }
        apply_block<false>(corner + width, ld, height, k_all - j - width, v, t);
        __syncthreads();
        for (int i = threadIdx.x; i < rows * SMALL; i += threads) {
            const int row = i / SMALL - j, c = i % SMALL;
            if (c < width) {
                real sum = 0;
                if (row >= 0) {
#pragma unroll
                    for (int s = 0; s < SMALL; ++s)
                        sum = multiply_add(v[row * V_DISTANCE + s], product[s * SMALL + c], sum);
                }
                corner[row * ld + c] = (row == c ? 1 : 0) - sum;
            }
        }
        __syncthreads();
    }
    if (SHARED) {
        for (int i = warp; i < rows; i += warps) {
            for (int c = lane; c < k_all; c += 32) q[index_t(i) * k_all + c] = matrix[i * ld + c];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, REAL_IS_FLOAT ? 2 : 1) qr_batched_shared_1(
    const real* a, real* q, real* r, int rows, int columns, int want_q)
{
    factor_one<1, true>(a, q, r, rows, columns, want_q);
}
extern "C" __global__ void __launch_bounds__(256) qr_batched_shared_4(
    const real* a, real* q, real* r, int rows, int columns, int want_q)
{
    factor_one<4, true>(a, q, r, rows, columns, want_q);
}
extern "C" __global__ void __launch_bounds__(256, REAL_IS_FLOAT ? 2 : 1) qr_batched_global_2(
    const real* a, real* q, real* r, int rows, int columns, int want_q)
{
    factor_one<2, false>(a, q, r, rows, columns, want_q);
}
extern "C" __global__ void __launch_bounds__(256) qr_batched_global_4(
    const real* a, real* q, real* r, int rows, int columns, int want_q)
{
    factor_one<4, false>(a, q, r, rows, columns, want_q);
}

// ---------------------------------------------------------------- large matrices, panel by panel

template <int NB, int ROWS, int CLUSTER>
__device__ __forceinline__ void panel(real* a, index_t lda, index_t stride_a, real* v, index_t ldv,
                                      index_t stride_v, real* t, index_t ldt, index_t stride_t, int rows,
                                      int columns) {
    __shared__ PanelScratch<NB, CLUSTER> scratch;
    // A thread works on whole rows, memory is read along them: each warp turns its rows round in a tile of its own.
    __shared__ real tiles[MAX_WARPS][32][NB + 1];
    real (&tile)[32][NB + 1] = tiles[threadIdx.x / 32];
    const int all = CLUSTER * 256, first = blockIdx.x * 256 + threadIdx.x;
    const int lane = threadIdx.x % 32, c = lane % NB;
    a += blockIdx.z * stride_a;
    v += blockIdx.z * stride_v;
    t += blockIdx.z * stride_t;
    real x[ROWS][NB];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll 8
        for (int r = lane / NB; r < 32; r += 32 / NB) {
            const int row = first - lane + r + i * all;
            tile[r][c] = row < rows && c < columns ? a[row * lda + c] : real(0);
        }
        __syncwarp();
#pragma unroll
        for (int p = 0; p < NB; ++p) x[i][p] = tile[lane][p];
        __syncwarp();
    }
    factor_panel<NB, ROWS, CLUSTER>(x, first, columns, MAX_WARPS, scratch, t, ldt);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int p = 0; p < NB; ++p) tile[lane][p] = x[i][p];
        __syncwarp();
#pragma unroll 8
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

extern "C" __global__ void __launch_bounds__(256, 1) qr_panel_1_2(
    real* a, long long lda, long long stride_a, real* v, long long ldv, long long stride_v, real* t,
    long long ldt, long long stride_t, int rows, int columns)
{
    panel<WIDE, 2, 1>(a, lda, stride_a, v, ldv, stride_v, t, ldt, stride_t, rows, columns);
}
extern "C" __global__ void __launch_bounds__(256, 1) qr_panel_1_4(
    real* a, long long lda, long long stride_a, real* v, long long ldv, long long stride_v, real* t,
    long long ldt, long long stride_t, int rows, int columns)
{
    panel<WIDE, 4, 1>(a, lda, stride_a, v, ldv, stride_v, t, ldt, stride_t, rows, columns);
}

// The inner products V'C of 16 columns: in registers by row groups, over the warp by exchange, over the block and the
// cluster through shared memory. Lane c + 8g has columns c and c + 8 and every 4th row of its warp's.
template <int NB, int CLUSTER>
__device__ __forceinline__ void update(real* c, index_t ldc, index_t stride_c, const real* v, index_t ldv,
                                       index_t stride_v, const real* t, index_t ldt, index_t stride_t, int rows,
                                       int columns, int transpose) {
    constexpr int THREADS = UPDATE_THREADS, WARPS = THREADS / 32;
    __shared__ real partial[WARPS][NB][TILE];
    __shared__ real block_sum[NB][TILE];
    __shared__ real sum[NB][TILE];
    __shared__ real weight[NB][TILE];
    __shared__ real factor[NB][NB + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 8;
    const int rank = CLUSTER == 1 ? 0 : cluster_rank();
    c += blockIdx.z * stride_c;
    v += blockIdx.z * stride_v;
    t += blockIdx.z * stride_t;
    const int column = blockIdx.y * TILE + lane % 8;
    const bool has_first = column < columns, has_second = column + 8 < columns;
    const int share = (rows + CLUSTER - 1) / CLUSTER;
    const int begin = rank * share + warp * 4 + group, end = minimum(rows, (rank + 1) * share);

    for (int i = threadIdx.x; i < NB * NB; i += THREADS) {
        const int p = i / NB, q = i % NB;
        factor[p][q] = transpose ? t[q * ldt + p] : t[p * ldt + q];
    }
    {
        real w[2 * NB];
#pragma unroll
        for (int q = 0; q < 2 * NB; ++q) w[q] = 0;
#pragma unroll 2
        for (int row = begin; row < end; row += 4 * WARPS) {
            const real first = has_first ? c[row * ldc + column] : real(0);
            const real second = has_second ? c[row * ldc + column + 8] : real(0);
            const vector_t* const v_row = reinterpret_cast<const vector_t*>(v + row * ldv);
#pragma unroll
            for (int q = 0; q < NB / VECTOR; ++q) {
                const vector_t part = v_row[q];
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) {
                    w[q * VECTOR + i] = multiply_add(part.x[i], first, w[q * VECTOR + i]);
                    w[NB + q * VECTOR + i] = multiply_add(part.x[i], second, w[NB + q * VECTOR + i]);
                }
            }
        }
        // Of the four groups, the odd ones keep the second column, the upper two the upper half of V's columns.
        const bool keeps_second = group & 1, keeps_upper = group & 2;
#pragma unroll
        for (int q = 0; q < NB; ++q) {
            const real give = keeps_second ? w[q] : w[NB + q];
            w[q] = (keeps_second ? w[NB + q] : w[q]) + __shfl_xor_sync(FULL_WARP, give, 8);
        }
#pragma unroll
        for (int q = 0; q < NB / 2; ++q) {
            const real give = keeps_upper ? w[q] : w[q + NB / 2];
            w[q] = (keeps_upper ? w[q + NB / 2] : w[q]) + __shfl_xor_sync(FULL_WARP, give, 16);
            partial[warp][q + (keeps_upper ? NB / 2 : 0)][lane % 8 + (keeps_second ? 8 : 0)] = w[q];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < NB * TILE; i += THREADS) {
        real s = 0;
#pragma unroll
        for (int j = 0; j < WARPS; ++j) s += partial[j][i / TILE][i % TILE];
        (CLUSTER == 1 ? sum : block_sum)[i / TILE][i % TILE] = s;
    }
    if (CLUSTER > 1) {
        cluster_barrier();
        for (int i = threadIdx.x; i < NB * TILE; i += THREADS) {
            real s = 0;
#pragma unroll
            for (int j = 0; j < CLUSTER; ++j) s += remote_load(&block_sum[i / TILE][i % TILE], j);
            sum[i / TILE][i % TILE] = s;
        }
        cluster_barrier();  // no block may end while another still reads its sums
    } else {
        __syncthreads();
    }
    for (int i = threadIdx.x; i < NB * TILE; i += THREADS) {
        real s = 0;
#pragma unroll
        for (int q = 0; q < NB; ++q) s = multiply_add(factor[i / TILE][q], sum[q][i % TILE], s);
        weight[i / TILE][i % TILE] = s;
    }
    __syncthreads();
    real w[2 * NB];
#pragma unroll
    for (int q = 0; q < NB; ++q) {
        w[q] = weight[q][lane % 8];
        w[NB + q] = weight[q][lane % 8 + 8];
    }
#pragma unroll 2
    for (int row = begin; row < end; row += 4 * WARPS) {
        const vector_t* const v_row = reinterpret_cast<const vector_t*>(v + row * ldv);
        real first = 0, second = 0;  // by themselves first: C is then rounded once a panel, not once a column
#pragma unroll
        for (int q = 0; q < NB / VECTOR; ++q) {
            const vector_t part = v_row[q];
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                first = multiply_add(part.x[i], w[q * VECTOR + i], first);
                second = multiply_add(part.x[i], w[NB + q * VECTOR + i], second);
            }
        }
        if (has_first) c[row * ldc + column] -= first;
        if (has_second) c[row * ldc + column + 8] -= second;
    }
}

extern "C" __global__ void __launch_bounds__(UPDATE_THREADS) qr_update_1(
    real* c, long long ldc, long long stride_c, const real* v, long long ldv, long long stride_v,
    const real* t, long long ldt, long long stride_t, int rows, int columns, int transpose)
{
    update<WIDE, 1>(c, ldc, stride_c, v, ldv, stride_v, t, ldt, stride_t, rows, columns, transpose);
}

#if __CUDA_ARCH__ >= 900

extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(8, 1, 1) qr_panel_8_2(
    real* a, long long lda, long long stride_a, real* v, long long ldv, long long stride_v, real* t,
    long long ldt, long long stride_t, int rows, int columns)
{
    panel<WIDE, 2, 8>(a, lda, stride_a, v, ldv, stride_v, t, ldt, stride_t, rows, columns);
}
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(16, 1, 1) qr_panel_16_2(
    real* a, long long lda, long long stride_a, real* v, long long ldv, long long stride_v, real* t,
    long long ldt, long long stride_t, int rows, int columns)
{
    panel<WIDE, 2, 16>(a, lda, stride_a, v, ldv, stride_v, t, ldt, stride_t, rows, columns);
}
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(16, 1, 1) qr_panel_16_5(
    real* a, long long lda, long long stride_a, real* v, long long ldv, long long stride_v, real* t,
    long long ldt, long long stride_t, int rows, int columns)
{
    panel<WIDE, 5, 16>(a, lda, stride_a, v, ldv, stride_v, t, ldt, stride_t, rows, columns);
}
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(16, 1, 1) qr_panel_16_4(
    real* a, long long lda, long long stride_a, real* v, long long ldv, long long stride_v, real* t,
    long long ldt, long long stride_t, int rows, int columns)
{
    panel<WIDE, 4, 16>(a, lda, stride_a, v, ldv, stride_v, t, ldt, stride_t, rows, columns);
}
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(16, 1, 1) qr_panel_16_8(
    real* a, long long lda, long long stride_a, real* v, long long ldv, long long stride_v, real* t,
    long long ldt, long long stride_t, int rows, int columns)
{
    panel<NARROW, 8, 16>(a, lda, stride_a, v, ldv, stride_v, t, ldt, stride_t, rows, columns);
}
extern "C" __global__ void __launch_bounds__(UPDATE_THREADS) __cluster_dims__(8, 1, 1) qr_update_8(
    real* c, long long ldc, long long stride_c, const real* v, long long ldv, long long stride_v,
    const real* t, long long ldt, long long stride_t, int rows, int columns, int transpose)
{
    update<WIDE, 8>(c, ldc, stride_c, v, ldv, stride_v, t, ldt, stride_t, rows, columns, transpose);
}
extern "C" __global__ void __launch_bounds__(UPDATE_THREADS) __cluster_dims__(16, 1, 1) qr_update_16(
    real* c, long long ldc, long long stride_c, const real* v, long long ldv, long long stride_v,
    const real* t, long long ldt, long long stride_t, int rows, int columns, int transpose)
{
    update<WIDE, 16>(c, ldc, stride_c, v, ldv, stride_v, t, ldt, stride_t, rows, columns, transpose);
}
extern "C" __global__ void __launch_bounds__(UPDATE_THREADS) __cluster_dims__(16, 1, 1) qr_update_narrow_16(
    real* c, long long ldc, long long stride_c, const real* v, long long ldv, long long stride_v,
    const real* t, long long ldt, long long stride_t, int rows, int columns, int transpose)
{
    update<NARROW, 16>(c, ldc, stride_c, v, ldv, stride_v, t, ldt, stride_t, rows, columns, transpose);
}

#endif

// Of each column the exponent e with largest entry / 2^e in [1/2, 1), by atomic maximum over row chunks into
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
extern "C" __global__ void __launch_bounds__(256) qr_scale(
    const real* x, long long ldx, long long stride_x, const int* exponent, real* y, int rows, int columns,
    int sign)
{
    const int c = blockIdx.x * 32 + threadIdx.x;
    if (c >= columns) return;
    x += blockIdx.z * stride_x;
    y += index_t(blockIdx.z) * rows * columns;
    const int found = exponent[index_t(blockIdx.z) * columns + c], e = found == NO_EXPONENT ? 0 : sign * found;
#pragma unroll 4
    for (int i = blockIdx.y * 8 + threadIdx.y; i < rows; i += gridDim.y * 8)
        y[index_t(i) * columns + c] = scale_by_power(x[i * ldx + c], e);
}

// T of `width` columns of V, whose panels of `inner` columns have theirs on the diagonal already, from the upper
// triangle of V'V: with T11 and T22 known, T12 = -T11 (V1'V2) T22, for all pairs of neighbours at once, then for pairs of
// what came of them. `width` is `inner` times a power of two. grid = (1, 1, matrices), block = MERGE_THREADS.
constexpr int MERGED = 128;                    // the largest `width`
constexpr int MERGE_AREA = MERGED * MERGED / 4;  // elements of one factor of all pairs of a step, at most
constexpr int MERGE_BYTES = 3 * MERGE_AREA * sizeof(real);
constexpr int MERGE_THREADS = 256;  // each with 4 x 4 elements of the products

__device__ __forceinline__ void multiply_tile(const real* left, const real* right, int size, real (&sum)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[i][c] = 0;
#pragma unroll 4
    for (int k = 0; k < size; ++k, right += size) {
        real row[4];
#pragma unroll
        for (int c = 0; c < 4; c += VECTOR) {
            const vector_t part = *reinterpret_cast<const vector_t*>(right + c);
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) row[c + v] = part.x[v];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const real factor = left[i * size + k];
#pragma unroll
            for (int c = 0; c < 4; ++c) sum[i][c] = multiply_add(factor, row[c], sum[i][c]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(MERGE_THREADS) qr_merge_t(real* t, const real* gram, int width, int inner) {
    real* const product = reinterpret_cast<real*>(memory);  // at first V1'V2
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
        if (works) {
#pragma unroll
            for (int q = 0; q < 16; ++q) product[pair * area + (i + q / 4) * size + c + q % 4] = sum[q / 4][q % 4];
        }
        __syncthreads();
        if (works) {
            multiply_tile(left + pair * area + i * size, product + pair * area + c, size, sum);
            real* const corner = t + (2 * size * pair + i) * width + 2 * size * pair + size + c;
#pragma unroll
            for (int q = 0; q < 16; ++q) corner[q / 4 * width + q % 4] = -sum[q / 4][q % 4];
        }
        __syncthreads();
    }
}
