// Sums over a spectrum for gcv and the other rules for λ: its entries, gathered in bins of a relative width.
//
// The simple version takes logarithms, clips and converts in separate arrays, and counts three times, each time after
// reading back the least and the largest bin. Here an entry is read once and added to the three sums of its bin.

constexpr int THREADS = 256;

// Adds to the rows of out, (3, bins + 1) zeros, the counts, counts times σ² and counts times power of each bin. Bin b has
// σ² from top e^-(b width) down; the last bin has all smaller ones. `top` is the largest σ²; without `counts`
// each entry counts once.
extern "C" __global__ void __launch_bounds__(THREADS)
binned(double* out, int bins, const double* s2, const double* power, const double* counts, long long size, const double* top,
       double least, double width) {
    const double inverse = 1 / *top;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < size; i += (index_t)gridDim.x * THREADS) {
        const double count = counts ? counts[i] : 1;
        const double at = log(maximum(s2[i] * inverse, least)) / -width;
        const int bin = at > 0 ? at < bins ? (int)at : bins : 0;  // NaN belongs to bin 0
        atomicAdd(out + bin, count);
        atomicAdd(out + (bins + 1) + bin, count * s2[i]);
        atomicAdd(out + 2 * (bins + 1) + bin, count * power[i]);
    }
}
