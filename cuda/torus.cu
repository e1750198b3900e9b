// What stands between images and their transforms on a torus, each in one pass over its arrays.
//
// The simple version pads with zeros into a new array, transforms, multiplies by a symbol, by its conjugate and by 1 / n,
// copies the spectrum that the inverse transform spoils, and transforms back: seven passes beside the two transforms.
// Here there are at most two: `lay`, where an image is smaller than the torus, and `multiply`.
//
// Kernels (THREADS threads a block, an element a thread, grid-stride)
//   lay        images into the first corner of a torus, zeros elsewhere
//   multiply   spectra by one symbol, complex or real, or by its conjugate, and by a number, in place
// Bytes: lay writes the torus and reads the images; multiply reads and writes the spectra and reads the symbol once for
// each block of spectra.

constexpr int THREADS = 256;

// Image p begins at x + p * stride; its rows are ldx apart.
extern "C" __global__ void __launch_bounds__(THREADS)
lay(real* out, int planes, unsigned rows, unsigned cols, const real* x, long long ldx, long long stride, unsigned image_rows,
    unsigned image_cols) {
    const index_t plane = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const unsigned row = i / cols, col = i - (index_t)row * cols;
        const bool inside = row < image_rows && col < image_cols;
        for (int p = 0; p < planes; ++p) out[p * plane + i] = inside ? x[p * stride + row * ldx + col] : real(0);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
multiply(real* spectra, int planes, long long plane, const real* by, int complex_symbol, int conjugate, real scale) {
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const real br = scale * (complex_symbol ? by[2 * i] : by[i]);
        const real bi = complex_symbol ? (conjugate ? -scale : scale) * by[2 * i + 1] : real(0);
        for (int p = 0; p < planes; ++p) {
            real* a = spectra + 2 * (p * plane + i);
            const real ar = a[0], ai = a[1];
            a[0] = ar * br - ai * bi;
            a[1] = ar * bi + ai * br;
        }
    }
}
