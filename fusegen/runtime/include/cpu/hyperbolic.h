#pragma once
// The hyperbolic family on the CPU.
#include "cpu/exponential.h"

namespace fusegen {
namespace {

inline float tanh(float x) {
  // From 0.0 to 0.36, to 2^-27: python -m benchmarks.coefficients tanh_float
  constexpr float c[] = {-0.33333298563957214f, 0.13331958651542664f, -0.053786683827638626f, 0.02080538496375084f,
                         -0.005905868019908667f};
  const float size = std::fabs(x), t = size > 10.0f ? 10.0f : size, s = t * t;  // it is 1 beyond
  const float near = fma(t * s, polynomial(c, s), t), far = 1.0f - 2.0f / (exp(t + t) + 1.0f);
  return std::copysign(s < 0.36f ? near : far, x);
}
ALWAYS_INLINE double tanh(double x) {
  const double e = expm1(-2.0 * std::fabs(x)), d = e + 2.0, q = -e / d;
  const double rest = fma(-q, d, -e) - q * (e - (d - 2.0));
  return std::copysign(fma(rest, 1.5 - 0.5 * d, q), x);  // about 1 / d, of a d from 1 to 2
}

}  // namespace
}  // namespace fusegen

#include "functions/hyperbolic.h"
