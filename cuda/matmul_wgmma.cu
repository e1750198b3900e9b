// C = alpha op(A) op(B) + beta C for large float32 products on Hopper (sm_90a), by tensor cores with the accuracy of
// float32. The arguments are those of matmul.cu, which explains the earlier steps: tiles in shared memory and registers.
//
// The simple version is one TF32 product, which keeps three digits. What each step gains:
//   - An operand is split into two parts, and three products (hi*hi, hi*lo, lo*hi) restore its accuracy.
//   - The tensor cores truncate when they accumulate, so an error grows in proportion to k. Every chain of products is
//     therefore short (32 or 64 terms of k) and added to the sum in ordinary float32.
//   - wgmma reads shared memory directly: operands are packed once in its order, one thread fetches whole chunks for all
//     others, and two blocks of a cluster share the chunks of B that both need.
//
// First the operands are packed: op(A) by 128 rows, op(B)' likewise, in chunks of 128 bytes of k, each chunk 16 KiB of
// high parts followed by 16 KiB of low parts, in the 128-byte swizzle that wgmma reads. So the product itself does not
// deal with strides, transposes and edges, and each chunk is copied to shared memory as one contiguous bulk copy.
//   TF32 parts: 32 terms of k in a chunk, with the range of float32.
//   half parts: 64 terms. Each row is first scaled by a power of two that brings its largest element to
//     [2^14, 2^15). The error is then at most max(2^-23 |x|, 2^-40 of the row's largest), which is below
//     float32's for sums over the row, and the tensor cores run at twice the rate.
//
// Kernels
//   matmul_row_max  256 threads a 128 x 256 panel       largest |x| of each row of an operand (half parts only)
//   matmul_pack     256 threads a 128-row chunk         hi and lo parts of an operand, laid out as wgmma reads them
//   matmul_wgmma    384 threads, tile 128 x 256,        the product of two packed operands, blocks in pairs that share
//                   clusters of 2                       the columns of B
// Operations: 6 m n k, half of it with `lower_only`. Bytes: packing reads 4 and writes 8 bytes an element of A and B (half
//   parts: reads 8, writes 4).
// Source: H. Ootomo, R. Yokota, Int. J. High Perform. Comput. Appl. 36 (2022), 475-491: the split, and the sums outside.

#include "cluster.cuh"
#include "products.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int SPAN = 128;           // bytes of k in a chunk: its TERMS
constexpr int CHUNK = TILE * SPAN;  // bytes of one part of a chunk
constexpr int PANEL = 256;          // terms of k for one block of matmul_row_max

// The exponent of the power of two that scales a row: 14 less the exponent of its largest element.
__device__ inline int scale_exponent(const float* row_max, index_t row) {
    const int biased = (int)(__float_as_uint(row_max[row]) >> 23);
    return biased == 255 ? 0 : minimum(14 - (biased - 127), 126);  // infinity and NaN are not changed
}

__device__ inline float power_of_two(int exponent) { return __int_as_float((127 + exponent) << 23); }

extern "C" __global__ void __launch_bounds__(256)
matmul_row_max(const float* x, long long ldx, int along_k, long long rows, long long k, float* row_max) {
    const index_t row0 = (index_t)blockIdx.y * TILE, k0 = (index_t)blockIdx.x * PANEL;
    const index_t k1 = minimum(k0 + PANEL, k);
    if (along_k) {
        const int lane = threadIdx.x % 32;
        for (index_t row = row0 + threadIdx.x / 32; row < row0 + TILE && row < rows; row += 8) {
            unsigned most = 0;  // absolute values compare as integers do, with NaN above all
            for (index_t q = k0 + lane; q < k1; q += 32)
                most = maximum(__float_as_uint(fabsf(x[row * ldx + q])), most);
            most = __reduce_max_sync(0xffffffffu, most);
            if (lane == 0) atomicMax((unsigned*)row_max + row, most);
        }
    } else {
        const index_t row = row0 + threadIdx.x % TILE;
        if (row >= rows) return;
        unsigned most = 0;
#pragma unroll 8
        for (index_t q = k0 + threadIdx.x / TILE; q < k1; q += 256 / TILE)
            most = maximum(__float_as_uint(fabsf(x[q * ldx + row])), most);
        atomicMax((unsigned*)row_max + row, most);
    }
}

struct Tf32Parts {
    using part = float;
    static __device__ void split(float x, float, part& hi, part& lo) {
        hi = tf32(x);
        lo = tf32(tf32_rest(x, hi));
    }
};

struct HalfParts {
    using part = unsigned short;
    static __device__ unsigned short round(float x) {
        unsigned short bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        return bits;
    }
    static __device__ void split(float x, float scale, part& hi, part& lo) {
        x *= scale;
        hi = round(x);
        float back;
        asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(hi));
        lo = round(x - back);
    }
};

template <class Parts>
__device__ inline void pack(const float* x, index_t ld, bool along_k, index_t rows, index_t k,
                            const float* row_max, unsigned char* packed) {
    using part = typename Parts::part;
    constexpr int TERMS = SPAN / sizeof(part), SLICE = 32;  // terms of k in a chunk; terms in shared memory at a time
    __shared__ float tile[SLICE][TILE + 1];
    const index_t row0 = (index_t)blockIdx.y * TILE;
    part* hi = (part*)(packed + ((index_t)blockIdx.y * gridDim.x + blockIdx.x) * 2 * CHUNK);
    part* lo = hi + CHUNK / sizeof(part);
    const int t = threadIdx.x, q = t % SLICE;
    for (int slice = 0; slice < TERMS; slice += SLICE) {
        const index_t k0 = (index_t)blockIdx.x * TERMS + slice;
        if (!along_k) {
            const index_t row = row0 + t % TILE;
            __syncthreads();
            UNROLL for (int i = t / TILE; i < SLICE; i += 256 / TILE)
                tile[i][t % TILE] = row < rows && k0 + i < k ? x[(k0 + i) * ld + row] : 0.0f;
            __syncthreads();
        }
#pragma unroll 8
        for (int r = t / SLICE; r < TILE; r += 256 / SLICE) {
            const bool inside = row0 + r < rows && k0 + q < k;
            const float value = !along_k ? tile[q][r] : inside ? x[(row0 + r) * ld + k0 + q] : 0.0f;
            const float scale = row_max && row0 + r < rows ? power_of_two(scale_exponent(row_max, row0 + r)) : 1.0f;
            // The swizzle: 16-byte unit u of row r is stored in the place of unit u ^ (r % 8).
            const int byte = (slice + q) * (int)sizeof(part);
            const int at = (r * 128 + (byte ^ (r % 8 * 16))) / (int)sizeof(part);
            Parts::split(value, scale, hi[at], lo[at]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
matmul_pack(const float* x, long long ldx, int along_k, long long rows, long long k, unsigned char* packed) {
    pack<Tf32Parts>(x, ldx, along_k, rows, k, nullptr, packed);
}

extern "C" __global__ void __launch_bounds__(256)
matmul_pack_half(const float* x, long long ldx, int along_k, long long rows, long long k, const float* row_max,
                 unsigned char* packed) {
    pack<HalfParts>(x, ldx, along_k, rows, k, row_max, packed);
}

__device__ inline void barrier_init(unsigned barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void barrier_expect(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(unsigned barrier, int block) {  // in the given block of the cluster
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(block) : "memory");
}
__device__ inline void barrier_wait(unsigned barrier, int phase) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(barrier), "r"(phase) : "memory");
}
__device__ inline void bulk_copy(unsigned to, const void* from, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
__device__ inline void bulk_copy_to_both(unsigned to, const void* from, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"((unsigned short)3) : "memory");
}

// Matrix descriptor: rows of 128 bytes along k, 128-byte swizzle, groups of 8 rows 1024 bytes apart.
__device__ inline unsigned long long descriptor(unsigned address) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#define ACC8(i)                                                                                              \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define ACC64 ACC8(0), ACC8(8), ACC8(16), ACC8(24), ACC8(32), ACC8(40), ACC8(48), ACC8(56)

__device__ inline void wgmma_wait(float (&d)[64]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" : ACC64::"memory");
}

#define WGMMA(shape_and_types, transposes)                                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                              \
                 "wgmma.mma_async.sync.aligned." shape_and_types " "                                       \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                 \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "        \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "        \
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "       \
                 "%64, %65, p, 1, 1" transposes ";\n}"                                                     \
                 : ACC64 : "l"(a), "l"(b), "r"(accumulate))

// d = a b' (+ d): 64 x 128 results, 32 bytes of k.
template <bool HALF>
__device__ inline void wgmma(float (&d)[64], unsigned long long a, unsigned long long b, int accumulate) {
    if (HALF) WGMMA("m64n128k16.f32.f16.f16", ", 0, 0");
    else WGMMA("m64n128k8.f32.tf32.tf32", "");
}

constexpr int A_SLOTS = 2, B_SLOTS = 5, SLOT = 2 * CHUNK;  // a slot has 128 rows, both parts
constexpr int BARRIERS = (A_SLOTS + B_SLOTS) * SLOT;       // their place in shared memory
constexpr int WGMMA_BYTES = 1024 + BARRIERS + 2 * 8 * (A_SLOTS + B_SLOTS);  // with room to align the slots

struct Packed {
    const unsigned char* a;
    const unsigned char* b;
    long long m, n;
    int chunks;
    float* c;
    long long ldc;
    float alpha, beta;
    int lower_only;
    const float* a_max;
    const float* b_max;  // the largest element of each row, for half parts
};

template <bool HALF> __device__ inline void wgmma_product(const Packed& p) {
    const auto [a, b, m, n, chunks, c, ldc, alpha, beta, lower_only, a_max, b_max] = p;
    extern __shared__ unsigned char raw[];
    __shared__ int row_exponents[HALF ? TILE : 1];
    const unsigned base = (shared_address(raw) + 1023) & ~1023u;
    const unsigned full_a = base + BARRIERS, empty_a = full_a + 8 * A_SLOTS;
    const unsigned full_b = empty_a + 8 * A_SLOTS, empty_b = full_b + 8 * B_SLOTS;
    const unsigned slots_b = base + A_SLOTS * SLOT;

    const int rank = blockIdx.x % 2;  // in the cluster
    const index_t blocks_m = (m + TILE - 1) / TILE, blocks_n = (n + TILE - 1) / TILE;
    index_t i, j;
    tile_in_group(blockIdx.x / 2, (blocks_m + 1) / 2, (blocks_n + 1) / 2, i, j);
    const index_t block_m = 2 * i + rank, row0 = block_m * TILE, col0 = j * 2 * TILE;
    if (lower_only && col0 > (2 * i + 2) * TILE - 1) return;  // the same for both blocks of the cluster

    if (threadIdx.x == 0) {
        for (int s = 0; s < A_SLOTS; ++s) {
            barrier_init(full_a + 8 * s, 1);
            barrier_init(empty_a + 8 * s, 8);  // the warps that read it here
        }
        for (int s = 0; s < B_SLOTS; ++s) {
            barrier_init(full_b + 8 * s, 1);
            barrier_init(empty_b + 8 * s, 16);  // and in both blocks
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_barrier();

    if (threadIdx.x < 128) {  // one thread fetches; for chunks outside the matrix it fetches inside ones again
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (beta != 0 && chunks <= 64 && threadIdx.x >= 32)  // C to the L2 cache, where it is needed soon
            for (int line = threadIdx.x - 32; line < TILE * 8; line += 96) {
                const index_t row = row0 + line / 8, col = col0 + line % 8 * 32;
                if (row < m && col < n && (!lower_only || col <= row))
                    asm volatile("prefetch.global.L2 [%0];" ::"l"(c + row * ldc + col));
            }
        if (threadIdx.x == 0) {
            const index_t last_m = blocks_m - 1, last_n = blocks_n - 1;
            const unsigned char* from_a = a + minimum(block_m, last_m) * chunks * SLOT;
            const unsigned char* from_b0 = b + 2 * j * chunks * SLOT;
            const unsigned char* from_b1 = b + minimum(2 * j + 1, last_n) * chunks * SLOT;
            int slot_a = 0, phase_a = 1, slot_b = 0, phase_b = 1;
#pragma unroll 1
            for (int chunk = 0; chunk < chunks; ++chunk) {
                barrier_wait(empty_a + 8 * slot_a, phase_a);
                barrier_expect(full_a + 8 * slot_a, SLOT);
                bulk_copy(base + slot_a * SLOT, from_a + (index_t)chunk * SLOT, SLOT, full_a + 8 * slot_a);
                if (++slot_a == A_SLOTS) slot_a = 0, phase_a ^= 1;
#pragma unroll 1
                for (int half = 0; half < 2; ++half) {  // each block fetches one part of B for both
                    barrier_wait(empty_b + 8 * slot_b, phase_b);
                    barrier_expect(full_b + 8 * slot_b, SLOT);
                    bulk_copy_to_both(slots_b + slot_b * SLOT + rank * CHUNK,
                                      (half ? from_b1 : from_b0) + (index_t)chunk * SLOT + rank * CHUNK, CHUNK,
                                      full_b + 8 * slot_b);
                    if (++slot_b == B_SLOTS) slot_b = 0, phase_b ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int group = threadIdx.x / 128 - 1, lane = threadIdx.x % 128;
        float sum[2][64] = {}, part[64];
        int slot_a = 0, phase_a = 0, slot_b = 0, phase_b = 0;
        for (int chunk = 0; chunk < chunks; ++chunk) {
            barrier_wait(full_a + 8 * slot_a, phase_a);
            const unsigned long long a_hi = descriptor(base + slot_a * SLOT + group * (CHUNK / 2));
            const unsigned long long a_lo = a_hi + (CHUNK >> 4);
            UNROLL for (int half = 0; half < 2; ++half) {
                barrier_wait(full_b + 8 * slot_b, phase_b);
                const unsigned long long b_hi = descriptor(slots_b + slot_b * SLOT), b_lo = b_hi + (CHUNK >> 4);
                wgmma_fence();
                UNROLL for (int q = 0; q < 4; ++q) {  // the small terms first, while they lose nothing
                    wgmma<HALF>(part, a_lo + 2 * q, b_hi + 2 * q, q > 0);
                    wgmma<HALF>(part, a_hi + 2 * q, b_lo + 2 * q, 1);
                }
                UNROLL for (int q = 0; q < 4; ++q) wgmma<HALF>(part, a_hi + 2 * q, b_hi + 2 * q, 1);
                wgmma_commit();
                wgmma_wait(part);
                if (lane % 32 < 2) barrier_arrive(empty_b + 8 * slot_b, lane % 32);
                if (half == 1 && lane % 32 == 2) barrier_arrive(empty_a + 8 * slot_a, rank);
                if (++slot_b == B_SLOTS) slot_b = 0, phase_b ^= 1;
                UNROLL for (int e = 0; e < 64; ++e) sum[half][e] += part[e];
            }
            if (++slot_a == A_SLOTS) slot_a = 0, phase_a ^= 1;
        }

        // Results go through shared memory, whose slots are free once both warpgroups are here, so that rows of C are read and
        // written whole. Results e and e + 1 of a thread are adjacent, e and e + 2 eight rows apart.
        constexpr int STRIDE = 2 * TILE + 8;  // neighbouring rows are in different banks
        float* staged = (float*)(raw + (base - shared_address(raw))) + group * 64 * STRIDE;
        const int own = group * 64 + lane % 64;
        if (HALF) row_exponents[own] = scale_exponent(a_max, minimum(row0 + own, m - 1));
        asm volatile("bar.sync 1, 256;" ::: "memory");
        UNROLL for (int half = 0; half < 2; ++half)
            UNROLL for (int e = 0; e < 64; e += 2)
                *(float2*)(staged + (lane / 32 * 16 + lane % 32 / 4 + e / 2 % 2 * 8) * STRIDE + half * TILE + e / 4 * 8
                           + lane % 4 * 2) = {sum[half][e], sum[half][e + 1]};
        asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");  // each warpgroup uses its own half
        const index_t top = row0 + group * 64;
        const int rows = (int)minimum(m - top, (index_t)64);
        for (int half = 0; half < 2; ++half) {
            const index_t col = col0 + half * TILE + lane;
            if (col >= n) break;
            const int first = lower_only && col > top ? (int)minimum(col - top, (index_t)64) : 0;
            const int col_exponent = HALF ? scale_exponent(b_max, col) : 0;
            const float* from = staged + half * TILE + lane;
            float* to = c + top * ldc + col;
            constexpr int BATCH = 16;  // read before the first is written, so that no read waits for a write
#pragma unroll 1
            for (int r = 0; r < rows; r += BATCH) {
                float old[BATCH];
                UNROLL for (int i = 0; i < BATCH; ++i)
                    old[i] = beta != 0 && r + i >= first && r + i < rows ? to[(r + i) * ldc] : 0.0f;
                UNROLL for (int i = 0; i < BATCH; ++i) {
                    float value = from[(r + i) * STRIDE];
                    if (HALF) {
                        const int exponent = -row_exponents[group * 64 + r + i] - col_exponent;
                        // Scaled by two factors: a single one could leave the range of float32 although the result does not.
                        value = value * power_of_two(exponent / 2) * power_of_two(exponent - exponent / 2);
                    }
                    if (r + i >= first && r + i < rows) to[(r + i) * ldc] = alpha * value + beta * old[i];
                }
            }
        }
    }
    cluster_barrier();  // no block leaves while the other may still write to its shared memory
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
matmul_wgmma(const Packed p) { wgmma_product<false>(p); }
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
matmul_wgmma_half(const Packed p) { wgmma_product<true>(p); }
#endif
