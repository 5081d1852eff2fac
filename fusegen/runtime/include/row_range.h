#pragma once
// The range of float, in which 16-bit elements of rows are computed: squares of bfloat16 leave it.
#include "row_phases.h"

namespace fusegen {
namespace {

// True if a phase computes elements in float, whose range squares of bfloat16 leave: then double computes them again.
template <class PHASE, typename M>
constexpr bool CHECKS_RANGE = IN_FLOAT<M> && !PHASE::EXACT && !PHASE::BOUNDED;
template <typename M>
using WiderOf = std::conditional_t<IN_FLOAT<M>, double, M>;

// True if values of a row are 0 or between 2^-100 and 2^100: then float has them, and products of some with elements.
template <class VALUES>
HOST_DEVICE bool are_in_range(const VALUES& values) {
  constexpr int COUNT = int(sizeof(VALUES) / sizeof(double));
  constexpr uint32_t LEAST = 0x39b00000, MOST = 0x46300000;  // the upper words of the two powers
  uint32_t words[COUNT][2];
  memcpy(words, &values, sizeof(words));
  bool all = true;
  UNROLL
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t upper = words[k][1] & 0x7fffffff;
    all = all && (upper == 0 || upper - LEAST < MOST - LEAST);
  }
  return all;
}

}  // namespace
}  // namespace fusegen
