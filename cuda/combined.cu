// a x + b y of stacks of images, each lying as it lies in memory.
//
// The simple version is a product, a product and a sum, each of which CuPy compiles anew for every layout that it meets:
// crops of larger scenes, contiguous images, and both beside each other. Bytes: x and y once read, the sum once written.

constexpr int THREADS = 256;

// out, `planes` images of rows x cols one after the other, is a x + b y. Rows of x lie ldx apart and its images apart_x.
extern "C" __global__ void __launch_bounds__(THREADS)
combine(real* out, int planes, unsigned rows, unsigned cols, const real* x, long long ldx, long long apart_x, real a,
        const real* y, long long ldy, long long apart_y, real b) {
    const index_t plane = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const index_t row = i / cols, col = i - row * cols;
        for (int p = 0; p < planes; ++p)
            out[p * plane + i] = multiply_add(b, y[p * apart_y + row * ldy + col], a * x[p * apart_x + row * ldx + col]);
    }
}
