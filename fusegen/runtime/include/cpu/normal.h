#pragma once
// erf and the normal distribution on the CPU. Source: Shepherd and Laframboise 1981, Math. Comp. 36, for erfc, which
// times (1 + 2 x) e^(x^2) is smooth in (x - 3.75) / (x + 3.75); erf(x) = 2 x / sqrt(pi) + x^3 p(x^2).
#include "cpu/exponential.h"

namespace fusegen {
namespace {

// hi + lo
struct Sum {
  double hi, lo;
};

// erf(x), of an x up to 0.83
ALWAYS_INLINE Sum erf_next_to_0(double x) {
  // From 0.0 to 0.6889, to 2^-56: python -m benchmarks.coefficients erf_double
  constexpr double c[] = {-0.37612638903183754,    0.11283791670955125,     -0.026866170645131016,
                          0.005223977625435901,    -0.0008548327022582804,  0.00012055332911002013,
                          -1.4925646694146769e-05, 1.6461989260757458e-06,  -1.636298642553057e-07,
                          1.4763825058824317e-08,  -1.1868731920151609e-09, 7.00225355357979e-11};
  const double s = x * x, line = x * 1.1283791670955126, rest = fma(x, 1.1283791670955126, -line);
  const double bend = fma(x, fma(s, polynomial(c, s), 1.533545961316588e-17), rest);
  const double hi = line + bend;
  return {hi, bend - (hi - line)};
}

// e^(x^2) erfc(x), of an x from 0 to 28
ALWAYS_INLINE Sum scaled_erfc(double x) {
  // From -1.0 to 0.7638, to 2^-52: python -m benchmarks.coefficients erfc_double
  constexpr double a[] = {1.2375126308378275,    -0.14024059858554702,  0.0035854154854629045, 0.08227673849015113,
                          -0.10880393014165805,  0.09230432116021522,   -0.058693398591761654, 0.02836227742075386,
                          -0.009746579532336114, 0.0017556258454484944, 0.0002937134832205404, -0.0002901540974049676};
  // From -1.0 to 0.7638, to 2^-52: python -m benchmarks.coefficients erfc_double
  constexpr double b[] = {5.164990829645606e-05,  2.2384550628489278e-05, -1.1446444882750146e-05,
                          -9.750133129744938e-07, 1.7557572419630805e-06, -5.361966556540493e-08,
                          -2.630076084593476e-07, 1.8148051418292806e-08, 4.0773822695438946e-08,
                          2.0400958765405564e-10, -4.999295226477826e-09, -9.749977861841957e-10};
  const double t = (x - 3.75) / (x + 3.75), t4 = (t * t) * (t * t), t12 = t4 * t4 * t4;
  const double p = fma(polynomial(b, t), t12, polynomial(a, t)), d = 1.0 + 2.0 * x, y = p / d;
  return {y, (fma(-y, d, p) - y * (2.0 * x - (d - 1.0))) / d};
}

inline float erfc(float x) { return std::erfc(x); }
ALWAYS_INLINE double erfc(double x) {
  const double size = std::fabs(x), z = size > 28.0 ? 28.0 : size;  // it is 0 beyond
  const double square = z * z;
  const ScaledExp e = exp_scaled(-square, -fma(z, z, -square));
  const Sum q = scaled_erfc(z), small = erf_next_to_0(z);
  const double y = e.hi * q.hi;
  const double rest = fma(e.hi, q.hi, -y) + fma(e.lo, q.hi, e.hi * q.lo);
  const double near = (1.0 - small.hi) - small.lo, far = scaled_by(y + rest, e.n);
  const double tail = z < 0.83 ? near : far;
  return x < 0.0 ? 2.0 - tail : x == x ? tail : x;
}

inline float erf(float x) {
  // From 0.0 to 0.64, to 2^-28: python -m benchmarks.coefficients erf_float
  constexpr float c[] = {-0.37612637877464294f, 0.11283770948648453f,    -0.026864048093557358f,
                         0.005214054137468338f, -0.0008310915436595678f, 9.185887029161677e-05f};
  // From 0.2 to 1.0, to 2^-23: python -m benchmarks.coefficients mills_float
  constexpr float m[] = {0.09974633157253265f,  0.0995214581489563f,   0.09528786689043045f, 0.07301277667284012f,
                         0.08385130017995834f,  0.017734583467245102f, 0.02261105738580227f, 0.05587935820221901f,
                         -0.06453712284564972f, 0.01689239591360092f};
  const float size = std::fabs(x), t = size > 4.0f ? 4.0f : size, s = t * t;  // it is 1 beyond
  const float near = fma(t, 0.128379166f, t * (s * polynomial(c, s))) + t;
  const float k = 1.0f / fma(t, 0.353553391f, 1.0f);  // of erfc over exp(-t^2)
  const float far = fma(-2.0f * exp(-s), k * polynomial(m, k), 1.0f);
  return std::copysign(s < 0.64f ? near : far, x);
}
ALWAYS_INLINE double erf(double x) {
  const double size = std::fabs(x), far = 1.0 - erfc(size);
  const Sum small = erf_next_to_0(size);
  const double near = small.hi + small.lo;
  return std::copysign(size < 0.83 ? near : far, x);
}

// Φ(-x), of an x from 0 and of bell, which is e^(-x^2 / 2); scaled as that is
ALWAYS_INLINE DoubleWord<double> normal_tail(DoubleWord<double> x, DoubleWord<double> bell) {
  constexpr double ROOT = 0.70710678118654757, ROOT_REST = -4.83364665672645e-17;
  const double v = x.hi > 39.0 ? 39.0 : x.hi, rest_of_v = v == x.hi ? x.lo : 0.0;  // it is 0 beyond
  const double z = v * ROOT, lost = fma(v, ROOT, -z) + fma(v, ROOT_REST, rest_of_v * ROOT);
  const Sum q = scaled_erfc(z), small = erf_next_to_0(z);
  const double q_rest = q.lo + lost * (2.0 * z * q.hi - 1.1283791670955126);  // the slope is that
  const DoubleWord<double> far = bell * double_word(0.5 * q.hi, 0.5 * q_rest);
  const double half = 0.5 * small.hi, near = 0.5 - half;
  const double rest = ((0.5 - near) - half) - fma(lost * 0.56418958354775628, bell.hi, 0.5 * small.lo);
  return double_word(z < 0.83 ? near : far.hi, z < 0.83 ? rest : far.lo);
}

// Φ(-|x|), scaled as the bell, e^(-x^2 / 2), is; of doubles.
template <typename X>
ALWAYS_INLINE Promoted<X> ndtr_tail_in_double(X x, Scalar<X>, Promoted<X> bell) {
  return normal_tail(-neg_abs(x), bell);
}

}  // namespace
}  // namespace fusegen

#include "functions/normal.h"

namespace fusegen {
namespace {

// x Φ(x)
template <Body BODY, typename M>
HOST_DEVICE ForBody<BODY, SINGLE_WORD, M> times_ndtr(M x) {
  const M size = clamp_max_or_bound(fabs(x), 16.0f);
  const DoubleWord<M> t = two_prod(-0.5f * size, size);
  const ReducedExp<M> bell = exp_reduced(t.hi, t.lo);
  // From -0.3 to 0.5, to 2^-23: python -m benchmarks.coefficients mills_shifted
  const float c[] = {0.17814990878105164f,   0.2515967786312103f,    0.27108025550842285f,
                     0.2039332389831543f,    0.0753641426563263f,    -0.030323991551995277f,
                     -0.051753800362348557f, 0.0030324608087539673f, 0.01689239591360092f};
  const M d = fma(0.25f, size, 1.0f), k = 1.0f / d, q = polynomial(c, k - 0.5f), p = k * q;
  const M first = 0.09974633157253265f, rest = fma(k, size, fma(4.0f, k, -4.0f));
  const M bend = rest * fma(size, p + 1.076147217e-05f, -0.39894228f);
  const M mills = fma(k, first, fma(k, p, fma(k, fma(k, q, -p), bend)));
  const M y = size * mills, y_rest = fma(size, mills, -y);
  const M tail = (y + fma(bell.more, y, y_rest)) * exp2i<M>(bell.n + 64);
  return fma(tail, -0x1p-64f, x < 0.0f ? -0.0f : x);
}

// x Φ(x), of an x from -0.3
template <Body BODY, typename M>
HOST_DEVICE ForBody<BODY, NEAR, M> times_ndtr(M x) {
  // From 0.0 to 29.7, to 2^-23: python -m benchmarks.coefficients half_erf
  const float over[] = {0.39894225438191855f,   0.033478380291227176f,  0.004655214126419138f,
                        0.0001651203312086846f, 6.338137912045887e-06f, 2.312449939834623e-08f};
  // From 0.0 to 29.7, to 2^-23: python -m benchmarks.coefficients half_erf
  const float under[] = {1.0f,
                         0.2505840289837366f,
                         0.028433893948196374f,
                         0.00186357058851682f,
                         7.251479163973359e-05f,
                         1.2073623755084121e-06f};
  const M v = clamp_max_or_bound(x, 5.45f), s = v * v;
  return x * fma(v, polynomial(over, s) / polynomial(under, s), 0.5f);
}

}  // namespace
}  // namespace fusegen
