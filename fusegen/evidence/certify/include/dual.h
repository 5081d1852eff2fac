#pragma once
// Pairs of a value and its derivatives, and their arithmetic. INPUTS is the formula's.
#include "interval.h"

namespace {

// A value with its derivative by each input.
struct Dual {
  Real v, d[INPUTS];
};

HOST_DEVICE Real& whole(Dual& x) { return x.v; }
HOST_DEVICE const Real& whole(const Dual& x) { return x.v; }

template <class D>
HOST_DEVICE D number(double lo, double hi) {
  D y{};
  whole(y) = {lo, hi};
  return y;
}
HOST_DEVICE Dual input(double v, int k) {
  Dual y{};
  y.v = exactly(v);
  y.d[k] = exactly(1);
  return y;
}
HOST_DEVICE bool constant(const Dual& x) {
  bool still = true;
  for (const Real& d : x.d) still = still && d.lo == 0 && d.hi == 0;
  return still;
}
// The value v of a function of x whose slope there is s.
HOST_DEVICE Dual chain(const Real& v, const Real& s, const Dual& x) {
  Dual y{v};
  for (int k = 0; k < INPUTS; ++k) y.d[k] = s * x.d[k];
  return y;
}
HOST_DEVICE Dual operator+(const Dual& a, const Dual& b) {
  Dual y{a.v + b.v};
  for (int k = 0; k < INPUTS; ++k) y.d[k] = a.d[k] + b.d[k];
  return y;
}
HOST_DEVICE Dual operator-(const Dual& a) { return chain(-a.v, exactly(-1), a); }
HOST_DEVICE Dual operator-(const Dual& a, const Dual& b) { return a + -b; }
HOST_DEVICE Dual operator*(const Dual& a, const Dual& b) {
  if (constant(a)) return chain(a.v * b.v, a.v, b);
  if (constant(b)) return chain(a.v * b.v, b.v, a);
  Dual y{a.v * b.v};
  for (int k = 0; k < INPUTS; ++k) y.d[k] = a.d[k] * b.v + a.v * b.d[k];
  return y;
}
HOST_DEVICE Dual operator/(const Dual& a, const Dual& b) {
  const Real q = a.v / b.v;
  Dual y{q};
  for (int k = 0; k < INPUTS; ++k) y.d[k] = constant(b) ? a.d[k] / b.v : (a.d[k] - q * b.d[k]) / b.v;
  return y;
}
HOST_DEVICE Dual hull(const Dual& a, const Dual& b) {
  Dual y{hull(a.v, b.v)};
  for (int k = 0; k < INPUTS; ++k) y.d[k] = hull(a.d[k], b.d[k]);
  return y;
}

}  // namespace
