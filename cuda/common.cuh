// What every kernel file of deblur begins with. deblur/kernels.py puts
//     using real = float;      (or double)
// and this header in front of a .cu file and compiles the whole with NVRTC, so there are no host headers here.
//
// Matrices are row-major. Positions in a matrix are 64-bit (index_t): 46341 squared no longer fits an int.
// A kernel's parameter ld<x> is the distance between rows of the matrix <x>, in elements.

typedef long long index_t;

constexpr unsigned FULL_WARP = 0xffffffffu;
constexpr bool REAL_IS_FLOAT = sizeof(real) == 4;

// The 16 bytes that one load moves: 4 floats or 2 doubles.
constexpr int VECTOR = 16 / sizeof(real);
struct alignas(16) vector_t {
    real x[VECTOR];
};

__device__ __forceinline__ float absolute(float x) { return fabsf(x); }
__device__ __forceinline__ double absolute(double x) { return fabs(x); }
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
__device__ __forceinline__ double square_root(double x) { return sqrt(x); }
__device__ __forceinline__ float multiply_add(float x, float y, float z) { return fmaf(x, y, z); }
__device__ __forceinline__ double multiply_add(double x, double y, double z) { return fma(x, y, z); }
template <class T> __device__ __forceinline__ T minimum(T x, T y) { return x < y ? x : y; }
template <class T> __device__ __forceinline__ T maximum(T x, T y) { return x < y ? y : x; }

// Sum over the 32 lanes of a warp; every lane gets it.
__device__ __forceinline__ real warp_sum(real x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL_WARP, x, offset);
    return x;
}

// Barrier over all blocks of a grid. All blocks must be resident: launch with cooperative=True. `counter` is one
// zero before the first barrier and is never reset: the k-th barrier (k = 1, 2, ...) waits for k arrivals of every
// block, so `round` counts the barriers of this launch, and `counter` must be cleared before the next launch.
__device__ __forceinline__ void grid_barrier(unsigned* counter, unsigned& round) {
    round += 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
        const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
        unsigned seen;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
        } while (seen < round * blocks);
    }
    __syncthreads();
}
