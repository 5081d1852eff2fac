#pragma once
// The blocks of a cluster that has a row, from sm_90 on; before, a block is alone.
#include <cstdint>

namespace fusegen {
namespace {

constexpr int MOST_BLOCKS = 16;  // of a cluster

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ int cluster_blocks() {
  int blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}
__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Stores a value where another block of the cluster has the variable.
__device__ __forceinline__ void store_in_block(double* own, int rank, double value) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(uint32_t(__cvta_generic_to_shared(own))), "r"(rank));
  asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(there), "d"(value) : "memory");
}
#else
__device__ __forceinline__ int cluster_blocks() { return 1; }
__device__ __forceinline__ int cluster_rank() { return 0; }
__device__ __forceinline__ void arrive_at_cluster() {}
__device__ __forceinline__ void wait_for_cluster() {}
__device__ __forceinline__ void store_in_block(double* own, int, double value) { *own = value; }
#endif

// Copies 16 bytes from global to shared memory; the thread that does waits for all of its own.
__device__ __forceinline__ void copy_to_shared(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace
}  // namespace fusegen
