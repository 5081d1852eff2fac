#pragma once
// Functions of intervals.
#include "interval.h"

namespace {

// Functions and slopes. Of a narrow interval the middle is computed, and widened by twice what the interval's
// width can do: `gain` is twice a bound of |f'(v) / f(v)|, or 0 where f is as good as constant. Of a wide one
// both ends are.
constexpr double NARROW = 0x1p-20;

#define RISING(name, widened, gain, expression)                                          \
  HOST_DEVICE Real name(const Real& x) {                                                    \
    const auto f = [](double v) { return expression; };                                  \
    const double v = x.lo + 0.5 * (x.hi - x.lo), moved = (x.hi - x.lo) * (gain);         \
    if (!(moved < NARROW)) return widened(f(x.lo), f(x.hi));                             \
    const double y = f(v);                                                               \
    return widened(y, y, PAD + moved);                                                   \
  }
// Even functions that fall with the size of their argument.
#define FALLING(name, pad, gain, expression)                                             \
  HOST_DEVICE Real name(const Real& x) {                                                    \
    const auto f = [](double v) { return expression; };                                  \
    const double v = fabs(x.lo + 0.5 * (x.hi - x.lo)), moved = (x.hi - x.lo) * (gain);   \
    if (!(moved < NARROW)) return positive(f(largest(x)), f(smallest(x)), pad);          \
    const double y = f(v);                                                               \
    return positive(y, y, pad + moved);                                                  \
  }

HOST_DEVICE double sech_squared(double t) {
  const double e = exp(-2 * t);
  return 4 * e / ((1 + e) * (1 + e));
}
HOST_DEVICE double logistic(double v) {
  const double e = exp(-fabs(v));
  return v < 0 ? e / (1 + e) : 1 / (1 + e);
}
HOST_DEVICE double logistic_slope(double t) {
  const double e = exp(-t);
  return e / ((1 + e) * (1 + e));
}
// v - tanh(v) by Gauss's continued fraction tanh v = v / (1 + v^2 / (3 + v^2 / (5 + ...))).
HOST_DEVICE double less_tanh(double v) {
  if (fabs(v) > 0.75) return v - tanh(v);
  const double s = v * v;
  double tail = 23;
  for (int k = 21; k >= 3; k -= 2) tail = k + s / tail;
  return v * (s / tail) / (1 + s / tail);
}

RISING(exp, positive, 2, ::exp(v))
RISING(exp2, positive, 2, ::exp2(v))
RISING(sigmoid, positive, (x.lo > 40 ? 0 : 2), logistic(v))
RISING(softplus, positive, 2, (most(v, 0.0) + ::log1p(::exp(-fabs(v)))))
RISING(expm1, risen, 2 + 2 / smallest(x), ::expm1(v))
RISING(tanh, risen, (smallest(x) > 20 ? 0 : 2 / smallest(x)), ::tanh(v))
RISING(erf, risen, (smallest(x) > 7 ? 0 : 2 / smallest(x)), ::erf(v))
RISING(tanh_shrink, risen, 6 / smallest(x), less_tanh(v))
FALLING(tanh_slope, PAD, 4, sech_squared(v))
FALLING(sigmoid_slope, PAD, 2, logistic_slope(v))
FALLING(gauss, PAD + largest(x) * largest(x) * 0x1p-51, 4 * largest(x), ::exp(-v * v))
FALLING(normal, PAD + largest(x) * largest(x) * 0x1p-51, 2 * largest(x), 0.39894228040143268 * ::exp(-0.5 * v * v))

HOST_DEVICE Real log(const Real& x) { return x.lo > 0 ? risen(::log(x.lo), ::log(x.hi)) : Real{-INF, INF}; }
HOST_DEVICE Real log2(const Real& x) { return x.lo > 0 ? risen(::log2(x.lo), ::log2(x.hi)) : Real{-INF, INF}; }
HOST_DEVICE Real log1p(const Real& x) { return x.lo > -1 ? risen(::log1p(x.lo), ::log1p(x.hi)) : Real{-INF, INF}; }
HOST_DEVICE double rooted(double x, double side) {  // IEEE 754 rounds it correctly
  const double y = ::sqrt(x);
  return x == 0 || (x > 1e-290 && fma(y, y, -x) == 0) ? y : y + side * (y * ROUNDING);
}
HOST_DEVICE Real sqrt(const Real& x) {
  return x.lo >= 0 ? between(rooted(x.lo, -1), rooted(x.hi, 1)) : Real{-INF, INF};
}
// The argument's own rounding weighs twice its square in erfc's relative error, where erfc falls.
HOST_DEVICE Real erfc_of(const Real& x, double scale) {
  const double far = least(most(x.hi, 0.0) * scale, 30.0);
  return positive(::erfc(x.hi * scale), ::erfc(x.lo * scale), PAD + far * far * 0x1p-50);
}
HOST_DEVICE Real erfc(const Real& x) { return erfc_of(x, 1); }
HOST_DEVICE Real ndtr(const Real& x) {
  const Real twice = erfc_of(-x, 0.70710678118654752);
  return {0.5 * twice.lo, 0.5 * twice.hi};
}
HOST_DEVICE Real wave(double middle, const Real& x) {
  const double reach = 0.5 * (x.hi - x.lo) + (x.lo == 0 && x.hi == 0 ? 0 : PAD * fabs(middle) + TINY);
  const double away = x.lo == x.hi ? reach : reach + 0x1p-51 * largest(x);
  return away < 1 ? between(most(-1.0, middle - away), least(1.0, middle + away)) : Real{-1, 1};
}
HOST_DEVICE Real sin(const Real& x) { return wave(::sin(x.lo + 0.5 * (x.hi - x.lo)), x); }
HOST_DEVICE Real cos(const Real& x) { return wave(::cos(x.lo + 0.5 * (x.hi - x.lo)), x); }
HOST_DEVICE Real square(const Real& x) {
  const double near = smallest(x), far = largest(x);
  return between(multiplied(near, near, -1), multiplied(far, far, 1));
}
HOST_DEVICE Real pow(const Real& x, const Real& y) {
  if (x.lo <= 0) return {-INF, INF};
  const double a = ::pow(x.lo, y.lo), b = ::pow(x.lo, y.hi), c = ::pow(x.hi, y.lo), d = ::pow(x.hi, y.hi);
  return positive(least(least(a, b), least(c, d)), most(most(a, b), most(c, d)));
}

HOST_DEVICE Real times(double factor, const Real& x) { return Real{below(factor, PAD), above(factor, PAD)} * x; }

}  // namespace
