#pragma once
// A kernel F of TWO_PHASES gives most of its results at once, and the few that are undecided by a slower fallback:
// F::try_fast says whether it gave an element, F::undecided gives a vector and says which elements are left, a bit
// each, and F::fallback computes one of these.
#include "cuda/prefetch.cuh"
#include "cuda/vector.cuh"

namespace fusegen {
namespace {

// One element. As a call, the fallback is there once and not for each element of a thread.
template <typename M, int N>
struct Values {
  M at[N];
};
template <class F, typename T, typename M>
__device__ __noinline__ Values<M, F::OUTPUTS> call_fallback(Values<M, F::INPUTS> in, const ParamsOf<F, M> p) {
  Values<M, F::OUTPUTS> out;
  F::template fallback<T>(in.at, out.at, p);
  return out;
}
template <class F, typename T, typename M>
__device__ __forceinline__ void fast_or_fallback(const M* in, M* out, const ParamsOf<F, M>& p) {
  if (F::template try_fast<T>(in, out, p)) return;
  Values<M, F::INPUTS> left;
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) left.at[k] = in[k];
  const Values<M, F::OUTPUTS> found = call_fallback<F, T, M>(left, p);
#pragma unroll
  for (int k = 0; k < F::OUTPUTS; ++k) out[k] = found.at[k];
}

// Dense tensors. A thread stores all that is given, and then reads again what is left, and an end of fewer elements
// than a block has: with a call where each element is, it would keep registers that other threads need.
template <typename T, int VECTORS>
__device__ __forceinline__ int64_t where(int e) {  // element e of a thread lies
  constexpr int WIDTH = 16 / sizeof(T);
  const int thread = int(threadIdx.x), vector = VECTORS * (thread & ~31) + e / WIDTH * 32 + (thread & 31);
  return int64_t(blockIdx.x) * VECTORS * WIDTH * blockDim.x + vector * WIDTH + e % WIDTH;
}
template <class F, typename T, int VECTORS, typename M>
__device__ __noinline__ void second_phase(const CallOf<F>& call, uint32_t left, const ParamsOf<F, M>& p) {
#pragma unroll 1
  for (; left != 0; left &= left - 1) {
    const int64_t i = where<T, VECTORS>(__ffs(left) - 1);
    M in[F::INPUTS], out[F::OUTPUTS];
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k) in[k] = load(static_cast<const T*>(call.data[k])[i]);
    if (!F::template try_fast<T>(in, out, p)) F::template fallback<T>(in, out, p);
#pragma unroll
    for (int k = 0; k < F::OUTPUTS; ++k) store_rounded(static_cast<T*>(call.data[F::INPUTS + k])[i], out[k]);
  }
}

template <class F, typename T, typename M, int VECTORS>
__device__ __forceinline__ void both_phases(const CallOf<F>& call, int prefetch_blocks, const ParamsOf<F, M>& p) {
  constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = 16 / sizeof(T), MANY = VECTORS * WIDTH;
  uint32_t left = 0;
  if constexpr (PREFETCHES<F, T> && F::RESIDENT_THREADS == 0)  // else no registers are left to prefetch
    prefetch_block<F::INPUTS, T>(call, prefetch_blocks, MANY * int(blockDim.x));
  if ((int64_t(blockIdx.x) + 1) * MANY * blockDim.x <= call.numel) {
    Vector<T> v[VECTORS][N];
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k)
        v[j][k] = vector(static_cast<const T*>(call.data[k]) + where<T, VECTORS>(j * WIDTH), true);
    }
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
      const uint32_t open = F::undecided(v[j], p);
#pragma unroll
      for (int k = F::INPUTS; k < N; ++k) {
        T* const to = static_cast<T*>(call.data[k]) + where<T, VECTORS>(j * WIDTH);
        if (open == 0) *reinterpret_cast<Vector<T>*>(to) = v[j][k];
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          if (open != 0 && (open >> e & 1) == 0) to[e] = v[j][k].at[e];
      }
      left |= open << j * WIDTH;
    }
  } else {
#pragma unroll 1
    for (int e = 0; e < MANY; ++e) left |= uint32_t(where<T, VECTORS>(e) < call.numel) << e;
  }
  if (left != 0) second_phase<F, T, VECTORS, M>(call, left, p);
}

template <class F, typename T, typename M, int VECTORS>
__global__ void __launch_bounds__(MOST_THREADS, F::RESIDENT_THREADS / MOST_THREADS)
    two_phases(const __grid_constant__ CallOf<F> call, bool, const __grid_constant__ ParamsOf<F, M> p) {
  both_phases<F, T, M, VECTORS>(call, 0, p);
}
template <class F, typename T, typename M, int VECTORS>
__global__ void __launch_bounds__(MOST_THREADS, F::RESIDENT_THREADS / MOST_THREADS)
    two_phases_prefetching(const __grid_constant__ CallOf<F> call, bool, int prefetch_blocks,
                           const __grid_constant__ ParamsOf<F, M> p) {
  both_phases<F, T, M, VECTORS>(call, prefetch_blocks, p);
}
template <class F, typename T, typename M, int VECTORS>
constexpr auto two_phase_kernel() {
  if constexpr (PREFETCHES<F, T>) return two_phases_prefetching<F, T, M, VECTORS>;
  else return two_phases<F, T, M, VECTORS>;
}

}  // namespace
}  // namespace fusegen
