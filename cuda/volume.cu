// Along the first axis of a volume's spectrum: transform, multiplication by a symbol, and inverse transform in one pass.
//
// The simple version makes three passes (transform, product, inverse transform), each of which reads and writes a whole
// torus. Here a block holds columns of numbers in shared memory from the first transform to the last. It reads the slices of
// the volume and writes the requested ones; slices of zeros are not moved. Slices that mirror others are read from those, or
// added to them, and need no transform of their own.
//
// Kernel (blocks of columns x THREADS / columns threads)
//   depth   `given` slices in, `wanted` slices out, of a torus whose length is the product of the stages' radices
// Bytes: the given and the wanted slices once each, the symbol once.
// The forward stages decimate in frequency and leave the numbers in the order of reversed digits. The backward stages
// start from that order, so both work in place and nothing is reordered: the symbol is read in that order.

#include "mirror.cuh"

constexpr int THREADS = 256;

struct alignas(2 * sizeof(real)) number {
    real re, im;
};
__device__ __forceinline__ number operator+(number a, number b) { return {a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ number operator-(number a, number b) { return {a.re - b.re, a.im - b.im}; }
// a (re + i im)
__device__ __forceinline__ number times(number a, real re, real im) {
    return {a.re * re - a.im * im, a.re * im + a.im * re};
}

// The transform of R numbers, with root[k] = e^(-2 pi i k / R); BACK: with the roots' conjugates.
template <int R, bool BACK> __device__ __forceinline__ void transform(number (&a)[R], const number (&root)[R]) {
    if constexpr (R % 2 == 0) {
        number half[2][R / 2];
        UNROLL for (int q = 0; q < R / 2; ++q) {
            half[0][q] = a[q] + a[q + R / 2];
            half[1][q] = a[q] - a[q + R / 2];
        }
        if constexpr (R == 4) half[1][1] = times(half[1][1], 0, BACK ? 1 : -1);
        UNROLL for (int odd = 0; odd < 2; ++odd) {
            a[odd] = R == 2 ? half[odd][0] : half[odd][0] + half[odd][R / 4];
            if constexpr (R == 4) a[odd + 2] = half[odd][0] - half[odd][1];
        }
    } else {
        const number first = a[0];
        number sum[R / 2 + 1], difference[R / 2 + 1];
        UNROLL for (int q = 1; q <= R / 2; ++q) {
            sum[q] = a[q] + a[R - q];
            difference[q] = a[q] - a[R - q];
            a[0] = a[0] + sum[q];
        }
        UNROLL for (int t = 1; t <= R / 2; ++t) {
            number even = first, odd = {0, 0};
            UNROLL for (int q = 1; q <= R / 2; ++q) {
                const number by = root[q * t % R];
                even = even + number{by.re * sum[q].re, by.re * sum[q].im};
                odd = odd + number{-by.im * difference[q].im, by.im * difference[q].re};  // -i sin, times i
            }
            a[BACK ? R - t : t] = even + odd;
            a[BACK ? t : R - t] = even - odd;
        }
    }
}

// One stage on all columns: transforms of R numbers n / R rows apart, in each block of n rows of the tile.
template <int R, bool BACK> __device__ __forceinline__ void stage(number* tile, const number* turns, unsigned length, unsigned n) {
    const unsigned m = n / R, share = length / n, gap = m * blockDim.x;
    const float per = 1.0f / m;
    number root[R], a[R];
    UNROLL for (int q = 0; q < R; ++q) root[q] = turns[q * (length / R)];
    for (unsigned i = threadIdx.y; i < length / R; i += blockDim.y) {
        const unsigned block = (i + 0.5f) * per, j = i - block * m;  // i / m; i is below 2^20
        number* at = tile + (block * n + j) * blockDim.x + threadIdx.x;
        UNROLL for (int q = 0; q < R; ++q) {
            const number turn = turns[BACK ? j * q * share : 0];
            a[q] = BACK && q ? times(at[q * gap], turn.re, -turn.im) : at[q * gap];
        }
        transform<R, BACK>(a, root);
        UNROLL for (int q = 0; q < R; ++q) {
            const number turn = turns[BACK ? 0 : j * q * share];
            at[q * gap] = BACK || !q ? a[q] : times(a[q], turn.re, turn.im);
        }
    }
    __syncthreads();
}

template <bool BACK> __device__ __forceinline__ void stage_of(unsigned radix, number* tile, const number* turns, unsigned length, unsigned n) {
    if (radix == 4) stage<4, BACK>(tile, turns, length, n);
    else if (radix == 2) stage<2, BACK>(tile, turns, length, n);
    else if (radix == 3) stage<3, BACK>(tile, turns, length, n);
    else if (radix == 5) stage<5, BACK>(tile, turns, length, n);
    else stage<7, BACK>(tile, turns, length, n);
}

// spectra, by: slices of `plane` numbers. The given slices are continued to `filled`, with `before` of them before the first;
// the wanted ones were continued to `reached`, with `ahead` of them. `stages` radices of four bits each, the first one lowest.
// Shared memory: `length` rows of blockDim.x numbers, as many numbers and as many unsigned.
extern "C" __global__ void __launch_bounds__(THREADS)
depth(real* spectra, unsigned given, unsigned before, unsigned filled, unsigned wanted, unsigned ahead, unsigned reached,
      unsigned length, long long radices, int stages, long long plane, const real* by, int complex_symbol, int conjugate,
      real scale) {
    extern __shared__ number tile[];
    number* const turns = tile + length * blockDim.x;
    unsigned* const frequency = (unsigned*)(turns + length);
    for (unsigned k = threadIdx.y * blockDim.x + threadIdx.x; k < length; k += THREADS) {
        double re, im;
        sincospi(-2.0 * k / length, &im, &re);
        turns[k] = {(real)re, (real)im};
        unsigned rest = k, n = length, weight = 1, sum = 0;
        for (int s = 0; s < stages; ++s) {
            const unsigned radix = radices >> 4 * s & 15, digit = rest / (n /= radix);
            rest -= digit * n;
            sum += digit * weight;
            weight *= radix;
        }
        frequency[k] = sum;
    }
    number* const numbers = (number*)spectra;
    const index_t tiles = (plane + blockDim.x - 1) / blockDim.x;
    for (index_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const index_t column = t * blockDim.x + threadIdx.x;
        const bool inside = column < plane;
        number* const mine = tile + threadIdx.x;
        for (unsigned k = threadIdx.y; k < length; k += blockDim.y)
            mine[k * blockDim.x] = inside && k < filled ? numbers[source(k, before, given) * plane + column] : number{0, 0};
        __syncthreads();
        unsigned n = length;
        for (int s = 0; s < stages; ++s) {
            const unsigned radix = radices >> 4 * s & 15;
            stage_of<false>(radix, tile, turns, length, n);
            n /= radix;
        }
        for (unsigned k = threadIdx.y; k < length && inside; k += blockDim.y) {
            const index_t at = frequency[k] * plane + column;
            const real re = scale * (complex_symbol ? by[2 * at] : by[at]);
            const real im = complex_symbol ? (conjugate ? -scale : scale) * by[2 * at + 1] : real(0);
            mine[k * blockDim.x] = times(mine[k * blockDim.x], re, im);
        }
        __syncthreads();
        for (int s = stages; s-- > 0;) {
            const unsigned radix = radices >> 4 * s & 15;
            n *= radix;
            stage_of<true>(radix, tile, turns, length, n);
        }
        for (unsigned k = threadIdx.y; k < wanted && inside; k += blockDim.y) {
            number sum = {0, 0};
            unsigned line;
            UNROLL for (int u = 0; u < 3; ++u)
                if (continued(u, k, ahead, wanted, reached, &line)) sum = sum + mine[line * blockDim.x];
            numbers[k * plane + column] = sum;
        }
    }
}
