// How strong the noise in an image is, read from where a picture has least: see deblur/solvers/noise.py.
//
// The simple version takes an image's blocks out, subtracts their means, multiplies by a window, transforms, squares and
// adds up: a dozen arrays of the blocks' size, each by an operation of CuPy that a first call compiles by itself. Here a
// block of threads takes a block of the image from its pixels to four numbers; its transform is two small dense ones in
// shared memory, the second only at frequencies that count. Of the whole picture one kernel writes what is transformed
// and one what the blur leaves at each frequency, and the medians are found without sorting, digit by digit.
//
// Kernels: extremes, count_extremes; look; centre, spread, weigh, pick. All is computed in double precision, and added up
// always in the same order.
// Bytes: extremes, count_extremes, look and centre read the image once; pick reads its arrays nine times, by one block.

constexpr int THREADS = 256;
constexpr int SIDE = 32;  // of the largest block
constexpr int PICKERS = 1024;
constexpr int AHEAD = 8;  // values that a thread of `pick` loads before it looks at any

typedef unsigned long long bits_t;

// Integers in the order of the numbers, for numbers that are not NaN; zero is the order of none.
__device__ __forceinline__ bits_t order(double x) {
    const bits_t bits = __double_as_longlong(x);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ double number(bits_t order) {
    return __longlong_as_double(order >> 63 ? order & ~(1ull << 63) : ~order);
}

// Sum over a block of THREADS, for all of its threads. `room` has a place for each warp.
template <class T> __device__ __forceinline__ T block_sum(T x, T* room) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL_WARP, x, offset);
    __syncthreads();  // the room may still be read, for the sum before
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    x = room[0];
    for (int w = 1; w < THREADS / 32; ++w) x += room[w];
    return x;
}

// Into zeros: the complement of the smallest pixel's order, and the largest's.
extern "C" __global__ void __launch_bounds__(THREADS)
extremes(unsigned long long* ends, const real* g, long long ldg, int rows, int cols) {
    bits_t least = 0, most = 0;
    const index_t count = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const bits_t here = order(g[i / cols * ldg + i % cols]);
        least = maximum(least, ~here);
        most = maximum(most, here);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        least = maximum(least, __shfl_xor_sync(FULL_WARP, least, offset));
        most = maximum(most, __shfl_xor_sync(FULL_WARP, most, offset));
    }
    if (threadIdx.x % 32 == 0) {
        atomicMax(ends, least);
        atomicMax(ends + 1, most);
    }
}

// Into zeros: how many pixels are as small, and as large, as those in `ends`.
extern "C" __global__ void __launch_bounds__(THREADS)
count_extremes(unsigned long long* counts, const unsigned long long* ends, const real* g, long long ldg, int rows, int cols) {
    const double least = number(~ends[0]), most = number(ends[1]);
    bits_t small = 0, large = 0;
    const index_t count = (index_t)rows * cols;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const double here = g[i / cols * ldg + i % cols];
        small += here == least;
        large += here == most;
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        small += __shfl_xor_sync(FULL_WARP, small, offset);
        large += __shfl_xor_sync(FULL_WARP, large, offset);
    }
    if (threadIdx.x % 32 == 0) {
        if (small) atomicAdd(counts, small);
        if (large) atomicAdd(counts + 1, large);
    }
}

// One image block of side x side pixels a block of threads: `found` gets, each in a row of its own of gridDim.x numbers,
// their mean; the powers of what the window leaves, added up by two sets of weights of the half spectrum; and the share
// of pixels at an end of the image's range that is `low` or `high`. The image's blocks lie side by side, then half a
// side to the right, down, and both; every `step`-th is looked at.
extern "C" __global__ void __launch_bounds__(THREADS)
look(double* found, const real* g, long long ldg, int rows, int cols, int side, int step, double low, double high,
     const double* window, const double* least, const double* middle) {
    __shared__ double x[SIDE][SIDE + 1], re[SIDE][SIDE / 2 + 1], im[SIDE][SIDE / 2 + 1];
    __shared__ double cosine[SIDE], sine[SIDE], room[THREADS / 32];
    index_t block = (index_t)blockIdx.x * step;
    int down = 0, right = 0, wide = cols / side;
    for (int k = 1; block >= (index_t)((rows - down) / side) * wide; ++k) {
        block -= (index_t)((rows - down) / side) * wide;
        down = k / 2 * (side / 2);
        right = k % 2 * (side / 2);
        wide = (cols - right) / side;
    }
    const real* from = g + (down + block / wide * side) * ldg + right + block % wide * side;

    double sum = 0, clipped = 0;
    for (int i = threadIdx.x; i < side * side; i += THREADS) {
        const double here = from[i / side * ldg + i % side];
        x[i / side][i % side] = here;
        sum += here;
        clipped += here == low || here == high;
    }
    for (int k = threadIdx.x; k < side; k += THREADS) sincospi(2.0 * k / side, &sine[k], &cosine[k]);
    const double mean = block_sum(sum, room) / (side * side);
    clipped = block_sum(clipped, room) / (side * side);
    for (int i = threadIdx.x; i < side * side; i += THREADS)
        x[i / side][i % side] = (x[i / side][i % side] - mean) * window[i / side] * window[i % side];
    __syncthreads();

    const int half = side / 2 + 1;
    for (int i = threadIdx.x; i < side * half; i += THREADS) {
        const int row = i / half, f = i % half;
        double a = 0, b = 0;
        for (int c = 0; c < side; ++c) {
            a += x[row][c] * cosine[f * c % side];
            b -= x[row][c] * sine[f * c % side];
        }
        re[row][f] = a;
        im[row][f] = b;
    }
    __syncthreads();
    double at_least = 0, at_middle = 0;
    for (int i = threadIdx.x; i < side * half; i += THREADS) {
        if (least[i] == 0 && middle[i] == 0) continue;
        const int k = i / half, f = i % half;
        double a = 0, b = 0;
        for (int r = 0; r < side; ++r) {
            const double c = cosine[k * r % side], s = sine[k * r % side];
            a += re[r][f] * c + im[r][f] * s;
            b += im[r][f] * c - re[r][f] * s;
        }
        const double power = a * a + b * b;
        at_least += least[i] * power;
        at_middle += middle[i] * power;
    }
    at_least = block_sum(at_least, room);
    at_middle = block_sum(at_middle, room);
    if (threadIdx.x == 0) {
        double* out = found + blockIdx.x;
        out[0] = mean;
        out[gridDim.x] = at_least;
        out[2 * (index_t)gridDim.x] = at_middle;
        out[3 * (index_t)gridDim.x] = clipped;
    }
}

// out = (g - mean) times the windows of rows and columns, where `sum` is that of all pixels; and the windows alone, but
// zero at pixels that are `low` or `high`, which are counted, if there is room for them.
extern "C" __global__ void __launch_bounds__(THREADS)
centre(double* out, double* unclipped, unsigned long long* clipped, const real* g, long long ldg, int rows, int cols,
       const double* sum, double low, double high, const double* down, const double* across) {
    const index_t count = (index_t)rows * cols;
    const double mean = *sum / count;
    bits_t ends = 0;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const index_t row = i / cols;
        const double here = g[row * ldg + i % cols], window = down[row] * across[i % cols];
        const bool end = here == low || here == high;
        out[i] = (here - mean) * window;
        if (unclipped) unclipped[i] = end ? 0 : window;
        ends += end;
    }
    if (!unclipped) return;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) ends += __shfl_xor_sync(FULL_WARP, ends, offset);
    if (threadIdx.x % 32 == 0 && ends) atomicAdd(clipped, ends);
}

// The means of each number of a half spectrum, rows x half, and its eight neighbours: rows wrap, columns are mirrored. The
// spectrum is every `every`-th of one whose rows are ldpower apart. Into a zero: the order of the largest mean.
extern "C" __global__ void __launch_bounds__(THREADS)
spread(double* out, unsigned long long* most, const double* power, long long ldpower, int every, int rows, int half) {
    bits_t mine = 0;
    const index_t count = (index_t)rows * half;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const int row = (int)(i / half), col = (int)(i % half);
        double sum = 0;
        for (int d = -1; d <= 1; ++d) {
            const double* from = power + (index_t)((row + d + rows) % rows) * every * ldpower;
            for (int e = -1; e <= 1; ++e) {
                int at = abs(col + e);
                if (at >= half) at = max(2 * half - 2 - at, 0);
                sum += from[(index_t)at * every];
            }
        }
        out[i] = sum / 9;
        mine = maximum(mine, order(sum / 9));
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) mine = maximum(mine, __shfl_xor_sync(FULL_WARP, mine, offset));
    if (threadIdx.x % 32 == 0) atomicMax(most, mine);
}

// picture = what a blurred picture is likely to have at each frequency of its half spectrum: (f^2 + flat)^-fall, times
// the blur's power, in place, over its largest, plus `leaks`, if there is `most`; power = |spectrum|^2.
extern "C" __global__ void __launch_bounds__(THREADS)
weigh(double* picture, double* power, const unsigned long long* most, const double* spectrum, int rows, int cols, double flat,
      double fall, double leaks) {
    const int half = cols / 2 + 1;
    const index_t count = (index_t)rows * half;
    const double scale = most ? maximum(number(*most), 2.2250738585072014e-308) : 1;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (index_t)gridDim.x * THREADS) {
        const int row = (int)(i / half), col = (int)(i % half);
        const double down = (double)minimum(row, rows - row) / rows, across = (double)col / cols;
        const double likely = pow(down * down + across * across + flat, -fall);
        picture[i] = most ? likely * (picture[i] / scale + leaks) : likely;
        power[i] = spectrum[2 * i] * spectrum[2 * i] + spectrum[2 * i + 1] * spectrum[2 * i + 1];
    }
}

// What `take` makes of the order of each x whose `gate` is at most `limit` (of all, without a gate), and of 0 in the place
// of the others. All threads of a warp come along.
template <class Take>
__device__ __forceinline__ void pass(const double* x, const double* gate, double limit, index_t count, Take take) {
    for (index_t start = 0; start < count; start += PICKERS * AHEAD) {
        bits_t orders[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const index_t i = start + k * PICKERS + threadIdx.x;
            orders[k] = i < count && (!gate || gate[i] <= limit) ? order(x[i]) : 0;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) take(orders[k]);
    }
}

// The number of that rank, from 0, among the x whose `gate` is at most *most (all, without a gate); or their median, if
// rank < 0. By one block: the numbers' orders are told apart by their highest eight bits, then by the next among those
// that are left, and so on.
extern "C" __global__ void __launch_bounds__(PICKERS)
pick(double* out, const double* x, const double* gate, const double* most, long long count, long long rank) {
    __shared__ unsigned histogram[256];
    __shared__ bits_t known, next;
    __shared__ index_t lower, upper, among;
    const int lane = threadIdx.x % 32;
    const double limit = gate ? *most : 0;
    if (threadIdx.x == 0) known = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int k = threadIdx.x; k < 256; k += PICKERS) histogram[k] = 0;
        __syncthreads();
        const bits_t prefix = known;
        pass(x, gate, limit, count, [&](bits_t here) {
            const bool alike = here && (shift == 56 || here >> (shift + 8) == prefix >> (shift + 8));
            const unsigned digit = alike ? (unsigned)(here >> shift) & 255 : 256;
            const unsigned peers = __match_any_sync(FULL_WARP, digit);
            if (alike && lane == __ffs(peers) - 1) atomicAdd(histogram + digit, __popc(peers));
        });
        __syncthreads();
        if (threadIdx.x == 0) {
            if (shift == 56) {
                index_t all = 0;
                for (int k = 0; k < 256; ++k) all += histogram[k];
                lower = rank < 0 ? (all - 1) / 2 : rank;
                upper = rank < 0 ? all / 2 : rank;
            }
            int digit = 0;  // `lower` and `upper` are counted from the first of those alike
            for (; digit < 255 && lower >= histogram[digit]; ++digit) {
                lower -= histogram[digit];
                upper -= histogram[digit];
            }
            known |= (bits_t)digit << shift;
            among = histogram[digit];
            next = ~0ull;
        }
        __syncthreads();
    }
    if (upper >= among) {  // the one after: the smallest of the larger numbers
        const bits_t prefix = known;
        bits_t mine = ~0ull;
        pass(x, gate, limit, count, [&](bits_t here) { mine = here > prefix ? minimum(mine, here) : mine; });
        atomicMin(&next, mine);
    }
    __syncthreads();
    if (threadIdx.x == 0) *out = upper < among ? number(known) : 0.5 * (number(known) + number(next));
}
