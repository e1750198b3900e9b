// Products of tiles in shared memory, shared by matmul.cu, matmul_wgmma.cu and cholesky.cu: TILE x TILE results by 256
// threads, from two operands of TILE rows each, STRIDE elements apart. LOWER: results above the diagonal are not needed, and
// are omitted if that saves time.

constexpr int TILE = 128;
constexpr int DEPTH = 16;         // terms that are loaded into shared memory at a time
constexpr int PITCH = DEPTH + 4;  // no bank conflicts for reads by rows or by fragments

// An order of tiles that keeps blocks that run at the same time close together, so that they share panels of
// A and B in the L2 cache: down the rows of a group of 8, then one column on.
__device__ inline void tile_in_group(index_t index, index_t tiles_m, index_t tiles_n, index_t& i, index_t& j) {
    const index_t group = index / (8 * tiles_n), first = 8 * group;
    const index_t height = minimum(tiles_m - first, (index_t)8);
    const index_t within = index - first * tiles_n;
    i = first + within % height;
    j = within / height;
}

// 8 x 8 results for each thread, 16 rows and 16 columns apart; shared memory is read 16 bytes at a time along k.
struct Simt {
    real sum[8][8] = {};

    template <int STRIDE, int TERMS, bool LOWER = false> __device__ void add(const real* a, const real* b) {
        const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll 1
        for (int q = 0; q < TERMS; q += VECTOR) {
            vector_t x[8];
            UNROLL for (int i = 0; i < 8; ++i) x[i] = *(const vector_t*)(a + (ty + 16 * i) * STRIDE + q);
            UNROLL for (int j = 0; j < 8; ++j) {
                const vector_t y = *(const vector_t*)(b + (tx + 16 * j) * STRIDE + q);
                UNROLL for (int v = 0; v < VECTOR; ++v)
                    UNROLL for (int i = LOWER ? j : 0; i < 8; ++i) sum[i][j] += x[i].x[v] * y.x[v];
            }
        }
    }

    template <class Visit> __device__ void each(Visit visit) {
        const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
        UNROLL for (int i = 0; i < 8; ++i) {
            UNROLL for (int j = 0; j < 8; ++j) visit(ty + 16 * i, tx + 16 * j, sum[i][j]);
            asm volatile("" ::: "memory");  // spreads the reads, to save registers
        }
    }
};

// Nearest TF32 value, ties away from zero; exact in float32, as is x - tf32(x). Infinity is split into
// infinity and zero, and values that would round to infinity are truncated.
__device__ inline float tf32(float x) {
    const unsigned bits = __float_as_uint(x), rounded = (bits + 0x1000u) & 0xffffe000u;
    return __uint_as_float((rounded & 0x7f800000u) == 0x7f800000u ? bits & 0xffffe000u : rounded);
}
__device__ inline float tf32_rest(float x, float hi) { return isinf(x) ? 0.0f : x - hi; }

#if __CUDA_ARCH__ >= 800
__device__ inline void mma(float* c, const float* a, const float* b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
                   "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

__device__ inline void mma(double* c, const double* a, const double* b) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
    UNROLL for (int q = 0; q < 2; ++q)
        UNROLL for (int half = 0; half < 2; ++half)
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                         : "+d"(c[2 * half]), "+d"(c[2 * half + 1])
                         : "d"(a[2 * q + half]), "d"(b[q]));
#endif
}

// For the i-th fragment, only the first `count(i)` fragments beside it.
template <class Count>
__device__ inline void multiply(double (&sum)[4][4][4], double (&x)[4][4], double (&y)[4][2], Count count) {
    UNROLL for (int i = 0; i < 4; ++i)
        UNROLL for (int j = 0; j < 4; ++j)
            if (j < count(i)) mma(sum[i][j], x[i], y[j]);
}

template <class Count>
__device__ inline void multiply(float (&sum)[4][4][4], float (&x)[4][4], float (&y)[4][2], Count count) {
    float x_lo[4][4], y_lo[4][2];
    UNROLL for (int i = 0; i < 4; ++i) {
        UNROLL for (int e = 0; e < 4; ++e) {
            const float hi = tf32(x[i][e]);
            x_lo[i][e] = tf32(tf32_rest(x[i][e], hi));
            x[i][e] = hi;
        }
        UNROLL for (int e = 0; e < 2; ++e) {
            const float hi = tf32(y[i][e]);
            y_lo[i][e] = tf32(tf32_rest(y[i][e], hi));
            y[i][e] = hi;
        }
    }
    UNROLL for (int i = 0; i < 4; ++i)
        UNROLL for (int j = 0; j < 4; ++j) {
            if (j >= count(i)) continue;
            float part[4] = {};
            mma(part, x_lo[i], y[j]);  // the small terms first, while they lose nothing
            mma(part, x[i], y_lo[j]);
            mma(part, x[i], y[j]);
            UNROLL for (int e = 0; e < 4; ++e) sum[i][j][e] += part[e];
        }
}

// Eight warps, 2 x 4, each with 64 x 32 results as 4 x 4 fragments of 16 x 8. Their order lets warps with few fragments
// share a scheduler with warps that have many, if the upper half is omitted.
struct Tensor {
    real sum[4][4][4] = {};
    int first_row, first_column;

    __device__ Tensor() {
        const int warp = threadIdx.x / 32, q = warp % 4;
        first_row = ((q == 1 || q == 2) != (warp >= 4)) ? 64 : 0;
        first_column = (warp < 4 ? q / 2 : 3 - q / 2) * 32;
    }

    template <int STRIDE, int TERMS, bool LOWER = false> __device__ void add(const real* a, const real* b) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        const real* a_warp = a + (first_row + g) * STRIDE + t;
        const real* b_warp = b + (first_column + g) * STRIDE + t;
        const auto count = [&](int i) { return LOWER ? (first_row + 16 * i - first_column) / 8 + 2 : 4; };
        UNROLL for (int q = 0; q < TERMS; q += 8) {
            real x[4][4], y[4][2];
            UNROLL for (int i = 0; i < 4; ++i) {
                UNROLL for (int e = 0; e < 4; ++e) x[i][e] = a_warp[(16 * i + 8 * (e % 2)) * STRIDE + q + 4 * (e / 2)];
                UNROLL for (int e = 0; e < 2; ++e) y[i][e] = b_warp[8 * i * STRIDE + q + 4 * e];
            }
            multiply(sum, x, y, count);
        }
    }

    template <class Visit> __device__ void each(Visit visit) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        UNROLL for (int i = 0; i < 4; ++i)
            UNROLL for (int j = 0; j < 4; ++j)
                UNROLL for (int e = 0; e < 4; ++e)
                    visit(first_row + 16 * i + g + e / 2 * 8, first_column + 8 * j + 2 * t + e % 2, sum[i][j][e]);
    }
};
#endif
