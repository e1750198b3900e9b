// The steps between the matrix products of the small network (deblur/denoise/network.py): planes in another order, in
// float32.
//
// The simple version pads, slices and concatenates: one pass for each of nine shifts, and one operation of CuPy for each
// layout, which a first call compiles. Here each step is one pass.
//
// Kernels
//   enter      a plane and its estimate, each as four planes of half the sides, and the noise's level between them
//   gather     the nine neighbours of each pixel of some rows, zero beyond the edges; rectified on request
//   apart      planes as four planes of half the sides each, with every other pixel
//   together   the inverse of apart

constexpr int THREADS = 256;

#define EACH(i, count) \
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < (count); i += (index_t)gridDim.x * THREADS)

// out: nine planes of `high` x `wide`; x and near are rows x cols, continued by their last pixels to twice that size.
extern "C" __global__ void __launch_bounds__(THREADS)
enter(float* out, int high, int wide, const real* x, long long ldx, const real* near, long long ldnear, int rows, int cols,
      float scale, float level) {
    const index_t plane = (index_t)high * wide;
    EACH(i, plane) {
        const int row = (int)(i / wide), col = (int)(i - (index_t)row * wide);
        UNROLL for (int k = 0; k < 4; ++k) {
            const index_t r = minimum(2 * row + k / 2, rows - 1), c = minimum(2 * col + k % 2, cols - 1);
            out[k * plane + i] = (float)x[r * ldx + c] * scale;
            out[(k + 5) * plane + i] = (float)near[r * ldnear + c] * scale;
        }
        out[4 * plane + i] = level;
    }
}

// out (9, planes, high, cols), from row `top` of x (planes, rows, cols) on.
extern "C" __global__ void __launch_bounds__(THREADS)
gather(float* out, const float* x, int planes, int rows, int cols, int top, int high, int rectified) {
    const index_t plane = (index_t)high * cols, count = planes * plane;
    EACH(i, count) {
        const int p = (int)(i / plane), row = (int)(i % plane / cols), col = (int)(i % plane % cols);
        UNROLL for (int k = 0; k < 9; ++k) {
            const int r = top + row + k / 3 - 1, c = col + k % 3 - 1;
            const bool inside = r >= 0 && r < rows && c >= 0 && c < cols;
            const float here = inside ? x[((index_t)p * rows + r) * cols + c] : 0.0f;
            out[k * count + i] = rectified ? fmaxf(here, 0.0f) : here;
        }
    }
}

// out (4 planes, rows / 2, cols / 2) from x (planes, rows, cols); rows and cols are even.
extern "C" __global__ void __launch_bounds__(THREADS) apart(float* out, const float* x, int planes, int rows, int cols) {
    const int wide = cols / 2;
    const index_t plane = (index_t)(rows / 2) * wide, count = 4 * planes * plane;
    EACH(i, count) {
        const int p = (int)(i / plane), row = (int)(i % plane / wide), col = (int)(i % plane % wide);
        out[i] = x[((index_t)(p / 4) * rows + 2 * row + p % 4 / 2) * cols + 2 * col + p % 2];
    }
}

// out (planes, rows, cols) from x (4 planes, rows / 2, cols / 2).
extern "C" __global__ void __launch_bounds__(THREADS) together(float* out, const float* x, int planes, int rows, int cols) {
    const int wide = cols / 2, high = rows / 2;
    const index_t plane = (index_t)high * wide, count = 4 * planes * plane;
    EACH(i, count) {
        const int p = (int)(i / plane), row = (int)(i % plane / wide), col = (int)(i % plane % wide);
        out[((index_t)(p / 4) * rows + 2 * row + p % 4 / 2) * cols + 2 * col + p % 2] = x[i];
    }
}
