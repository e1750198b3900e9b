// Clusters of blocks that read and write each other's shared memory (Hopper and later), shared by qr.cu, qr_batched.cu,
// gauss_jordan.cu and matmul_wgmma.cu.

__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Barrier over the cluster; writes before it, also to other blocks' shared memory, are visible after it.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address in block `rank` that corresponds to `here` in this block.
__device__ __forceinline__ unsigned remote_address(const void* here, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank));
    return there;
}

// A number in shared memory that counts the bytes that other blocks send, so that a block can wait for them alone. It
// serves one wait after another, with `phase` 0, 1, 0, ...
__device__ __forceinline__ void start_counting(unsigned long long* arrived) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived)) : "memory");
}
// To be followed by a cluster_barrier(), after which others may send.
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
