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

// The kernel for so many vectors a thread; 0 where tensors are not dense.
template <class F, typename T, typename M, int VECTORS>
constexpr auto kernel_of() {
  if constexpr (F::TWO_PHASES && VECTORS > 0) return two_phase_kernel<F, T, M, VECTORS>();
  else if constexpr (PREFETCHES<F, T>) return pointwise_prefetching<F, T, M, VECTORS>;
  else return pointwise<F, T, M, VECTORS>;
}
template <class F, typename T, typename M>
constexpr auto dense_kernel(int vectors) {
  constexpr auto all = launches<F, T>();
  if constexpr (any_has(all, 4)) {
    if (vectors == 4) return kernel_of<F, T, M, 4>();
  }
  if constexpr (any_has(all, 2)) {
    if (vectors == 2) return kernel_of<F, T, M, 2>();
  }
  return kernel_of<F, T, M, 1>();
}

// Launches a kernel on tensors of several shapes or layouts, if it can; cuda/broadcast.cuh defines it.
template <class F, typename T, typename M>
bool launch_broadcasting(const CallOf<F>& call, cudaError_t& error);

// Launches a kernel whose outputs may be sums; cuda/reduce.cuh defines it.
template <class F, typename T, typename M>
cudaError_t reduce_with(const CallOf<F>& call, void* workspace);

// Launches a kernel that computes in M.
template <class F, typename T, typename M>
cudaError_t launch(const CallOf<F>& call) {
  const bool vectors = in_vectors<T>(call), dense = call.dense && vectors;
  if constexpr (F::BROADCASTS) {
    cudaError_t error = cudaSuccess;
    if (!dense && launch_broadcasting<F, T, M>(call, error)) return error;
  }
  if (!dense && call.numel > INT32_MAX) {
    CallOf<F> rest;
    const cudaError_t error = launch<F, T, M>(first_half<T>(call, rest));
    return error == cudaSuccess ? launch<F, T, M>(rest) : error;
  }
  std::decay_t<decltype(*launches<F, T>())> by = {0, ANY, 128, 1};  // where not dense
  if (dense) by = select_config(launches<F, T>(), chip_of(call.device), call.numel * sizeof(T));
  const int64_t block = by.vectors * by.threads * (16 / sizeof(T));
  const unsigned blocks = unsigned((call.numel + block - 1) / block);
  const auto kernel = dense ? dense_kernel<F, T, M>(by.vectors) : kernel_of<F, T, M, 0>();
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto p = params<ParamsOf<F, M>>(call);
  if constexpr (PREFETCHES<F, T>) kernel<<<blocks, by.threads, 0, stream>>>(call, vectors, by.prefetch_blocks, p);
  else kernel<<<blocks, by.threads, 0, stream>>>(call, vectors, p);
  return cudaGetLastError();
}

template <typename M>
struct FormulaLaunch {
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    return fusegen::launch<F, T, M>(call);
  }
  template <class F, typename T>
  static cudaError_t reduce(const CallOf<F>& call, void* workspace) {
    return reduce_with<F, T, M>(call, workspace);
  }
};

// Launches F on elements of whichever type the tensors have.
template <class F, int... DTYPES>
cudaError_t launch_any(const CallOf<F>& call, Dtypes<DTYPES...>) {
  cudaError_t error = cudaSuccess;
  const auto launched = [&](int dtype, auto element) {
    using T = decltype(element);
    if (call.dtype != dtype) return false;
    error = MethodOf<F, T>::template launch<F, T>(call);
    return true;
  };
  (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error;
}

// Launches F on the current stream of the tensors' device; returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  const OnDevice here(call.device);
  const cudaError_t error = here.error == cudaSuccess ? launch_any<F>(call, typename F::Elements()) : here.error;
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

template <typename M>
struct Formula : FormulaLaunch<M> {};

}  // namespace fusegen
