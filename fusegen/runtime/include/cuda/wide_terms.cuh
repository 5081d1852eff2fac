#pragma once
// The largest element of a row and the sum of exponentials below it, for a value in float32 of elements of 16 bits:
// terms are as exact as those of elements in float32.
#include "cuda/largest_and_terms.cuh"
#include "cuda/wide_values.cuh"

namespace fusegen {
namespace {

// Chosen in place of that of other kernels, which it calls: the size of T alone decides how terms are computed.
template <class PHASE, typename T, class TEAM, class KERNEL, int COUNT, bool APART, class UNITS>
__device__ __forceinline__ std::enable_if_t<sizeof(T) == 2> find_largest_and_others(
    const TEAM& team, const RowOf<WithWideValues<KERNEL, COUNT>, T, APART>& row, const UNITS& units, double (&to)[2]) {
  find_largest_and_others<PHASE, float>(team, row, units, to);
}

}  // namespace
}  // namespace fusegen
