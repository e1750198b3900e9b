// Products of tiles in shared memory, for cholesky.cu: TILE x TILE results by 256 threads, from two
// operands of TILE rows each, STRIDE elements apart; LOWER: results above the diagonal are left out where that saves time.
//
// The simple version: a thread for each element of C walks a row of A and a column of B, 2 loads from memory for every
// multiplication. What each step buys:
//   - Tiles in shared memory: a load by one thread of a block serves TILE rows or columns of C.
//   - 8 x 8 results a thread (`Simt`): 16 reads of shared memory serve 64 multiplications in registers.
//   - Tensor cores (`Tensor`, float64). For float32 see matmul_wgmma.cu.
// Source: register blocking: V. Volkov, J. Demmel, SC 2008.

constexpr int TILE = 128;
constexpr int DEPTH = 16;         // terms that are brought to shared memory at a time
constexpr int PITCH = DEPTH + 4;  // neither the reads by rows nor those by fragments meet in a bank

// 8 x 8 results a thread, 16 rows and 16 columns apart; shared memory is read 16 bytes at a time along k.
struct Simt {
    real sum[8][8] = {};

    template <int STRIDE, int TERMS, bool LOWER = false> __device__ void add(const real* a, const real* b)
    {
        const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll 1
        for (int q = 0; q < TERMS; q += VECTOR) {
            vector_t x[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] = *(const vector_t*)(a + (ty + 16 * i) * STRIDE + q);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const vector_t y = *(const vector_t*)(b + (tx + 16 * j) * STRIDE + q);
#pragma unroll
                for (int v = 0; v < VECTOR; ++v)
#pragma unroll
                    for (int i = LOWER ? j : 0; i < 8; ++i) sum[i][j] += x[i].x[v] * y.x[v];
            }
        }
    }

    template <class Visit> __device__ void each(Visit visit)
    {
        const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
            for (int j = 0; j < 8; ++j) visit(ty + 16 * i, tx + 16 * j, sum[i][j]);
            asm volatile("" ::: "memory");  // not all reads at once: registers
        }
    }
};

#if __CUDA_ARCH__ >= 800
// A template, so that files compiled for float32 need no such instruction.
template <class Double> __device__ inline void mma(Double* c, const Double* a, const Double* b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int q = 0; q < 2; ++q)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                         : "+d"(c[2 * half]), "+d"(c[2 * half + 1])
                         : "d"(a[2 * q + half]), "d"(b[q]));
#endif
}

// Eight warps, 2 x 4, each with 64 x 32 results as 4 x 4 fragments of 16 x 8. Which warp has which is so chosen that where
// the upper half is left out those with few fragments share a scheduler with those that have many.
struct Tensor {
    double sum[4][4][4] = {};
    int first_row, first_column;

    __device__ Tensor()
    {
        const int warp = threadIdx.x / 32, q = warp % 4;
        first_row = ((q == 1 || q == 2) != (warp >= 4)) ? 64 : 0;
        first_column = (warp < 4 ? q / 2 : 3 - q / 2) * 32;
    }

    template <int STRIDE, int TERMS, bool LOWER = false> __device__ void add(const real* a, const real* b)
    {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        const real* a_warp = a + (first_row + g) * STRIDE + t;
        const real* b_warp = b + (first_column + g) * STRIDE + t;
#pragma unroll
        for (int q = 0; q < TERMS; q += 8) {
            double x[4][4], y[4][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) x[i][e] = a_warp[(16 * i + 8 * (e % 2)) * STRIDE + q + 4 * (e / 2)];
#pragma unroll
                for (int e = 0; e < 2; ++e) y[i][e] = b_warp[8 * i * STRIDE + q + 4 * e];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (!LOWER || j < (first_row + 16 * i - first_column) / 8 + 2) mma(sum[i][j], x[i], y[j]);
        }
    }

    template <class Visit> __device__ void each(Visit visit)
    {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    visit(first_row + 16 * i + g + e / 2 * 8, first_column + 8 * j + 2 * t + e % 2, sum[i][j][e]);
    }
};
#endif
