#pragma once
// The largest element of a row and the sum of exponentials below it, for a value in float32 of elements of 16 bits.
#include "cuda/largest_and_terms.cuh"
#include "cuda/wide_values.cuh"

namespace fusegen {
namespace {

// Chosen in place of that of other kernels.
template <class PHASE, typename T, class TEAM, class KERNEL, int COUNT, bool APART, class UNITS>
__device__ __forceinline__ std::enable_if_t<sizeof(T) == 2> find_largest_and_others(
    const TEAM& team, const RowOf<WithWideValues<KERNEL, COUNT>, T, APART>& row, const UNITS& units, double (&to)[2]) {
  find_terms<PHASE, T, float>(team, row, units, to);
}

}  // namespace
}  // namespace fusegen
