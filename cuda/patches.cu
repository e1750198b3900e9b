// Groups of similar patches of an image, found and filtered together: deblur/denoise/patches.py on the device.
//
// The simple version makes an image of distances for each of the 625 moves, sorts 625 numbers for each reference patch,
// writes all groups out (sixteen patches each, so that every pixel occurs 256 times), transforms, shrinks, and adds
// the patches through a sparse matrix. Here device memory holds only the places of a group's patches.
//
// Kernels (THREADS threads a block; single precision)
//   nearest<side>   one warp for each reference patch, whose pixels its lanes keep in registers. Each lane compares it
//                   with other moves, read from the window that the block shares. Sixteen lanes hold the sixteen best,
//                   sorted; about eighty of 625 candidates must be sorted in. Sums have the order of the CPU's
//                   loops and no fused operations, so that both find the same groups bit for bit.
//   measure         the noise's variances with a floor, and the unit of the later sums, from the image's size
//   filter<side>    one warp for a group of 8 x 8 patches, half a warp for one of 4 x 4. A lane holds the same pixels of
//                   all sixteen patches, so Haar's wavelets across them stay in registers. Through shared memory the
//                   lanes then take rows and columns, for the cosines. Rows of shared memory are SIDE + 1 apart, so
//                   rows, columns and pixels are read without bank conflicts.
//   divide          the sum of the patches at each pixel over the sum of their weights
// Contributions to a pixel are added as integers, in arbitrary order, so that the sum is reproducible. Their
// unit is 2^-35 of the largest |pixel|. A sum of weights (each between 2^-10 and 1000 if the noise is the same
// everywhere) times values stays below 2^63 for any groups with up to 4000 patches at a place.
//
// For P x Q pixels, side 8, step 4 and 25 x 25 moves, nearest takes 64 * 625 / 16 differences a pixel, 8 operations each,
// and filter about 2000 instructions for each group and lane. Both read the image from the caches.

#include "reduce.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int STACK = 16;        // patches of a group
constexpr int REFERENCES = 32;   // adjacent reference patches that share a window
constexpr int UNIT_BITS = 35;
constexpr int WEIGHT_BITS = 40;
// Places in `control`, which `measure` writes.
constexpr int USUAL = 0, UNIT = 1, INVERSE = 2, CONTROL = 3;

typedef unsigned long long sortable;

// ---------------------------------------------------------------- finding

struct Search {
    const float* pilot;
    int high, wide;
    const int* rows;
    const int* cols;
    int count, up, along;
    const int* order;
    const int* lines;
    int pitch;
    int* first;
};

// Window: SIDE + 2 up rows from (reference row - up) on, `pitch` pixels from (first reference column - along) on.
template <int SIDE> __device__ __forceinline__ void nearest(const Search& g) {
    extern __shared__ float window[];
    const int high = g.high, wide = g.wide, count = g.count, up = g.up, along = g.along, pitch = g.pitch;
    const int row = g.rows[blockIdx.y], begin = blockIdx.x * REFERENCES, end = min(begin + REFERENCES, count);
    const int left = g.cols[begin] - along, top = row - up;
    for (int i = threadIdx.x; i < (SIDE + 2 * up) * pitch; i += THREADS) {
        const int y = top + i / pitch, x = left + i % pitch;
        window[i] = y >= 0 && y < high && x >= 0 && x < wide ? g.pilot[(index_t)y * wide + x] : 0.0f;
    }
    __syncthreads();
    const int lane = threadIdx.x % 32, across = 2 * along + 1, moves = (2 * up + 1) * across;
    for (int at = begin + threadIdx.x / 32; at < end; at += WARPS) {
        const int col = g.cols[at];
        float here[SIDE * SIDE];
        UNROLL for (int p = 0; p < SIDE * SIDE; ++p) here[p] = window[(up + p / SIDE) * pitch + col - left + p % SIDE];
        sortable mine = ~0ull, worst = ~0ull;  // the best ones, ascending, in lanes 0 ... STACK - 1
        for (int m = lane; m - lane < moves; m += 32) {
            const int dy = m / across - up, dx = m % across - along;
            const bool inside =
                m < moves && row + dy >= 0 && row + dy + SIDE <= high && col + dx >= 0 && col + dx + SIDE <= wide;
            sortable key = ~0ull;
            if (inside) {
                const float* there = window + (up + dy) * pitch + col + dx - left;
                float total = 0;
                UNROLL for (int x = 0; x < SIDE; ++x) {
                    float sum = 0;
                    UNROLL for (int y = 0; y < SIDE; ++y) {
                        const float d = __fsub_rn(here[y * SIDE + x], there[y * pitch + x]);
                        sum = __fadd_rn(sum, __fmul_rn(d, d));
                    }
                    total = x == 0 ? sum : __fadd_rn(total, sum);
                }
                const int index = g.order[m];
                // Nonnegative floats have the order of their bits; of equally good moves the shorter one comes first.
                if (index == 0) key = 0;
                else if (total < __int_as_float(0x7f800000)) key = (sortable)__float_as_uint(total) << 32 | index;
            }
            unsigned better = __ballot_sync(FULL_WARP, key < worst);
            while (better) {
                const int source = __ffs(better) - 1;
                better &= better - 1;
                const sortable candidate = __shfl_sync(FULL_WARP, key, source);
                const sortable before = __shfl_up_sync(FULL_WARP, mine, 1);
                const int place = __popc(__ballot_sync(FULL_WARP, mine < candidate) & ((1u << STACK) - 1));
                if (lane < STACK && lane > place) mine = before;
                if (lane == place && place < STACK) mine = candidate;
                worst = __shfl_sync(FULL_WARP, mine, STACK - 1);
            }
        }
        if (lane < STACK) {
            const int index = mine == ~0ull ? 0 : (int)(unsigned)mine;
            g.first[((index_t)blockIdx.y * count + at) * STACK + lane] = row * wide + col + g.lines[index];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) nearest8(const Search g) { nearest<8>(g); }
extern "C" __global__ void __launch_bounds__(THREADS) nearest4(const Search g) { nearest<4>(g); }

// ---------------------------------------------------------------- measuring

// v = max(variances, 1e-12 of the mean square of the image), and `control`.
extern "C" __global__ void __launch_bounds__(THREADS)
measure(const float* image, long long size, const double* variances, int pixels, float* v, double* control, double* partial,
        unsigned* ticket) {
    double found[2] = {};  // the sum of the squares, and the largest |pixel|
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < size; i += (index_t)gridDim.x * THREADS) {
        const double x = image[i];
        found[0] += x * x;
        found[1] = fmax(found[1], fabs(x));
    }
    if (!grid_reduce<THREADS, 1>(found, partial, ticket)) return;
    const int t = threadIdx.x;
    const double floor = fmax(1e-12 * found[0] / size, 1e-30);
    for (int p = t; p < pixels; p += THREADS) v[p] = (float)fmax(variances[p], floor);
    __syncthreads();
    if (t == 0) {
        double usual = 0;
        for (int p = 0; p < pixels; ++p) usual += v[p];
        control[USUAL] = usual / pixels;
        const double unit = found[1] > 0 ? ldexp(1.0, UNIT_BITS) / found[1] : 1.0;
        control[UNIT] = unit;
        // A non-finite image has a non-finite result.
        control[INVERSE] = found[0] - found[0] == 0 ? ldexp(1.0, WEIGHT_BITS) / unit : found[0] - found[0];
    }
}

// ---------------------------------------------------------------- filtering

constexpr float HALF = 0.5f, ROOT = 0.70710678118654752f;
constexpr float A1 = 0.65328148243818818f, A3 = 0.27059805007309849f;  // sqrt(1/2) cos(k pi/8)
constexpr float C1 = 0.49039264020161522f, C2 = 0.46193976625564337f, C3 = 0.41573480615127262f, C4 = 0.35355339059327376f,
                C5 = 0.27778511650980111f, C6 = 0.19134171618254489f, C7 = 0.09754516100806412f;  // cos(k pi/16) / 2

__device__ __forceinline__ void cosines(float (&a)[4]) {
    const float s0 = a[0] + a[3], s1 = a[1] + a[2], d0 = a[0] - a[3], d1 = a[1] - a[2];
    a[0] = HALF * (s0 + s1);
    a[1] = A1 * d0 + A3 * d1;
    a[2] = HALF * (s0 - s1);
    a[3] = A3 * d0 - A1 * d1;
}

__device__ __forceinline__ void cosines(float (&a)[8]) {
    const float s0 = a[0] + a[7], s1 = a[1] + a[6], s2 = a[2] + a[5], s3 = a[3] + a[4];
    const float d0 = a[0] - a[7], d1 = a[1] - a[6], d2 = a[2] - a[5], d3 = a[3] - a[4];
    const float t0 = s0 + s3, t1 = s1 + s2, t2 = s1 - s2, t3 = s0 - s3;
    a[0] = C4 * (t0 + t1);
    a[1] = C1 * d0 + C3 * d1 + C5 * d2 + C7 * d3;
    a[2] = C2 * t3 + C6 * t2;
    a[3] = C3 * d0 - C7 * d1 - C1 * d2 - C5 * d3;
    a[4] = C4 * (t0 - t1);
    a[5] = C5 * d0 - C1 * d1 + C7 * d2 + C3 * d3;
    a[6] = C6 * t3 - C2 * t2;
    a[7] = C7 * d0 - C5 * d1 + C3 * d2 - C1 * d3;
}

__device__ __forceinline__ void cosines_back(float (&a)[4]) {
    const float s0 = HALF * (a[0] + a[2]), s1 = HALF * (a[0] - a[2]);
    const float d0 = A1 * a[1] + A3 * a[3], d1 = A3 * a[1] - A1 * a[3];
    a[0] = s0 + d0;
    a[1] = s1 + d1;
    a[2] = s1 - d1;
    a[3] = s0 - d0;
}

__device__ __forceinline__ void cosines_back(float (&a)[8]) {
    const float t0 = C4 * (a[0] + a[4]), t1 = C4 * (a[0] - a[4]);
    const float t3 = C2 * a[2] + C6 * a[6], t2 = C6 * a[2] - C2 * a[6];
    const float s0 = t0 + t3, s1 = t1 + t2, s2 = t1 - t2, s3 = t0 - t3;
    const float d0 = C1 * a[1] + C3 * a[3] + C5 * a[5] + C7 * a[7];
    const float d1 = C3 * a[1] - C7 * a[3] - C1 * a[5] - C5 * a[7];
    const float d2 = C5 * a[1] - C1 * a[3] + C7 * a[5] + C3 * a[7];
    const float d3 = C7 * a[1] - C5 * a[3] + C3 * a[5] - C1 * a[7];
    a[0] = s0 + d0;
    a[1] = s1 + d1;
    a[2] = s2 + d2;
    a[3] = s3 + d3;
    a[4] = s3 - d3;
    a[5] = s2 - d2;
    a[6] = s1 - d1;
    a[7] = s0 - d0;
}

// Distribution of a group's numbers over lanes.
template <int SIDE> struct layout {
    static constexpr int LANES = SIDE == 8 ? 32 : 16;    // of a group
    static constexpr int PIXELS = SIDE * SIDE / LANES;   // of each patch, for each lane
    static constexpr int LINES = STACK * SIDE / LANES;   // rows or columns, for each lane
    static constexpr int PITCH = SIDE + 1;
    static constexpr int PLANE = SIDE * PITCH;           // of one patch
    static constexpr int GROUP = STACK * PLANE + (SIDE == 8 ? 0 : 16);
    static constexpr int GROUPS = THREADS / LANES;       // of a block
};

// Sums to even places and differences to odd ones, repeated for the sums; or the inverse.
template <bool BACK, int PIXELS> __device__ __forceinline__ void wavelets(float (&x)[STACK][PIXELS]) {
    UNROLL for (int level = 0; level < 4; ++level) {
        const int step = BACK ? 8 >> level : 1 << level;
        UNROLL for (int n = 0; n < STACK; n += 2 * step)
            UNROLL for (int k = 0; k < PIXELS; ++k) {
                const float u = x[n][k], v = x[n + step][k];
                x[n][k] = (u + v) * ROOT;
                x[n + step][k] = (u - v) * ROOT;
            }
    }
}

// The cosine transform of the rows of a group's planes in shared memory, or its inverse.
template <bool BACK, int SIDE> __device__ __forceinline__ void rows(float* s, int lane) {
    using L = layout<SIDE>;
    UNROLL for (int j = 0; j < L::LINES; ++j) {
        const int q = lane + L::LANES * j;
        float* line = s + q / SIDE * L::PLANE + q % SIDE * L::PITCH;
        float a[SIDE];
        UNROLL for (int i = 0; i < SIDE; ++i) a[i] = line[i];
        if (BACK) cosines_back(a);
        else cosines(a);
        UNROLL for (int i = 0; i < SIDE; ++i) line[i] = a[i];
    }
    __syncwarp();
}

// A group in shared memory, transformed except along columns. Lane n (and n + 16) knows the first pixel of patch n.
template <int SIDE> __device__ __forceinline__ void gather(const float* image, int wide, int begins, float* s, int lane) {
    using L = layout<SIDE>;
    float x[STACK][L::PIXELS];
    UNROLL for (int n = 0; n < STACK; ++n) {
        const int begin = __shfl_sync(FULL_WARP, begins, n, L::LANES);
        UNROLL for (int k = 0; k < L::PIXELS; ++k) {
            const int p = lane + L::LANES * k;
            x[n][k] = __ldg(image + begin + (p / SIDE) * wide + p % SIDE);
        }
    }
    wavelets<false>(x);
    __syncwarp();
    UNROLL for (int n = 0; n < STACK; ++n)
        UNROLL for (int k = 0; k < L::PIXELS; ++k) {
            const int p = lane + L::LANES * k;
            s[n * L::PLANE + p / SIDE * L::PITCH + p % SIDE] = x[n][k];
        }
    __syncwarp();
    rows<false, SIDE>(s, lane);
}

// Coefficients (0 ... SIDE - 1, q % SIDE) of plane q / SIDE, for q = lane + LANES j.
template <int SIDE> __device__ __forceinline__ void column(const float* s, int lane, int j, float (&a)[SIDE]) {
    using L = layout<SIDE>;
    const int q = lane + L::LANES * j;
    const float* line = s + q / SIDE * L::PLANE + q % SIDE;
    UNROLL for (int i = 0; i < SIDE; ++i) a[i] = line[i * L::PITCH];
    cosines(a);
}

// The inverse, from the columns to the pixels that a lane holds.
template <int SIDE>
__device__ __forceinline__ void synthesised(float (&c)[layout<SIDE>::LINES][SIDE], float* s, int lane,
                                            float (&x)[STACK][layout<SIDE>::PIXELS]) {
    using L = layout<SIDE>;
    __syncwarp();
    UNROLL for (int j = 0; j < L::LINES; ++j) {
        const int q = lane + L::LANES * j;
        float* line = s + q / SIDE * L::PLANE + q % SIDE;
        cosines_back(c[j]);
        UNROLL for (int i = 0; i < SIDE; ++i) line[i * L::PITCH] = c[j][i];
    }
    __syncwarp();
    rows<true, SIDE>(s, lane);
    UNROLL for (int n = 0; n < STACK; ++n)
        UNROLL for (int k = 0; k < L::PIXELS; ++k) {
            const int p = lane + L::LANES * k;
            x[n][k] = s[n * L::PLANE + p / SIDE * L::PITCH + p % SIDE];
        }
    wavelets<true>(x);
}

__device__ __forceinline__ void add(long long* sum, double x) {
    atomicAdd((unsigned long long*)sum, (unsigned long long)__double2ll_rn(x));
}

struct Filter {
    const float* noisy;
    const float* pilot;  // null for thresholding
    int wide;
    const int* first;
    int groups;
    const float* v;
    const float* level;  // for each place of a patch, high - SIDE + 1 rows of wide - SIDE + 1; or null
    float threshold;
    const float* edge;
    const double* control;
    long long* total;
    long long* weight;
};

template <int SIDE> __device__ __forceinline__ void filter(const Filter& g) {
    using L = layout<SIDE>;
    __shared__ float room[L::GROUPS * L::GROUP];
    const int slot = threadIdx.x / L::LANES, lane = threadIdx.x % L::LANES;
    const int asked = blockIdx.x * L::GROUPS + slot, group = min(asked, g.groups - 1);
    float* s = room + slot * L::GROUP;
    const int begins = g.first[(index_t)group * STACK + lane % STACK];
    const float usual = (float)g.control[USUAL];
    float local = 1.0f;
    if (g.level) {
        local = g.level[begins / g.wide * (g.wide - SIDE + 1) + begins % g.wide];
        UNROLL for (int offset = STACK / 2; offset > 0; offset /= 2) local += __shfl_xor_sync(FULL_WARP, local, offset);
        local /= STACK;
    }
    float noise[SIDE];
    UNROLL for (int i = 0; i < SIDE; ++i) noise[i] = g.v[i * SIDE + lane % SIDE] * local;
    float c[L::LINES][SIDE], power = 0;
    gather<SIDE>(g.noisy, g.wide, begins, s, lane);
    UNROLL for (int j = 0; j < L::LINES; ++j) column<SIDE>(s, lane, j, c[j]);
    if (g.pilot) {
        __syncwarp();
        gather<SIDE>(g.pilot, g.wide, begins, s, lane);
        UNROLL for (int j = 0; j < L::LINES; ++j) {
            float d[SIDE];
            column<SIDE>(s, lane, j, d);
            UNROLL for (int i = 0; i < SIDE; ++i) {
                const float e = d[i] * d[i], share = e / (e + noise[i]);
                c[j][i] *= share;
                power += share * share * noise[i];
            }
        }
    } else {
        UNROLL for (int j = 0; j < L::LINES; ++j)
            UNROLL for (int i = 0; i < SIDE; ++i) {
                const bool keep = c[j][i] * c[j][i] > g.threshold * noise[i] || (i == 0 && j == 0 && lane == 0);  // the mean
                if (!keep) c[j][i] = 0;
                power += keep ? noise[i] : 0.0f;
            }
    }
    UNROLL for (int offset = L::LANES / 2; offset > 0; offset /= 2) power += __shfl_xor_sync(FULL_WARP, power, offset);
    const float w = usual / fmaxf(power, 1e-3f * usual);
    float x[STACK][L::PIXELS];
    synthesised<SIDE>(c, s, lane, x);
    const bool counts = asked < g.groups;
    const double unit = g.control[UNIT];
    UNROLL for (int n = 0; n < STACK; ++n) {
        const int begin = __shfl_sync(FULL_WARP, begins, n, L::LANES);
        if (!counts) continue;
        UNROLL for (int k = 0; k < L::PIXELS; ++k) {
            const int p = lane + L::LANES * k;
            const float share = w * g.edge[p / SIDE] * g.edge[p % SIDE];
            add(g.total + begin + (p / SIDE) * g.wide + p % SIDE, unit * (double)(share * x[n][k]));
        }
    }
    if (counts && lane < STACK) add(g.weight + begins, (double)w * (double)(1ull << WEIGHT_BITS));
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) filter8(const Filter g) { filter<8>(g); }
extern "C" __global__ void __launch_bounds__(THREADS, 2) filter4(const Filter g) { filter<4>(g); }

// A patch that begins at a pixel adds its weight, times the edge's weights, to `side` x `side` pixels.
extern "C" __global__ void __launch_bounds__(THREADS)
divide(const long long* total, const long long* weight, int high, int wide, int side, const float* edge, const double* control,
       float* out) {
    const index_t size = (index_t)high * wide;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < size; i += (index_t)gridDim.x * THREADS) {
        const int row = (int)(i / wide), col = (int)(i - (index_t)row * wide);
        double sum = 0;
        for (int y = 0; y < side && y <= row; ++y) {
            double line = 0;
            for (int x = 0; x < side && x <= col; ++x) line += edge[x] * (double)weight[i - (index_t)y * wide - x];
            sum += edge[y] * line;
        }
        out[i] = (float)((double)total[i] * control[INVERSE] / sum);
    }
}
