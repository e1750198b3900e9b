// Spectra on a torus: of a PSF, and products with them, each in one pass over its arrays.
//
// The simple version multiplies by a symbol, its conjugate and 1 / n and copies: five passes, where `multiply` has one.
//
// Kernels
//   multiply     spectra by one symbol, complex or real, or by its conjugate, and by a number, in place
//   lines, columns   the spectrum of a PSF, in double precision, by rows and then by columns
// Bytes: multiply reads and writes the spectra, and reads the symbol once for each block of spectra.
//
// A PSF of m x n is small compared with the torus. Its spectrum is m sums of n terms for each column of frequencies and
// then one sum of m terms for each frequency, added up directly. That takes 4 m double-precision operations a frequency and
// writes only the spectrum. A transform would move zeros in double precision, shift them and convert the result.
// The factors e^(-2 pi i k / L) come from k mod L, an integer, so that no digits are lost for large k.

#include "complex.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
multiply(real* spectra, int planes, long long plane, const real* by, int complex_symbol, int conjugate, real scale) {
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const number factor = scale * symbol_at(by, i, complex_symbol, conjugate);
        for (int p = 0; p < planes; ++p) {
            number& a = ((number*)spectra)[p * plane + i];
            a = factor * a;
        }
    }
}

// ---------------------------------------------------------------- a PSF's spectrum

constexpr int TAPS = 32;   // rows of the PSF whose factors are in shared memory at a time
constexpr int ROWS = 8;    // rows of frequencies of a block, which share one read of a number of `lines`

// e^(-2 pi i turns / length), with turns taken modulo the length.
__device__ __forceinline__ Complex<double> turn(long long turns, unsigned length) {
    turns %= (long long)length;
    Complex<double> e;
    sincospi(-2.0 * (double)turns / length, &e.im, &e.re);
    return e;
}

// out[i][l] = sum over j of h[i][j] e^(-2 pi i (j - origin) (first + l) / length), l < half
extern "C" __global__ void __launch_bounds__(THREADS)
lines(const double* h, int m, int n, int origin, unsigned length, unsigned first, unsigned half, double* out) {
    const index_t size = (index_t)m * half;
    for (index_t at = (index_t)blockIdx.x * THREADS + threadIdx.x; at < size; at += (index_t)gridDim.x * THREADS) {
        const int i = (int)(at / half);
        const unsigned l = (unsigned)(at - (index_t)i * half);
        Complex<double> sum = {};
        for (int j = 0; j < n; ++j) sum = sum + h[i * n + j] * turn((long long)(j - origin) * (first + l), length);
        ((Complex<double>*)out)[at] = sum;
    }
}

// The sum over i of line i times e^(-2 pi i (i - origin) (begin + k) / length) for k < rows and each l < half: to
// `spectrum`, its squared modulus to `power`, or its real part to `symbol`; two of the three are null. Blocks (columns of
// frequencies / THREADS, rows of frequencies / ROWS).
extern "C" __global__ void __launch_bounds__(THREADS)
columns(const double* line, int m, int origin, unsigned length, unsigned begin, unsigned rows, unsigned half, real* spectrum,
        double* power, real* symbol) {
    __shared__ Complex<double> factors[TAPS][ROWS];
    const unsigned l = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * ROWS;
    Complex<double> sum[ROWS] = {};
    for (int from = 0; from < m; from += TAPS) {
        const int count = min(TAPS, m - from);
        __syncthreads();
        for (int f = threadIdx.x; f < count * ROWS; f += THREADS)
            factors[f / ROWS][f % ROWS] = turn((long long)(from + f / ROWS - origin) * (begin + first + f % ROWS), length);
        __syncthreads();
        if (l >= half) continue;
        for (int i = 0; i < count; ++i) {
            const Complex<double> a = ((const Complex<double>*)line)[(index_t)(from + i) * half + l];
            UNROLL for (int k = 0; k < ROWS; ++k) sum[k] = multiply_add(a, factors[i][k], sum[k]);
        }
    }
    if (l >= half) return;
    UNROLL for (int k = 0; k < ROWS; ++k)
        if (first + k < rows) {
            const index_t at = (index_t)(first + k) * half + l;
            if (power) power[at] = sum[k].re * sum[k].re + sum[k].im * sum[k].im;
            else if (symbol) symbol[at] = (real)sum[k].re;
            else ((number*)spectrum)[at] = {(real)sum[k].re, (real)sum[k].im};
        }
}
