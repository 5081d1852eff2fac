#pragma once
// Intervals of doubles and their arithmetic.
#include "margins.h"

namespace {

// The real numbers from lo to hi, one of which is meant.
struct Real {
  double lo, hi;
};

HOST_DEVICE double most(double a, double b) { return a > b ? a : b; }
HOST_DEVICE double least(double a, double b) { return a < b ? a : b; }
HOST_DEVICE Real exactly(double v) { return {v, v}; }
HOST_DEVICE Real between(double lo, double hi) {
  return lo <= hi ? Real{lo, hi} : Real{-INF, INF};  // also where one is NaN
}
HOST_DEVICE double largest(const Real& a) { return most(fabs(a.lo), fabs(a.hi)); }
HOST_DEVICE double smallest(const Real& a) { return a.lo > 0 ? a.lo : a.hi < 0 ? -a.hi : 0; }
// A number that overflowed is real nevertheless, beyond the largest double.
HOST_DEVICE double below(double v, double pad) { return v == INF ? LARGEST : v - (fabs(v) * pad + TINY); }
HOST_DEVICE double above(double v, double pad) { return v == -INF ? -LARGEST : v + (fabs(v) * pad + TINY); }

// The ends of a rising function's values, widened, but for zeros, which its zeros give exactly.
HOST_DEVICE Real risen(double lo, double hi, double pad = PAD) {
  const double a = lo == 0 ? lo : below(lo, pad), b = hi == 0 ? hi : above(hi, pad);
  return between(a, b);
}
// Likewise of positive values, which may have underflowed.
HOST_DEVICE Real positive(double lo, double hi, double pad = PAD) {
  return between(most(0.0, below(lo, pad)), above(hi, pad));
}

HOST_DEVICE double added(double a, double b, double side) {
  const double s = a + b, bb = s - a, error = (a - (s - bb)) + (b - bb);
  return error == 0 ? s : s + side * (fabs(s) * ROUNDING + TINY);
}
HOST_DEVICE double multiplied(double a, double b, double side) {
  if (a == 0 || b == 0) return 0;  // infinite ends stand for large numbers
  const double p = a * b;
  return fma(a, b, -p) == 0 && fabs(p) > 1e-290 ? p : p + side * (fabs(p) * ROUNDING + TINY);
}
HOST_DEVICE double divided(double a, double b, double side) {
  if (a == 0) return 0;
  const double q = a / b;
  return fma(-q, b, a) == 0 && fabs(q) > 1e-290 ? q : q + side * (fabs(q) * ROUNDING + TINY);
}

HOST_DEVICE Real operator+(const Real& a, const Real& b) {
  return between(added(a.lo, b.lo, -1), added(a.hi, b.hi, 1));
}
HOST_DEVICE Real operator-(const Real& a) { return {-a.hi, -a.lo}; }
HOST_DEVICE Real operator-(const Real& a, const Real& b) { return a + -b; }
HOST_DEVICE Real operator*(const Real& a, const Real& b) {
  if (a.lo < 0 && a.hi > 0 && b.lo < 0 && b.hi > 0)
    return between(least(multiplied(a.lo, b.hi, -1), multiplied(a.hi, b.lo, -1)),
                   most(multiplied(a.lo, b.lo, 1), multiplied(a.hi, b.hi, 1)));
  // Which ends meet in the product's ends, by the signs; one of the two factors has one sign.
  const bool up = a.lo >= 0, down = a.hi <= 0, other_up = b.lo >= 0, other_down = b.hi <= 0;
  const double low = up ? (other_up ? a.lo : a.hi) : down ? (other_down ? a.hi : a.lo) : other_up ? a.lo : a.hi;
  const double other_low = up ? b.lo : down ? b.hi : other_up ? b.hi : b.lo;
  const double high = up ? (other_down ? a.lo : a.hi) : down ? (other_up ? a.hi : a.lo) : other_up ? a.hi : a.lo;
  const double other_high = up ? b.hi : down ? b.lo : other_up ? b.hi : b.lo;
  return between(multiplied(low, other_low, -1), multiplied(high, other_high, 1));
}
HOST_DEVICE Real operator/(const Real& a, const Real& b) {
  if (b.lo <= 0 && b.hi >= 0) return {-INF, INF};
  const double lo = b.lo > 0 ? a.lo : -a.hi, hi = b.lo > 0 ? a.hi : -a.lo;  // over a positive b
  const double near = smallest(b), far = largest(b);
  return between(divided(lo, lo < 0 ? near : far, -1), divided(hi, hi < 0 ? far : near, 1));
}
HOST_DEVICE Real hull(const Real& a, const Real& b) {
  return between(least(a.lo, b.lo), most(a.hi, b.hi));
}

}  // namespace
