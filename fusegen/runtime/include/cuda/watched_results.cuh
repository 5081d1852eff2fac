#pragma once
// The types in which results of a phase are computed first, on CUDA, and whether these are as exact as is asked for.
#include "cuda/watched_float.cuh"
#include "row_phases.h"

namespace fusegen {
namespace {

// The type that a phase of elements of T is computed in first.
template <class PHASE, class F, typename T, bool = PHASE::WATCHES && sizeof(T) == 2>
struct FirstMath {
  using type = MathOf<PHASE, F, T>;
};
template <class PHASE, class F, typename T>
struct FirstMath<PHASE, F, T, true> {
  using type = WatchedFloat<T, typename F::Math16>;
};
template <class PHASE, class F, typename T>
using FirstMathOf = typename FirstMath<PHASE, F, T>::type;

// True if the results of a unit are as exact as their type asks for, but for sums over the rows.
template <class F, typename M, int WIDTH, int RESULTS>
__device__ __forceinline__ bool suffices(const M (&)[WIDTH][RESULTS]) {
  return true;
}
template <class F, typename T, typename B, int WIDTH, int RESULTS>
__device__ __forceinline__ bool suffices(const WatchedFloat<T, B> (&out)[WIDTH][RESULTS]) {
  float least = 0;
#pragma unroll
  for (int e = 0; e < WIDTH; ++e)
#pragma unroll
    for (int k = 0; k < RESULTS; ++k)
      if (!(F::FEATURES >> k & 1)) least = Smallest::join(least, out[e][k].excess());
  return least >= 0;
}

}  // namespace
}  // namespace fusegen
