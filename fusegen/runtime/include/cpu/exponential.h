#pragma once
// Exponentials on the CPU, in float and in double.
// Branches are selections, so that loops over the functions vectorise. In double exp, expm1, log, log1p and erf err by
// at most 1.05 ulp, tanh by 1.7, erfc by 2.6. Source: Cody and Waite 1980, Software Manual for the Elementary
// Functions, chapters 6 and 11; minimax polynomials by Lawson's iteration (Rice and Usow 1968, Math. Comp. 22).
#include "cpu/math.h"
#include "double_word.h"

namespace fusegen {
namespace {

constexpr double TO_INTEGER = 0x1.8p52;  // added and taken off, it leaves an integer

// 2^n, of an n from -1022 to 1023
inline double exp2i(double n) {
  const double shifted = n + TO_INTEGER;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 1023) << 52;
  double y;
  memcpy(&y, &bits, sizeof(y));
  return y;
}

// v 2^n, rounded once: 2^n in two factors, as it may be subnormal
inline double scaled_by(double v, double n) {
  const double half = (0.5 * n + TO_INTEGER) - TO_INTEGER;
  return v * exp2i(half) * exp2i(n - half);
}

// e^(x + rest) as (hi + lo) 2^n
struct ScaledExp {
  double hi, lo, n;
};
ALWAYS_INLINE ScaledExp exp_scaled(double x, double rest) {
  // From -0.3466 to 0.3466, to 2^-61: python -m benchmarks.coefficients exp_double
  constexpr double c[] = {0.5,
                          0.1666666666666667,
                          0.04166666666666667,
                          0.008333333333326136,
                          0.001388888888888375,
                          0.00019841269874815834,
                          2.480158732554432e-05,
                          2.7557255406285044e-06,
                          2.7557273647451087e-07,
                          2.5105214474751413e-08,
                          2.0914685161418067e-09};
  const double above = x < -746.0 ? -746.0 : x, t = above > 710.0 ? 710.0 : above;  // 0 and infinity
  const double n = fma(t, 1.4426950408889634, TO_INTEGER) - TO_INTEGER;
  const double first = fma(n, -0x1.62e42fefa3800p-1, t);  // ln 2 in two
  const double last = fma(n, -0x1.ef35793c76730p-45, x == t ? rest : 0.0), r = first + last;
  const double more = fma(r * r, polynomial(c, r), (first - r) + last), one = 1.0 + r;
  const double lo = (r - (one - 1.0)) + more, hi = one + lo;
  return {hi, lo - (hi - one), n};
}

inline float exp(float x) {
  // From -0.3466 to 0.3466, to 2^-25: python -m benchmarks.coefficients exp_float
  constexpr float c[] = {1.0f,
                         1.0f,
                         0.49999991059303284f,
                         0.16666419804096222f,
                         0.041668228805065155f,
                         0.00837484560906887f,
                         0.0013836806174367666f};
  float t = x < -104.0f ? -104.0f : x;  // beyond these two, 0 and infinity
  t = t < 89.0f ? t : 89.0f;
  const float n = (t * 1.44269504f + 12582912.0f) - 12582912.0f;      // to the nearest integer
  const float r = fma(n, -1.42860677e-6f, fma(n, -0.693145752f, t));  // ln 2 in two
  const int k = int(n), half = k >> 1;                                // 2^n in two factors, as it may be subnormal
  const float y = polynomial(c, r) * exp2i<float>(half) * exp2i<float>(k - half);
  return x == x ? y : x;
}
ALWAYS_INLINE double exp(double x) {
  const ScaledExp e = exp_scaled(x, 0.0);
  return scaled_by(e.hi, e.n);
}

inline float expm1(float x) {
  // From -0.5 to 0.5, to 2^-26: python -m benchmarks.coefficients expm1_float
  constexpr float c[] = {1.0f,
                         0.5000000596046448f,
                         0.16666662693023682f,
                         0.041665319353342056f,
                         0.008333634585142136f,
                         0.0013997324276715517f,
                         0.00019841187167912722f};
  const float near = x * polynomial(c, x), far = exp(x) - 1.0f;
  return std::fabs(x) < 0.5f ? near : far;
}
ALWAYS_INLINE double expm1(double x) {
  const ScaledExp e = exp_scaled(x < -40.0 ? -40.0 : x, 0.0);
  const double half = exp2i(e.n - 1.0);  // of 2^n, which may be infinite
  const double low = half - 0.5, high = half * (e.hi - 1.0);
  const double y = low + high, rest = fma(half, e.lo, high - (y - low));
  return std::fabs(x) < 0x1p-54 ? x : 2.0 * (y + rest);
}

// e^(x + rest) of doubles.
template <typename M>
ALWAYS_INLINE DoubleWord<M> exp_dw_in_double(M x, M rest) {
  const ScaledExp e = exp_scaled(x, rest);
  return {scaled_by(e.hi, e.n), scaled_by(e.lo, e.n)};
}

}  // namespace
}  // namespace fusegen

#include "functions/exponential.h"

namespace fusegen {
namespace {

// x, or most where it is above that or NaN; that is positive
template <typename M>
HOST_DEVICE M clamp_max_or_bound(M x, M most) {
  int32_t bits, bound;
  memcpy(&bits, &x, sizeof(bits));
  memcpy(&bound, &most, sizeof(bound));
  bits = bits < bound ? bits : bound;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

}  // namespace
}  // namespace fusegen
