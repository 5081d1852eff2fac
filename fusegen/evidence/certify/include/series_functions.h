#pragma once
// Functions of series.
#include "series.h"
#include "interval_functions.h"

namespace {

inline Series square(const Series& x) { return x * x; }
inline Series cube(const Series& x) { return x * x * x; }
inline Series sqrt(const Series& x) {
  const Real y = sqrt(x.c[0]), slope = exactly(0.5) / y;
  return composed(y, slope, over(-slope, 4) / x.c[0], over(slope, 8) / square(x.c[0]), x);
}
inline Series exp(const Series& x) {
  const Real y = exp(x.c[0]);
  return composed(y, y, over(y, 2), over(y, 6), x);
}
inline Series exp2(const Series& x) {
  const Real y = exp2(x.c[0]), slope = times(0.69314718055994531, y), bend = times(0.69314718055994531, slope);
  return composed(y, slope, over(bend, 2), times(0.69314718055994531, over(bend, 6)), x);
}
inline Series expm1(const Series& x) {
  const Real y = exp(x.c[0]);
  return composed(expm1(x.c[0]), y, over(y, 2), over(y, 6), x);
}
// A logarithm of x, whose slope is 1 / x but for a factor.
inline Series logarithm(const Real& y, const Real& slope, const Series& x) {
  const Real r = exactly(1) / x.c[0];
  return composed(y, slope, over(-slope * r, 2), over(slope * square(r), 3), x);
}
inline Series log(const Series& x) { return logarithm(log(x.c[0]), exactly(1) / x.c[0], x); }
inline Series log2(const Series& x) {
  return logarithm(log2(x.c[0]), times(1.4426950408889634, exactly(1) / x.c[0]), x);
}
inline Series log1p(const Series& x) {
  const Series above = number<Series>(1, 1) + x;
  return logarithm(log1p(x.c[0]), exactly(1) / above.c[0], above);
}
inline Series sin(const Series& x) {
  const Real y = sin(x.c[0]), slope = cos(x.c[0]);
  return composed(y, slope, over(-y, 2), over(-slope, 6), x);
}
inline Series cos(const Series& x) {
  const Real y = cos(x.c[0]), slope = -sin(x.c[0]);
  return composed(y, slope, over(-y, 2), over(-slope, 6), x);
}
inline Series tanh(const Series& x) {
  const Real y = tanh(x.c[0]), slope = tanh_slope(x.c[0]);
  return composed(y, slope, -(y * slope), over(slope * (exactly(3) * square(y) - exactly(1)), 3), x);
}
inline Series tanh_shrink(const Series& x) {
  const Real y = tanh(x.c[0]), s = tanh_slope(x.c[0]), slope = square(y);
  return composed(tanh_shrink(x.c[0]), slope, y * s, over(s * (exactly(1) - exactly(3) * slope), 3), x);
}
inline Series tanh_of_exp(const Series& x) { return tanh(exp(x)); }
inline Series soft_sign(const Series& x) {
  if (x.c[0].lo < 0 && x.c[0].hi > 0) return hull(x, x);
  const Real r = exactly(1) / (exactly(1) + Real{smallest(x.c[0]), largest(x.c[0])});
  const Real slope = square(r), bend = slope * r;
  return composed(x.c[0] * r, slope, x.c[0].lo < 0 ? bend : -bend, square(slope), x);
}
// The integral of a bell whose own slope is -`by` x of itself.
inline Series under_bell(const Real& y, const Real& bell, double by, const Series& x) {
  const Real &v = x.c[0], bend = exactly(by) * (exactly(by) * square(v) - exactly(1));
  return composed(y, bell, over(exactly(-by) * v * bell, 2), over(bend * bell, 6), x);
}
inline Series erf(const Series& x) {
  return under_bell(erf(x.c[0]), times(1.1283791670955126, gauss(x.c[0])), 2, x);
}
inline Series erfc(const Series& x) {
  return under_bell(erfc(x.c[0]), -times(1.1283791670955126, gauss(x.c[0])), 2, x);
}
inline Series ndtr(const Series& x) { return under_bell(ndtr(x.c[0]), normal(x.c[0]), 1, x); }
inline Series gauss(const Series& x) { return exp(-square(x)); }
inline Series normal(const Series& x) {
  return number<Series>(0x1.9884533d43650p-2, 0x1.9884533d43651p-2) * exp(number<Series>(-0.5, -0.5) * square(x));
}
// The slope of a sigmoid s is p = s (1 - s), whose own is p (1 - 2 s).
inline Series sigmoid(const Series& x) {
  const Real s = sigmoid(x.c[0]), p = sigmoid_slope(x.c[0]), one = exactly(1);
  return composed(s, p, over(p * (one - (s + s)), 2), over(p * (one - exactly(6) * p), 6), x);
}
inline Series softplus(const Series& x) {
  const Real s = sigmoid(x.c[0]), p = sigmoid_slope(x.c[0]);
  return composed(softplus(x.c[0]), s, over(p, 2), over(p * (exactly(1) - (s + s)), 6), x);
}
inline Series pow(const Series& x, const Series& y) {
  for (int k = 1; k < 4; ++k)
    if (y.c[k].lo != 0 || y.c[k].hi != 0) return hull(x, y);
  const Real &v = x.c[0], &n = y.c[0], one = exactly(1), two = exactly(2), bend = n * (n - one);
  return composed(pow(v, n), n * pow(v, n - one), over(bend * pow(v, n - two), 2),
                  over(bend * (n - two) * pow(v, n - exactly(3)), 6), x);
}

}  // namespace
