// Complex numbers, which lie in memory as in NumPy and are read and written whole.

template <class T> struct alignas(2 * sizeof(T)) Complex {
    T re, im;
};
typedef Complex<real> number;
template <class T> __device__ __forceinline__ Complex<T> operator+(Complex<T> a, Complex<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> __device__ __forceinline__ Complex<T> operator-(Complex<T> a, Complex<T> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> __device__ __forceinline__ Complex<T> operator*(T a, Complex<T> b) { return {a * b.re, a * b.im}; }
template <class T> __device__ __forceinline__ Complex<T> operator*(Complex<T> a, Complex<T> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T> __device__ __forceinline__ Complex<T> multiply_add(Complex<T> a, Complex<T> b, Complex<T> sum) {
    return {fma(a.re, b.re, fma(-a.im, b.im, sum.re)), fma(a.re, b.im, fma(a.im, b.re, sum.im))};
}
template <class T> __device__ __forceinline__ Complex<T> conj(Complex<T> a) { return {a.re, -a.im}; }
template <class T> __device__ __forceinline__ T power(Complex<T> a) { return a.re * a.re + a.im * a.im; }

// Number i of a symbol, which is complex or real, or its conjugate.
__device__ __forceinline__ number symbol_at(const real* by, index_t i, bool is_complex, bool conjugated) {
    if (!is_complex) return {by[i], 0};
    return conjugated ? conj(((const number*)by)[i]) : ((const number*)by)[i];
}
