#pragma once
// The arithmetic of CUDA kernels where float loses too many digits of a float: double in single-word arithmetic. Of a
// float's result fewer than half of a double's digits are kept, so that a single word suffices: DoubleWord<PlainDouble>
// has the first, and the compiler drops what the second would have been. Functions take no branch and no call; others
// are the math library's. Included after plain_double_44.cuh or plain_double_39.cuh, which say how accurate they are.
// Source: Cody and Waite 1980, Software Manual for the Elementary Functions, chapter 6; Tang 1990, ACM Trans. Math.
// Softw. 16, for log1p; Shepherd and Laframboise 1981, Math. Comp. 36, for the tail of the normal distribution, which
// times (x + 4.75) e^(x^2 / 2) is smooth in (x - 4.75) / (x + 4.75); rcp.approx.ftz.f64 as the PTX ISA describes it.
#include "cuda/plain_double_type.cuh"

namespace fusegen {
namespace {
namespace plain_double {

// 2^n, of an n up to 1023; 0 where it would be subnormal.
HOST_DEVICE double exp2i(int n) {
  const uint64_t bits = n < -1023 ? 0 : uint64_t(int64_t(n) + 1023) << 52;
  double y;
  memcpy(&y, &bits, sizeof(y));
  return y;
}

// e^x as (1 + rise) 2^n, of an x from -760 to 709: whole, and less 1
struct ScaledExp {
  double rise, size;
  bool small;  // n is 0
  HOST_DEVICE double whole() const { return ::fma(rise, size, size); }
  HOST_DEVICE double less() const { return small ? rise : ::fma(rise, size, size - 1.0); }
};
HOST_DEVICE ScaledExp exp_scaled(double x) {
  constexpr double TO_INTEGER = 0x1.8p52;
  const double shifted = ::fma(x, 1.4426950408889634, TO_INTEGER), n = shifted - TO_INTEGER;
  const double r = reduce(x, n);
  int32_t integer;  // n, in the lower half of what is shifted
  memcpy(&integer, &shifted, sizeof(integer));
  return {r * ::fma(r, polynomial(EXP, r), 1.0), exp2i(integer), integer == 0};
}

// e^x, 0 where it would be subnormal, infinite beyond 709; and e^x - 1
HOST_DEVICE PlainDouble exp(PlainDouble x) {
  const double y = exp_scaled(x.v < -760.0 ? -760.0 : x.v).whole();
  return x.v > 709.0 ? INFINITY : y;
}

HOST_DEVICE PlainDouble expm1(PlainDouble x) {
  const double y = exp_scaled(x.v < -760.0 ? -760.0 : x.v).less();
  return x.v > 709.0 ? INFINITY : y;
}

// The low word is dropped.
template <bool SUBNORMAL = true>
HOST_DEVICE PlainDouble exp_dw(PlainDouble x, PlainDouble) {
  return exp(x);
}

// 1 / x, of an x from 2^-1000 to 2^1000: the hardware's, of 20 bits, refined
HOST_DEVICE PlainDouble reciprocal_approx(PlainDouble x) {
#ifdef __CUDACC__
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x.v));
  const double e = ::fma(-x.v, r, 1.0);
  return refine(r, e);
#else
  return 1.0 / x.v;
#endif
}

// e^(2 |x|), beyond 345 as there
HOST_DEVICE ScaledExp twice(PlainDouble x) {
  const double size = ::fabs(x.v);
  return exp_scaled(size > 345.0 ? 690.0 : size + size);
}

HOST_DEVICE PlainDouble tanh(PlainDouble x) {
  const ScaledExp e = twice(x);
  return ::copysign(e.less() * reciprocal_approx(1.0 + e.whole()).v, x.v);
}

// tanh'(x)
HOST_DEVICE PlainDouble tanh_slope(PlainDouble x) {
  const ScaledExp e = twice(x);
  const PlainDouble per = reciprocal_approx(1.0 + e.whole());
  return 4.0 * e.whole() * per * per;
}

// log(1 + x)
HOST_DEVICE PlainDouble log1p(PlainDouble x) {
  const double u = 1.0 + x.v, v = u - 1.0, lost = (1.0 - (u - v)) + (x.v - v);
  uint64_t bits;
  memcpy(&bits, &u, sizeof(bits));
  const int64_t n = int64_t(bits - 0x3fe6a09e00000000) >> 52;  // so that m is from root 1/2 to root 2
  bits -= uint64_t(n) << 52;
  double m;
  memcpy(&m, &bits, sizeof(m));
  const double s = ::fma(lost, exp2i(int(-n)), m - 1.0) * reciprocal_approx(1.0 + m).v, z = s * s;
  const double y = ::fma(double(int(n)), 0.69314718055994531, ::fma(s * z, polynomial(LOG, z), s + s));
  const double special = x.v == -1.0 ? -INFINITY : x.v < -1.0 ? NAN : x.v;  // also 0, with its sign
  return x.v > -1.0 && x.v < INFINITY && x.v != 0.0 ? y : special;
}

// log(1 + e^x)
HOST_DEVICE PlainDouble softplus(PlainDouble x) {
  const double size = ::fabs(x.v), e = exp_scaled(size > 760.0 ? -760.0 : -size).whole();
  const bool doubled = e > 0.41421356237309503;  // 1 + e is from root 1/2 to root 2 of 2
  const double s = (doubled ? e - 1.0 : e) * reciprocal_approx(e + (doubled ? 3.0 : 2.0)).v, z = s * s;
  const double y = ::fma(s * z, polynomial(LOG, z), s + s) + (doubled ? 0.69314718055994531 : 0.0);
  return x.v > 0.0 ? x.v + y : y;
}

// e^(-x^2 / 2), 0 where it would be subnormal
HOST_DEVICE double bell(double x) {
  const double size = ::fabs(x), s = size > 38.75 ? 38.75 : size;
  return exp_scaled(-0.5 * s * s).whole();
}

// Φ(-|x|)
HOST_DEVICE PlainDouble ndtr_tail(PlainDouble x) {
  const double size = ::fabs(x.v), s = size > 38.75 ? 38.75 : size, per = reciprocal_approx(s + 4.75).v;
  return polynomial(TAIL, (s - 4.75) * per) * per * bell(x.v);
}

// erfc(x) = 2 Φ(-x √2)
HOST_DEVICE PlainDouble erfc(PlainDouble x) {
  const PlainDouble half = ndtr_tail(x * 1.4142135623730951);
  return x < 0.0 ? 2.0 - 2.0 * half : 2.0 * half;
}

// x Φ(x)
HOST_DEVICE PlainDouble times_ndtr(PlainDouble x) {
  const PlainDouble tail = ndtr_tail(x);
  return x * (x < 0.0 ? tail : 1.0 - tail);
}

// the slope of x Φ(x)
HOST_DEVICE PlainDouble times_ndtr_slope(PlainDouble x) {
  const PlainDouble tail = ndtr_tail(x), near = 0.39894228040143268 * bell(x.v) * x;
  return x < 0.0 ? tail + near : 1.0 - tail + near;
}

// e^(-x), beyond 690 as there
HOST_DEVICE double falling(PlainDouble x) {
  return exp_scaled(::fabs(x.v) > 690.0 ? ::copysign(690.0, -x.v) : -x.v).whole();
}

HOST_DEVICE PlainDouble sigmoid(PlainDouble x) { return reciprocal_approx(1.0 + falling(x)); }

// sigmoid'(x)
HOST_DEVICE PlainDouble sigmoid_slope(PlainDouble x) { return falling(x) * sigmoid(x) * sigmoid(x); }

// x sigmoid(t)
HOST_DEVICE PlainDouble x_sigmoid(PlainDouble x, PlainDouble t) { return x * sigmoid(t); }

HOST_DEVICE PlainDouble prescaled(PlainDouble x) { return x; }

HOST_DEVICE PlainDouble unscale(PlainDouble) { return 1.0; }

// In double-word arithmetic: of the high word.
template <Body>
HOST_DEVICE PlainDouble tanh(PlainDouble x) {
  return tanh(x);
}
template <Body>
HOST_DEVICE PlainDouble times_ndtr(PlainDouble x) {
  return times_ndtr(x);
}
template <Body>
HOST_DEVICE PlainDouble x_sigmoid(PlainDouble x, PlainDouble t) {
  return x_sigmoid(x, t);
}
HOST_DEVICE PlainDouble exp(DoubleWord<PlainDouble> t) { return exp(t.hi); }
HOST_DEVICE PlainDouble expm1(DoubleWord<PlainDouble> t) { return expm1(t.hi); }
HOST_DEVICE PlainDouble tanh(DoubleWord<PlainDouble> t) { return tanh(t.hi); }
HOST_DEVICE PlainDouble tanh_slope(DoubleWord<PlainDouble> t) { return tanh_slope(t.hi); }
HOST_DEVICE PlainDouble softplus(DoubleWord<PlainDouble> t) { return softplus(t.hi); }
HOST_DEVICE PlainDouble ndtr_tail(DoubleWord<PlainDouble> t) { return ndtr_tail(t.hi); }
HOST_DEVICE PlainDouble times_ndtr(DoubleWord<PlainDouble> t) { return times_ndtr(t.hi); }
HOST_DEVICE PlainDouble times_ndtr_slope(DoubleWord<PlainDouble> t) { return times_ndtr_slope(t.hi); }
HOST_DEVICE PlainDouble sigmoid(DoubleWord<PlainDouble> t) { return sigmoid(t.hi); }
HOST_DEVICE PlainDouble sigmoid_slope(DoubleWord<PlainDouble> t) { return sigmoid_slope(t.hi); }
HOST_DEVICE PlainDouble x_sigmoid(PlainDouble x, DoubleWord<PlainDouble> t) { return x_sigmoid(x, t.hi); }
HOST_DEVICE PlainDouble x_sigmoid(DoubleWord<PlainDouble> x, DoubleWord<PlainDouble> t) {
  return x_sigmoid(x.hi, t.hi);
}
HOST_DEVICE PlainDouble prescaled(DoubleWord<PlainDouble> t) { return prescaled(t.hi); }
HOST_DEVICE PlainDouble unscale(DoubleWord<PlainDouble> t) { return unscale(t.hi); }

}  // namespace plain_double
}  // namespace
}  // namespace fusegen
