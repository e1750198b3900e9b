// One accelerated Richardson-Lucy iteration between its transforms (deblur/solvers/richardson_lucy.py states it).
//
// The simple version is one NumPy expression for each line: some thirty passes over the image, and numbers read back. Here
// two kernels read and write every array once, and numbers stay on the device until the host reads those of several iterations.
//
// Kernels (THREADS threads a block, EACH pixels at once for each thread)
//   expect       e = max(H f + b, floor), the expected counts; w g / e replaces it; the divergence of the counts from e
//   advance      the multiplicative step, and the point extrapolated along the last move (scaled heavy ball)
// `sums`: the divergence; |move|^2, |scene|^2. The host does not wait for an iteration: `control` has its parameters and
// receives its numbers; once the run has ended, an iteration changes nothing. H f and the transpose's result are views of
// the torus: volumes (planes, slices, rows, cols), `stride`, `lds` and ld apart. Images have one slice. If the next
// transform works in place, `expect` writes zeros around w g / e.

#include "reduce.cuh"

constexpr int THREADS = 256;
constexpr int SUMS = 3, OF_EXPECT = 1;

// Places in `control`. PREVIOUS: the last divergence. SINCE: iterations since it rose.
constexpr int DONE = 0, COUNT = 1, TOLERANCE = 2, LIMIT = 3, FLOOR = 4, PREVIOUS = 5, SINCE = 6, CONTROL = 7;
constexpr int BATCH = 10, RECORD = 2;  // largest number of iterations between two reads by the host; divergence and change
constexpr int EACH = 4;  // pixels of a row for each thread at once, 32 apart

// Calls each(load(place), place) for this thread's pixels. A place has the slice of all planes, the row and the column, the
// index `from` in images with gaps, and `known`: of the image, or beyond it, up to row `high` and column `wide`. A warp has
// parts of rows: no pixel costs a division. All pixels are loaded before one is stored: else their latencies add up.
struct Place {
    index_t slice, row, col, from;
    bool known;
};
template <class Load, class Each>
__device__ __forceinline__ void pixels(index_t ld, index_t lds, index_t stride, int planes, unsigned slices, unsigned rows,
                                       unsigned cols, unsigned high, unsigned wide, Load load, Each each) {
    const unsigned parts = (wide + 32 * EACH - 1) / (32 * EACH);
    const index_t all = (index_t)slices * high * parts;
    for (index_t k = ((index_t)blockIdx.x * THREADS + threadIdx.x) / 32; k < all; k += gridDim.x * (THREADS / 32)) {
        const index_t line = k / parts, slice = line / high, row = line - slice * high;
        const index_t col = (k - line * parts) * 32 * EACH + threadIdx.x % 32;
        for (int p = 0; p < planes; ++p) {
            const index_t s = p * (index_t)slices + slice, from = p * stride + slice * lds + row * ld + col;
            decltype(load(Place{})) numbers[EACH];
            const auto place = [&](int u, bool whole) {
                return Place{s, row, col + 32 * u, from + 32 * u, whole || (row < rows && col + 32 * u < cols)};
            };
            const auto part = [&](bool whole) {
                UNROLL for (int u = 0; u < EACH; ++u)
                    if (whole || col + 32 * u < wide) numbers[u] = load(place(u, whole));
                UNROLL for (int u = 0; u < EACH; ++u)
                    if (whole || col + 32 * u < wide) each(numbers[u], place(u, whole));
            };
            if (row < rows && col + 32 * (EACH - 1) < cols) part(true);
            else part(false);
        }
    }
}

// g and w (null: ones) are whole images.
extern "C" __global__ void __launch_bounds__(THREADS)
expect(real* __restrict__ hf, long long ldhf, long long lds, long long stride, int planes, unsigned slices, unsigned rows,
       unsigned cols, unsigned high, unsigned wide, const real* __restrict__ g, const real* __restrict__ w, real background,
       real floor, double* control, double* sums, double* partial, unsigned* tickets) {
    if (control[DONE] != 0) return;
    double mine[OF_EXPECT] = {0};
    struct Counts {
        real hf, g, w;
    };
    const auto load = [&](const Place& at) {
        const index_t i = at.known ? (at.slice * rows + at.row) * cols + at.col : 0;  // no branch, so that loads overlap
        return Counts{hf[at.from], g[i], (w ? w : g)[i]};
    };
    pixels(ldhf, lds, stride, planes, slices, rows, cols, high, wide, load, [&](const Counts& x, const Place& at) {
        const real e = maximum(x.hf + background, floor), quotient = x.g / e, weight = !at.known ? real(0) : w ? x.w : real(1);
        hf[at.from] = at.known ? weight * quotient : real(0);
        if (at.known) mine[0] += weight * (e - x.g + (quotient > 0 ? x.g * log(quotient) : real(0)));
    });
    if (!grid_sum<THREADS>(mine, partial, tickets) || threadIdx.x > 0) return;
    const int n = (int)control[COUNT];
    const double divergence = mine[0], infinite = __longlong_as_double(0x7ff0000000000000ll);
    const double change = n > 0 ? sqrt(sums[1]) / (sqrt(sums[2]) + control[FLOOR]) : infinite;
    double* record = control + CONTROL + n % BATCH * RECORD;
    record[0] = divergence;
    record[1] = change;
    control[SINCE] = n > 0 && divergence > control[PREVIOUS] ? 1 : control[SINCE] + 1;
    control[PREVIOUS] = divergence;
    control[COUNT] = n + 1;
    if (!(absolute(divergence) < infinite) || change <= control[TOLERANCE] || n >= control[LIMIT]) control[DONE] = 1;
}

// Replaces the scene `f` and the point. Rows of f and of `sensitivity` (0: not seen) are ldf apart, those of the point
// ldpoint, with `deep` rows a slice: whole cache lines, since writing parts of lines takes four times as long.
extern "C" __global__ void __launch_bounds__(THREADS)
advance(const real* __restrict__ top, long long ldtop, long long lds, long long stride, int planes, unsigned slices,
        unsigned rows, unsigned cols, real* __restrict__ point, long long ldpoint, long long deep,
        const real* __restrict__ sensitivity, real kept, real low, real high, real* __restrict__ f, long long ldf,
        const double* control, double* sums, double* partial, unsigned* tickets) {
    if (control[DONE] != 0) return;
    const real a = (control[SINCE] - 1) / (control[SINCE] + 2);
    double mine[SUMS - OF_EXPECT] = {0, 0};
    struct Numbers {
        real began, s, before, top;
    };
    const auto load = [&](const Place& at) {
        const index_t i = (at.slice * rows + at.row) * ldf + at.col;
        return Numbers{point[(at.slice * deep + at.row) * ldpoint + at.col], sensitivity[i], f[i], top[at.from]};
    };
    pixels(ldtop, lds, stride, planes, slices, rows, cols, rows, cols, load, [&](const Numbers& x, const Place& at) {
        real now = x.s > 0 ? x.began * maximum(x.top, real(0)) / x.s : x.began;
        now = now < low ? low : now > high ? high : now;
        const real moved = now - x.before;
        mine[0] += (double)moved * moved;
        mine[1] += (double)now * now;
        f[(at.slice * rows + at.row) * ldf + at.col] = now;
        // Not down to zero: multiplicative steps could not raise it again.
        const real next = maximum(now + a * moved, kept * now);
        point[(at.slice * deep + at.row) * ldpoint + at.col] = next < low ? low : next > high ? high : next;
    });
    if (!grid_sum<THREADS>(mine, partial, tickets) || threadIdx.x > 0) return;
    UNROLL for (int k = OF_EXPECT; k < SUMS; ++k) sums[k] = mine[k - OF_EXPECT];
}
