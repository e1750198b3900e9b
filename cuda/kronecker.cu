// Matrices that are symmetric about their centre: computed as their even and odd parts, and applied to sums and
// differences of opposite pixels.
//
// The simple version is an array operation each for the front plus the back, their difference, and the scale: three
// passes and three kernels that CuPy would compile for each dtype. Here `fold` and `unfold` are one pass each.
//
// An array is seen as (lines, n, inner) and folded along its middle axis: i and n - 1 - i become their sum and their
// difference over the root of 2; the middle line of an odd n is kept.
//
// Kernels
//   fold, unfold   one pair for each thread; the array is read and written once
//   parts          the blur of one axis as a matrix, or its even and odd parts, directly from the PSF: 4 m operations an
//                  entry for a PSF of m pixels; all data that are read stay in the cache

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
fold(const real* x, real* even, real* odd, long long pairs, int n, long long inner, real scale) {
    const int half = n / 2, some = n - half;  // numbers of differences and of sums
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

// Entry (i, j) of the blur by `factor`: place i + m - 1 - k reads pixels pixel[2 t] and pixel[2 t + 1] with their weights.
__device__ double entry(const double* factor, int m, const int* pixel, const double* weight, int i, int j) {
    double sum = 0;
    for (int k = 0; k < m; ++k) {
        const int t = 2 * (i + m - 1 - k);
        const double w = (pixel[t] == j ? weight[t] : 0) + (pixel[t + 1] == j ? weight[t + 1] : 0);
        sum = fma(factor[k], w, sum);
    }
    return sum;
}

// Without `odd`, the whole matrix is written to `even`.
extern "C" __global__ void __launch_bounds__(THREADS)
parts(double* even, double* odd, const double* factor, int m, const int* pixel, const double* weight, int rows, int cols) {
    const int across = odd ? cols - cols / 2 : cols, down = odd ? rows - rows / 2 : rows;
    const index_t size = (index_t)down * across;
    for (index_t at = (index_t)blockIdx.x * THREADS + threadIdx.x; at < size; at += (index_t)gridDim.x * THREADS) {
        const int i = (int)(at / across), j = (int)(at - (index_t)i * across);
        const double here = entry(factor, m, pixel, weight, i, j);
        if (!odd) {
            even[at] = here;
            continue;
        }
        const double there = entry(factor, m, pixel, weight, i, cols - 1 - j);
        const bool middle_row = i == rows / 2, middle_col = j == cols / 2;
        even[at] = middle_row && middle_col ? here : (here + there) * (middle_row || middle_col ? sqrt(0.5) : 1.0);
        if (!middle_row && !middle_col) odd[(index_t)i * (cols / 2) + j] = here - there;
    }
}

// even (evens, n - n / 2), odd (columns - evens, n / 2): one vector in each row; out (n, columns): one in each column.
extern "C" __global__ void __launch_bounds__(THREADS)
whole(const double* even, const double* odd, real* out, int n, int columns, int evens, double scale) {
    const int half = n / 2, some = n - half;
    const index_t size = (index_t)n * columns;
    for (index_t at = (index_t)blockIdx.x * THREADS + threadIdx.x; at < size; at += (index_t)gridDim.x * THREADS) {
        const int i = (int)(at / columns), c = (int)(at - (index_t)i * columns);
        const bool middle = n % 2 && i == half;
        const int from = i < some ? i : n - 1 - i;
        const double x = c < evens ? even[(index_t)c * some + from] : middle ? 0.0 : odd[(index_t)(c - evens) * half + from];
        out[at] = (real)(middle ? x : c >= evens && i >= some ? -x * scale : x * scale);
    }
}
