// The index among n lines of line i of an image that is continued by its mirror images, with `before` lines before the
// first one. It is mirrored at most once.
__device__ __forceinline__ unsigned source(unsigned i, unsigned before, unsigned n) {
    return i < before ? before - 1 - i : i < before + n ? i - before : 2 * n - 1 - (i - before);
}

// The k-th of the three lines to which line i of n may have been continued: itself, and its mirror images before the first
// line and after the last. Returns whether it is among `count` lines.
__device__ __forceinline__ bool continued(int k, unsigned i, unsigned before, unsigned n, unsigned count, unsigned* line) {
    *line = k == 0 ? before + i : k == 1 ? before - 1 - i : before + 2 * n - 1 - i;
    return k == 0 || (k == 1 ? i < before : *line < count);
}
