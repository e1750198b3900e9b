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

#include "complex.cuh"
#include "mirror.cuh"

constexpr int THREADS = 256;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int RESIDENT = 0;  // blocks on a multiprocessor; chosen by the compiler
#else
constexpr int RESIDENT = REAL_IS_FLOAT ? 5 : 0;
#endif

// The transform of R numbers, with root[k] = e^(-2 pi i k / R); BACK: with the roots' conjugates.
template <int R, bool BACK> __device__ __forceinline__ void transform(number (&a)[R], const number (&root)[R]) {
    if constexpr (R % 2 == 0) {
        number half[2][R / 2];
        UNROLL for (int q = 0; q < R / 2; ++q) {
            half[0][q] = a[q] + a[q + R / 2];
            half[1][q] = a[q] - a[q + R / 2];
        }
        if constexpr (R == 4) half[1][1] = number{0, BACK ? real(1) : real(-1)} * half[1][1];
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
                even = even + by.re * sum[q];
                odd = odd + number{-by.im * difference[q].im, by.im * difference[q].re};  // -i sin, times i
            }
            a[BACK ? R - t : t] = even + odd;
            a[BACK ? t : R - t] = even - odd;
        }
    }
}

// One stage on all columns: transforms of R numbers n / R rows apart, in each block of n rows; load(row), store(row, number).
template <int R, bool BACK, class Load, class Store>
__device__ __forceinline__ void stage(Load load, Store store, const number* turns, unsigned length, unsigned n) {
    const unsigned m = n / R, share = length / n;
    const float per = 1.0f / m;
    number root[R], a[R];
    UNROLL for (int q = 0; q < R; ++q) root[q] = turns[q * (length / R)];
    for (unsigned i = threadIdx.y; i < length / R; i += blockDim.y) {
        const unsigned block = (i + 0.5f) * per, j = i - block * m, row = block * n + j;  // i / m; i is below 2^20
        UNROLL for (int q = 0; q < R; ++q) a[q] = load(row + q * m);
        UNROLL for (int q = 1; q < R; ++q)
            if (BACK) a[q] = conj(turns[j * q * share]) * a[q];
        transform<R, BACK>(a, root);
        UNROLL for (int q = 0; q < R; ++q) store(row + q * m, BACK || !q ? a[q] : turns[j * q * share] * a[q]);
    }
    __syncthreads();
}

template <bool BACK, int... RADICES, class Load, class Store>
__device__ __forceinline__ void stage_of(unsigned radix, Load load, Store store, const number* turns, unsigned length, unsigned n) {
    ((radix == RADICES ? stage<RADICES, BACK>(load, store, turns, length, n) : void()), ...);
}

// spectra, by: slices of `plane` numbers. The given slices are continued to `filled`, with `before` of them before the first;
// the wanted ones were continued to `reached`, with `ahead` of them. `stages` radices of four bits each, the first one lowest.
// Shared memory: `length` rows of blockDim.x numbers, as many numbers and as many unsigned.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
depth(real* spectra, unsigned given, unsigned before, unsigned filled, unsigned wanted, unsigned ahead, unsigned reached,
      unsigned length, long long radices, int stages, long long plane, const real* __restrict__ by, int complex_symbol, int conjugate,
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
    __syncthreads();
    const bool folds = ahead > 0 || reached > wanted;  // lines beyond the wanted ones are added to them
    const index_t tiles = (plane + blockDim.x - 1) / blockDim.x;
    for (index_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const index_t column = t * blockDim.x + threadIdx.x;
        const bool inside = column < plane;
        number* const mine = tile + threadIdx.x;
        number* const own = numbers + column;
        unsigned n = length;
        for (int s = 0; s < stages; ++s) {
            const unsigned radix = radices >> 4 * s & 15;
            const auto load = [&](unsigned k) {  // the first stage reads the volume
                if (s > 0) return mine[k * blockDim.x];
                return inside && k < filled ? own[source(k, before, given) * plane] : number{0, 0};
            };
            const auto store = [&](unsigned k, number a) {  // the last one multiplies by the symbol
                const bool last = s == stages - 1 && inside;
                mine[k * blockDim.x] = last ? scale * symbol_at(by, frequency[k] * plane + column, complex_symbol, conjugate) * a : a;
            };
            stage_of<false, 2, 3, 4, 5, 7>(radix, load, store, turns, length, n);
            n /= radix;
        }
        for (int s = stages; s-- > 0;) {
            const unsigned radix = radices >> 4 * s & 15;
            n *= radix;
            const auto load = [&](unsigned k) { return mine[k * blockDim.x]; };
            const auto store = [&](unsigned k, number a) {
                if (s > 0 || folds) mine[k * blockDim.x] = a;
                else if (inside && k < wanted) own[k * plane] = a;
            };
            stage_of<true, 2, 3, 4, 5, 7>(radix, load, store, turns, length, n);
        }
        for (unsigned k = threadIdx.y; folds && k < wanted && inside; k += blockDim.y) {
            number sum = {0, 0};
            unsigned line;
            UNROLL for (int u = 0; u < 3; ++u)
                if (continued(u, k, ahead, wanted, reached, &line)) sum = sum + mine[line * blockDim.x];
            own[k * plane] = sum;
        }
        if (folds) __syncthreads();
    }
}
