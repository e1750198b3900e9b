// One panel of a Householder QR in registers, by a block of threads or a cluster, shared by qr.cu and qr_batched.cu.
//
// The algorithm: a panel of NB columns is reduced by reflections I - tau v v', combined as I - V T V' (compact
// WY; Schreiber & Van Loan 1989). The columns are scaled by powers of two to a largest entry in [1/2, 1), which changes
// no bit of V and T, and keeps every square within range.
//
// The simple version takes for each column its norm, its inner products with all columns on its right, and their update:
// three barriers a column. What each step gains:
//   - The panel is in registers, with whole rows for each thread. So a column costs one pass over the registers for all
//     inner products (those with finished columns are needed for T), one reduction with one barrier, and one pass for the
//     update.
//   - A cluster of up to 16 blocks serves a tall panel: sums are written into the other blocks' shared memory and counted
//     there; no block waits for anything else. Without clusters, a panel has at most the rows of one block.

constexpr int MAX_WARPS = 8;

// e with x / 2^e in [1/2, 1); 0 for zero, infinity and NaN.
__device__ __forceinline__ int exponent_of(real x) { return x > 0 && isfinite(x) ? ilogb(x) + 1 : 0; }

// Writes x to the place of `here` in the shared memory of the cluster's block `rank`; counted by that block's `arrived`.
__device__ __forceinline__ void remote_send(real* here, unsigned rank, real x, unsigned long long* arrived) {
    const unsigned there = remote_address(here, rank), counter = remote_address(arrived, rank);
    if constexpr (REAL_IS_FLOAT)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there),
                     "r"(__float_as_uint(static_cast<float>(x))), "r"(counter) : "memory");
    else
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(there),
                     "l"(__double_as_longlong(static_cast<double>(x))), "r"(counter) : "memory");
}
__device__ __forceinline__ real remote_load(const real* here, unsigned rank) {
    const unsigned there = remote_address(here, rank);
    real x;
    if constexpr (REAL_IS_FLOAT) asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"((float&)x) : "r"(there) : "memory");
    else asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"((double&)x) : "r"(there) : "memory");
    return x;
}

// ---------------------------------------------------------------- the panel

template <int NB, int CLUSTER> struct PanelScratch {
    alignas(16) real partial[2][MAX_WARPS][NB];  // sums of each warp; two sets, so that one barrier for each column suffices
    alignas(16) real total[2][CLUSTER][NB];      // sums of each block of the cluster
    alignas(16) real pivot_row[2][NB];
    alignas(16) real weight[MAX_WARPS][NB];  // each warp's factors of v, column by column
    alignas(16) real gram[NB][NB];           // gram[k][j] = v_j'v_k for j < k
    real tau[NB];
};

// Sums s[j] over the warp for all j at once: at each step a lane passes on the half that it does not keep.
// On return, s[0] is the sum of s[lane / (32 / NB)].
template <int NB, int HALF = NB / 2> __device__ __forceinline__ void reduce_scatter(real (&s)[NB], int lane) {
    constexpr int DISTANCE = HALF * 32 / NB;
    const bool keeps_upper = lane & DISTANCE;
    UNROLL for (int i = 0; i < HALF; ++i) {
        const real give = keeps_upper ? s[i] : s[i + HALF];
        const real keep = keeps_upper ? s[i + HALF] : s[i];
        s[i] = keep + __shfl_xor_sync(FULL_WARP, give, DISTANCE);
    }
    if constexpr (HALF > 1) {
        reduce_scatter<NB, HALF / 2>(s, lane);
    } else {
        UNROLL for (int rest = DISTANCE / 2; rest >= 1; rest /= 2) s[0] += __shfl_xor_sync(FULL_WARP, s[0], rest);
    }
}

// Factors the panel whose row `first_row` + r * (all threads of the cluster) is x[r][:] of this thread; rows past the
// end are zero. On return, x holds R on and above the diagonal and V below, and `t` (row distance ldt) holds T.
//
// The current column is always x[:][0]: the update writes column p to place p - 1 and the finished column to the
// end, so that registers have fixed names although the loop is not unrolled. Finished columns are shifted on with
// weight zero; after NB steps everything is in its original place.
template <int NB, int ROWS, int CLUSTER>
__device__ __forceinline__ void factor_panel(real (&x)[ROWS][NB], int first_row, int columns, int warps,
                                             PanelScratch<NB, CLUSTER>& scratch, real* t, index_t ldt) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned rank = CLUSTER == 1 ? 0 : cluster_rank();
    const int own = lane % NB;
    __shared__ unsigned long long arrived[2];
    if constexpr (CLUSTER > 1) {
        if (threadIdx.x < 2) {
            start_counting(&arrived[threadIdx.x]);
            counting_started();
        }
        cluster_barrier();  // every block of the cluster must have started before another writes to it
    }
#pragma unroll 1
    for (int k = 0; k < NB; ++k) {
        const int set = k & 1;
        const bool below_first = first_row > k;
        real s[NB];
        UNROLL for (int p = 0; p < NB; ++p) s[p] = 0;
        UNROLL for (int r = 0; r < ROWS; ++r) {
            const real factor = r > 0 || below_first ? x[r][0] : real(0);
            UNROLL for (int p = 0; p < NB; ++p) s[p] = multiply_add(factor, x[r][p], s[p]);
        }
        reduce_scatter<NB>(s, lane);
        if (lane % (32 / NB) == 0) scratch.partial[set][warp][lane / (32 / NB)] = s[0];
        if (first_row == k)
            UNROLL for (int p = 0; p < NB; ++p) scratch.pivot_row[set][p] = x[0][p];
        __syncthreads();
        real sum = 0;
        for (int i = lane / NB; i < warps; i += 32 / NB) sum += scratch.partial[set][i][own];
        if constexpr (CLUSTER > 1) {
            // Every warp has the block's sums, and sends them to its share of the blocks. The overwritten sums have been
            // read: this block has received that block's sums of the last column, which were sent after it had read these.
            if (threadIdx.x == 0) expect_bytes(&arrived[set], (CLUSTER + (rank > 0)) * NB * sizeof(real));
            UNROLL for (int distance = NB; distance < 32; distance *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, distance);
            for (unsigned block = warp * (32 / NB) + lane / NB; block < CLUSTER; block += warps * (32 / NB)) {
                remote_send(&scratch.total[set][rank][own], block, sum, &arrived[set]);
                if (rank == 0 && block > 0)
                    remote_send(&scratch.pivot_row[set][own], block, scratch.pivot_row[set][own], &arrived[set]);
            }
            wait_for_bytes(&arrived[set], k / 2 % 2);
            sum = 0;
            UNROLL for (int i = lane / NB; i < CLUSTER; i += 32 / NB) sum += scratch.total[set][i][own];
        }
        UNROLL for (int distance = NB; distance < 32; distance *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, distance);
        const real tail = __shfl_sync(FULL_WARP, sum, 0);  // squared norm below the diagonal
        const real alpha = scratch.pivot_row[set][0];
        real mu = alpha, inverse = 0, tau = 0;
        if (k < columns && !(tail <= NEGLIGIBLE)) {  // NaN continues and is visible in the result
            // By approximations and Newton steps: everything waits for this, and a root and two divisions take long.
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
        load_row(weight, scratch.weight[warp]);
        UNROLL for (int r = 0; r < ROWS; ++r) {
            const real first = x[r][0];
            real v = first * inverse, kept = v;
            if (r == 0 && !below_first) {
                v = first_row == k ? 1 : 0;
                kept = first_row == k ? mu : first;
            }
            UNROLL for (int p = 1; p < NB; ++p) x[r][p - 1] = multiply_add(-v, weight[p], x[r][p]);
            x[r][NB - 1] = kept;
        }
    }
    // T, one row for each lane: T[i][k] = -tau_k sum_{j<k} T[i][j] v_j'v_k needs row i only.
    if (warp == 0 && rank == 0) {
        __syncwarp();
        real row[NB];
        UNROLL for (int k = 0; k < NB; ++k) {
            real sum[2] = {0, 0};  // two chains of additions hide each other's latency
            UNROLL for (int j = 0; j < NB; ++j)
                if (j < k) sum[j % 2] = multiply_add(row[j], scratch.gram[k][j], sum[j % 2]);
            row[k] = own == k ? scratch.tau[k] : own < k ? -scratch.tau[k] * (sum[0] + sum[1]) : real(0);
        }
        if (lane < NB)
            UNROLL for (int k = 0; k < NB; ++k) t[own * ldt + k] = row[k];
    }
}
