// The diagonal tile of a Cholesky factorisation, and the tiles below it, in shared memory: the steps of cholesky.cu for a
// tile from which all products have been subtracted. A tile is LEAF x LEAF in the layout of common.cuh.
//
// The simple version works column by column, with barriers after the root, the division and the update. What each step
// gains:
//   - 32 columns at a time in registers, four columns at a time between exchanges, without barriers.
//   - The inverses of the 32 x 32 blocks are computed on the way, so the tiles below are multiplied, not substituted.
//   - Registers are shifted by four places, so that the code is a short loop.

// Four columns that are processed together, as one lane sees them: its row x of the 32 x 32 diagonal block, and a second
// row y.
struct Four {
    real x[4], y[4];        // without the pivots' roots; zero above the diagonal
    real of_x[4], of_y[4];  // corrected by their multiples of the pivots; subtracted from all columns to the right
    real pivot[4];          // 1 if it is not usable
    int bad;                // index of the first unusable pivot, or 4
};
constexpr int SHOWN = 2 * 32 * 4 + 4 * 4;  // elements that a warp shows to its lanes

// Factors the first four of the columns in x and y, which begin with column j: every lane factors the 4 x 4 diagonal block,
// from `corner`, for itself, and with it the lane's rows.
__device__ __forceinline__ void factor_four(Four& f, const real (&x)[32], const real (&y)[32], int j, const real* corner) {
    const int lane = threadIdx.x & 31;
    real b[4][4];
    UNROLL for (int q = 0; q < 4; ++q)
        UNROLL for (int e = 0; e <= q; e += VECTOR) {
            const vector_t v = *(const vector_t*)(corner + 4 * q + e);
            UNROLL for (int i = 0; i < VECTOR; ++i) b[q][e + i] = v.x[i];
        }
    UNROLL for (int e = 0; e < 4; ++e) f.x[e] = x[e], f.y[e] = y[e];
    f.bad = 4;
    UNROLL for (int e = 0; e < 4; ++e) {
        const bool usable = has_reciprocal(b[e][e]);
        f.pivot[e] = usable ? b[e][e] : real(1);
        f.bad = usable ? f.bad : minimum(f.bad, e);
        const real inverse = usable ? reciprocal(b[e][e]) : real(1);  // does not wait for the test
        UNROLL for (int q = e + 1; q < 4; ++q) {
            const real multiple = -b[q][e] * inverse;
            UNROLL for (int k = e + 1; k <= q; ++k) b[q][k] = multiply_add(multiple, b[k][e], b[q][k]);
        }
        // Values above the diagonal are arbitrary; zeros leave the finished columns unchanged.
        f.x[e] = lane < j + e ? real(0) : f.x[e];
        f.of_x[e] = -f.x[e] * inverse, f.of_y[e] = -f.y[e] * inverse;
        UNROLL for (int k = e + 1; k < 4; ++k) {
            f.x[k] = multiply_add(f.of_x[e], b[k][e], f.x[k]);
            f.y[k] = multiply_add(f.of_y[e], b[k][e], f.y[k]);
        }
    }
}

// The lanes of the four columns from j on show their current entries of these columns.
__device__ __forceinline__ void show_corner(const real (&x)[32], int j, real* corner) {
    const int row = (int)(threadIdx.x & 31) - j;
    if (row >= 0 && row < 4)
        UNROLL for (int e = 0; e < 4; ++e) corner[4 * row + e] = x[e];
    __syncwarp();
}

// Eight columns of factor_columns, from column `first` on, of which the next four, f, are done. The ACTIVE columns not
// finished before are in x and y. Registers are shifted by four places at a time, so that the code is a short loop and
// column j is always x[0]; the columns finished here end in the last eight places. The next four columns are updated
// first: while the others follow, the reciprocals of their pivots, for which everything waits, are computed.
template <int ACTIVE>
__device__ __forceinline__ void factor_eight(real (&x)[32], real (&y)[32], int first, Four& f, real* shown, real& own,
                                             int& bad) {
    const int lane = threadIdx.x & 31;
    real* corner = shown + 2 * 32 * 4;
#pragma unroll 1
    for (int j = first; j < first + 8; j += 4) {
        real* rows = shown + j / 4 % 2 * (32 * 4);  // rows from j on, followed by zeros
        UNROLL for (int e = 0; e < 4; ++e) {
            own = lane == j + e ? f.pivot[e] : own;
            rows[((lane - j) & 31) * 4 + e] = f.x[e];
        }
        bad = f.bad < 4 ? minimum(bad, j + f.bad) : bad;
        __syncwarp();
        auto advance = [&](int c) {
            real known[4];
            load_row(known, rows + 4 * c);
            real new_x = x[c], new_y = y[c];
            UNROLL for (int e = 0; e < 4; ++e) {
                new_x = multiply_add(f.of_x[e], known[e], new_x);
                new_y = multiply_add(f.of_y[e], known[e], new_y);
            }
            x[c - 4] = new_x, y[c - 4] = new_y;
        };
        UNROLL for (int c = 4; c < 8; ++c) advance(c);
        show_corner(x, j + 4, corner);
        Four next;
        factor_four(next, x, y, j + 4, corner);
        UNROLL for (int c = 8; c < ACTIVE; ++c) advance(c);
        UNROLL for (int e = 0; e < 4; ++e) x[ACTIVE - 4 + e] = f.x[e], y[ACTIVE - 4 + e] = f.y[e];
        f = next;
    }
}

// Columns o..o+32 of the block, with one warp for each 32 rows from o on, without waiting for one another. Every warp
// factors the 32 x 32 diagonal block in registers, lane i with its row i, and solves for a second row y with the same
// columns. For the first warp y is a row of the identity and becomes a row of L'^-1, which is stored above the diagonal;
// for the others it is a row of the block below and becomes y L'^-1. The pivots' roots are taken at the end, so that a
// reciprocal and two multiplications separate one pivot from the next. Returns the first column whose pivot is not
// positive or has no reciprocal, or 32. `shown`: SHOWN elements for this warp.
__device__ __forceinline__ int factor_columns(leaf_t* s, int o, real* diagonal, real* shown) {
    const int lane = threadIdx.x & 31, row = o + (int)threadIdx.x;
    real x[32], y[32];
    UNROLL for (int c = 0; c < 32; c += VECTOR) {
        const vector_t v = *(const vector_t*)&s[o + lane][o + c];  // values above the diagonal are never used
        const vector_t w = *(const vector_t*)&s[row][o + c];
        UNROLL for (int i = 0; i < VECTOR; ++i) {
            x[c + i] = v.x[i];
            y[c + i] = threadIdx.x >= 32 ? w.x[i] : c + i == lane ? real(1) : real(0);
        }
    }
    int bad = 32;
    real own = 1;  // pivot of this lane's row
    Four f;
    show_corner(x, 0, shown + 2 * 32 * 4);
    factor_four(f, x, y, 0, shown + 2 * 32 * 4);
    factor_eight<32>(x, y, 0, f, shown, own, bad);
    factor_eight<24>(x, y, 8, f, shown, own, bad);
    factor_eight<16>(x, y, 16, f, shown, own, bad);
    factor_eight<8>(x, y, 24, f, shown, own, bad);
    const real own_root = reciprocal_root(own);
    shown[lane] = own_root;
    __syncthreads();  // all have also read the diagonal block
    UNROLL for (int c = 0; c < 32; c += VECTOR) {
        const vector_t root = *(const vector_t*)(shown + c);
        vector_t v, w;
        UNROLL for (int i = 0; i < VECTOR; ++i) {
            const int place = 24 - (c + i) / 8 * 8 + (c + i) % 8;  // groups of eight columns are stored from the last place to the first
            v.x[i] = x[place] * root.x[i];
            w.x[i] = y[place] * root.x[i];
        }
        if (threadIdx.x < 32)
            UNROLL for (int i = 0; i < VECTOR; ++i) w.x[i] = c + i < lane ? v.x[i] : c + i == lane ? own_root : w.x[i];
        *(vector_t*)&s[row][o + c] = w;
    }
    if (threadIdx.x < 32) diagonal[o + lane] = own * own_root;
    return bad;
}

// Adds to x the inner products of 32 terms of four rows of `a` with four rows of `b`, with the given row distances.
__device__ __forceinline__ void add_products(real (&x)[4][4], const real* a, int a_apart, const real* b, int b_apart) {
#pragma unroll 2
    for (int k = 0; k < 32; k += VECTOR) {
        vector_t left[4], right[4];
        UNROLL for (int i = 0; i < 4; ++i) left[i] = *(const vector_t*)(a + i * a_apart + k);
        UNROLL for (int q = 0; q < 4; ++q) right[q] = *(const vector_t*)(b + q * b_apart + k);
        UNROLL for (int v = 0; v < VECTOR; ++v)
            UNROLL for (int i = 0; i < 4; ++i)
                UNROLL for (int q = 0; q < 4; ++q) x[i][q] = multiply_add(left[i].x[v], right[q].x[v], x[i][q]);
    }
}

// Subtracts the product of rows r.. and c.. of columns o..o+32 from the 32 x 32 block at (r, c), by two warps.
__device__ __forceinline__ void take_off(leaf_t* s, int r, int c, int o) {
    const int t = threadIdx.x % 64;
    real x[4][4] = {};
    if constexpr (REAL_IS_FLOAT) {
        r += t / 8, c += t % 8;
        add_products(x, &s[r][o], 8 * LEAF_PITCH, &s[c][o], 8 * LEAF_PITCH);
        UNROLL for (int i = 0; i < 4; ++i)
            UNROLL for (int q = 0; q < 4; ++q) s[r + 8 * i][c + 8 * q] -= x[i][q];
    } else {  // by tensor cores, 16 rows a warp
        const int g = t % 32 / 4, lane = t % 4;
        r += t / 32 * 16 + g;
        real left[4][4];
        UNROLL for (int k = 0; k < 4; ++k)
            UNROLL for (int e = 0; e < 4; ++e) left[k][e] = -s[r + 8 * (e % 2)][o + 8 * k + lane + 4 * (e / 2)];
        UNROLL for (int f = 0; f < 4; ++f)
            UNROLL for (int e = 0; e < 4; ++e) x[f][e] = s[r + e / 2 * 8][c + 8 * f + 2 * lane + e % 2];
        UNROLL for (int k = 0; k < 4; ++k)
            UNROLL for (int f = 0; f < 4; ++f) {
                const real* of = &s[c + 8 * f + g][o + 8 * k + lane];
                const real right[2] = {of[0], of[4]};
                mma(x[f], left[k], right);
            }
        UNROLL for (int f = 0; f < 4; ++f)
            UNROLL for (int e = 0; e < 4; ++e) s[r + e / 2 * 8][c + 8 * f + 2 * lane + e % 2] = x[f][e];
    }
}

constexpr int STRIP_PITCH = 32 + 4;  // row distance of a strip of 32 columns, without bank conflicts for reads by rows or by fragments

// Multiplies columns o..o+32 of TILE rows, from which earlier columns are subtracted, by the inverse of the 32 x 32 block
// of L. `strip`: columns o..o+32 of L from row o on. A warp has its own rows, here and in update_columns: 16 of them in
// float64, by tensor cores.
__device__ __forceinline__ void solve_columns(leaf_t* s, const real (*strip)[STRIP_PITCH], int o) {
    real x[4][4] = {};
    if constexpr (REAL_IS_FLOAT) {
        const int r = threadIdx.x / 8, c = threadIdx.x % 8;
#pragma unroll 4
        for (int k = 0; k < 32; k += VECTOR) {
            vector_t left[4];
            UNROLL for (int i = 0; i < 4; ++i) left[i] = *(const vector_t*)&s[r + 32 * i][o + k];
            UNROLL for (int v = 0; v < VECTOR; ++v)
                UNROLL for (int q = 0; q < 4; ++q) {
                    const real right = k + v <= c + 8 * q ? strip[k + v][c + 8 * q] : real(0);
                    UNROLL for (int i = 0; i < 4; ++i) x[i][q] = multiply_add(left[i].x[v], right, x[i][q]);
                }
        }
        __syncwarp();
        UNROLL for (int i = 0; i < 4; ++i)
            UNROLL for (int q = 0; q < 4; ++q) s[r + 32 * i][o + c + 8 * q] = x[i][q];
    } else {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, r = threadIdx.x / 32 * 16 + g;
        UNROLL for (int k = 0; k < 4; ++k) {
            real left[4];
            UNROLL for (int e = 0; e < 4; ++e) left[e] = s[r + 8 * (e % 2)][o + 8 * k + t + 4 * (e / 2)];
            UNROLL for (int f = k; f < 4; ++f) {
                real right[2];
                UNROLL for (int e = 0; e < 2; ++e) {
                    const int row = 8 * k + t + 4 * e;
                    right[e] = row <= 8 * f + g ? strip[row][8 * f + g] : real(0);
                }
                mma(x[f], left, right);
            }
        }
        __syncwarp();
        UNROLL for (int f = 0; f < 4; ++f)
            UNROLL for (int e = 0; e < 4; ++e) s[r + e / 2 * 8][o + 8 * f + 2 * t + e % 2] = x[f][e];
    }
}

// Subtracts the product with these columns from the columns to the right.
__device__ __forceinline__ void update_columns(leaf_t* s, const real (*strip)[STRIP_PITCH], int o) {
#pragma unroll 1
    for (int b = 32; b < LEAF - o; b += 32) {
        real x[4][4] = {};
        if constexpr (REAL_IS_FLOAT) {
            const int r = threadIdx.x / 8, c = threadIdx.x % 8;
            add_products(x, &s[r][o], 32 * LEAF_PITCH, &strip[b + c][0], 8 * STRIP_PITCH);
            UNROLL for (int i = 0; i < 4; ++i)
                UNROLL for (int q = 0; q < 4; ++q) s[r + 32 * i][o + b + c + 8 * q] -= x[i][q];
        } else {
            const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, r = threadIdx.x / 32 * 16 + g;
            UNROLL for (int k = 0; k < 4; ++k) {
                real left[4];
                UNROLL for (int e = 0; e < 4; ++e) left[e] = s[r + 8 * (e % 2)][o + 8 * k + t + 4 * (e / 2)];
                UNROLL for (int f = 0; f < 4; ++f) {
                    const real right[2] = {strip[b + 8 * f + g][8 * k + t], strip[b + 8 * f + g][8 * k + t + 4]};
                    mma(x[f], left, right);
                }
            }
            UNROLL for (int f = 0; f < 4; ++f)
                UNROLL for (int e = 0; e < 4; ++e) s[r + e / 2 * 8][o + b + 8 * f + 2 * t + e % 2] -= x[f][e];
        }
    }
    __syncwarp();
}
