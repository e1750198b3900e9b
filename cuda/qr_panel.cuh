// One panel of QR updating, by one block of threads, shared by qr_down.cu and qr_up.cu.
//
// The algorithm: a triangle of NB columns with WARPS * ROWS full rows below it is made a triangle again by NB
// reflections, [corner; x] -> [corner~; 0], combined as I - V T V' with V = [I; v] (LAPACK's tpqrt). A reflection
// changes one row of the triangle and the full rows, and skips the triangle's zeros.
//
// The simple version takes for each column the norm of x's column, a barrier, the inner products with all columns, a
// barrier, the update, a barrier; and T at the end, column by column. What each step gains:
//   - The reflections are successive, so the time of one of them matters. Lane q of a warp holds column q of x in
//     registers, so an inner product needs no exchange inside a warp.
//   - Inner products are computed with the column *before* its norm is known, and scaled afterwards. So norm and products
//     are one sum, and one barrier between the warps suffices.
//   - Half of the warps hold all rows (a sum of four parts is read at once). One warp records the triangle
//     and v'v of all pairs, of which T is made. The last warp is free and loads the next data.
//   - Roots and reciprocals come from approximate instructions and Newton steps, instead of a root and divisions for which
//     everything would wait.
//   - T is made from the records by blocks of 8 columns and then by products: log2(NB / 8) steps instead of NB.
// Operations: 4 NB^2 a row of x. Bytes: none; x, triangle and T are in registers and shared memory before and after.

constexpr int NB = 32;              // columns of a panel, and of a tile
constexpr int PITCH = NB + VECTOR;  // keeps rows in shared memory aligned, with neighbouring rows in different banks
constexpr int WARPS = 8;
constexpr int THREADS = 32 * WARPS;

extern __shared__ __align__(16) unsigned char memory[];

// The power of two that is at most x and more than half of x; 1 for zero, infinity and NaN. Neither it nor its
// reciprocal leaves the dtype's range.
__device__ __forceinline__ real power_below(real x) {
    return x > 0 && isfinite(x) ? scalbn(real(1), maximum(ilogb(x), REAL_IS_FLOAT ? -126 : -1022)) : real(1);
}

// An approximation of 1 / sqrt(x) in one instruction, for x and a result that are normal; then this and rough_reciprocal,
// made exact to rounding.
__device__ __forceinline__ real rough_root(real x) {
    real y;
    if constexpr (REAL_IS_FLOAT) asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"((float&)y) : "f"((float)x));
    else asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"((double&)y) : "d"((double)x));
    return y;
}
__device__ __forceinline__ real better_root(real x, real y) {
    const real error = multiply_add(-x * y, y, real(1));
    return multiply_add(y * error, multiply_add(real(0.375), error, real(0.5)), y);
}
__device__ __forceinline__ real better_reciprocal(real x, real y) {
    const real error = multiply_add(-x, y, real(1));
    if (REAL_IS_FLOAT) return multiply_add(y, error, y);
    return multiply_add(y * error, multiply_add(error, error, 1 + error), y);
}

// store_row for the threads for which `chosen` is true, without a branch.
template <int COUNT> __device__ __forceinline__ void store_row_if(bool chosen, real* to, const real (&x)[COUNT]) {
    const unsigned address = shared_address(to);
    UNROLL for (int i = 0; i < COUNT; i += VECTOR) {
        if constexpr (REAL_IS_FLOAT) {
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p st.shared.v4.f32 [%0], {%1, %2, %3, %4}; }" ::"r"(
                address + i * 4), "f"(float(x[i])), "f"(float(x[i + 1])), "f"(float(x[i + VECTOR - 2])),
                "f"(float(x[i + VECTOR - 1])), "r"(unsigned(chosen)) : "memory");
        } else {
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p st.shared.v2.f64 [%0], {%1, %2}; }" ::"r"(
                address + i * 8), "d"(double(x[i])), "d"(double(x[i + 1])), "r"(unsigned(chosen)) : "memory");
        }
    }
}

// ---------------------------------------------------------------- one panel

// Half of the warps hold a panel of WARPS * ROWS rows in registers, so each inner product is a sum of four parts. The
// next warp records the triangle and the data for T.
constexpr int HOLDERS = 4;
constexpr int NOTER = HOLDERS;
template <int ROWS> constexpr int HELD = WARPS * ROWS / HOLDERS;  // rows for each thread

template <int ROWS> struct Panel {
    alignas(16) real corner[NB][PITCH];    // the triangle; entries below its diagonal are arbitrary
    alignas(16) real turned_t[NB][PITCH];  // T transposed: row k is T's column k
    alignas(16) real gram[NB][PITCH];      // [k][j] = v_j'v_k for j < k
    alignas(16) real product[NB / 2][NB / 2 + VECTOR];
    alignas(16) real sums[2][NB][HOLDERS];  // of each warp; two sets, so that one barrier for each column suffices
    alignas(16) real largest[WARPS][NB];
    alignas(16) real pivot[2][HOLDERS][HELD<ROWS>];  // the current column, and the next one
    real tau[NB];
};

template <int ROWS> constexpr int PANEL_BYTES =
    (3 * NB * PITCH + NB / 2 * (NB / 2 + VECTOR) + (2 * HOLDERS + WARPS + 1) * NB + 2 * WARPS * ROWS) * sizeof(real);
static_assert(sizeof(Panel<4>) == PANEL_BYTES<4> && sizeof(Panel<32>) == PANEL_BYTES<32>, "no gaps in a Panel");

// T from the taus and inner products: by recursion for 8 columns, one row for each lane; then, with T11 and T22 known,
// T12 = -T11 (V1'V2) T22 for 8 + 8 and 16 + 16 columns.
template <int ROWS> __device__ __forceinline__ void build_t(int columns, Panel<ROWS>& s) {
    const int thread = threadIdx.x;
    if (thread < NB) {
        const int first = thread & ~7, i = thread & 7;
        real row[8];
        UNROLL for (int k = 0; k < 8; ++k) {
            real gram[8], sum[2] = {0, 0};
            load_row(gram, &s.gram[first + k][first]);
            const real tau = s.tau[first + k];
            UNROLL for (int j = 0; j < k; ++j) sum[j % 2] = multiply_add(row[j], gram[j], sum[j % 2]);
            row[k] = i == k ? tau : i < k ? -tau * (sum[0] + sum[1]) : real(0);
            s.turned_t[first + k][thread] = row[k];
        }
    }
    __syncthreads();
    UNROLL for (int size = 8; size < NB; size *= 2) {
        if (size >= columns) break;
        const int pair = thread / (size * size), i = thread / size % size, c = thread % size;
        const int first = 2 * size * pair, second = first + size;
        const bool works = second < NB;
        if (works) {
            real sum[2] = {0, 0};
#pragma unroll 8
            for (int k = 0; k < size; ++k)
                sum[k % 2] = multiply_add(s.gram[second + k][first + i], s.turned_t[second + c][second + k], sum[k % 2]);
            s.product[(NB / 2 - size) * pair + i][c] = sum[0] + sum[1];
        }
        __syncthreads();
        if (works) {
            real sum[2] = {0, 0};
#pragma unroll 8
            for (int k = 0; k < size; ++k)
                sum[k % 2] = multiply_add(s.turned_t[first + k][first + i],
                                          s.product[(NB / 2 - size) * pair + k][c], sum[k % 2]);
            s.turned_t[second + c][first + i] = -(sum[0] + sum[1]);
        }
        __syncthreads();
    }
}

// Reduces [corner; x] to a triangle. Lane q of the first HOLDERS warps has HELD rows of column q in x, and receives those of
// V; the corner becomes R's, and T is computed (its part below the diagonal must be zero already). Columns from `columns` on
// are zero. The last warp runs `meanwhile`. The caller needs a barrier before; a barrier has been met after.
template <int ROWS, class Meanwhile>
__device__ __forceinline__ void factor(real (&x)[HELD<ROWS>], int columns, Panel<ROWS>& s, Meanwhile meanwhile) {
    constexpr int COUNT = HELD<ROWS>;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool holds = warp < HOLDERS;

    // Columns are scaled by powers of two, which changes no bit of V and T and keeps every square within range.
    real largest = 0;
    UNROLL for (int i = 0; i < NB / WARPS; ++i) {
        const int row = warp * (NB / WARPS) + i;
        if (row <= lane) largest = maximum(largest, absolute(s.corner[row][lane]));
    }
    if (holds)
        UNROLL for (int i = 0; i < COUNT; ++i) largest = maximum(largest, absolute(x[i]));
    s.largest[warp][lane] = largest;
    __syncthreads();
    UNROLL for (int i = 0; i < WARPS; ++i) largest = maximum(largest, s.largest[i][lane]);
    const real size = power_below(largest), inverse_size = 1 / size;
    UNROLL for (int i = 0; i < NB / WARPS; ++i) {
        const int row = warp * (NB / WARPS) + i;
        s.corner[row][lane] = row <= lane ? s.corner[row][lane] * inverse_size : real(0);
        if (row >= columns) {
            s.gram[row][lane] = 0;
            s.tau[row] = 0;
        }
    }
    if (holds) {
        UNROLL for (int i = 0; i < COUNT; ++i) x[i] *= inverse_size;
        if (lane == 0) store_row(s.pivot[0][warp], x);
    }
    __syncthreads();

    if (warp <= NOTER) {
        // The current column comes from its lane: a few rows by exchange, more through shared memory.
        constexpr bool EXCHANGES = COUNT * sizeof(real) <= 64, KEEPS = COUNT * sizeof(real) <= 128;
        real own = 0;  // the factor that makes v of this lane's column, once the column is finished
        real entry = s.corner[0][lane], alpha = s.corner[0][0];
#pragma unroll 1
        for (int k = 0; k < columns; ++k) {
            const int set = k & 1;
            const int next = minimum(k + 1, NB - 1);
            const real next_entry = s.corner[next][lane], next_alpha = s.corner[next][next];
            real pivot[KEEPS ? COUNT : VECTOR];
            if (holds) {
                real dot[4] = {0, 0, 0, 0};  // four chains of additions hide each other's latency
                UNROLL for (int i = 0; i < COUNT; i += VECTOR) {
                    real part[VECTOR];
                    if (!EXCHANGES) load_row(part, &s.pivot[set][warp][i]);
                    UNROLL for (int j = 0; j < VECTOR; ++j) {
                        if (EXCHANGES) part[j] = __shfl_sync(FULL_WARP, x[i + j], k);
                        dot[(i + j) % 4] = multiply_add(part[j], x[i + j], dot[(i + j) % 4]);
                        if (KEEPS) pivot[i + j] = part[j];
                    }
                }
                s.sums[set][lane][warp] = (dot[0] + dot[1]) + (dot[2] + dot[3]);
            }
            asm volatile("bar.sync 1, %0;" ::"n"(32 * (HOLDERS + 1)) : "memory");
            real theirs[HOLDERS], mine[HOLDERS];
            load_row(theirs, s.sums[set][k]);
            load_row(mine, s.sums[set][lane]);
            const real tail = (theirs[0] + theirs[1]) + (theirs[2] + theirs[3]);
            const real sum = (mine[0] + mine[1]) + (mine[2] + mine[3]);
            // The reciprocal starts from the approximate root, and is made exact with the exact one.
            const real square = multiply_add(alpha, alpha, tail), size_of_alpha = absolute(alpha);
            const real rough = rough_root(square);
            real inverse = rough_reciprocal(multiply_add(square, rough, size_of_alpha));
            real root = better_root(square, rough);
            const real norm = square * root;
            inverse = better_reciprocal(size_of_alpha + norm, inverse);
            if (alpha < 0) inverse = -inverse;
            real mu = alpha < 0 ? norm : -norm, tau = multiply_add(size_of_alpha, root, real(1));
            if (tail <= NEGLIGIBLE) {  // never true for NaN, which continues and is visible in the result
                mu = alpha;
                inverse = tau = 0;
            }
            const real along = multiply_add(inverse, sum, entry);  // v'(column of this lane)
            if (lane == k) own = inverse;
            if (holds) {
                const real factor = lane > k ? -(tau * inverse) * along : real(0);
                UNROLL for (int i = 0; i < COUNT; i += VECTOR) {
                    real part[VECTOR];
                    if (!KEEPS) load_row(part, &s.pivot[set][warp][i]);
                    UNROLL for (int j = 0; j < VECTOR; ++j)
                        x[i + j] = multiply_add(KEEPS ? pivot[i + j] : part[j], factor, x[i + j]);
                }
                if (!EXCHANGES) {
                    store_row_if(lane == k + 1, s.pivot[set ^ 1][warp], x);
                    __syncwarp();
                }
            } else {
                s.gram[k][lane] = inverse * own * sum;  // not read for lanes from k on
                s.tau[k] = tau;
                s.corner[k][lane] = (lane > k ? entry - tau * along : lane == k ? mu : real(0)) * size;
            }
            entry = next_entry;
            alpha = next_alpha;
        }
        UNROLL for (int i = 0; i < COUNT; ++i) x[i] *= own;
    } else if (warp == WARPS - 1) {
        meanwhile();
    }
    __syncthreads();
    build_t(columns, s);
}
