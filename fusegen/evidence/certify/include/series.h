#pragma once
// Neighbouring floats judged together, by Taylor's theorem: with c the middle of their interval X, for some t in X
//
//   f(c + h) = f(c) + f'(c) h + f''(c) h^2 / 2 + f'''(t) h^3 / 6,   f'(c + h) = f'(c) + f''(c) h + f'''(t) h^2 / 2
//
// Arithmetic of series gives intervals that hold these coefficients, at c and for all of X (Moore, Kearfott and
// Cloud 2009, Introduction to Interval Analysis, chapter 9). Polynomials of their middles are computed in double;
// what they may be off by is one number for all of X.
#include "interval_functions.h"
#include "comparison.h"

namespace {

// Coefficients of a function at some point, its k-th derivative over k!.
struct Series {
  Real c[4];
};

inline Real& whole(Series& x) { return x.c[0]; }
inline const Real& whole(const Series& x) { return x.c[0]; }
inline Series operator+(const Series& a, const Series& b) {
  return {a.c[0] + b.c[0], a.c[1] + b.c[1], a.c[2] + b.c[2], a.c[3] + b.c[3]};
}
inline Series operator-(const Series& a) { return {-a.c[0], -a.c[1], -a.c[2], -a.c[3]}; }
inline Series operator-(const Series& a, const Series& b) { return a + -b; }
inline Series operator*(const Series& a, const Series& b) {
  Series y{};
  for (int n = 0; n < 4; ++n)
    for (int k = 0; k <= n; ++k) y.c[n] = y.c[n] + a.c[k] * b.c[n - k];
  return y;
}
inline Series operator/(const Series& a, const Series& b) {
  Series y{};
  for (int n = 0; n < 4; ++n) {
    Real left = a.c[n];
    for (int k = 0; k < n; ++k) left = left - y.c[k] * b.c[n - k];
    y.c[n] = left / b.c[0];
  }
  return y;
}
// One of two branches, it is not certain which: no series at all.
inline Series hull(const Series&, const Series&) {
  const Real any = {-INF, INF};
  return {any, any, any, any};
}
// A value whose slope is none: its coefficients would give no gradient.
inline Series detach(const Series& x) { return hull(x, x); }
// A function of x with these coefficients at x.
inline Series composed(const Real& g0, const Real& g1, const Real& g2, const Real& g3, const Series& x) {
  const Real &d = x.c[1], &dd = x.c[2], &ddd = x.c[3];
  return {g0, g1 * d, g1 * dd + g2 * square(d), g1 * ddd + exactly(2) * (g2 * (d * dd)) + g3 * (square(d) * d)};
}
inline Real over(const Real& x, double number) { return x / exactly(number); }

}  // namespace
