#pragma once
// The formula's value and derivatives at a point, and the scale on which errors are measured.
// The formula stands before this header.
#include "dual.h"

namespace {

HOST_DEVICE Dual enclosed(const double* x) {
  Dual in[INPUTS];
  for (int k = 0; k < INPUTS; ++k) in[k] = input(x[k], k);
  return formula(in);
}
HOST_DEVICE const Real& output(const Dual& y, int k) { return k == 0 ? y.v : y.d[k - 1]; }

// One over the ulp of a float of a value's size.
HOST_DEVICE double per_ulp(double v) {
  const double normal = least(most(fabs(v), 0x1p-126), 0x1p127);
  uint64_t bits;
  memcpy(&bits, &normal, 8);
  bits = (2 * 1023 + 23ull << 52) - (bits & 0x7ff0000000000000);
  double inverse;
  memcpy(&inverse, &bits, 8);
  return inverse;
}

constexpr double BEYOND = 0x1p128;  // where a float after the largest would be
HOST_DEVICE double on_scale(double v) { return least(most(v, -BEYOND), BEYOND); }

}  // namespace
