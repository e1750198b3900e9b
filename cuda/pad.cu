// Copies of images into and out of a torus, each in one pass over its arrays.
//
// The simple version pads into a new array and mirrors one edge at a time. Here a thread writes one element of all images.
//
// Kernels
//   lay    images into the first corner of a torus, mirrored at their edges as far as requested; zeros elsewhere
//   fold   the transpose of lay: mirrored pixels are added back to their sources
//   mix    three taps along both axes, where all of them are inside the array
// Bytes: lay writes the torus and reads the images, fold the reverse.

#include "mirror.cuh"

constexpr int THREADS = 256;

// A continued image has high x wide pixels, `top` rows and `left` columns of them before its first pixel.
extern "C" __global__ void __launch_bounds__(THREADS)
lay(real* out, int planes, unsigned rows, unsigned cols, const real* x, long long ldx, long long stride, unsigned image_rows,
    unsigned image_cols, unsigned top, unsigned left, unsigned high, unsigned wide) {
    const index_t plane = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const unsigned row = i / cols, col = i - (index_t)row * cols;
        const bool inside = row < high && col < wide;
        const index_t from = inside ? source(row, top, image_rows) * ldx + source(col, left, image_cols) : 0;
        for (int p = 0; p < planes; ++p) out[p * plane + i] = inside ? x[p * stride + from] : real(0);
    }
}

// x: planes of a torus with rows of `cols` and `plane` pixels each; out: images of image_rows x image_cols.
extern "C" __global__ void __launch_bounds__(THREADS)
fold(real* out, int planes, unsigned image_rows, unsigned image_cols, const real* x, unsigned cols, long long plane,
     unsigned top, unsigned left, unsigned high, unsigned wide) {
    const index_t size = (index_t)image_rows * image_cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < size; i += (index_t)gridDim.x * THREADS) {
        const unsigned row = i / image_cols, col = i - (index_t)row * image_cols;
        for (int p = 0; p < planes; ++p) {
            real sum = 0;
            UNROLL for (int u = 0; u < 3; ++u) {
                unsigned r, c;
                if (!continued(u, row, top, image_rows, high, &r)) continue;
                UNROLL for (int v = 0; v < 3; ++v)
                    if (continued(v, col, left, image_cols, wide, &c)) sum += x[p * plane + (index_t)r * cols + c];
            }
            out[p * size + i] = sum;
        }
    }
}

// out: whole planes; x: images of (rows + 2) x (cols + 2). The taps are side, middle, side.
extern "C" __global__ void __launch_bounds__(THREADS)
mix(real* out, int planes, unsigned rows, unsigned cols, const real* x, long long ldx, long long stride, real side,
    real middle) {
    const index_t plane = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const unsigned row = i / cols, col = i - (index_t)row * cols;
        for (int p = 0; p < planes; ++p) {
            const real* a = x + p * stride + row * ldx + col;
            real v[3];
            UNROLL for (int k = 0; k < 3; ++k) v[k] = side * (a[k] + a[2 * ldx + k]) + middle * a[ldx + k];
            out[p * plane + i] = side * (v[0] + v[2]) + middle * v[1];
        }
    }
}
