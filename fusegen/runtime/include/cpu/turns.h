#pragma once
// sin(pi x) and cos(pi x) on the CPU: quarters of a turn are subtracted exactly.
#include "cpu/trigonometric.h"

namespace fusegen {
namespace {

// x = quarter / 2 + rest / pi, but for multiples of 2; NaN of an infinity
ALWAYS_INLINE Turned turned_by_pi(double x) {
  const double turns = fma(-2.0, std::rint(0.5 * x), x), quarter = std::rint(turns + turns);
  return {fma(-0.5, quarter, turns) * 3.1415926535897932, int(quarter == quarter ? quarter : 0.0)};
}
// Of an r from -pi / 4 to pi / 4, to the digits of double; the math library's take an element at a time.
ALWAYS_INLINE double sine_in_double(double r) {
  // From 0.0 to 0.6169, to 2^-57: python -m benchmarks.coefficients sine_of_turns
  constexpr double c[] = {1.0,
                          -1.6666666666666666e-01,
                          8.3333333333333332e-03,
                          -1.9841269841269841e-04,
                          2.7557319223985893e-06,
                          -2.5052108385441720e-08,
                          1.6059043836821613e-10,
                          -7.6471637318198164e-13,
                          2.8114572543455206e-15};
  return r * polynomial(c, r * r);
}
ALWAYS_INLINE double cosine_in_double(double r) {
  // From 0.0 to 0.6169, to 2^-59: python -m benchmarks.coefficients cosine_of_turns
  constexpr double c[] = {1.0,
                          -0.5,
                          4.1666666666666664e-02,
                          -1.3888888888888889e-03,
                          2.4801587301587302e-05,
                          -2.7557319223985888e-07,
                          2.0876756987868100e-09,
                          -1.1470745597729725e-11,
                          4.7794773323873853e-14,
                          -1.5619206968586225e-16};
  return polynomial(c, r * r);
}

inline float sinpi(float x) {
  const Turned t = turned_by_pi(x);
  const double y = t.quarter & 1 ? cosine(t.rest) : sine(t.rest);
  return x == 0.0f ? x : float(t.quarter & 2 ? 0.0 - y : y);
}
inline double sinpi(double x) {
  const Turned t = turned_by_pi(x);
  const double y = t.quarter & 1 ? cosine_in_double(t.rest) : sine_in_double(t.rest);
  return x == 0.0 ? x : t.quarter & 2 ? 0.0 - y : y;
}

inline float cospi(float x) {
  const Turned t = turned_by_pi(x);
  const double y = t.quarter & 1 ? sine(t.rest) : cosine(t.rest);
  return float((t.quarter + 1) & 2 ? 0.0 - y : y);
}
inline double cospi(double x) {
  const Turned t = turned_by_pi(x);
  const double y = t.quarter & 1 ? sine_in_double(t.rest) : cosine_in_double(t.rest);
  return (t.quarter + 1) & 2 ? 0.0 - y : y;
}

}  // namespace
}  // namespace fusegen
