// Clusters of blocks, which read and write each other's shared memory (Hopper and later): what qr.cu, qr_batched.cu,
// gauss_jordan.cu and matmul_wgmma.cu share.

__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Barrier over the cluster; what was written before it, also to other blocks' shared memory, is seen after it.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where the block `rank` has what lies at `here` in this one.
__device__ __forceinline__ unsigned remote_address(const void* here, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank));
    return there;
}

// A number in shared memory at which bytes that other blocks send are counted: who waits there for them need wait for
// nothing else. It counts for one wait after another, whose `phase` is 0, 1, 0, ...
__device__ __forceinline__ void start_counting(unsigned long long* arrived) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived)) : "memory");
}
// Before a cluster_barrier(), behind which others may send.
__device__ __forceinline__ void counting_started() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect_bytes(unsigned long long* arrived, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrived)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void wait_for_bytes(unsigned long long* arrived, unsigned phase) {
    asm volatile("{\n\t.reg .pred done;\n\t"
                 "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t}" ::"r"(shared_address(arrived)), "r"(phase) : "memory");
}
