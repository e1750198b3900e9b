// The iteration of method pcg on the image's border, except its transforms.
//
// The simple version takes and puts borders with index arrays, joins bands, and transposes spectra for a batched product:
// eighty launches an iteration, most of which wait for the host. Here there are twenty, including the transforms.
//
// A border vector has the pixels of an image of rows x cols outside [top, bottom) x [left, right), row by row; vectors of
// different frames are lds elements apart. A band has the first and last rows, or columns, of a border vector together:
// (frames, depth, length), where the length is that of the edge, padded with zeros to a transform's length.
//
// Kernels
//   take, put       the border of images, from images and into images
//   cut, join       bands of images, padded with zeros; A z on the border from H H^T z of the bands and from z
//   lay, unlay      bands from border vectors; border vectors from solved bands, the mean where two meet
//   solve           a matrix times a vector for each frequency; bytes: the matrices once for FRAMES frames
//   lags, edges     the matrices of the bands' system, before they are inverted
//   patch           rows of small dense matrices times parts of a border vector

#include "complex.cuh"

constexpr int THREADS = 256;
constexpr int FRAMES = 4;   // frames that share one read of a matrix
constexpr int LAGS = 4;     // for each thread of `lags`
constexpr int TERMS = 64;   // terms whose factors are in shared memory at a time

struct edge_of {
    int rows, cols, top, bottom, left, right;
    __device__ int beside() const { return left + cols - right; }
    __device__ int position(int row, int col) const {
        if (row < top) return row * cols + col;
        if (row < bottom) return top * cols + (row - top) * beside() + (col < right ? col : col - right + left);
        return top * cols + (bottom - top) * beside() + (row - bottom) * cols + col;
    }
    __device__ void place(int i, int& row, int& col) const {
        if (i < top * cols) {
            row = i / cols;
            col = i % cols;
            return;
        }
        i -= top * cols;
        const int wide = beside(), middle = (bottom - top) * wide;
        if (i < middle) {
            row = top + i / wide;
            col = i % wide;
            if (col >= left) col += right - left;
        } else {
            i -= middle;
            row = bottom + i / cols;
            col = i % cols;
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
take(const real* x, long long ldx, long long stride, int rows, int cols, int top, int bottom, int left, int right, int size,
     real* s) {
    const edge_of r = {rows, cols, top, bottom, left, right};
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < size; i += gridDim.x * THREADS) {
        int row, col;
        r.place(i, row, col);
        s[(index_t)blockIdx.y * size + i] = x[blockIdx.y * stride + row * ldx + col];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
put(const real* s, long long lds, int rows, int cols, int top, int bottom, int left, int right, int size, real* x,
    long long ldx, long long stride) {
    const edge_of r = {rows, cols, top, bottom, left, right};
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < size; i += gridDim.x * THREADS) {
        int row, col;
        r.place(i, row, col);
        x[blockIdx.y * stride + row * ldx + col] = s[blockIdx.y * lds + i];
    }
}

// out (frames, 2, high, wide): the first and the last `deep` rows (columns) of images of rows x cols.
extern "C" __global__ void __launch_bounds__(THREADS)
cut(const real* x, long long ldx, long long stride, int rows, int cols, int axis, int deep, int high, int wide, real* out) {
    const index_t plane = (index_t)high * wide;
    const int last = blockIdx.y % 2, down = axis ? rows : deep, across = axis ? deep : cols;
    const real* from = x + blockIdx.y / 2 * stride + (last ? (axis ? (index_t)(cols - deep) : (rows - deep) * ldx) : 0);
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < plane; i += (index_t)gridDim.x * THREADS) {
        const int row = (int)(i / wide), col = (int)(i % wide);
        out[blockIdx.y * plane + i] = row < down && col < across ? from[row * ldx + col] : real(0);
    }
}

// A z on the border: lambda z, plus H H^T z from the outer half of bands that were cut twice as deep as needed. `first` is
// along the rows, `second` along the columns; either is null if the border has no such band. Planes of both are
// high x wide, two for each frame, as `cut` lays them.
extern "C" __global__ void __launch_bounds__(THREADS)
join(const real* z, long long ldz, long long stride, real lambda, int rows, int cols, int top, int bottom, int left, int right,
     int size, const real* first, int first_high, int first_wide, const real* second, int second_high, int second_wide, real* s) {
    const edge_of r = {rows, cols, top, bottom, left, right};
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < size; i += gridDim.x * THREADS) {
        int row, col;
        r.place(i, row, col);
        index_t at;
        const real* from;
        if (second && (col < left || col >= right)) {
            const int last = col >= right;
            from = second;
            at = ((index_t)blockIdx.y * 2 + last) * second_high * second_wide + (index_t)row * second_wide +
                 (last ? col - cols + 2 * left : col);
        } else {
            const int last = row >= bottom;
            from = first;
            at = ((index_t)blockIdx.y * 2 + last) * first_high * first_wide +
                 (index_t)(last ? row - rows + 2 * top : row) * first_wide + col;
        }
        s[(index_t)blockIdx.y * size + i] = from[at] + lambda * z[blockIdx.y * stride + row * ldz + col];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
lay(const real* s, long long lds, int rows, int cols, int top, int bottom, int left, int right, int axis, int length,
    real* band) {
    const edge_of r = {rows, cols, top, bottom, left, right};
    const int edge = axis ? left : top, deep = 2 * edge, here = axis ? rows : cols, beyond = axis ? right : bottom;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < deep * length; i += gridDim.x * THREADS) {
        const int which = i / length, along = i % length;
        const int across = which < edge ? which : beyond + which - edge;
        real value = 0;
        if (along < here) value = s[blockIdx.y * lds + (axis ? r.position(along, across) : r.position(across, along))];
        band[(index_t)blockIdx.y * deep * length + i] = value;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
unlay(const real* first, int first_length, const real* second, int second_length, int rows, int cols, int top, int bottom,
      int left, int right, int size, real* s) {
    const edge_of r = {rows, cols, top, bottom, left, right};
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < size; i += gridDim.x * THREADS) {
        int row, col;
        r.place(i, row, col);
        real sum = 0;
        int met = 0;
        if (first && (row < top || row >= bottom)) {
            const int which = row < top ? row : row - bottom + top;
            sum += first[((index_t)blockIdx.y * 2 * top + which) * first_length + col];
            ++met;
        }
        if (second && (col < left || col >= right)) {
            const int which = col < left ? col : col - right + left;
            sum += second[((index_t)blockIdx.y * 2 * left + which) * second_length + row];
            ++met;
        }
        s[(index_t)blockIdx.y * size + i] = met == 2 ? sum * real(0.5) : sum;
    }
}

// out[frame][i][f] = scale * sum over j of a[i][j][f] x[frame][j][f], complex. Blocks (frequencies, depth, frames / FRAMES).
extern "C" __global__ void __launch_bounds__(THREADS)
solve(const real* a, const real* x, int depth, int frequencies, int frames, real scale, real* out) {
    const int f = blockIdx.x * THREADS + threadIdx.x, i = blockIdx.y, from = blockIdx.z * FRAMES;
    if (f >= frequencies) return;
    number sum[FRAMES] = {};
    for (int j = 0; j < depth; ++j) {
        const number by = ((const number*)a)[((index_t)i * depth + j) * frequencies + f];
        const number* column = (const number*)x + (index_t)j * frequencies + f;
        UNROLL for (int k = 0; k < FRAMES; ++k)
            if (from + k < frames) sum[k] = multiply_add(by, column[(index_t)(from + k) * depth * frequencies], sum[k]);
    }
    UNROLL for (int k = 0; k < FRAMES; ++k)
        if (from + k < frames) ((number*)out)[((index_t)(from + k) * depth + i) * frequencies + f] = scale * sum[k];
}

// s[own] = matrix row times t[index], for `patches` patches of `count` pixels with `owned` rows each; one warp for each
// row. Blocks (patches owned / warps, frames / FRAMES).
extern "C" __global__ void __launch_bounds__(THREADS)
patch(const real* matrix, const int* index, const int* own, int patches, int count, int owned, const real* t, long long ldt,
      int size, int frames, real* s) {
    const int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, from = blockIdx.y * FRAMES;
    if (row >= patches * owned) return;
    const int* at = index + (index_t)(row / owned) * count;
    const real* m = matrix + (index_t)row * count;
    real sum[FRAMES] = {};
    for (int j = lane; j < count; j += 32) {
        const real a = m[j];
        const int place = at[j];
        UNROLL for (int k = 0; k < FRAMES; ++k)
            if (from + k < frames) sum[k] += a * t[(from + k) * ldt + place];
    }
    UNROLL for (int k = 0; k < FRAMES; ++k) {
        const real total = warp_sum(sum[k]);
        if (lane == 0 && from + k < frames) s[(index_t)(from + k) * size + own[row]] = total;
    }
}

// ---------------------------------------------------------------- the bands' matrices

// For an open scene, A is the torus's own: at each frequency along the edge, A and M are Toeplitz matrices, with the
// inverse transforms of the symbol and of its reciprocal along the other axis. Few of these lags are needed, so they are
// added up directly: out[table][l][f], complex. Table 0 is the symbol's at lag l - lags / 2; tables 1 and 2 are the
// reciprocal's at that lag and `far` further. Blocks (frequencies, lags / LAGS, 2).
extern "C" __global__ void __launch_bounds__(THREADS)
lags(const double* symbol, int across, int frequencies, int far, int lags, double* out) {
    __shared__ Complex<double> factors[TERMS][LAGS];
    const int f = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * LAGS;
    const bool both = blockIdx.z == 0;
    const int base = (both ? 0 : far) - lags / 2 + first;
    Complex<double> direct[LAGS] = {}, inverse[LAGS] = {};
    for (int from = 0; from < across; from += TERMS) {
        const int count = min(TERMS, across - from);
        __syncthreads();
        for (int i = threadIdx.x; i < count * LAGS; i += THREADS) {
            const long long turns = (long long)(from + i / LAGS) * (base + i % LAGS) % across;
            sincospi(2.0 * (double)turns / across, &factors[i / LAGS][i % LAGS].im, &factors[i / LAGS][i % LAGS].re);
        }
        __syncthreads();
        if (f >= frequencies) continue;
        for (int k = 0; k < count; ++k) {
            const double s = symbol[(index_t)(from + k) * frequencies + f], r = 1 / s;
            UNROLL for (int l = 0; l < LAGS; ++l) {
                if (both) direct[l] = direct[l] + s * factors[k][l];
                inverse[l] = inverse[l] + r * factors[k][l];
            }
        }
    }
    if (f >= frequencies) return;
    UNROLL for (int l = 0; l < LAGS; ++l) {
        if (first + l >= lags) continue;
        const index_t at = (index_t)(first + l) * frequencies + f, table = (index_t)lags * frequencies;
        Complex<double>* to = (Complex<double>*)out + at;
        to[(both ? 1 : 2) * table] = (1.0 / across) * inverse[l];
        if (both) *to = (1.0 / across) * direct[l];
    }
}

// g[f][i][j] = sum over t of A(i - t) M(t - j) over the 2 e rows of the edge that contains row i; i and j count the pixels
// of both edges. The table has 4 e - 1 lags. Blocks (frequencies, 2 e, 2 e).
extern "C" __global__ void __launch_bounds__(THREADS)
edges(const double* tables, int e, int frequencies, real* g) {
    const int f = blockIdx.x * THREADS + threadIdx.x, i = blockIdx.y, j = blockIdx.z, count = 4 * e - 1;
    if (f >= frequencies) return;
    const index_t table = (index_t)count * frequencies;
    const bool low = i < e, near = low == (j < e);
    Complex<double> sum = {};
    for (int t = 0; t < 2 * e; ++t) {
        // From the far edge: the entry `far` further or, M being even, the conjugate of the entry at the opposite lag.
        const int lag = near || !low ? t - j : j - t;
        const Complex<double>* all = (const Complex<double>*)tables + f;
        const Complex<double> m = all[(near ? 1 : 2) * table + (index_t)(lag + 2 * e - 1) * frequencies];
        sum = multiply_add(all[(index_t)(i - t + 2 * e - 1) * frequencies], near || !low ? m : conj(m), sum);
    }
    ((number*)g)[((index_t)f * 2 * e + i) * 2 * e + j] = {(real)sum.re, (real)sum.im};
}
