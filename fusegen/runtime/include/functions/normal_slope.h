#pragma once
// The slope of x Φ(x) in float, single-word.
#include "double_word.h"

namespace fusegen {
namespace {

// x - rounded, of a sum that has been rounded
HOST_DEVICE float rest_of(float, float) { return 0.0f; }
HOST_DEVICE float rest_of(DoubleWord<float> x, float rounded) { return (x.hi - rounded) + x.lo; }

// (1 + more) (Φ(-s) e^(s² / 2) - s / √(2π)) of s = size + rest, from 0 to 16: s minus its zero, times q, which is
// -1 / (2 zero) + s r, where r is smooth in 1 / (1 + 0.4 s). The zero is 0.75179154 - 1.2114450e-08, double-word.
HOST_DEVICE float ndtr_slope_over_bell(float size, float rest, float more) {
  // From 0.1351 to 1.0, to 2^-25: python -m benchmarks.coefficients ndtr_slope
  const float c[] = {4.916014972877747e-07f,  0.10644063353538513f,   0.05862027034163475f,
                     0.02068416029214859f,    0.001999816158786416f,  -0.013057020492851734f,
                     -0.0049051218666136265f, 0.010092039592564106f,  -0.003222620813176036f};
  const float r = polynomial(c, reciprocal_approx(fma(0.4f, size, 1.0f))), q = fma(size, r, -0.665078f);
  const float p = q * 0.75179154f, y = fma(q, size, -p);
  const float t = y - fma(q, -1.2114450e-08f - rest, fma(q, 0.75179154f, -p));
  return fma(more, t, t);
}

}  // namespace
}  // namespace fusegen
