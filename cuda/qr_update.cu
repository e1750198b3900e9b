// Updating a QR factorisation: the kernels behind deblur/linalg/_qr_update_gpu.py.
//
// What is computed. Two sweeps over a triangle R (n x n), each on the columns of R, on right-hand sides and on the
// rows of Q alike:
//
//   down  [R; U] -> [R~; 0] for a block U of p rows, panel by panel from the left. The reflections of a panel are
//         I - V T V' with V = [I; v]: they touch the panel's own rows of R and U, and skip R's zeros (Andrew & Dingle,
//         "Implementing QR factorization updating algorithms on GPUs", 2014; LAPACK's tpqrt). U is what is added, or,
//         where columns have been removed, the rows of R that have lost their diagonal.
//   up    [L; Z] -> [L~; 0] for a tall Z (n x p) under a small triangle L, STEP rows of Z at a time from the bottom
//         up, and the same reflections on [S; R], S starting with zeros. Each leaves a full block on R's diagonal,
//         which a small QR makes triangular again. Z is Q'u of added columns, or the removed rows of Q, transposed.
//
//   qr_down_ROWS   the whole of `down` in one launch, for p <= 8 * ROWS. grid = tiles of NB columns of R and of the
//                  right-hand sides and of NB rows of Q, block = THREADS. One block factors all panels, one after the
//                  other; the others keep the U-part of their tile in shared memory and apply the panels to it as they
//                  are published, and a tile of R is handed over to the first block when only the last panel before it
//                  is missing. Tiles are given out by ticket, and wait for lower tickets only, so that it does not
//                  matter how many blocks run at once.
//   qr_up_chain    V and T of every step of `up`. grid = 1, block = THREADS.
//   qr_up_open     I - V T' V' written out, and what it makes of the diagonal block. grid = steps, block = 256.
//   qr_up_close    the same with the diagonal block's own reflections behind it. grid = steps, block = 256.
//   qr_up_sweep    products with these, every tile of NB columns (or rows of Q) by itself. grid = tiles, block = 256.
//
// Cost. `down` takes 2 p n^2 operations on R and 4 p n m on Q and moves R (and Q) once in and once out of memory, but
// its n reflections follow one another: what counts is the time of one. Lane q of a warp has column q of the panel,
// so that inner products need no exchange inside a warp, and one barrier between warps. `up` has a chain of p
// reflections for each STEP rows, and takes 2 SIDE^2 operations a column and step otherwise.

constexpr real NEGLIGIBLE = REAL_IS_FLOAT ? 1e-30 : 1e-290;  // a tail's squared norm, against columns of size 1
constexpr int NB = 32;                // columns of a panel, and of a tile
constexpr int PITCH = NB + VECTOR;    // rows in shared memory stay aligned, neighbouring rows lie in other banks
constexpr int WARPS = 8;              // that hold rows
constexpr int THREADS = 32 * WARPS;
constexpr int STEP = 64;               // rows of Z to a step of `up`
constexpr int SIDE = NB + STEP;

extern __shared__ __align__(16) unsigned char memory[];

// The power of two that x is at least, and less than twice; 1 for zero and for what is no number. Neither it nor
// its reciprocal leaves the dtype's range.
__device__ __forceinline__ float power_below(float x) {
    return x > 0 && isfinite(x) ? scalbnf(1.0f, maximum(ilogbf(x), -126)) : 1.0f;
}
__device__ __forceinline__ double power_below(double x) {
    return x > 0 && isfinite(x) ? scalbn(1.0, maximum(ilogb(x), -1022)) : 1.0;
}

// 1 / sqrt(x) and 1 / x roughly, in one instruction, for x and a result that are normal; and made exact to rounding.
__device__ __forceinline__ float rough_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ double rough_root(double x) {
    double y;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    return y;
}
__device__ __forceinline__ float rough_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ double rough_reciprocal(double x) {
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
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

template <int COUNT> __device__ __forceinline__ void load_row(real (&x)[COUNT], const real* from) {
#pragma unroll
    for (int i = 0; i < COUNT; i += VECTOR) {
        const vector_t part = *reinterpret_cast<const vector_t*>(from + i);
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) x[i + j] = part.x[j];
    }
}
template <int COUNT> __device__ __forceinline__ void store_row(real* to, const real (&x)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i += VECTOR) {
        vector_t part;
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) part.x[j] = x[i + j];
        *reinterpret_cast<vector_t*>(to + i) = part;
    }
}

// The same by those threads alone that `chosen` is true of, without a branch.
template <int COUNT> __device__ __forceinline__ void store_row_if(bool chosen, real* to, const real (&x)[COUNT]) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
#pragma unroll
    for (int i = 0; i < COUNT; i += VECTOR) {
        if constexpr (REAL_IS_FLOAT) {
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p st.shared.v4.f32 [%0], {%1, %2, %3, %4}; }" ::"r"(
                             address + i * 4),
                         "f"(float(x[i])), "f"(float(x[i + 1])), "f"(float(x[i + VECTOR - 2])),
                         "f"(float(x[i + VECTOR - 1])), "r"(unsigned(chosen))
                         : "memory");
        } else {
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p st.shared.v2.f64 [%0], {%1, %2}; }" ::"r"(
                             address + i * 8),
                         "d"(double(x[i])), "d"(double(x[i + 1])), "r"(unsigned(chosen))
                         : "memory");
        }
    }
}

// ---------------------------------------------------------------- one panel

// A panel of WARPS * ROWS rows is held in registers by half of the warps: each inner product is then a sum of four
// parts. The next warp takes the notes: what becomes of the triangle, and what T needs.
constexpr int HOLDERS = 4;
constexpr int NOTER = HOLDERS;
template <int ROWS> constexpr int HELD = WARPS * ROWS / HOLDERS;  // rows to a thread

template <int ROWS> struct Panel {
    alignas(16) real corner[NB][PITCH];    // the triangle; below its diagonal anything may lie
    alignas(16) real turned_t[NB][PITCH];  // T transposed: row k is T's column k
    alignas(16) real gram[NB][PITCH];      // [k][j] = v_j'v_k for j < k
    alignas(16) real product[NB / 2][NB / 2 + VECTOR];
    alignas(16) real sums[2][NB][HOLDERS];  // of each warp; two sets, so that one barrier a column is enough
    alignas(16) real largest[WARPS][NB];
    alignas(16) real pivot[2][HOLDERS][HELD<ROWS>];  // the column in work, and the next one
    real tau[NB];
};

// T from the taus and inner products: for 8 columns by recursion, a row to a lane; then, with T11 and T22 known,
// T12 = -T11 (V1'V2) T22 for 8 + 8 and 16 + 16 columns.
template <int ROWS> __device__ __forceinline__ void build_t(int columns, Panel<ROWS>& s) {
    const int thread = threadIdx.x;
    if (thread < NB) {
        const int first = thread & ~7, i = thread & 7;
        real row[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            real gram[8], sum[2] = {0, 0};
            load_row(gram, &s.gram[first + k][first]);
            const real tau = s.tau[first + k];
#pragma unroll
            for (int j = 0; j < k; ++j) sum[j % 2] = multiply_add(row[j], gram[j], sum[j % 2]);
            row[k] = i == k ? tau : i < k ? -tau * (sum[0] + sum[1]) : real(0);
            s.turned_t[first + k][thread] = row[k];
        }
    }
    __syncthreads();
#pragma unroll
    for (int size = 8; size < NB; size *= 2) {
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

// Reduce [corner; x] to a triangle. Lane q of the first HOLDERS warps has HELD rows of column q in x, and gets those of
// V; the corner becomes R's, T arises (what lies below its diagonal must be zero already). Columns from `columns` on are
// zero. The last warp does `meanwhile` beside it. A barrier is needed before and has been met after.
template <int ROWS, class Meanwhile>
__device__ __forceinline__ void factor(real (&x)[HELD<ROWS>], int columns, Panel<ROWS>& s, Meanwhile meanwhile) {
    constexpr int COUNT = HELD<ROWS>;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool holds = warp < HOLDERS;

    // Columns are scaled by powers of two, which changes no bit of V and T and keeps every square within range.
    real largest = 0;
#pragma unroll
    for (int i = 0; i < NB / WARPS; ++i) {
        const int row = warp * (NB / WARPS) + i;
        if (row <= lane) largest = maximum(largest, absolute(s.corner[row][lane]));
    }
    if (holds) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) largest = maximum(largest, absolute(x[i]));
    }
    s.largest[warp][lane] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; ++i) largest = maximum(largest, s.largest[i][lane]);
    const real size = power_below(largest), inverse_size = 1 / size;
#pragma unroll
    for (int i = 0; i < NB / WARPS; ++i) {
        const int row = warp * (NB / WARPS) + i;
        s.corner[row][lane] = row <= lane ? s.corner[row][lane] * inverse_size : real(0);
        if (row >= columns) {
            s.gram[row][lane] = 0;
            s.tau[row] = 0;
        }
    }
    if (holds) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] *= inverse_size;
        if (lane == 0) store_row(s.pivot[0][warp], x);
    }
    __syncthreads();

    if (warp <= NOTER) {
        // The column in work comes from its lane: few rows by exchange, more through shared memory.
        constexpr bool EXCHANGES = COUNT * sizeof(real) <= 64, KEEPS = COUNT * sizeof(real) <= 128;
        real own = 0;  // what makes v of this lane's column, once it is finished
        real entry = s.corner[0][lane], alpha = s.corner[0][0];
#pragma unroll 1
        for (int k = 0; k < columns; ++k) {
            const int set = k & 1;
            const int next = minimum(k + 1, NB - 1);
            const real next_entry = s.corner[next][lane], next_alpha = s.corner[next][next];
            real pivot[KEEPS ? COUNT : VECTOR];
            if (holds) {
                real dot[4] = {0, 0, 0, 0};  // four chains of additions hide each other's latency
#pragma unroll
                for (int i = 0; i < COUNT; i += VECTOR) {
                    real part[VECTOR];
                    if (!EXCHANGES) load_row(part, &s.pivot[set][warp][i]);
#pragma unroll
                    for (int j = 0; j < VECTOR; ++j) {
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
            // The reciprocal starts from the rough root, and is made exact with the exact one.
            const real square = multiply_add(alpha, alpha, tail), size_of_alpha = absolute(alpha);
            const real rough = rough_root(square);
            real inverse = rough_reciprocal(multiply_add(square, rough, size_of_alpha));
            real root = better_root(square, rough);
            const real norm = square * root;
            inverse = better_reciprocal(size_of_alpha + norm, inverse);
            if (alpha < 0) inverse = -inverse;
            real mu = alpha < 0 ? norm : -norm, tau = multiply_add(size_of_alpha, root, real(1));
            if (tail <= NEGLIGIBLE) {  // never of NaN, which goes on, and shows
                mu = alpha;
                inverse = tau = 0;
            }
            const real along = multiply_add(inverse, sum, entry);  // v'(column of this lane)
            if (lane == k) own = inverse;
            if (holds) {
                const real factor = lane > k ? -(tau * inverse) * along : real(0);
#pragma unroll
                for (int i = 0; i < COUNT; i += VECTOR) {
                    real part[VECTOR];
                    if (!KEEPS) load_row(part, &s.pivot[set][warp][i]);
#pragma unroll
                    for (int j = 0; j < VECTOR; ++j)
                        x[i + j] = multiply_add(KEEPS ? pivot[i + j] : part[j], factor, x[i + j]);
                }
                if (!EXCHANGES) {
                    store_row_if(lane == k + 1, s.pivot[set ^ 1][warp], x);
                    __syncwarp();
                }
            } else {
                s.gram[k][lane] = inverse * own * sum;  // of lanes from k on it is not read
                s.tau[k] = tau;
                s.corner[k][lane] = (lane > k ? entry - tau * along : lane == k ? mu : real(0)) * size;
            }
            entry = next_entry;
            alpha = next_alpha;
        }
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] *= own;
    } else if (warp == WARPS - 1) {
        meanwhile();
    }
    __syncthreads();
    build_t(columns, s);
}

// ---------------------------------------------------------------- down

template <int ROWS> struct Down {
    Panel<ROWS> panel;
    alignas(16) real u[WARPS * ROWS][PITCH];  // what the tile's columns have in the rows of U
    alignas(16) real v[WARPS * ROWS][PITCH];
    alignas(16) real partial[WARPS][NB][PITCH];
    alignas(16) real x[NB][PITCH];
    alignas(16) real w[NB][PITCH];
    alignas(16) real above[NB][PITCH];  // of R, for the chain's next panel
    alignas(16) real corner[NB][PITCH];
};

__device__ __forceinline__ unsigned seen(const unsigned* counter) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

// What the block has written before its last barrier is seen by whoever has seen this.
__device__ __forceinline__ void publish(unsigned* counter, unsigned value) {
    asm volatile("fence.acq_rel.gpu;\n\tst.release.gpu.global.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

// [a; u] <- (I - V T' V') [a; u] for the tile's NB rows `a` of the matrix, whose entry (i, q) of this thread's four is
// given and returned, i = thread / 8, q = thread % 8 * 4 + 0..3. V and T' lie in shared memory. Workers only meet at
// barriers of all threads, four of them.
template <int ROWS> __device__ __forceinline__ void apply(real (&mine)[4], Down<ROWS>& s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 8, quad = lane % 8 * 4;
    const int i = threadIdx.x / 8;
    {  // V'u: each warp sums over its rows; in float64 in two goes, for the registers' sake
        constexpr int GO = REAL_IS_FLOAT ? 8 : 4;
#pragma unroll 1
        for (int go = 0; go < 8; go += GO) {
            real acc[GO][4] = {};
#pragma unroll 2
            for (int k = 0; k < ROWS; ++k) {
                const int row = warp * ROWS + k;
                real left[GO], right[4];
                load_row(left, &s.v[row][8 * group + go]);
                load_row(right, &s.u[row][quad]);
#pragma unroll
                for (int a = 0; a < GO; ++a)
#pragma unroll
                    for (int b = 0; b < 4; ++b) acc[a][b] = multiply_add(left[a], right[b], acc[a][b]);
            }
#pragma unroll
            for (int a = 0; a < GO; ++a) store_row(&s.partial[warp][8 * group + go + a][quad], acc[a]);
        }
    }
    __syncthreads();
    {
        real sum[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) sum[b] = mine[b];
#pragma unroll
        for (int j = 0; j < WARPS; ++j) {
            real part[4];
            load_row(part, &s.partial[j][i][quad]);
#pragma unroll
            for (int b = 0; b < 4; ++b) sum[b] += part[b];
        }
        store_row(&s.x[i][quad], sum);
    }
    __syncthreads();
    {
        real w[4] = {0, 0, 0, 0};
        for (int k = 0; k < 4 * (warp + 1); k += VECTOR) {  // T' is lower triangular, a warp has four of its rows
            real t[VECTOR];
            load_row(t, &s.panel.turned_t[i][k]);
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                real x[4];
                load_row(x, &s.x[k + j][quad]);
#pragma unroll
                for (int b = 0; b < 4; ++b) w[b] = multiply_add(t[j], x[b], w[b]);
            }
        }
#pragma unroll
        for (int b = 0; b < 4; ++b) mine[b] -= w[b];
        store_row(&s.w[i][quad], w);
        store_row(&s.partial[0][i][quad], mine);  // for those who turn the tile round
    }
    __syncthreads();
    {
        real acc[ROWS / 4][4] = {};
#pragma unroll 2
        for (int k = 0; k < NB; k += VECTOR) {
            real v[ROWS / 4][VECTOR];
#pragma unroll
            for (int a = 0; a < ROWS / 4; ++a) load_row(v[a], &s.v[warp * ROWS + group + 4 * a][k]);
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                real w[4];
                load_row(w, &s.w[k + j][quad]);
#pragma unroll
                for (int a = 0; a < ROWS / 4; ++a)
#pragma unroll
                    for (int b = 0; b < 4; ++b) acc[a][b] = multiply_add(v[a][j], w[b], acc[a][b]);
            }
        }
#pragma unroll
        for (int a = 0; a < ROWS / 4; ++a) {
            real* const at = &s.u[warp * ROWS + group + 4 * a][quad];
            real u[4];
            load_row(u, at);
#pragma unroll
            for (int b = 0; b < 4; ++b) u[b] -= acc[a][b];
            store_row(at, u);
        }
    }
}

// The columns of [r; u] that a tile has, [d; f] for the further columns, or rows of [q e]; see `down`.
template <int ROWS> struct Sweep {
    real* r;
    index_t ldr;
    int n;
    real* u;
    index_t ldu;
    int p;
    real* d;
    index_t ldd;
    real* f;
    index_t ldf;
    int rest;
    real* q;
    index_t ldq;
    real* e;
    index_t lde;
    int rows_q;
    real* v;             // (panels, WARPS * ROWS, NB): first what the chain is handed, then V
    real* t;             // (panels, NB, NB): T transposed
    unsigned* progress;  // tickets given out, panels finished, and whether each panel has been handed over
};

// The panels one after the other, all by one block: a hand-over from block to block takes as long as a dozen columns.
// Each panel comes with all reflections applied but those of the panel before it.
template <int ROWS> __device__ __forceinline__ void chain(const Sweep<ROWS>& g, Down<ROWS>& s) {
    constexpr int P = WARPS * ROWS, COUNT = HELD<ROWS>;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, i = thread / 8, quad = thread % 8 * 4;
    const bool holds = warp < HOLDERS;
    const int panels = (g.n + NB - 1) / NB;
    for (int k = thread; k < P * NB; k += THREADS) {
        const int row = k / NB, c = k % NB;
        const bool inside = row < g.p && c < g.n;
        s.u[row][c] = inside ? g.u[row * g.ldu + c] : real(0);
        if (inside) g.u[row * g.ldu + c] = 0;
    }
    // R's entries for panel c: the block above the panel's square, and the square. One warp.
    const auto fetch = [&](int c) {
        const int first = c * NB, width = minimum(NB, g.n - first);
        const real* const square = g.r + index_t(first) * g.ldr + first;
#pragma unroll 8
        for (int row = 0; row < NB; ++row) {
            const bool inside = lane < width, upper = inside && row <= lane;
            load_async(&s.corner[row][lane], upper ? square + row * g.ldr + lane : g.r, upper);
            if (c > 0) load_async(&s.above[row][lane], inside ? square + (row - NB) * g.ldr + lane : g.r, inside);
        }
        loads_done();
    };
    for (int k = thread; k < NB * PITCH; k += THREADS) s.panel.turned_t[0][k] = 0;
    if (warp == WARPS - 1) fetch(0);
    __syncthreads();
    for (int c = 0; c < panels; ++c) {
        const int first = c * NB, width = minimum(NB, g.n - first);
        if (c > 0) {
            real above[4];
            load_row(above, &s.above[i][quad]);
            apply(above, s);
            {
#pragma unroll
                for (int b = 0; b < 4; ++b)
                    if (quad + b < width) g.r[(index_t(first) - NB + i) * g.ldr + first + quad + b] = above[b];
            }
        }
        {
            real corner[4];
            load_row(corner, &s.corner[i][quad]);
            store_row(&s.panel.corner[i][quad], corner);
        }
        __syncthreads();
        real x[COUNT];
        if (holds) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) x[k] = s.u[warp * COUNT + k][lane];
        }
        factor(x, width, s.panel, [&] {
            if (lane == 0 && c > 0) publish(g.progress + 1, c);  // here nobody waits for what that waits for
            if (c + 1 == panels) return;
            while (seen(g.progress + 2 + c + 1) == 0) {
            }
            __syncwarp();
            for (int k = lane; k < P * NB / VECTOR; k += 32) {
                const int row = k / (NB / VECTOR), column = k % (NB / VECTOR) * VECTOR;
                load_vector_async(&s.u[row][column], g.v + (index_t(c + 1) * P + row) * NB + column);
            }
            fetch(c + 1);
        });
        if (holds) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) s.v[warp * COUNT + k][lane] = x[k];
        }
        __syncthreads();
#pragma unroll 4
        for (int row = warp; row < P; row += WARPS) g.v[(index_t(c) * P + row) * NB + lane] = s.v[row][lane];
        for (int row = warp; row < NB; row += WARPS)
            g.t[(index_t(c) * NB + row) * NB + lane] = s.panel.turned_t[row][lane];
        {
            real entry[4];
            load_row(entry, &s.panel.corner[i][quad]);
#pragma unroll
            for (int b = 0; b < 4; ++b)
                if (i <= quad + b && quad + b < width) g.r[(index_t(first) + i) * g.ldr + first + quad + b] = entry[b];
        }
    }
    __syncthreads();
    if (thread == 0) publish(g.progress + 1, panels);
}

// What is not on the chain: a tile's columns of R, which are handed over when only the last reflections are missing;
// further columns; and, `across`, rows of Q.
template <int ROWS> __device__ __forceinline__ void follow(const Sweep<ROWS>& g, int ticket, Down<ROWS>& s) {
    constexpr int P = WARPS * ROWS;
    const int thread = threadIdx.x, i = thread / 8, quad = thread % 8 * 4;
    const int panels = (g.n + NB - 1) / NB, d_tiles = (g.rest + NB - 1) / NB;
    const bool of_r = ticket < panels, across = ticket >= panels + d_tiles;
    const int tile = of_r ? ticket : across ? ticket - panels - d_tiles : ticket - panels;
    const int first = tile * NB, width = minimum(NB, (of_r ? g.n : across ? g.rows_q : g.rest) - first);
    const int steps = of_r ? tile - 1 : panels;
    real* const matrix = of_r ? g.r + first : across ? g.q + first * g.ldq : g.d + first;
    const index_t ld = of_r ? g.ldr : across ? g.ldq : g.ldd;
    real* const state = of_r ? g.u + first : across ? g.e + first * g.lde : g.f + first;
    const index_t ld_state = of_r ? g.ldu : across ? g.lde : g.ldf;

    for (int k = thread; k < P * NB; k += THREADS) {
        const int row = across ? k % P : k / NB, c = across ? k / P : k % NB;
        const bool inside = row < g.p && c < width;
        real* const at = state + (across ? c * ld_state + row : row * ld_state + c);
        s.u[row][c] = inside ? *at : real(0);
        if (inside && of_r) *at = 0;
    }
    unsigned finished = 0;
    for (int j = 0; j < steps; ++j) {
        real mine[4] = {0, 0, 0, 0};
        real* const at = matrix + (across ? i * ld + j * NB + quad : (index_t(j) * NB + i) * ld + quad);
        const bool row_inside = (across ? i < width : j * NB + i < g.n);
        const int limit = across ? g.n - j * NB : width;
        if (row_inside) {
#pragma unroll
            for (int b = 0; b < 4; ++b)
                if (quad + b < limit) mine[b] = at[b];
        }
        if (thread == 0) {
            while (finished <= unsigned(j)) finished = seen(g.progress + 1);
        }
        __syncthreads();  // also: what the last step read in shared memory is free
        for (int k = thread; k < P * NB / VECTOR; k += THREADS) {
            const int row = k / (NB / VECTOR), column = k % (NB / VECTOR) * VECTOR;
            load_vector_async(&s.v[row][column], g.v + (index_t(j) * P + row) * NB + column);
        }
        for (int k = thread; k < NB * NB / VECTOR; k += THREADS) {
            const int row = k / (NB / VECTOR), column = k % (NB / VECTOR) * VECTOR;
            load_vector_async(&s.panel.turned_t[row][column], g.t + (index_t(j) * NB + row) * NB + column);
        }
        if (across) {
#pragma unroll
            for (int b = 0; b < 4; ++b) s.w[quad + b][i] = mine[b];
        }
        loads_done();
        __syncthreads();
        if (across) load_row(mine, &s.w[i][quad]);
        apply(mine, s);
        if (across) {
#pragma unroll
            for (int b = 0; b < 4; ++b) mine[b] = s.partial[0][quad + b][i];
        }
        if (row_inside) {
#pragma unroll
            for (int b = 0; b < 4; ++b)
                if (quad + b < limit) at[b] = mine[b];
        }
    }
    __syncthreads();
    if (!of_r) {
        for (int k = thread; k < P * NB; k += THREADS) {
            const int row = across ? k % P : k / NB, c = across ? k / P : k % NB;
            if (row < g.p && c < width) state[across ? c * ld_state + row : row * ld_state + c] = s.u[row][c];
        }
        return;
    }
    for (int k = thread; k < P * NB; k += THREADS) g.v[index_t(tile) * P * NB + k] = s.u[k / NB][k % NB];
    __syncthreads();
    if (thread == 0) publish(g.progress + 2 + tile, 1);
}

template <int ROWS> __device__ __forceinline__ void down(const Sweep<ROWS>& g) {
    auto& s = *reinterpret_cast<Down<ROWS>*>(memory);
    __shared__ int ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(g.progress, 1u);
    __syncthreads();
    if (ticket == 0) chain(g, s);
    else follow(g, ticket, s);
}

#if __CUDA_ARCH__ >= 900
constexpr int AT_ONCE = REAL_IS_FLOAT ? 2 : 1;  // blocks of the smallest variant on a multiprocessor
#else
constexpr int AT_ONCE = 1;
#endif

extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE) qr_down_4(
    real* r, long long ldr, int n, real* u, long long ldu, int p, real* d, long long ldd, real* f,
    long long ldf, int rest, real* q, long long ldq, real* e, long long lde, int rows_q, real* v, real* t,
    unsigned* progress)
{
    down<4>({r, ldr, n, u, ldu, p, d, ldd, f, ldf, rest, q, ldq, e, lde, rows_q, v, t, progress});
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) qr_down_8(
    real* r, long long ldr, int n, real* u, long long ldu, int p, real* d, long long ldd, real* f,
    long long ldf, int rest, real* q, long long ldq, real* e, long long lde, int rows_q, real* v, real* t,
    unsigned* progress)
{
    down<8>({r, ldr, n, u, ldu, p, d, ldd, f, ldf, rest, q, ldq, e, lde, rows_q, v, t, progress});
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) qr_down_16(
    real* r, long long ldr, int n, real* u, long long ldu, int p, real* d, long long ldd, real* f,
    long long ldf, int rest, real* q, long long ldq, real* e, long long lde, int rows_q, real* v, real* t,
    unsigned* progress)
{
    down<16>({r, ldr, n, u, ldu, p, d, ldd, f, ldf, rest, q, ldq, e, lde, rows_q, v, t, progress});
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) qr_down_32(  // float only: double needs more shared memory
    real* r, long long ldr, int n, real* u, long long ldu, int p, real* d, long long ldd, real* f,
    long long ldf, int rest, real* q, long long ldq, real* e, long long lde, int rows_q, real* v, real* t,
    unsigned* progress)
{
    if constexpr (REAL_IS_FLOAT)
        down<32>({r, ldr, n, u, ldu, p, d, ldd, f, ldf, rest, q, ldq, e, lde, rows_q, v, t, progress});
}

// ---------------------------------------------------------------- up

struct Chain {
    Panel<STEP / WARPS> panel;
    alignas(16) real z[2][STEP][PITCH];  // of this step, and of the next
};

// [l; z] -> [l; 0] from the last step to the first: v (steps, STEP, NB), t (steps, NB, NB) transposed; l (p, p) in place.
extern "C" __global__ void __launch_bounds__(THREADS) qr_up_chain(
    const real* z, long long ldz, int n, int p, real* l, long long ldl, real* v, real* t)
{
    constexpr int ROWS = STEP / WARPS, COUNT = HELD<ROWS>;
    auto& s = *reinterpret_cast<Chain*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool holds = warp < HOLDERS;
    const auto fetch = [&](int step) {
#pragma unroll
        for (int k = warp; k < STEP; k += WARPS) {
            const int row = step * STEP + k;
            const bool inside = row < n && lane < p;
            load_async(&s.z[step % 2][k][lane], inside ? z + row * ldz + lane : z, inside);
        }
    };
    for (int k = threadIdx.x; k < NB * NB; k += THREADS) {
        const int row = k / NB, c = k % NB;
        s.panel.corner[row][c] = row <= c && c < p ? l[row * ldl + c] : real(0);
        s.panel.turned_t[row][c] = 0;
    }
    const int steps = (n + STEP - 1) / STEP;
    fetch(steps - 1);
    for (int j = steps - 1; j >= 0; --j) {
        real (&rows)[STEP][PITCH] = s.z[j % 2];
        loads_done();
        __syncthreads();
        if (j > 0) fetch(j - 1);
        real x[COUNT];
        if (holds) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) x[k] = rows[warp * COUNT + k][lane];
        }
        factor(x, p, s.panel, [] {});
        if (holds) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) rows[warp * COUNT + k][lane] = x[k];
        }
        __syncthreads();
#pragma unroll
        for (int row = warp; row < STEP; row += WARPS) v[(index_t(j) * STEP + row) * NB + lane] = rows[row][lane];
        for (int row = warp; row < NB; row += WARPS)
            t[(index_t(j) * NB + row) * NB + lane] = s.panel.turned_t[row][lane];
    }
    __syncthreads();
    for (int k = threadIdx.x; k < p * NB; k += THREADS) {
        const int row = k / NB, c = k % NB;
        if (c < p) l[row * ldl + c] = row <= c ? s.panel.corner[row][c] : real(0);
    }
}

constexpr int WIDE_PITCH = STEP + VECTOR;
constexpr int SIDE_PITCH = SIDE + VECTOR;
constexpr int BUFFERS = REAL_IS_FLOAT ? 2 : 1;  // products in shared memory at a time: one ahead where there is room

// 4 x 4 entries a thread of a STEP x STEP product, rows and columns 16 apart; left(i, k) and right(k, c) read it.
template <class Left, class Right>
__device__ __forceinline__ void small_product(real (&x)[4][4], int depth, Left left, Right right) {
    const int i0 = threadIdx.x / 16, c0 = threadIdx.x % 16;
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
        for (int b = 0; b < 4; ++b) x[a][b] = 0;
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
        real y[4], z[4];
#pragma unroll
        for (int a = 0; a < 4; ++a) y[a] = left(i0 + 16 * a, k);
#pragma unroll
        for (int b = 0; b < 4; ++b) z[b] = right(k, c0 + 16 * b);
#pragma unroll
        for (int a = 0; a < 4; ++a)
#pragma unroll
            for (int b = 0; b < 4; ++b) x[a][b] = multiply_add(y[a], z[b], x[a][b]);
    }
}

// o (steps, SIDE, SIDE): I - V T' V' with V = [I; v]; block (steps, STEP, STEP): what it makes of R's diagonal blocks.
extern "C" __global__ void __launch_bounds__(256) qr_up_open(
    const real* v, const real* t, const real* r, long long ldr, int n, int squares_in, real* o, real* block)
{
    typedef real row_t[PITCH];
    typedef real wide_t[WIDE_PITCH];
    row_t* const s_v = reinterpret_cast<row_t*>(memory);
    row_t* const s_t = s_v + STEP;        // T'
    row_t* const s_vt = s_t + NB;         // v T'
    wide_t* const s_h = reinterpret_cast<wide_t*>(s_vt + STEP);
    wide_t* const s_r = s_h + STEP;
    const int j = blockIdx.x, first = j * STEP, i0 = threadIdx.x / 16, c0 = threadIdx.x % 16;
    v += index_t(j) * STEP * NB;
    t += index_t(j) * NB * NB;
    o += index_t(j) * SIDE * SIDE;
    block += index_t(j) * STEP * STEP;
    for (int k = threadIdx.x; k < STEP * NB; k += 256) s_v[k / NB][k % NB] = v[k];
    for (int k = threadIdx.x; k < NB * NB; k += 256) s_t[k / NB][k % NB] = t[k];
    for (int k = threadIdx.x; k < STEP * STEP; k += 256) {
        const int row = k / STEP, c = k % STEP;
        const bool inside = first + maximum(row, c) < n && (squares_in || row <= c);
        s_r[row][c] = inside ? r[(index_t(first) + row) * ldr + first + c] : real(0);
    }
    __syncthreads();
    // v T' and, beside it, v T: columns 0..31 and 32..63 of one product.
    real x[4][4];
    small_product(x, NB, [&](int i, int k) { return s_v[i][k]; },
                  [&](int k, int c) { return c < NB ? s_t[k][c] : s_t[c - NB][k]; });
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
        for (int b = 0; b < 4; ++b) {
            const int row = i0 + 16 * a, c = c0 + 16 * b;
            if (c < NB) {
                s_vt[row][c] = x[a][b];
                o[(NB + row) * SIDE + c] = -x[a][b];
            } else {
                o[(c - NB) * SIDE + NB + row] = -x[a][b];
            }
        }
    for (int k = threadIdx.x; k < NB * NB; k += 256)
        o[k / NB * SIDE + k % NB] = (k / NB == k % NB ? 1 : 0) - s_t[k / NB][k % NB];
    __syncthreads();
    small_product(x, NB, [&](int i, int k) { return s_vt[i][k]; }, [&](int k, int c) { return s_v[c][k]; });
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
        for (int b = 0; b < 4; ++b) {
            const int row = i0 + 16 * a, c = c0 + 16 * b;
            s_h[row][c] = (row == c ? 1 : 0) - x[a][b];
            o[(NB + row) * SIDE + NB + c] = s_h[row][c];
        }
    __syncthreads();
    small_product(x, STEP, [&](int i, int k) { return s_h[i][k]; }, [&](int k, int c) { return s_r[k][c]; });
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
        for (int b = 0; b < 4; ++b) block[(i0 + 16 * a) * STEP + c0 + 16 * b] = x[a][b];
}

// The lower STEP rows of o, times q' (steps, STEP, STEP).
extern "C" __global__ void __launch_bounds__(256) qr_up_close(const real* q, real* o) {
    typedef real wide_t[WIDE_PITCH];
    typedef real side_t[SIDE_PITCH];
    wide_t* const s_q = reinterpret_cast<wide_t*>(memory);
    side_t* const s_o = reinterpret_cast<side_t*>(s_q + STEP);
    const int i0 = threadIdx.x / 16, c0 = threadIdx.x % 16;
    q += index_t(blockIdx.x) * STEP * STEP;
    o += index_t(blockIdx.x) * SIDE * SIDE + NB * SIDE;
    for (int k = threadIdx.x; k < STEP * STEP; k += 256) s_q[k / STEP][k % STEP] = q[k];
    for (int k = threadIdx.x; k < STEP * SIDE; k += 256) s_o[k / SIDE][k % SIDE] = o[k];
    __syncthreads();
    real x[4][4];
    for (int from = 0; from < SIDE; from += NB) {  // STEP columns, the last time half of them
        small_product(x, STEP, [&](int i, int k) { return s_q[k][i]; },
                      [&](int k, int c) { return s_o[k][minimum(from + c, SIDE - 1)]; });
#pragma unroll
        for (int a = 0; a < 4; ++a)
#pragma unroll
            for (int b = 0; b < 2; ++b) o[(i0 + 16 * a) * SIDE + from + c0 + 16 * b] = x[a][b];
    }
}

// [s; a] <- o_j [s; a] for the steps j from the last to the first, `a` being STEP rows of a tile of NB columns. Tiles:
// the columns of r (n, columns), upper trapezoidal, with w (p, columns); those of d (n, rest) with f (p, rest); the rows
// of q (rows_q, n) with e (rows_q, p). Between two sweeps r has full squares on its diagonal, `squares_in` and _out.
extern "C" __global__ void __launch_bounds__(256) qr_up_sweep(
    const real* o, real* r, long long ldr, int n, int columns, real* w, long long ldw, int p, real* d, long long ldd,
    real* f, long long ldf, int rest, real* q, long long ldq, real* e, long long lde, int rows_q, int squares_in,
    int squares_out)
{
    typedef real row_t[PITCH];
    typedef real side_t[SIDE_PITCH];
    row_t* const y = reinterpret_cast<row_t*>(memory);  // [s; a]
    side_t* const products = reinterpret_cast<side_t*>(y + SIDE);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = lane / 8;
    const int i = thread / 8, quad = thread % 8 * 4;
    const int r_tiles = (columns + NB - 1) / NB, d_tiles = (rest + NB - 1) / NB;
    const int block = blockIdx.x;
    const bool of_r = block < r_tiles, across = block >= r_tiles + d_tiles;
    const int tile = of_r ? block : across ? block - r_tiles - d_tiles : block - r_tiles;
    const int first = tile * NB, width = minimum(NB, (of_r ? columns : across ? rows_q : rest) - first);
    const int last_row = of_r ? minimum(n, first + width) - 1 : n - 1;
    real* const matrix = of_r ? r + first : across ? q + first * ldq : d + first;
    const index_t ld = of_r ? ldr : across ? ldq : ldd;
    real* const state = of_r ? w + first : across ? e + first * lde : f + first;
    const index_t ld_state = of_r ? ldw : across ? lde : ldf;

    for (int k = thread; k < NB * NB; k += 256) {
        const int row = across ? k % NB : k / NB, c = across ? k / NB : k % NB;
        y[row][c] = row < p && c < width ? state[across ? c * ld_state + row : row * ld_state + c] : real(0);
    }
    int j = last_row / STEP;
    const auto fetch = [&](int step) {
        const real* const from = o + index_t(step) * SIDE * SIDE;
        side_t* const to = products + step % BUFFERS * SIDE;
        for (int k = thread; k < SIDE * SIDE / VECTOR; k += 256)
            load_vector_async(&to[k / (SIDE / VECTOR)][k % (SIDE / VECTOR) * VECTOR], from + k * VECTOR);
    };
    fetch(j);
    for (; j >= 0; --j) {
        const int top = j * STEP;
#pragma unroll
        for (int half = 0; half < STEP / NB; ++half) {
#pragma unroll
            for (int b = 0; b < 4; ++b) {
                const int row = half * NB + (across ? quad + b : i), c = across ? i : quad + b;
                const bool inside = top + row < n && c < width && (squares_in || !of_r || top + row <= first + c);
                y[NB + row][c] = inside ? matrix[across ? c * ld + top + row : (index_t(top) + row) * ld + c] : real(0);
            }
        }
        loads_done();
        __syncthreads();
        if (BUFFERS > 1 && j > 0) fetch(j - 1);
        const side_t* const product = products + j % BUFFERS * SIDE;
        constexpr int EACH = SIDE / (4 * WARPS);
        real acc[EACH][4] = {};
#pragma unroll 4
        for (int k = 0; k < SIDE; k += VECTOR) {
            real left[EACH][VECTOR];
#pragma unroll
            for (int a = 0; a < EACH; ++a) load_row(left[a], &product[warp * 4 * EACH + group + 4 * a][k]);
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) {
                real right[4];
                load_row(right, &y[k + v][quad]);
#pragma unroll
                for (int a = 0; a < EACH; ++a)
#pragma unroll
                    for (int b = 0; b < 4; ++b) acc[a][b] = multiply_add(left[a][v], right[b], acc[a][b]);
            }
        }
        __syncthreads();
        if (BUFFERS == 1 && j > 0) fetch(j - 1);
#pragma unroll
        for (int a = 0; a < EACH; ++a) store_row(&y[warp * 4 * EACH + group + 4 * a][quad], acc[a]);
        __syncthreads();
#pragma unroll
        for (int half = 0; half < STEP / NB; ++half) {
#pragma unroll
            for (int b = 0; b < 4; ++b) {  // as they were loaded: nobody else's entries are read or overwritten
                const int row = half * NB + (across ? quad + b : i), c = across ? i : quad + b;
                if (top + row < n && c < width)
                    matrix[across ? c * ld + top + row : (index_t(top) + row) * ld + c] =
                        squares_out || !of_r || top + row <= first + c ? y[NB + row][c] : real(0);
            }
        }
    }
    for (int k = thread; k < NB * NB; k += 256) {
        const int row = across ? k % NB : k / NB, c = across ? k / NB : k % NB;
        if (row < p && c < width) state[across ? c * ld_state + row : row * ld_state + c] = y[row][c];
    }
}
