// Sums and differences of opposite pixels, and back: for products with matrices that are symmetric about their centre.
//
// The simple version is an array operation each for the front plus the back, their difference, and the scale: three
// passes and three kernels that CuPy would compile, for each dtype. Here `fold` and `unfold` are one pass each.
//
// An array is seen as (lines, n, inner), folded along its middle axis: i and n - 1 - i become their sum and their
// difference over the root of 2; the middle one of an odd n is its own sum.
//
// Kernels (THREADS threads a block, a pair a thread, grid-stride): fold, unfold. Bytes: the array, read and written once.

// A call launches few of these kernels.
constexpr bool ALONE = true;

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
fold(const real* x, real* even, real* odd, long long pairs, int n, long long inner, real scale) {
    const int half = n / 2, some = n - half;  // differences, and sums
    for (index_t at = (index_t)blockIdx.x * THREADS + threadIdx.x; at < pairs; at += (index_t)gridDim.x * THREADS) {
        const index_t row = at / inner, line = row / some, across = at - row * inner;
        const int i = (int)(row - line * some);
        const real* from = x + line * n * inner + across;
        const real front = from[i * inner], back = from[(n - 1 - i) * inner];
        even[at] = i < half ? (front + back) * scale : front;
        if (i < half) odd[(line * half + i) * inner + across] = (front - back) * scale;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
unfold(const real* even, const real* odd, real* x, long long pairs, int n, long long inner, real scale) {
    const int half = n / 2, some = n - half;
    for (index_t at = (index_t)blockIdx.x * THREADS + threadIdx.x; at < pairs; at += (index_t)gridDim.x * THREADS) {
        const index_t row = at / inner, line = row / some, across = at - row * inner;
        const int i = (int)(row - line * some);
        real* to = x + line * n * inner + across;
        const real sum = even[at];
        if (i < half) {
            const real difference = odd[(line * half + i) * inner + across];
            to[i * inner] = (sum + difference) * scale;
            to[(n - 1 - i) * inner] = (sum - difference) * scale;
        } else {
            to[i * inner] = sum;
        }
    }
}
