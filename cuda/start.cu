// The first scene: an image smoothed by a Gaussian, along one axis at a time, and continued by its edge pixels.
//
// The simple version is a library's filter for each axis, a pad for each side, and a division: a dozen passes. Here
// two launches of `smooth` filter along one axis each, and the second one also continues the
// scene; with a radius of 0 it only continues. Bytes: each reads and writes an image once; neighbours are in the caches.

constexpr int THREADS = 256;
constexpr int MOST_RADIUS = 127;

// out: planes of high x wide whose pixel (top, left) is the image's first one: x smoothed along an axis, times `scale`.
extern "C" __global__ void __launch_bounds__(THREADS)
smooth(real* out, int planes, unsigned high, unsigned wide, int top, int left, const real* x, long long ldx, long long stride,
       int rows, int cols, int axis, int wraps, int radius, double sigma, double scale) {
    __shared__ real weights[2 * MOST_RADIUS + 1];
    double total = 0;
    for (int k = -radius; k <= radius; ++k) total += exp(-0.5 * (k / sigma) * (k / sigma));
    for (int k = threadIdx.x; k <= 2 * radius; k += THREADS) {
        const double t = (k - radius) / sigma;
        weights[k] = (real)(scale * exp(-0.5 * t * t) / total);
    }
    __syncthreads();
    const index_t plane = (index_t)high * wide, step = axis ? 1 : ldx;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const unsigned line = (unsigned)(i / wide);
        const int row = min(max((int)line - top, 0), rows - 1);
        const int col = min(max((int)(i - (index_t)line * wide) - left, 0), cols - 1);
        const int here = axis ? col : row, last = (axis ? cols : rows) - 1;
        const bool inside = here >= radius && here + radius <= last;
        for (int p = 0; p < planes; ++p) {
            const real* from = x + p * stride + row * ldx + col;
            real sum = 0;
            if (inside) {
                const real* at = from - radius * step;
                for (int k = 0; k <= 2 * radius; ++k) sum = multiply_add(weights[k], at[k * step], sum);
            } else {
                for (int k = -radius; k <= radius; ++k) {
                    int at = here + k;
                    if (wraps) at = ((at % (last + 1)) + last + 1) % (last + 1);
                    at = min(max(at, 0), last);
                    sum = multiply_add(weights[k + radius], from[(at - here) * step], sum);
                }
            }
            out[p * plane + i] = sum;
        }
    }
}
