#pragma once
#include "cpu/math.h"
#include "functions/selections.h"

namespace fusegen {
namespace {

// a / b, rounded once, of a small a, too, whose remainder would be subnormal.
inline float quotient(float a, float b) {
  const bool small = std::fabs(a) < 0x1p-100f;
  return quotient<float>(small ? a * 0x1p64f : a, b) * (small ? 0x1p-64f : 1.0f);
}
inline double quotient(double a, double b) {
  const bool small = std::fabs(a) < 0x1p-960;
  return quotient<double>(small ? a * 0x1p128 : a, b) * (small ? 0x1p-128 : 1.0);
}

}  // namespace
}  // namespace fusegen
