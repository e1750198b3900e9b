// Differences of neighbouring pixels, as deblur/terms.py states them, and the norms of regularizers.

constexpr int SQUARE = 0, ABSOLUTE = 1, VECTOR_NORM = 2;  // norms

constexpr real ROOT_TWO = 1.41421356237309504880;

__device__ __forceinline__ real square(real x) { return x * x; }

// Offsets from a pixel to its neighbours in a periodic plane. A domain has less than 2^31 pixels.
struct Place {
    int up, down, left, right;

    __device__ __forceinline__ Place(int row, int col, int rows, int cols) {
        up = row > 0 ? -cols : (rows - 1) * cols;
        down = row + 1 < rows ? cols : -(rows - 1) * cols;
        left = col > 0 ? -1 : cols - 1;
        right = col + 1 < cols ? 1 : 1 - cols;
    }
};

// L x at a pixel, to which p points.
template <int KIND> __device__ __forceinline__ void differences(const real* p, const Place& o, real (&a)[KIND]) {
    const real x = p[0];
    if (KIND == 1) a[0] = x;
    if (KIND == 2) {
        a[0] = p[o.down] - x;
        a[KIND - 1] = p[o.right] - x;
    }
    if (KIND == 3) {
        const real down = p[o.down], right = p[o.right];
        a[0] = p[o.up] + down - 2 * x;
        a[KIND / 2] = p[o.left] + right - 2 * x;
        a[KIND - 1] = ROOT_TWO * (p[o.down + o.right] - down - right + x);
    }
}

// Whether each difference at a pixel stays inside the scene of scene_rows x scene_cols.
template <int KIND>
__device__ __forceinline__ void counted(bool (&in)[KIND], bool all, int row, int col, int scene_rows, int scene_cols) {
    const bool inside = row < scene_rows && col < scene_cols;
    const bool below = row + 1 < scene_rows, beside = col + 1 < scene_cols;
    if (KIND == 1) in[0] = inside;
    if (KIND == 2) {
        in[0] = inside && below;
        in[KIND - 1] = inside && beside;
    }
    if (KIND == 3) {
        in[0] = inside && below && row > 0;
        in[KIND / 2] = inside && beside && col > 0;
        in[KIND - 1] = inside && below && beside;
    }
    UNROLL for (int d = 0; d < KIND; ++d) in[d] = in[d] || all;
}
