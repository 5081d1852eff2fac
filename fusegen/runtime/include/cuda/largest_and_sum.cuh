#pragma once
// Two phases of a row as one loop, on CUDA, where results are values of the row: so it is read once.
#include "row_phases.h"

namespace fusegen {
namespace {

// True for a type LargestAndSum, which is both phases.
template <class PHASE, class = void>
constexpr bool IS_LARGEST_AND_SUM = false;
template <class PHASE>
constexpr bool IS_LARGEST_AND_SUM<PHASE, std::void_t<typename PHASE::Top>> = true;

// The inputs, as bits, that such phases of a kernel read.
template <int IN, int OUT, int P, class VALUES, class... PHASES>
constexpr unsigned read_once(const Rows<IN, OUT, P, VALUES, PHASES...>*) {
  return (0u | ... | (IS_LARGEST_AND_SUM<PHASES> ? PHASES::IN : 0u));
}
template <class F>
constexpr unsigned READ_ONCE = read_once(static_cast<const F*>(nullptr));

// Runs two phases as one loop, or one after the other where floats have too few digits.
template <class PHASE, class SHAPE, class F, typename T, class TEAM, class ROW, class UNITS, class VALUES>
__device__ __forceinline__ void run_largest_and_sum(TEAM& team, const ROW& row, const UNITS& units, VALUES& p,
                                                    int& turn);

// Joins what neighbouring lanes have.
template <class PHASE>
__device__ __forceinline__ void join_largest_and_others(double (&value)[2], int lanes);

}  // namespace
}  // namespace fusegen
