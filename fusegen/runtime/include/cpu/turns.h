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

inline float sinpi(float x) {
  const Turned t = turned_by_pi(x);
  const double y = t.quarter & 1 ? cosine(t.rest) : sine(t.rest);
  return x == 0.0f ? x : float(t.quarter & 2 ? 0.0 - y : y);
}
inline double sinpi(double x) {
  const Turned t = turned_by_pi(x);
  const double y = t.quarter & 1 ? std::cos(t.rest) : std::sin(t.rest);
  return x == 0.0 ? x : t.quarter & 2 ? 0.0 - y : y;
}

inline float cospi(float x) {
  const Turned t = turned_by_pi(x);
  const double y = t.quarter & 1 ? sine(t.rest) : cosine(t.rest);
  return float((t.quarter + 1) & 2 ? 0.0 - y : y);
}
inline double cospi(double x) {
  const Turned t = turned_by_pi(x);
  const double y = t.quarter & 1 ? std::sin(t.rest) : std::cos(t.rest);
  return (t.quarter + 1) & 2 ? 0.0 - y : y;
}

}  // namespace
}  // namespace fusegen
