#pragma once
// The joins of what the lanes of a warp, and the warps of a block, have for each reduction of a phase, on CUDA.
#include "cuda/largest_and_sum.cuh"

namespace fusegen {
namespace {

constexpr int WARP = 32;

// Joins a value of each of some neighbouring lanes, for each reduction of a phase.
template <class PHASE, typename V>
__device__ __forceinline__ void join_lanes(V (&value)[PHASE::RESULTS], int lanes) {
  if constexpr (IS_LARGEST_AND_SUM<PHASE>) return join_largest_and_others<PHASE>(value, lanes);
  PHASE::each([&](int k, auto fold) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
      if (d < lanes) value[k] = decltype(fold)::join(value[k], __shfl_xor_sync(~0u, value[k], d));
  });
}

// The sums of a phase that a warp joins at once, or 1: as many as its results, or one more, so that lanes share them
// out evenly.
template <class VALUES, unsigned INPUTS, class... FOLDS>
constexpr bool adds(const Reduces<VALUES, INPUTS, FOLDS...>*) {
  return (std::is_same_v<FOLDS, Added> && ...);
}
constexpr bool adds(const void*) { return false; }
template <class PHASE>
constexpr int SHARED_OUT = !adds(static_cast<const PHASE*>(nullptr)) || PHASE::RESULTS > 4 ? 1
                           : PHASE::RESULTS > 2 ? 4 : PHASE::RESULTS;

// Joins a value of each lane for each reduction, in the order of `join_lanes`, by half of the shuffles or less: with
// the first ones lanes share out the reductions, of which each has one at the end. Returns the lane's.
template <class PHASE, typename V>
__device__ __forceinline__ V join_shared_out(const V (&value)[PHASE::RESULTS]) {
  constexpr int COUNT = SHARED_OUT<PHASE>;
  V own[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) own[k] = k < PHASE::RESULTS ? value[k] : V(0);
  int d = WARP / 2;
#pragma unroll
  for (int left = COUNT / 2; left > 0; left /= 2, d /= 2) {
    const bool upper = threadIdx.x & d;
#pragma unroll
    for (int k = 0; k < left; ++k) {
      const V sent = upper ? own[k] : own[k + left], kept = upper ? own[k + left] : own[k];
      own[k] = kept + __shfl_xor_sync(~0u, sent, d);
    }
  }
#pragma unroll
  for (; d > 0; d /= 2) own[0] += __shfl_xor_sync(~0u, own[0], d);
  return own[0];
}

// Joins a value of each of a block's warps, for each reduction: each lane of the first warp has all of them then.
template <class PHASE, typename ROOM, typename V>
__device__ __forceinline__ void join_warps(V (&value)[PHASE::RESULTS], ROOM& room) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  constexpr int COUNT = SHARED_OUT<PHASE>, LANES = WARP / COUNT;
  if constexpr (COUNT == 1) {
    join_lanes<PHASE>(value, WARP);
    if (lane == 0) PHASE::each([&](int k, auto) { room.of_warp[k][warp] = value[k]; });
    __syncthreads();
    if (warp > 0) return;
    PHASE::each([&](int k, auto fold) {
      value[k] = V(lane < warps ? room.of_warp[k][lane] : decltype(fold)::IDENTITY);
    });
    join_lanes<PHASE>(value, WARP);
  } else {
    const int k = lane / LANES;
    const V own = join_shared_out<PHASE>(value);
    if (lane % LANES == 0 && k < PHASE::RESULTS) room.of_warp[k][warp] = own;
    __syncthreads();
    if (warp > 0) return;
    V of[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int each = lane % LANES + LANES * i;
      of[i] = V(each < warps && k < PHASE::RESULTS ? room.of_warp[k][each] : 0);
    }
#pragma unroll
    for (int half = COUNT / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i) of[i] += of[i + half];
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) of[0] += __shfl_xor_sync(~0u, of[0], d);
    PHASE::each([&](int k, auto) { value[k] = __shfl_sync(~0u, of[0], k * LANES); });
  }
}

}  // namespace
}  // namespace fusegen
