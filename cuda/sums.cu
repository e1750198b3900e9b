// What gcv and the other rules for λ add up over a spectrum: its entries gathered in bins of a relative width.
//
// The simple version takes the logarithm, clips and converts in arrays of their own, and counts three times, each time
// asking for the least and the largest bin first. Here an entry is read once and adds to the three sums of its bin.

constexpr int THREADS = 256;

// Into the rows of out, (3, bins + 1) zeros, the sums of counts, of counts σ² and of counts power, for σ² between top e^-(b
// width) and what lies below it in bin b, and all that is smaller in the last. `top` is the largest σ²; without `counts`
// each entry counts once.
extern "C" __global__ void __launch_bounds__(THREADS)
binned(double* out, int bins, const double* s2, const double* power, const double* counts, long long size, const double* top,
       double least, double width) {
    const double inverse = 1 / *top;
    for (index_t i = (index_t)blockIdx.x * THREADS + threadIdx.x; i < size; i += (index_t)gridDim.x * THREADS) {
        const double count = counts ? counts[i] : 1;
        const double at = log(maximum(s2[i] * inverse, least)) / -width;
        const int bin = at > 0 ? at < bins ? (int)at : bins : 0;  // of what is no number 0
        atomicAdd(out + bin, count);
        atomicAdd(out + (bins + 1) + bin, count * s2[i]);
        atomicAdd(out + 2 * (bins + 1) + bin, count * power[i]);
    }
}
