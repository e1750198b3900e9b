// Where line i of an image that is continued by its mirror images lies in its n lines, `before` the first of them; it is
// mirrored once at most.
__device__ __forceinline__ unsigned source(unsigned i, unsigned before, unsigned n) {
    return i < before ? before - 1 - i : i < before + n ? i - before : 2 * n - 1 - (i - before);
}

// The k-th of the three lines that line i of n may have been continued to: itself and its mirror images before the first
// and behind the last; whether there is one among `count` lines.
__device__ __forceinline__ bool continued(int k, unsigned i, unsigned before, unsigned n, unsigned count, unsigned* line) {
    *line = k == 0 ? before + i : k == 1 ? before - 1 - i : before + 2 * n - 1 - i;
    return k == 0 || (k == 1 ? i < before : *line < count);
}
