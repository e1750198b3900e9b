// A function of each pixel, whose statements `deblur.pixelwise` writes: it defines PARAMETERS and STATEMENTS before this text.

template <typename T> __device__ T where(bool condition, T a, T b) { return condition ? a : b; }
template <typename T> __device__ T minimum(T a, T b) { return a < b || a != a ? a : b; }  // NaN if either is, as in NumPy
template <typename T> __device__ T maximum(T a, T b) { return a > b || a != a ? a : b; }
template <typename R> __device__ R absolute(R a) { return abs(a); }
template <typename R> __device__ R conjugate(R a) { return a; }
template <typename R> struct alignas(2 * sizeof(R)) Complex {
    R x, y;
    __device__ Complex(R x = 0, R y = 0) : x(x), y(y) {}
};
template <typename R> __device__ R absolute(Complex<R> a) { return hypot(a.x, a.y); }
template <typename R> __device__ Complex<R> conjugate(Complex<R> a) { return {a.x, -a.y}; }
template <typename R> __device__ Complex<R> operator+(Complex<R> a, Complex<R> b) { return {a.x + b.x, a.y + b.y}; }
template <typename R> __device__ Complex<R> operator/(Complex<R> a, R b) { return {a.x / b, a.y / b}; }
template <typename R> __device__ Complex<R> operator*(R a, Complex<R> b) { return {a * b.x, a * b.y}; }
template <typename R> __device__ Complex<R> operator*(Complex<R> a, R b) { return b * a; }
template <typename R> __device__ Complex<R> operator*(Complex<R> a, Complex<R> b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}

// The place `at` of element i of an array with sizes n.
template <int AXES> __device__ void find(long long i, long long size, const long long (&n)[AXES], long long (&at)[AXES]) {
    for (int axis = AXES - 1; axis > 0; --axis) {
        const long long next = size >> 32 ? i / n[axis] : (unsigned)i / (unsigned)n[axis];
        at[axis] = i - next * n[axis];
        i = next;
    }
    at[0] = i;
}

extern "C" __global__ void pixelwise(long long size, PARAMETERS) {
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < size; i += gridDim.x * 256ll) {
        STATEMENTS
    }
}
