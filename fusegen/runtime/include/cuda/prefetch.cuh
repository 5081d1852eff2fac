#pragma once
// L2 prefetch: thread 0 of each block prefetches what a later block will load. While some warps compute, too few others
// load to keep the memory busy, unless what they load is on its way already.
#include "cuda/launch.cuh"

namespace fusegen {
namespace {

// Prefetches some of a tensor into L2, where there is an instruction for that.
__device__ __forceinline__ void prefetch_l2(const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes));
#endif
}

// Prefetches what the block so many blocks further on will read, if that is a whole one.
template <int INPUTS, typename T, int N>
__device__ __forceinline__ void prefetch_block(const Tensors<N>& call, int blocks, int block) {
  const int64_t first = (int64_t(blockIdx.x) + blocks) * block;
  if (blocks == 0 || threadIdx.x != 0 || first + block > call.numel) return;
#pragma unroll
  for (int k = 0; k < INPUTS; ++k)
    prefetch_l2(static_cast<const T*>(call.data[k]) + first, uint32_t(block * sizeof(T)));
}

}  // namespace
}  // namespace fusegen
