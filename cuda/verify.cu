// The residual of the normal equations of a blur that wraps, from spectra alone.
//
// The simple version blurs the scene, blurs the difference back and takes two norms: three transforms and their inverses.
// By Parseval's theorem, the norms are sums over the spectra of the scene and the image, so only Hf, which the caller
// needs, is transformed back.
//
//   measured   from a scene's and an image's spectra: h f, and the sums of squares of conj(h) (g - h f) - lambda f and
//              conj(h) g, the residual of the normal equations and its right-hand side
// Bytes: reads both spectra, writes one, and reads h once for each block of spectra.

#include "reduce.cuh"

constexpr int THREADS = 256;

// f becomes h f times `scale`. Columns of half spectra also represent their conjugates, except the first one and, if
// `even`, the last one.
extern "C" __global__ void __launch_bounds__(THREADS)
measured(real* f, const real* g, const real* h, int planes, long long plane, unsigned half, int even, real lambda, real scale,
         double* sums, double* partial, unsigned* tickets) {
    double sum[2] = {};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const unsigned col = (unsigned)(i % half);
        const double twice = col == 0 || (even && col == half - 1) ? 1 : 2;
        const real hr = h[2 * i], hi = h[2 * i + 1];
        for (int p = 0; p < planes; ++p) {
            const index_t at = 2 * (p * plane + i);
            const real fr = f[at], fi = f[at + 1], gr = g[at], gi = g[at + 1];
            const real sr = hr * fr - hi * fi, si = hr * fi + hi * fr;
            const real dr = gr - sr, di = gi - si;
            const real rr = hr * dr + hi * di - lambda * fr, ri = hr * di - hi * dr - lambda * fi;
            const real br = hr * gr + hi * gi, bi = hr * gi - hi * gr;
            sum[0] += twice * ((double)rr * rr + (double)ri * ri);
            sum[1] += twice * ((double)br * br + (double)bi * bi);
            f[at] = scale * sr;
            f[at + 1] = scale * si;
        }
    }
    if (grid_sum<THREADS>(sum, partial, tickets) && threadIdx.x == 0)
        for (int k = 0; k < 2; ++k) sums[k] = sum[k];
}
