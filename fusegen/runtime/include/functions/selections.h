#pragma once
// Selections and plain arithmetic; a NaN operand fails every comparison and stays.
// Generic; a device's own header includes it after what it calls of that device.
#include "basics.h"

namespace fusegen {
namespace {

template <typename M>
HOST_DEVICE M relu(M x) {
  return x < 0 ? M(0) : x;
}

template <typename M>
HOST_DEVICE M relu6(M x) {
  return x < 0 ? M(0) : x > 6 ? M(6) : x;
}

// min(max(x, min), max)
template <typename M>
HOST_DEVICE M clamp(M x, M min, M max) {
  x = x < min ? min : x;
  return x > max ? max : x;
}

// min(max(x, min), max)
template <typename M>
HOST_DEVICE M saturate(M x, M min, M max) {
  x = x < min ? min : x;
  return x > max ? max : x;
}

// max(x, min)
template <typename M>
HOST_DEVICE M clamp_min(M x, M min) {
  return x < min ? min : x;
}

// min(x, max)
template <typename M>
HOST_DEVICE M clamp_max(M x, M max) {
  return x > max ? max : x;
}

// min(a, b)
template <typename M>
HOST_DEVICE M minimum(M a, M b) {
  const M least = a < b ? a : b;
  return a == a ? least : a;
}

// max(a, b)
template <typename M>
HOST_DEVICE M maximum(M a, M b) {
  const M most = a > b ? a : b;
  return a == a ? most : a;
}

template <typename M>
HOST_DEVICE M sign(M x) {
  return M(x > 0) - M(x < 0);
}

// x²
template <typename M>
HOST_DEVICE M square(M x) {
  return x * x;
}

// x³
template <typename M>
HOST_DEVICE M cube(M x) {
  return x * x * x;
}

// 1 / x
template <typename M>
HOST_DEVICE M reciprocal(M x) {
  return M(1) / x;
}

// 1 / √x
template <typename M>
HOST_DEVICE M rsqrt(M x) {
  return M(1) / sqrt(x);
}

// x / (|x| + 1)
template <typename M>
HOST_DEVICE M soft_sign(M x) {
  return x / (fabs(x) + M(1));
}

// a / b, rounded once; where the product is a zero, which has the sign of the quotient, the correction would lose it
template <typename M>
HOST_DEVICE M quotient(M a, M b) {
  const M c = M(1) / b, q = a * c, y = fma(fma(-b, q, a), c, q);
  return y == y && q != M(0) ? y : q;
}

// x, or the least number that times 3 is no infinity
template <typename M>
HOST_DEVICE M clamp_to_lowest(M x) {
  if constexpr (sizeof(M) == 8) return x < M(-0x1p1022) ? M(-0x1p1022) : x;
  return x < M(-0x1p126) ? M(-0x1p126) : x;
}

// x, or the largest number that times 3 is no infinity
template <typename M>
HOST_DEVICE M clamp_to_highest(M x) {
  if constexpr (sizeof(M) == 8) return x > M(0x1p1022) ? M(0x1p1022) : x;
  return x > M(0x1p126) ? M(0x1p126) : x;
}

}  // namespace
}  // namespace fusegen
