// Gauss-Jordan elimination with partial pivoting, in place, a panel of nb columns at a time: the thesis's three
// steps (row switch, normalisation, elimination above and below) for nb columns at once; the rest is products.
//
// The simple version has for each column a launch that finds the pivot, one that switches rows, one that normalises
// and one that eliminates: the whole matrix is moved n times. What each step gains:
//   - A panel at a time: pivots and multipliers need the panel alone, and all other columns get one product.
//   - The panel in registers, in one launch: blocks exchange one offer for each column (the largest element of each
//     block, and its row), not the column.
//   - A cluster in place of a grid: offers are written into the other blocks' shared memory, without a barrier.
//   - Rows stay in place until the panel is done: `gather` switches all of them at once and leaves zeros in
//     their place, so that the following product adds into them.
//
// Kernels
//   panel_cluster_1, _2   one cluster of 16 blocks (sm_90): the pivots and multipliers of a panel, in one launch
//   panel_grid     the same with any number of resident blocks: cooperative launch, for n above 16 * 512 * 2 rows
//   gather, restore_columns   row switches; undoing them as column switches of the inverse
// A thread of a panel kernel keeps 128 bytes of 1 or 2 rows in registers: WIDTH = 32 floats or 16 doubles, the
// columns eliminated without access to global memory. All rows take part in every column, so the launch is bound by
// the exchange of the pivot row for every column: by messages within a cluster, by a barrier across a grid.
//
// Operations: 2 n nb (nb + 1) for a panel of nb columns, 2 n^2 nb in its product. Bytes: the panel once in and once out
// for each WIDTH columns of it; gather 4 n nb elements. Source: E. S. Quintana-Orti, G. Quintana-Orti, X. Sun,
// R. van de Geijn, SIAM J. Sci. Comput. 22 (2001) 1762; here pivots stay in place until `gather` moves the rows.

#include "cluster.cuh"

extern __shared__ vector_t memory[];

constexpr int WIDTH = 128 / sizeof(real);
constexpr int PANEL_THREADS = 512;
constexpr int MAX_PANEL = 64;  // columns of a panel
constexpr int CLUSTER = 16;
constexpr int VECTORS = WIDTH / VECTOR;  // 16-byte vectors in a row of WIDTH columns: 8
constexpr int GATHER_BYTES = 2 * MAX_PANEL * WIDTH * sizeof(real);

// A key orders pivot candidates: the bits of |x| grow with |x|, and NaN is above all, so that it is found and reported.
// Key 0 means "no candidate"; a candidate that is zero has key 1.
__device__ __forceinline__ unsigned pivot_key(float x) { return (__float_as_uint(x) & 0x7fffffffu) + 1u; }
__device__ __forceinline__ unsigned long long pivot_key(double x) {
    return ((unsigned long long)__double_as_longlong(x) & 0x7fffffffffffffffull) + 1ull;
}
using pivot_key_t = decltype(pivot_key(real()));

__device__ __forceinline__ unsigned warp_largest(unsigned x) { return __reduce_max_sync(FULL_WARP, x); }
__device__ __forceinline__ unsigned long long warp_largest(unsigned long long x) {
    const unsigned high = (unsigned)(x >> 32);
    const unsigned top = __reduce_max_sync(FULL_WARP, high);
    const unsigned low = __reduce_max_sync(FULL_WARP, high == top ? (unsigned)x : 0u);
    return ((unsigned long long)top << 32) | low;
}

// A block's offer for the pivot, as other blocks read it.
struct alignas(16) Offer {
    unsigned long long key;
    int row, unused;
};

// 16 blocks of one cluster: offers are written into the other blocks' shared memory and counted by a barrier object of
// the receiving block. No block waits for more than the 16 offers. A mailbox is written again two columns later, by a
// block that has the owner's next offer and so knows that the old ones have been read.
struct Cluster {
    Offer offers[2][CLUSTER];
    vector_t rows[2][CLUSTER][VECTORS];
    unsigned long long arrived[2];

    __device__ static int blocks() { return CLUSTER; }
    __device__ void start() {
        if (threadIdx.x < 2) start_counting(&arrived[threadIdx.x]);
        counting_started();
        barrier();  // no block writes to another before that one is ready
    }
    __device__ static void put(unsigned address, const void* p, unsigned counter) {
        const uint4 v = *(const uint4*)p;
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
            address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(counter) : "memory");
    }
    // Called by one warp: sends this block's offer and its row to every block.
    __device__ void post(int parity, const Offer& offer, const vector_t* row) {
        const int lane = threadIdx.x & 31, v = lane % VECTORS;
        const vector_t mine = row[v];
        if (lane == 0) expect_bytes(&arrived[parity], CLUSTER * (sizeof(Offer) + sizeof(rows[0][0])));  // to receive
        if (lane < CLUSTER)
            put(remote_address(&offers[parity][blockIdx.x], lane), &offer, remote_address(&arrived[parity], lane));
        UNROLL for (int block = lane / VECTORS; block < CLUSTER; block += 32 / VECTORS)
            put(remote_address(&rows[parity][blockIdx.x][v], block), &mine, remote_address(&arrived[parity], block));
    }
    // Waits for all offers of the `count`-th column, counted from 0.
    __device__ void collect(int count) { wait_for_bytes(&arrived[count % 2], (unsigned)count / 2 % 2); }
    __device__ static void barrier() { cluster_barrier(); }
    __device__ Offer offer(int parity, int block) const { return offers[parity][block]; }
    __device__ vector_t value(int parity, int block, int v) const { return rows[parity][block][v]; }
};

// All blocks of a grid: offers are in global memory, past the first-level cache.
struct Grid {
    Offer* offers;   // [2][blocks]
    vector_t* rows;  // [2][blocks][VECTORS]
    unsigned* counter;
    unsigned round;

    __device__ static int blocks() { return gridDim.x; }
    __device__ void post(int parity, const Offer& offer, const vector_t* row) {
        const int lane = threadIdx.x & 31, slot = parity * gridDim.x + blockIdx.x;
        if (lane < VECTORS) rows[slot * VECTORS + lane] = row[lane];
        if (lane == 0) offers[slot] = offer;
    }
    __device__ void barrier() { grid_barrier(counter, round); }
    __device__ void collect(int) { barrier(); }
    __device__ Offer offer(int parity, int block) const {
        const uint4 v = __ldcg((const uint4*)&offers[parity * gridDim.x + block]);
        return *(const Offer*)&v;
    }
    __device__ vector_t value(int parity, int block, int v) const {
        const uint4 x = __ldcg((const uint4*)&rows[(parity * gridDim.x + block) * VECTORS + v]);
        return *(const vector_t*)&x;
    }
};

// Shared memory of a block of a panel kernel, besides the mailboxes.
struct PanelShared {
    real tile[PANEL_THREADS / 32][32][WIDTH + 1];  // a warp's rows, to turn coalesced rows into a row for each thread
    vector_t pivot_rows[WIDTH][MAX_PANEL / VECTOR];
    vector_t offered[VECTORS];
    pivot_key_t warp_keys[32];
    int pivots[MAX_PANEL];
    int slot[MAX_PANEL];
};

// Copies WIDTH columns of a warp's 32 rows from global memory to its tile, and back; `a` is at the first column. The copies
// do not use registers, so that all are under way at once; outside the matrix they write zeros.
__device__ __forceinline__ void load_tile(real (*tile)[WIDTH + 1], const real* a, index_t lda, index_t row0, index_t n,
                                          int w) {
    const int lane = threadIdx.x & 31, column = lane % WIDTH;
#pragma unroll 8
    for (int i = lane / WIDTH; i < 32; i += 32 / WIDTH) {
        const bool inside = row0 + i < n && column < w;
        load_async(&tile[i][column], inside ? a + (row0 + i) * lda + column : a, inside);
    }
    loads_done();
    __syncwarp();
}

__device__ __forceinline__ void store_tile(const real (*tile)[WIDTH + 1], real* a, index_t lda, index_t row0, index_t n,
                                           int w) {
    const int lane = threadIdx.x & 31, column = lane % WIDTH;
    __syncwarp();
#pragma unroll 8
    for (int i = lane / WIDTH; i < 32; i += 32 / WIDTH)
        if (row0 + i < n && column < w) a[(row0 + i) * lda + column] = tile[i][column];
    __syncwarp();
}

// Replaces the panel a[0..n)[k..k+nb) by the result of Gauss-Jordan elimination of its columns, with rows not yet switched:
// D^-1 in the pivot rows and -P D^-1 elsewhere. pivots[k+s] is the row chosen for column k+s; place[k+s] is the place
// to which row k+s must move. `failed` becomes the least index of an unusable pivot.
struct Panel {
    real* a;
    long long lda, n, k;
    int nb;
    real threshold;
    int* pivots;
    int* place;
    int* failed;
};

template <int ROWS, class Team> __device__ __forceinline__ void eliminate(Team& team, PanelShared& s, const Panel& g) {
    real* const a = g.a;
    const index_t lda = g.lda, n = g.n, k = g.k;
    const int nb = g.nb;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const index_t stride = (index_t)gridDim.x * blockDim.x;
    const index_t row0 = (index_t)blockIdx.x * blockDim.x + warp * 32;  // + r * stride: first row of this warp
    real(*tile)[WIDTH + 1] = s.tile[warp];
    real x[ROWS][WIDTH];
    bool candidate[ROWS], pivotal[ROWS];
    UNROLL for (int r = 0; r < ROWS; ++r) {
        const index_t row = row0 + lane + r * stride;
        candidate[r] = row >= k && row < n;
    }

    for (int q = 0; q < nb; q += WIDTH) {
        const int w = minimum(WIDTH, nb - q);
        UNROLL for (int r = 0; r < ROWS; ++r) {
            load_tile(tile, a + k + q, lda, row0 + r * stride, n, w);
            UNROLL for (int c = 0; c < WIDTH; ++c) x[r][c] = tile[lane][c];
            __syncwarp();
            pivotal[r] = false;
        }

        for (int j = 0; j < w; ++j) {
            const int parity = (q + j) & 1;
            // The column's largest element: of this thread, this warp, this block and, by the offers, of all blocks.
            pivot_key_t key = 0;
            int which = 0;
            UNROLL for (int r = 0; r < ROWS; ++r) {
                const pivot_key_t other = candidate[r] ? pivot_key(x[r][0]) : pivot_key_t(0);
                if (other > key) key = other, which = r;
            }
            const pivot_key_t warp_key = warp_largest(key);
            if (lane == 0) s.warp_keys[warp] = warp_key;
            __syncthreads();
            const pivot_key_t other_key = lane < warps ? s.warp_keys[lane] : pivot_key_t(0);
            const pivot_key_t block_key = warp_largest(other_key);
            if (warp == __ffs(__ballot_sync(FULL_WARP, other_key == block_key)) - 1) {
                const int owner = __ffs(__ballot_sync(FULL_WARP, key == block_key)) - 1;
                if (lane == owner) {
                    UNROLL for (int r = 0; r < ROWS; ++r)
                        if (r == which)
                            UNROLL for (int c = 0; c < WIDTH; ++c) s.offered[c / VECTOR].x[c % VECTOR] = x[r][c];
                }
                const int row = (int)(row0 + lane + which * stride);
                Offer offer = {(unsigned long long)block_key, __shfl_sync(FULL_WARP, row, owner), 0};
                __syncwarp();
                team.post(parity, offer, s.offered);
            }
            team.collect(q + j);

            Offer best = {0, 0, 0};
            int winner = 0;
            for (int block0 = 0; block0 < team.blocks(); block0 += 32) {
                Offer mine = {0, 0, 0};
                if (block0 + lane < team.blocks()) mine = team.offer(parity, block0 + lane);
                const pivot_key_t top = warp_largest((pivot_key_t)mine.key);
                if (top > best.key) {
                    const int from = __ffs(__ballot_sync(FULL_WARP, mine.key == top)) - 1;
                    best.key = top;
                    best.row = __shfl_sync(FULL_WARP, mine.row, from);
                    winner = block0 + from;
                }
            }
            vector_t p = team.value(parity, winner, 0);
            const real pivot = p.x[0];
            const real inverse = real(1) / pivot;
            const bool usable = absolute(pivot) > g.threshold && isfinite(pivot) && isfinite(inverse);
            if (threadIdx.x == 0) {
                s.pivots[q + j] = best.row;
                if (blockIdx.x == 0) {
                    g.pivots[k + q + j] = best.row;
                    if (!usable) atomicMin(g.failed, (int)(k + q + j));
                }
            }

            // Subtract from each row its multiple of the pivot row. Columns are shifted by one place, so that the next one is
            // always x[0]; the place of the finished column receives the inverse's column.
            real multiple[ROWS];
            UNROLL for (int r = 0; r < ROWS; ++r) {
                multiple[r] = usable ? x[r][0] * inverse : real(0);
                if (row0 + lane + r * stride == best.row) {
                    candidate[r] = false;
                    pivotal[r] = true;
                    multiple[r] = usable ? -inverse : real(0);
                    UNROLL for (int c = 0; c < WIDTH; ++c) x[r][c] = 0;
                }
            }
            UNROLL for (int v = 0; v < VECTORS; ++v) {
                if (v > 0) p = team.value(parity, winner, v);
                UNROLL for (int i = 0; i < VECTOR; ++i) {
                    const int c = v * VECTOR + i;
                    if (c > 0)
                        UNROLL for (int r = 0; r < ROWS; ++r) x[r][c - 1] = multiply_add(-multiple[r], p.x[i], x[r][c]);
                }
            }
            UNROLL for (int r = 0; r < ROWS; ++r) x[r][WIDTH - 1] = -multiple[r];
        }

        if (nb > WIDTH) {
            // The other columns of the panel, before and after: their pivot rows are copied to shared memory; then every other
            // row gains its multiples of them, and the pivot rows are replaced by theirs.
            __syncthreads();
            const int width = (nb + WIDTH - 1) / WIDTH * WIDTH;
            for (int i = warp; i < WIDTH; i += warps) {
                const int j = (i + w) % WIDTH;
                const real* row = a + (j < w ? s.pivots[q + j] : 0) * lda + k;
                real* to = (real*)s.pivot_rows[i];
#pragma unroll 4
                for (int c = lane; c < width; c += 32)
                    load_async(to + c, j < w && c < nb ? row + c : a, j < w && c < nb);
            }
            loads_done();
        }
        team.barrier();
        for (int c0 = 0; c0 < nb; c0 += WIDTH) {
            const int columns = minimum(WIDTH, nb - c0);
            UNROLL for (int r = 0; r < ROWS; ++r) {
                const index_t row = row0 + r * stride;
                if (c0 == q) {  // x[c] now belongs to column (c + w) % WIDTH
                    UNROLL for (int c = 0; c < WIDTH; ++c) tile[lane][(c + w) % WIDTH] = x[r][c];
                } else {
                    load_tile(tile, a + k + c0, lda, row, n, columns);
#pragma unroll 1
                    for (int v = 0; v < VECTORS; ++v) {
                        vector_t y;
                        UNROLL for (int i = 0; i < VECTOR; ++i) y.x[i] = pivotal[r] ? real(0) : tile[lane][v * VECTOR + i];
                        UNROLL for (int j = 0; j < WIDTH; ++j) {
                            const vector_t p = s.pivot_rows[j][c0 / VECTOR + v];
                            UNROLL for (int i = 0; i < VECTOR; ++i) y.x[i] = multiply_add(x[r][j], p.x[i], y.x[i]);
                        }
                        UNROLL for (int i = 0; i < VECTOR; ++i) tile[lane][v * VECTOR + i] = y.x[i];
                    }
                }
                store_tile(tile, a + k + c0, lda, row, n, columns);
            }
        }
        if (q + WIDTH < nb) team.barrier();  // the next step reads other blocks' rows
    }

    if (blockIdx.x == 0) {
        // Row k+i moves to k+j if it is the j-th pivot; else to the row of one of the pivots from below, in order.
        for (int i = threadIdx.x; i < nb; i += blockDim.x) s.slot[i] = -1;
        __syncthreads();
        for (int j = threadIdx.x; j < nb; j += blockDim.x)
            if (s.pivots[j] < k + nb) s.slot[s.pivots[j] - k] = j;
        __syncthreads();
        for (int i = threadIdx.x; i < nb; i += blockDim.x) {
            int to = (int)k + s.slot[i];
            if (s.slot[i] < 0) {
                int rank = 0;
                for (int other = 0; other < i; ++other) rank += s.slot[other] < 0;
                for (int j = 0; j < nb; ++j)
                    if (s.pivots[j] >= k + nb && rank-- == 0) to = s.pivots[j];
            }
            g.place[k + i] = to;
        }
    }
}

constexpr int PANEL_BYTES = 96 * 1024;  // dynamic shared memory of a panel kernel
static_assert(sizeof(Cluster) + sizeof(PanelShared) <= PANEL_BYTES, "the launch asks for PANEL_BYTES");

#if __CUDA_ARCH__ >= 900
template <int ROWS> __device__ __forceinline__ void in_cluster(const Panel& g) {
    Cluster& team = *(Cluster*)memory;
    team.start();
    eliminate<ROWS>(team, *(PanelShared*)((char*)memory + sizeof(Cluster)), g);
    Cluster::barrier();  // no block ends while another may still write to it
}

extern "C" __global__ void __cluster_dims__(16, 1, 1) __launch_bounds__(512, 1)
panel_cluster_1(const Panel g) { in_cluster<1>(g); }
extern "C" __global__ void __cluster_dims__(16, 1, 1) __launch_bounds__(512, 1)
panel_cluster_2(const Panel g) { in_cluster<2>(g); }
#endif

constexpr int BOXES = 2 * (16 + 128);  // bytes of mailboxes for each block of panel_grid
static_assert(BOXES == 2 * (sizeof(Offer) + VECTORS * sizeof(vector_t)), "an offer and a row, twice");

// `boxes`: BOXES bytes for each block; `counter`: one zero.
extern "C" __global__ void __launch_bounds__(512, 1)
panel_grid(const Panel g, unsigned char* boxes, unsigned* counter) {
    Grid team = {(Offer*)boxes, (vector_t*)(boxes + 2 * gridDim.x * sizeof(Offer)), counter, 0};
    eliminate<1>(team, *(PanelShared*)memory, g);
}

// Row switches of the panels that make up columns k..k+nb, one panel after another, in `columns` columns of a: their
// pivot rows are moved to `strip` and replaced by zeros. Columns own_start to own_stop are the panels' own: they are
// not changed, or only change places if there is one panel and `move_own`. `order`, if not null, is switched like the rows.
// Grid: ceil(columns / WIDTH) blocks of 256 threads; GATHER_BYTES of dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
gather(real* a, long long lda, long long columns, real* strip, long long ldstrip, long long k, int nb,
       const int* pivots, const int* place, long long own_start, long long own_stop, int move_own, int* order) {
    real(*pivot_rows)[WIDTH] = (real(*)[WIDTH])memory;
    real(*top_rows)[WIDTH] = pivot_rows + MAX_PANEL;
    const int c = threadIdx.x % WIDTH;
    const index_t column = (index_t)blockIdx.x * WIDTH + c;
    const bool own = column >= own_start && column < own_stop;
    const bool inside = column < columns && (move_own || !own);
    for (int done = 0; done < nb; done += MAX_PANEL) {
        const index_t first = k + done;
        const int count = minimum(MAX_PANEL, nb - done);
        if (inside) {
#pragma unroll 4
            for (int i = threadIdx.x / WIDTH; i < count; i += 256 / WIDTH) {
                load_async(&pivot_rows[i][c], a + pivots[first + i] * lda + column, true);
                load_async(&top_rows[i][c], a + (first + i) * lda + column, true);
            }
        }
        loads_done();
        __syncthreads();
        if (inside) {
#pragma unroll 4
            for (int i = threadIdx.x / WIDTH; i < count; i += 256 / WIDTH) {
                a[(first + i) * lda + column] = own ? pivot_rows[i][c] : real(0);
                if (!own) strip[(done + i) * ldstrip + column] = pivot_rows[i][c];
                if (place[first + i] >= first + count) a[place[first + i] * lda + column] = top_rows[i][c];
            }
        }
        __syncthreads();
        if (blockIdx.x == 0 && order != nullptr) {
            int* old = (int*)memory;
            for (int i = threadIdx.x; i < count; i += 256) {
                old[i] = order[pivots[first + i]];
                old[MAX_PANEL + i] = order[first + i];
            }
            __syncthreads();
            for (int i = threadIdx.x; i < count; i += 256) {
                order[first + i] = old[i];
                if (place[first + i] >= first + count) order[place[first + i]] = old[MAX_PANEL + i];
            }
            __syncthreads();
        }
    }
}

// a[row][order[j]] = a[row][j] in every row, in place through n elements of dynamic shared memory; `overflow` becomes 0
// if an element is not finite. Grid: n blocks of RESTORE_THREADS threads.
constexpr int RESTORE_THREADS = 1024;
extern "C" __global__ void __launch_bounds__(RESTORE_THREADS)
restore_columns(real* a, long long lda, long long n, const int* order, int* overflow) {
    real* old = (real*)memory;
    real* row = a + blockIdx.x * lda;
    bool finite = true;
#pragma unroll 8
    for (int j = threadIdx.x; j < n; j += RESTORE_THREADS) {
        const real x = row[j];
        finite = finite && isfinite(x);
        old[order[j]] = x;
    }
    if (!finite) *overflow = 0;
    __syncthreads();
#pragma unroll 8
    for (int j = threadIdx.x; j < n; j += RESTORE_THREADS) row[j] = old[j];
}
