#pragma once
// Sums over many inputs.
#include "polynomial.h"

namespace {

// Sums over inputs, of a form that vectorises: how many a rule is true of, and the largest value.
template <class Rule>
inline uint64_t number_of(int64_t count, Rule rule) {
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += rule(i);
  return found;
}
template <class Value>
inline double maximum_of(int64_t count, Value value) {
  double found[LANES];
  for (double& lane : found) lane = -INF;
  for (int64_t i = 0; i < count; i += LANES)
#pragma GCC unroll 1
    for (int j = 0; j < LANES; ++j) {
      const double v = value(i + j);
      found[j] = v > found[j] ? v : found[j];
    }
  double high = -INF;
  for (const double lane : found) high = most(high, lane);
  return high;
}

}  // namespace
