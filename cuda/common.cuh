// The beginning of every kernel file of deblur: deblur/kernels.py puts `using real = float;` (or double) and this header
// before a .cu file and compiles the whole with NVRTC, so no host headers can be included.
//
// Matrices are row-major. Positions in a matrix are 64-bit (index_t), since 46341 squared does not fit an int. A kernel's
// parameter ld<x> is the distance between rows of the matrix <x> in elements, and `stride` that between planes. Kernels
// over elements or pixels have THREADS threads a block and a grid-stride loop over elements, unless stated otherwise.

typedef long long index_t;

// UNROLL for (...): unrolls the whole loop, so that arrays indexed in it stay in registers.
#define UNROLL _Pragma("unroll")

constexpr unsigned FULL_WARP = 0xffffffffu;
constexpr bool REAL_IS_FLOAT = sizeof(real) == 4;
constexpr real NEGLIGIBLE = REAL_IS_FLOAT ? 1e-30 : 1e-290;  // squared norm of a tail that counts as zero in QR, for columns of size 1

// The 16 bytes that one load moves: 4 floats or 2 doubles.
constexpr int VECTOR = 16 / sizeof(real);
struct alignas(16) vector_t {
    real x[VECTOR];
};

template <class T> __device__ __forceinline__ T absolute(T x) { return fabs(x); }
template <class T> __device__ __forceinline__ T square_root(T x) { return sqrt(x); }
__device__ __forceinline__ float reciprocal_root(float x) {  // rsqrtf errs by 2 ulp: one Newton step
    const float y = rsqrtf(x);
    return fmaf(0.5f * y, fmaf(-x * y, y, 1.0f), y);
}
__device__ __forceinline__ double reciprocal_root(double x) { return rsqrt(x); }
// Approximates 1 / x to at least 20 bits in one instruction, for x and a result that are normal.
__device__ __forceinline__ real rough_reciprocal(real x) {
    real y;
    if constexpr (REAL_IS_FLOAT) asm("rcp.approx.ftz.f32 %0, %1;" : "=f"((float&)y) : "f"((float)x));
    else asm("rcp.approx.ftz.f64 %0, %1;" : "=d"((double&)y) : "d"((double)x));
    return y;
}
// 1 / x from that by a Newton step (of third order in double precision), without a division's branches, for x > 0.
__device__ __forceinline__ real reciprocal(real x) {
    const real y = rough_reciprocal(x), error = fma(-x, y, real(1));
    return fma(REAL_IS_FLOAT ? error : fma(error, error, error), y, y);
}
__device__ __forceinline__ bool has_reciprocal(float x) { return x > 1.2e-38f && x < 8e37f; }
__device__ __forceinline__ bool has_reciprocal(double x) { return x > 2.3e-308 && x < 4e307; }
__device__ __forceinline__ real multiply_add(real x, real y, real z) { return fma(x, y, z); }
template <class T> __device__ __forceinline__ T minimum(T x, T y) { return x < y ? x : y; }
template <class T> __device__ __forceinline__ T maximum(T x, T y) { return x < y ? y : x; }

// Copy COUNT adjacent numbers between registers and 16-byte aligned memory.
template <int COUNT> __device__ __forceinline__ void load_row(real (&x)[COUNT], const real* from) {
    UNROLL for (int i = 0; i < COUNT; i += VECTOR) {
        const vector_t part = *reinterpret_cast<const vector_t*>(from + i);
        UNROLL for (int j = 0; j < VECTOR; ++j) x[i + j] = part.x[j];
    }
}
template <int COUNT> __device__ __forceinline__ void store_row(real* to, const real (&x)[COUNT]) {
    UNROLL for (int i = 0; i < COUNT; i += VECTOR) {
        vector_t part;
        UNROLL for (int j = 0; j < VECTOR; ++j) part.x[j] = x[i + j];
        *reinterpret_cast<vector_t*>(to + i) = part;
    }
}

// Sum over the 32 lanes of a warp, returned to every lane.
__device__ __forceinline__ real warp_sum(real x) {
    UNROLL for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL_WARP, x, offset);
    return x;
}

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Copies one element from global to shared memory, past the registers, so that many copies can be under way; zero if not
// `inside`, but `from` must be a valid address. Visible to this thread after loads_done(), to others after a barrier.
__device__ __forceinline__ void load_async(real* to, const real* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(sizeof(real)),
                 "r"(inside ? (int)sizeof(real) : 0) : "memory");
}
// The same for VECTOR elements; both addresses must be multiples of 16 bytes.
__device__ __forceinline__ void load_vector_async(real* to, const real* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ bool vectors_lie_aligned(const real* a, index_t lda) {
    return ((unsigned long long)a | (unsigned long long)(lda * sizeof(real))) % 16 == 0;
}
__device__ __forceinline__ void loads_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A number by which blocks wait for each other: after acquiring it, all writes before its release are visible.
__device__ __forceinline__ unsigned acquire(const unsigned* number) {
    unsigned seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(number) : "memory");
    return seen;
}
__device__ __forceinline__ void release(unsigned* number, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(number), "r"(value) : "memory");
}
__device__ __forceinline__ void release_one_more(unsigned* number) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(number) : "memory");
}

// Barrier over all blocks of a grid. All blocks must be resident: launch with cooperative=True. `counter` is zero before
// the first barrier and is never reset in a launch: the k-th barrier (k = 1, 2, ...) waits for k arrivals of every block.
// `round` counts the barriers of this launch, and `counter` must be cleared before the next launch.
__device__ __forceinline__ void grid_barrier(unsigned* counter, unsigned& round) {
    round += 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
        const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
        release_one_more(counter);
        while (acquire(counter) < round * blocks) continue;
    }
    __syncthreads();
}

// ---------------------------------------------------------------- a diagonal block in shared memory
// Shared by cholesky.cu and triangular.cu: a lower triangular block of up to LEAF x LEAF and its inverse, in one
// square of shared memory, by one block of LEAF_THREADS threads. L is below the diagonal, the transpose of L^-1 above it,
// and 1 / L[i][i] on it. A smaller block is filled with the identity.

constexpr int LEAF = 128;
constexpr int LEAF_THREADS = 256;
constexpr int LEAF_PITCH = LEAF + VECTOR;  // keeps rows aligned, with 8 rows' vectors in different banks
constexpr int LEAF_BYTES = LEAF * LEAF_PITCH * sizeof(real);

typedef real leaf_t[LEAF_PITCH];

// y = L^-1 y for the 32 x 32 block of L at (o, o), with one right-hand side for each thread, in registers.
__device__ __forceinline__ void leaf_forward(const leaf_t* s, int o, real (&y)[32]) {
    UNROLL for (int i = 0; i < 32; ++i) {
        real even = y[i], odd = 0;
        UNROLL for (int k0 = 0; k0 < i; k0 += VECTOR) {
            vector_t row;
            if (k0 + VECTOR <= i) {
                row = *(const vector_t*)&s[o + i][o + k0];
            } else {  // not a whole vector: entries on and above the diagonal may be changing
                UNROLL for (int k = 0; k < VECTOR; ++k) row.x[k] = k0 + k < i ? s[o + i][o + k0 + k] : real(0);
            }
            UNROLL for (int k = 0; k < VECTOR; ++k)
                if (k0 + k < i) {
                    if (k % 2 == 0) even = multiply_add(-row.x[k], y[k0 + k], even);
                    else odd = multiply_add(-row.x[k], y[k0 + k], odd);
                }
        }
        y[i] = (even + odd) * s[o + i][o + i];
    }
}

// Column c of the inverse of the 32 x 32 block at (o, o), computed by lane c and stored as row c above the diagonal.
__device__ __forceinline__ void leaf_invert_32(leaf_t* s, int o) {
    const int c = threadIdx.x & 31;
    real y[32];
    UNROLL for (int i = 0; i < 32; ++i) y[i] = i == c ? real(1) : real(0);
    leaf_forward(s, o, y);
    UNROLL for (int i = 1; i < 32; ++i)
        if (i > c) s[o + c][o + i] = y[i];
}

// From the inverses of all SIZE x SIZE diagonal blocks, those of 2 SIZE: X = -L22^-1 (L21 L11^-1). A thread has 4 x 4
// results, SIZE / 4 rows and columns apart, so that neighbouring threads read neighbouring rows. For all threads of a block.
template <int SIZE> __device__ __forceinline__ void leaf_combine(leaf_t* s) {
    constexpr int SIDE = SIZE / 4, TILES = LEAF / (2 * SIZE) * SIDE * SIDE;
    const int t = threadIdx.x, pair = t / (SIDE * SIDE);
    const int i0 = t % (SIDE * SIDE) / SIDE, c0 = t % SIDE;
    const int o0 = 2 * SIZE * pair, o1 = o0 + SIZE;
    real x[4][4] = {};
    if (t < TILES) {
        for (int k = c0 / VECTOR * VECTOR; k < SIZE; k += VECTOR) {  // X' = L21 L11^-1; L11^-1 is lower triangular, so k >= c
            vector_t left[4], right[4];
            UNROLL for (int i = 0; i < 4; ++i) left[i] = *(const vector_t*)&s[o1 + i0 + SIDE * i][o0 + k];
            UNROLL for (int c = 0; c < 4; ++c) right[c] = *(const vector_t*)&s[o0 + c0 + SIDE * c][o0 + k];
            UNROLL for (int v = 0; v < VECTOR; ++v)
                UNROLL for (int c = 0; c < 4; ++c) {
                    const real r = k + v >= c0 + SIDE * c ? right[c].x[v] : real(0);
                    UNROLL for (int i = 0; i < 4; ++i) x[i][c] = multiply_add(left[i].x[v], r, x[i][c]);
                }
        }
        UNROLL for (int c = 0; c < 4; ++c)
            UNROLL for (int i = 0; i < 4; ++i) s[o0 + c0 + SIDE * c][o1 + i0 + SIDE * i] = x[i][c];
    }
    __syncthreads();
    if (t < TILES) {
        UNROLL for (int i = 0; i < 4; ++i)
            UNROLL for (int c = 0; c < 4; ++c) x[i][c] = 0;
        for (int k = 0; k <= i0 + 3 * SIDE; k += VECTOR) {  // X = -L22^-1 X'; k <= i
            vector_t right[4];
            UNROLL for (int c = 0; c < 4; ++c) right[c] = *(const vector_t*)&s[o0 + c0 + SIDE * c][o1 + k];
            UNROLL for (int v = 0; v < VECTOR; ++v)
                UNROLL for (int i = 0; i < 4; ++i) {
                    const real l = k + v <= i0 + SIDE * i ? s[o1 + k + v][o1 + i0 + SIDE * i] : real(0);
                    UNROLL for (int c = 0; c < 4; ++c) x[i][c] = multiply_add(-l, right[c].x[v], x[i][c]);
                }
        }
    }
    __syncthreads();
    if (t < TILES)
        UNROLL for (int c = 0; c < 4; ++c)
            UNROLL for (int i = 0; i < 4; ++i) s[o0 + c0 + SIDE * c][o1 + i0 + SIDE * i] = x[i][c];
    __syncthreads();
}

// Loads the lower triangle of the m x m block at a, filled with the identity if it is smaller than LEAF; for loads_done().
// Entries above the diagonal are arbitrary.
__device__ __forceinline__ void leaf_load(leaf_t* s, const real* a, index_t lda, int m) {
    if (m == LEAF && vectors_lie_aligned(a, lda)) {
        const int c = threadIdx.x % (LEAF / VECTOR) * VECTOR;
#pragma unroll 4
        for (int i = threadIdx.x / (LEAF / VECTOR); i < LEAF; i += LEAF_THREADS / (LEAF / VECTOR))
            if (c <= i) load_vector_async(&s[i][c], a + i * lda + c);
        return;
    }
    const int c = threadIdx.x % LEAF;
#pragma unroll 8
    for (int i = threadIdx.x / LEAF; i < LEAF; i += LEAF_THREADS / LEAF)
        if (c <= i && i < m) load_async(&s[i][c], a + i * lda + c, true);
        else if (c <= i) s[i][c] = i == c ? real(1) : real(0);
}

// Stores L^-1 as a full m x m block with zeros above the diagonal.
__device__ __forceinline__ void leaf_store_inverse(const leaf_t* s, real* x, index_t ldx, int m) {
    const int c = threadIdx.x % LEAF;
#pragma unroll 4
    for (int i = threadIdx.x / LEAF; i < m; i += LEAF_THREADS / LEAF)
        if (c < m) x[i * ldx + c] = c <= i ? s[c][i] : real(0);
}
