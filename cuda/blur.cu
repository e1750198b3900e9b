// The matrix of a blur, and H H' + lambda I, computed directly from the PSF: nothing of size n^2 is read.
// The simple version makes H on the host, copies it to the device and multiplies it by its transpose, 2 n^3 operations.
// Here only the PSF is copied, and the cost of a row of the result is that of its nonzero entries.
//
// Kernels (one block of 256 threads for each row of the result, which belongs to a pixel of the image)
//   dense_rows    H for any boundary: a row of zeros, then the PSF's entries, each at the one or two scene pixels, per axis,
//                 from which the boundary continues
//   normal_rows   H H' + lambda I for a scene that ends at the frame or is larger: pixels p and p + d share the scene
//                 pixels that both see, so their entry is the sum of h[k] h[k + d] over the k inside the scene
//   normal_rows_continued
//                 the same for a scene that is continued beyond the frame: a row of H, written by dense_rows, is a scene,
//                 and its blur is a row of H H'; only pixels that see its nonzero pixels are computed
// Both write rows `first` on of H H', and columns `left` to left + width: the whole matrix, or a block. Operations a row:
// |PSF|; (2m - 1)(2n - 1) m n / 4; (4m - 3)(4n - 3) 4 m n. Bytes: the result once, and its nonzero entries once more.
// Source: the definition in deblur/operators/blur.py.

__device__ __forceinline__ void fill_zero(real* row, index_t length) {
    for (index_t q = threadIdx.x; q < length; q += 256) row[q] = 0;
    __syncthreads();
}

// Rows `first` on of H. Along an axis, place e of the continued scene is weight[2 e] times pixel pixel[2 e] plus
// weight[2 e + 1] times pixel[2 e + 1]; the weight is 0 if there is no such pixel. Pixel i of the image meets entry k of
// the PSF (of length m) at place i + m - 1 - k.
extern "C" __global__ void __launch_bounds__(256)
dense_rows(real* h, long long ldh, long long first, int image_cols, int scene_rows, int scene_cols, const real* psf, int m,
           int n, const int* row_pixel, const real* row_weight, const int* column_pixel, const real* column_weight) {
    real* row = h + (index_t)blockIdx.x * ldh;
    fill_zero(row, (index_t)scene_rows * scene_cols);
    const int i = (int)((first + blockIdx.x) / image_cols), j = (int)((first + blockIdx.x) % image_cols);
    for (int t = threadIdx.x; t < m * n; t += 256) {
        const int e = 2 * (i + m - 1 - t / n), f = 2 * (j + n - 1 - t % n);
        for (int u = e; u < e + 2; ++u)
            for (int v = f; v < f + 2; ++v) {
                const real weight = row_weight[u] * column_weight[v];
                if (weight != real(0))  // a reflected scene may meet a pixel more than once, so entries are added
                    atomicAdd(row + (index_t)row_pixel[u] * scene_cols + column_pixel[v], weight * psf[t]);
            }
    }
}

// `whole`: every scene pixel exists. Otherwise only those within the image's frame exist, of which pixel i sees number
// i + origin - k through entry k. The PSF is in double precision, so that a sum of its products is rounded once.
extern "C" __global__ void __launch_bounds__(256)
normal_rows(real* a, long long lda, long long first, long long left, long long width, int rows, int columns,
            const double* psf, int m, int n, int origin_row, int origin_column, int whole, real lambda) {
    real* row = a + (index_t)blockIdx.x * lda;
    fill_zero(row, width);
    const int i = (int)((first + blockIdx.x) / columns), j = (int)((first + blockIdx.x) % columns);
    for (int t = threadIdx.x; t < (2 * m - 1) * (2 * n - 1); t += 256) {
        const int d = t / (2 * n - 1) - (m - 1), e = t % (2 * n - 1) - (n - 1);
        if (i + d < 0 || i + d >= rows || j + e < 0 || j + e >= columns) continue;
        const index_t at = (index_t)(i + d) * columns + j + e - left;
        if (at < 0 || at >= width) continue;
        // Entries k and k + d of the PSF, both inside it and, unless `whole`, at a scene pixel inside the frame.
        const int k_first = maximum(maximum(0, -d), whole ? 0 : i + origin_row - rows + 1);
        const int k_last = minimum(minimum(m, m - d), whole ? m : i + origin_row + 1);
        const int l_first = maximum(maximum(0, -e), whole ? 0 : j + origin_column - columns + 1);
        const int l_last = minimum(minimum(n, n - e), whole ? n : j + origin_column + 1);
        double sum = 0;
        for (int k = k_first; k < k_last; ++k)
            for (int l = l_first; l < l_last; ++l) sum = fma(psf[k * n + l], psf[(k + d) * n + l + e], sum);
        if (d == 0 && e == 0) sum += (double)lambda;
        row[at] = (real)sum;
    }
}

// Rows `first` on of H H' + lambda I, one for each block, from the same rows of H. The tables are those of dense_rows,
// in double precision. A pixel sees scene pixels at most m - 1 rows away (round the edges, if necessary), and two pixels
// that share one are at most twice as far apart. The same holds for columns.
extern "C" __global__ void __launch_bounds__(256)
normal_rows_continued(real* a, long long lda, const real* h, long long ldh, long long first, long long left,
                      long long width, int rows, int columns, const double* psf, int m, int n, const int* row_pixel,
                      const double* row_weight, const int* column_pixel, const double* column_weight, real lambda) {
    const index_t p = first + blockIdx.x;
    real* row = a + (index_t)blockIdx.x * lda;
    const real* seen = h + (index_t)blockIdx.x * ldh;
    const int i = (int)(p / columns), j = (int)(p % columns);
    for (index_t at = threadIdx.x; at < width; at += 256) {
        const index_t q = left + at;
        const int k = (int)(q / columns), l = (int)(q % columns);
        const int down = k < i ? i - k : k - i, across = l < j ? j - l : l - j;
        double sum = 0;
        if (minimum(down, rows - down) <= 2 * (m - 1) && minimum(across, columns - across) <= 2 * (n - 1))
            for (int t = 0; t < m * n; ++t) {
                const int e = 2 * (k + m - 1 - t / n), f = 2 * (l + n - 1 - t % n);
                double met = 0;
                for (int u = e; u < e + 2; ++u)
                    for (int v = f; v < f + 2; ++v)
                        met += row_weight[u] * column_weight[v] * seen[(index_t)row_pixel[u] * columns + column_pixel[v]];
                sum = fma(psf[t], met, sum);
            }
        row[at] = (real)(q == p ? sum + (double)lambda : sum);
    }
}
