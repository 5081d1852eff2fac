#pragma once
// Logarithms on the CPU. Source: Tang 1990, ACM Trans. Math. Softw. 16. Polynomials interpolate in the zeros of
// Chebyshev's, of log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2).
#include "cpu/math.h"

namespace fusegen {
namespace {

ALWAYS_INLINE double log1p(double x) {
  // From 0.0 to 0.02944, to 2^-60: python -m benchmarks.coefficients log_double
  constexpr double c[] = {0.6666666666666666,  0.4000000000000088,  0.28571428570803253, 0.22222222391794727,
                          0.18181795631498243, 0.15386240172447838, 0.13268760562036724, 0.1308675766695207};
  const double u = 1.0 + x, v = u - 1.0, lost = (1.0 - (u - v)) + (x - v);
  uint64_t bits;
  memcpy(&bits, &u, sizeof(bits));
  bits += 0x3ff0000000000000 - 0x3fe6a09e667f3bcd;  // for an m from root 1/2 to root 2
  const uint64_t exponent = (bits >> 52) | 0x4330000000000000;
  bits = (bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd;
  double m, n;
  memcpy(&m, &bits, sizeof(m));
  memcpy(&n, &exponent, sizeof(n));
  n -= 0x1p52 + 1023.0;
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  const double small = fma(n, 1.9082149292705877e-10, lost / u);  // ln 2 in two
  const double rest = s * fma(z, polynomial(c, z), half) + small;
  const double y = fma(n, 0.69314718036912382, f - (half - rest));
  const double special = x == -1.0 ? -INFINITY : x > 0.0 ? x : NAN;
  return x == 0.0 ? x : x > -1.0 && x < INFINITY ? y : x == x ? special : x;
}
inline float log1p(float x) { return float(log1p(double(x))); }

ALWAYS_INLINE double log(double x) {
  // From 0.0 to 0.02944, to 2^-60: python -m benchmarks.coefficients log_double
  constexpr double c[] = {0.6666666666666666,  0.4000000000000088,  0.28571428570803253, 0.22222222391794727,
                          0.18181795631498243, 0.15386240172447838, 0.13268760562036724, 0.1308675766695207};
  const bool tiny = x < 0x1p-1022;
  const double u = tiny ? x * 0x1p54 : x;
  uint64_t bits;
  memcpy(&bits, &u, sizeof(bits));
  bits += 0x3ff0000000000000 - 0x3fe6a09e667f3bcd;  // for an m from root 1/2 to root 2
  const uint64_t exponent = (bits >> 52) | 0x4330000000000000;
  bits = (bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd;
  double m, n;
  memcpy(&m, &bits, sizeof(m));
  memcpy(&n, &exponent, sizeof(n));
  n -= tiny ? 0x1p52 + 1077.0 : 0x1p52 + 1023.0;
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  const double small = n * 1.9082149292705877e-10;  // ln 2 in two
  const double rest = s * fma(z, polynomial(c, z), half) + small;
  const double y = fma(n, 0.69314718036912382, f - (half - rest));
  const double special = x == 0.0 ? -INFINITY : x > 0.0 ? x : NAN;
  return x > 0.0 && x < INFINITY ? y : x == x ? special : x;
}
inline float log(float x) { return float(log(double(x))); }

}  // namespace
}  // namespace fusegen
