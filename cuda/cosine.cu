// The orthonormal cosine transform (DCT-II) of images and its inverse, by one real Fourier transform of the image's size, and
// the sine transform (DST-I), which is its own inverse, by one of four times the size.
//
// The simple version transforms along each axis in complex numbers, with copies in between: more than twice the transforms'
// operations and seven times their bytes. Here J. Makhoul's order is used: v has the even samples in order and then the odd
// ones reversed. The Fourier transform V of v along an axis of length N gives the cosine transform 2 Re w^k V[k], with
// w = exp(-iπ/(2N)), and V[k] = (X[k] - i X[N - k]) / (2 w^k) is its inverse. In two dimensions this is done along both axes,
// on half of a spectrum, in one pass.
//
// Kernels
//   shuffle    images to that order, or back
//   cosines    half spectra to cosine coefficients, times an array of the image's size
//   spectra    cosine coefficients to half spectra
//   odd        images, continued to odd functions about the zeros beside their first and last pixels
//   sines      half spectra of these to sine coefficients, times an array of the image's size
// Passes over the image: 2, 2, 2, 5 and 3; the transforms are cuFFT's. Source: J. Makhoul, A fast cosine transform in one
// and two dimensions, IEEE Trans. Acoust. Speech Signal Process. 28 (1980) 27-34.

#include "complex.cuh"

constexpr int THREADS = 256;

// x: rows x cols, rows ldx apart, planes `stride` apart; v: whole planes. A thread has two neighbours of a row.
extern "C" __global__ void __launch_bounds__(THREADS)
shuffle(real* x, long long ldx, long long stride, real* v, int planes, unsigned rows, unsigned cols, int back) {
    const unsigned pairs = (cols + 1) / 2;
    const index_t count = (index_t)rows * pairs, plane = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const unsigned row = i / pairs, n = i - (index_t)row * pairs;
        const unsigned to = row % 2 == 0 ? row / 2 : rows - 1 - row / 2;
        for (int p = 0; p < planes; ++p) {
            real* from = x + p * stride + row * ldx + 2 * n;
            real* line = v + p * plane + (index_t)to * cols;
            const bool second = 2 * n + 1 < cols;
            if (back) {
                from[0] = line[n];
                if (second) from[1] = line[cols - 1 - n];
            } else {
                line[n] = from[0];
                if (second) line[cols - 1 - n] = from[1];
            }
        }
    }
}

// w^k, w = exp(-iπ/(2N))
__device__ __forceinline__ number twiddle(unsigned k, unsigned n) {
    number w;
    sincospi(-(real)k / (2 * (real)n), &w.im, &w.re);
    return w;
}
// The factor that makes a coefficient orthonormal: √(1/(2N)), and √(1/(4N)) for the first one.
__device__ __forceinline__ real norm(unsigned k, unsigned n) {
    return square_root((k == 0 ? real(0.25) : real(0.5)) / (real)n);
}

// `by` may be null.
extern "C" __global__ void __launch_bounds__(THREADS)
cosines(const real* spectra, real* out, int planes, unsigned rows, unsigned cols, const real* by) {
    const unsigned half = cols / 2 + 1;
    const index_t count = (index_t)rows * half, plane = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const unsigned k1 = i / half, k2 = i - (index_t)k1 * half;
        const index_t opposite = (index_t)(k1 == 0 ? 0 : rows - k1) * half + k2;
        const number w1 = twiddle(k1, rows), w2 = twiddle(k2, cols);
        const bool mirrored = k2 > 0 && 2 * k2 < cols;
        const index_t at = (index_t)k1 * cols + k2, to = (index_t)k1 * cols + (cols - k2);
        real first = 2 * norm(k1, rows) * norm(k2, cols), second = 2 * norm(k1, rows) * norm(1, cols);
        if (by) {
            first *= by[at];
            if (mirrored) second *= by[to];
        }
        for (int p = 0; p < planes; ++p) {
            const number* v = (const number*)spectra + p * count;
            const number a = w2 * v[i], b = w2 * v[opposite];
            // Z = a + conj(b); for the column N - k2 likewise with i a and i b.
            out[p * plane + at] = first * (w1.re * (a.re + b.re) - w1.im * (a.im - b.im));
            if (mirrored) out[p * plane + to] = second * (w1.re * (-a.im - b.im) - w1.im * (a.re - b.re));
        }
    }
}

// `scale` is 1 / n of the inverse transform, which cuFFT does not apply.
extern "C" __global__ void __launch_bounds__(THREADS)
spectra(const real* coefficients, real* out, int planes, unsigned rows, unsigned cols, real scale) {
    const unsigned half = cols / 2 + 1;
    const index_t count = (index_t)rows * half, plane = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const unsigned k1 = i / half, k2 = i - (index_t)k1 * half, m1 = rows - k1, m2 = cols - k2;
        const number w = conj(twiddle(k1, rows) * twiddle(k2, cols));
        const real q = real(0.25) * scale;
        const real here = q / (norm(k1, rows) * norm(k2, cols)), down = q / (norm(m1, rows) * norm(k2, cols));
        const real beside = q / (norm(k1, rows) * norm(m2, cols)), across = q / (norm(m1, rows) * norm(m2, cols));
        for (int p = 0; p < planes; ++p) {
            const real* x = coefficients + p * plane;
            const real a = here * x[(index_t)k1 * cols + k2], b = k1 ? down * x[(index_t)m1 * cols + k2] : real(0);
            const real c = k2 ? beside * x[(index_t)k1 * cols + m2] : real(0);
            const real d = k1 && k2 ? across * x[(index_t)m1 * cols + m2] : real(0);
            // (a - i b) - i (c - i d)
            ((number*)out)[p * count + i] = w * number{a - d, -b - c};
        }
    }
}

// ---------------------------------------------------------------- sines

// The sign with which line i of 2 (n + 1) represents line `at` of n; 0 for the two lines of zeros.
__device__ __forceinline__ int continued(unsigned i, unsigned n, unsigned* at) {
    *at = i <= n ? i - 1 : 2 * n + 1 - i;
    return i == 0 || i == n + 1 ? 0 : i <= n ? 1 : -1;
}

// x: rows x cols, rows ldx apart, planes `stride` apart; out: whole planes of 2 (rows + 1) x 2 (cols + 1).
extern "C" __global__ void __launch_bounds__(THREADS)
odd(const real* x, long long ldx, long long stride, real* out, int planes, unsigned rows, unsigned cols) {
    const unsigned wide = 2 * (cols + 1);
    const index_t count = (index_t)2 * (rows + 1) * wide;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const unsigned row = i / wide, col = i - (index_t)row * wide;
        unsigned r, c;
        const int sign = continued(row, rows, &r) * continued(col, cols, &c);
        for (int p = 0; p < planes; ++p) out[p * count + i] = sign ? sign * x[p * stride + r * ldx + c] : real(0);
    }
}

// The spectrum of an image that is odd along both axes is real, -4 times the sums of sines. `by` may be null.
extern "C" __global__ void __launch_bounds__(THREADS)
sines(const real* spectra, real* out, int planes, unsigned rows, unsigned cols, const real* by, real scale) {
    const index_t count = (index_t)rows * cols, plane = (index_t)2 * (rows + 1) * (cols + 2);
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const unsigned row = i / cols, col = i - (index_t)row * cols;
        const real factor = by ? scale * by[i] : scale;
        for (int p = 0; p < planes; ++p)
            out[p * count + i] = factor * spectra[2 * (p * plane + (index_t)(row + 1) * (cols + 2) + col + 1)];
    }
}
