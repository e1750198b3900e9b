// The residual of the normal equations of a blur that wraps, from spectra alone.
//
// The simple version blurs the scene, blurs the difference back and takes two norms: three transforms and their inverses.
// By Parseval's theorem, the norms are sums over the spectra of the scene and the image, so only Hf, which the caller
// needs, is transformed back.
//
//   measured   from a scene's and an image's spectra: h f, and the sums of squares of conj(h) (g - h f) - lambda f and
//              conj(h) g, the residual of the normal equations and its right-hand side
// Bytes: reads both spectra, writes one, and reads h once for each block of spectra.

#include "complex.cuh"
#include "reduce.cuh"

constexpr int THREADS = 256;

// f becomes h f times `scale`. Columns of half spectra also represent their conjugates, except the first one and, if
// `even`, the last one.
extern "C" __global__ void __launch_bounds__(THREADS)
measured(real* f, const real* g, const real* h, int planes, long long plane, unsigned half, int even, real lambda, real scale,
         double* sums, double* partial, unsigned* tickets) {
    double sum[2] = {};
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const unsigned col = plane >> 32 ? i % half : (unsigned)i % half;
        const double twice = col == 0 || (even && col == half - 1) ? 1 : 2;
        const number of = ((const number*)h)[i];
        for (int p = 0; p < planes; ++p) {
            const index_t at = p * plane + i;
            const number scene = ((const number*)f)[at], image = ((const number*)g)[at], seen = of * scene;
            ((number*)f)[at] = scale * seen;
            const number right = conj(of) * image, left = conj(of) * (image - seen) - lambda * scene;
            sum[0] += twice * ((double)left.re * left.re + (double)left.im * left.im);
            sum[1] += twice * ((double)right.re * right.re + (double)right.im * right.im);
        }
    }
    if (grid_sum<THREADS>(sum, partial, tickets) && threadIdx.x == 0)
        for (int k = 0; k < 2; ++k) sums[k] = sum[k];
}
