#pragma once
// Functions of values with their derivatives.
#include "interval_functions.h"
#include "dual.h"

namespace {

HOST_DEVICE Dual square(const Dual& x) { return chain(square(x.v), exactly(2) * x.v, x); }
HOST_DEVICE Dual cube(const Dual& x) { return chain(square(x.v) * x.v, exactly(3) * square(x.v), x); }
HOST_DEVICE Dual sqrt(const Dual& x) { return chain(sqrt(x.v), exactly(0.5) / sqrt(x.v), x); }
HOST_DEVICE Dual exp(const Dual& x) { const Real y = exp(x.v); return chain(y, y, x); }
HOST_DEVICE Dual exp2(const Dual& x) { const Real y = exp2(x.v); return chain(y, times(0.69314718055994531, y), x); }
HOST_DEVICE Dual expm1(const Dual& x) { return chain(expm1(x.v), exp(x.v), x); }
HOST_DEVICE Dual log(const Dual& x) { return chain(log(x.v), exactly(1) / x.v, x); }
HOST_DEVICE Dual log2(const Dual& x) { return chain(log2(x.v), times(1.4426950408889634, exactly(1) / x.v), x); }
HOST_DEVICE Dual log1p(const Dual& x) { return chain(log1p(x.v), exactly(1) / (exactly(1) + x.v), x); }
HOST_DEVICE Dual sin(const Dual& x) { return chain(sin(x.v), cos(x.v), x); }
HOST_DEVICE Dual cos(const Dual& x) { return chain(cos(x.v), -sin(x.v), x); }
HOST_DEVICE Dual tanh(const Dual& x) { return chain(tanh(x.v), tanh_slope(x.v), x); }
HOST_DEVICE Dual erf(const Dual& x) { return chain(erf(x.v), times(1.1283791670955126, gauss(x.v)), x); }
HOST_DEVICE Dual erfc(const Dual& x) { return chain(erfc(x.v), times(-1.1283791670955126, gauss(x.v)), x); }
HOST_DEVICE Dual ndtr(const Dual& x) { return chain(ndtr(x.v), normal(x.v), x); }
// One exponential for value and slope, where the interval is narrow enough for its middle to do.
HOST_DEVICE Dual sigmoid(const Dual& x) {
  const double v = x.v.lo + 0.5 * (x.v.hi - x.v.lo), moved = 2 * (x.v.hi - x.v.lo);
  if (!(moved < NARROW)) return chain(sigmoid(x.v), sigmoid_slope(x.v), x);
  const double e = ::exp(-fabs(v)), r = 1 / (1 + e), y = v < 0 ? e * r : r, slope = e * r * r;
  const double by = v > 40 ? 0 : moved;  // from there on it is as good as 1
  return chain(positive(y, y, PAD + by), positive(slope, slope, PAD + moved), x);
}
HOST_DEVICE Dual softplus(const Dual& x) {
  const double v = x.v.lo + 0.5 * (x.v.hi - x.v.lo), moved = 2 * (x.v.hi - x.v.lo);
  if (!(moved < NARROW)) return chain(softplus(x.v), sigmoid(x.v), x);
  const double e = ::exp(-fabs(v)), r = 1 / (1 + e), y = most(v, 0.0) + ::log1p(e), slope = v < 0 ? e * r : r;
  return chain(positive(y, y, PAD + moved), positive(slope, slope, PAD + moved), x);
}
HOST_DEVICE Dual tanh_shrink(const Dual& x) { return chain(tanh_shrink(x.v), square(tanh(x.v)), x); }
HOST_DEVICE Dual soft_sign(const Dual& x) {
  const Real far = {smallest(x.v), largest(x.v)}, b = exactly(1) + far;
  const Dual y = chain(x.v / b, exactly(1) / square(b), x);
  return y;
}
HOST_DEVICE Dual tanh_of_exp(const Dual& x) {
  if (x.v.lo > 7) return chain(positive(1, 1), Real{0, TINY}, x);  // e^-2000 short of 1
  return tanh(exp(x));
}
HOST_DEVICE Dual gauss(const Dual& x) { const Real y = gauss(x.v); return chain(y, exactly(-2) * (x.v * y), x); }
HOST_DEVICE Dual normal(const Dual& x) { const Real y = normal(x.v); return chain(y, -(x.v * y), x); }
HOST_DEVICE Dual pow(const Dual& x, const Dual& y) {
  const Real v = pow(x.v, y.v), by_y = v * log(x.v), by_x = y.v * pow(x.v, y.v - exactly(1));
  Dual z{v};
  for (int k = 0; k < INPUTS; ++k) z.d[k] = by_x * x.d[k] + (constant(y) ? exactly(0) : by_y * y.d[k]);
  return z;
}

}  // namespace
