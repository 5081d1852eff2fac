#pragma once
// Kernels that compute each element by itself, and their launch.
#include "launcher.h"
#include "cuda/launch.cuh"
#include "cuda/prefetch.cuh"
#include "cuda/two_phases.cuh"
#include "cuda/vector.cuh"

namespace fusegen {
namespace {

// A thread of a dense kernel computes VECTORS 16-byte vectors of each output, after it has loaded all that it needs
// for them; the 32 threads of a warp take neighbours. In the block where the tensors end it computes as many elements
// one by one. Tensors that are not dense have a kernel of their own, where VECTORS is 0 and a thread has one vector or
// as many elements one by one: without what it needs, the dense kernel keeps few registers, so that enough threads
// wait for memory at a time.
template <class F, typename T, typename M, int VECTORS>
__device__ __forceinline__ void compute_block(const CallOf<F>& call, bool vectors, int prefetch_blocks,
                                              const ParamsOf<F, M>& p) {
  constexpr bool DENSE = VECTORS > 0;
  constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = 16 / sizeof(T), MANY = DENSE ? VECTORS : 1;
  const int block = MANY * WIDTH * int(blockDim.x), thread = int(threadIdx.x);
  const Index<DENSE> first = Index<DENSE>(blockIdx.x) * block, n = Index<DENSE>(call.numel);
  if constexpr (DENSE && PREFETCHES<F, T>) prefetch_block<F::INPUTS, T>(call, prefetch_blocks, block);
  T* data[N];
#pragma unroll
  for (int k = 0; k < N; ++k) data[k] = static_cast<T*>(call.data[k]);
  Vector<T> all[MANY][N], (&v)[N] = all[0];
  int64_t where[MANY][N], (&at)[N] = where[0];
  if ((DENSE || vectors) && first + block <= n) {
#pragma unroll
    for (int j = 0; j < MANY; ++j) {
      locate<DENSE>(call, first + (MANY * (thread & ~31) + j * 32 + (thread & 31)) * WIDTH, where[j]);
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k)
        all[j][k] = vector(data[k] + where[j][k], DENSE || call.stride[k][call.rank - 1] == 1);
    }
#pragma unroll
    for (int j = 0; j < MANY; ++j) {
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) element<F, T, M>(all[j], e, p);
#pragma unroll
      for (int k = F::INPUTS; k < N; ++k) *reinterpret_cast<Vector<T>*>(data[k] + where[j][k]) = all[j][k];
    }
  } else if constexpr (DENSE) {
#pragma unroll 1
    for (int64_t i = first + thread; i < n; i += blockDim.x) {
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k) v[k].at[0] = data[k][i];
      element<F, T, M>(v, 0, p);
#pragma unroll
      for (int k = F::INPUTS; k < N; ++k) data[k][i] = v[k].at[0];
    }
  } else {
    T* to[F::OUTPUTS][WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      const uint32_t i = first + e * int(blockDim.x) + thread;
      if (i >= n) continue;
      locate<DENSE>(call, i, at);
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k) v[k].at[e] = data[k][at[k]];
#pragma unroll
      for (int k = F::INPUTS; k < N; ++k) to[k - F::INPUTS][e] = data[k] + at[k];
    }
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      if (first + e * int(blockDim.x) + thread >= n) continue;
      element<F, T, M>(v, e, p);
#pragma unroll
      for (int k = 0; k < F::OUTPUTS; ++k) *to[k][e] = v[F::INPUTS + k].at[e];
    }
  }
}

// In double, registers are left for 768 threads on an SM, as fewer spill.
template <typename M>
constexpr int BLOCKS_ON_SM = sizeof(M) == 8 ? 768 / MOST_THREADS : 0;
template <class F, typename T, typename M, int VECTORS>
__global__ void __launch_bounds__(MOST_THREADS, BLOCKS_ON_SM<M>)
    pointwise(const __grid_constant__ CallOf<F> call, bool vectors, const ParamsOf<F, M> p) {
  compute_block<F, T, M, VECTORS>(call, vectors, 0, p);
}
template <class F, typename T, typename M, int VECTORS>
__global__ void __launch_bounds__(MOST_THREADS, BLOCKS_ON_SM<M>)
    pointwise_prefetching(const __grid_constant__ CallOf<F> call, bool vectors, int prefetch_blocks,
                          const ParamsOf<F, M> p) {
  compute_block<F, T, M, VECTORS>(call, vectors, prefetch_blocks, p);
}

#include "cuda/pointwise_launch.cuh"

}  // namespace

template <typename M>
struct Formula : FormulaLaunch<M> {};

}  // namespace fusegen
