// a x z + b y for stacks of images in any memory layout; without y or z also products and copies. The simple version is
// operations of CuPy, compiled anew for every layout. Bytes: each image is read once, and the result is written once.

constexpr int THREADS = 256;

// For `planes` images of rows x cols; rows of x are ldx apart, and its images apart_x.
extern "C" __global__ void __launch_bounds__(THREADS)
combine(real* out, long long ldout, long long apart_out, int planes, unsigned rows, unsigned cols, const real* x, long long ldx,
        long long apart_x, real a, const real* y, long long ldy, long long apart_y, real b, const real* z, long long ldz,
        long long apart_z) {
    const index_t plane = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const index_t row = i / cols, col = i - row * cols;
        for (int p = 0; p < planes; ++p) {
            const real of_z = z ? a * z[p * apart_z + row * ldz + col] : a, found = of_z * x[p * apart_x + row * ldx + col];
            out[p * apart_out + row * ldout + col] = y ? multiply_add(b, y[p * apart_y + row * ldy + col], found) : found;
        }
    }
}
