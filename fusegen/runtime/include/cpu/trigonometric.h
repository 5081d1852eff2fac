#pragma once
// sin and cos on the CPU. Source: Payne and Hanek 1983, SIGNUM Newsletter 18, without a table: a product with 29 bits
// of 2 / pi is exact.
#include "cpu/math.h"

namespace fusegen {
namespace {

// x = quarter pi / 2 + rest, but for multiples of 2 pi, of any float; NaN of an infinity
struct Turned {
  double rest;
  int quarter;
};
ALWAYS_INLINE Turned turned(double x) {
  constexpr double TWO_OVER_PI[] = {0x1.45f306dp-1,   0x1.9391054p-30, 0x1.4fe13abp-59, 0x1.d1f534dp-88,
                                    0x1.b81b6c5p-117, 0x1.5993c4p-148, 0x1.c820ff2p-175};
  double turns = 0.0, lost = 0.0;
#pragma GCC unroll 7
  for (int k = 0; k < 7; ++k) {
    const double exact = x * TWO_OVER_PI[k], part = fma(-4.0, std::rint(0.25 * exact), exact);
    const double two_sum = turns + part, more = two_sum - turns;
    lost += (turns - (two_sum - more)) + (part - more);
    turns = two_sum;
  }
  const double quarter = std::rint(turns);
  return {((turns - quarter) + lost) * 1.5707963267948966, int(quarter == quarter ? quarter : 0.0)};
}
// Of an r from -1 to 1.
ALWAYS_INLINE double sine(double r) {
  // From 0.0 to 1.0, to 2^-40: python -m benchmarks.coefficients sine
  constexpr double c[] = {1.0,
                          -1.6666666666666666e-01,
                          8.3333333333333332e-03,
                          -1.9841269841269841e-04,
                          2.7557319223985893e-06,
                          -2.5052108385441720e-08,
                          1.6059043836821613e-10};
  return r * polynomial(c, r * r);
}
ALWAYS_INLINE double cosine(double r) {
  // From 0.0 to 1.0, to 2^-36: python -m benchmarks.coefficients cosine
  constexpr double c[] = {1.0,
                          -0.5,
                          4.1666666666666664e-02,
                          -1.3888888888888889e-03,
                          2.4801587301587302e-05,
                          -2.7557319223985888e-07,
                          2.0876756987868100e-09};
  return polynomial(c, r * r);
}

inline float sin(float x) {
  const Turned t = turned(x);
  const double y = t.quarter & 1 ? cosine(t.rest) : sine(t.rest);
  return x == 0.0f ? x : float(t.quarter & 2 ? -y : y);
}
ALWAYS_INLINE double sin(double x) { return std::sin(x); }

inline float cos(float x) {
  const Turned t = turned(x);
  const double y = t.quarter & 1 ? sine(t.rest) : cosine(t.rest);
  return float((t.quarter + 1) & 2 ? -y : y);
}
ALWAYS_INLINE double cos(double x) { return std::cos(x); }

}  // namespace
}  // namespace fusegen
