#pragma once
// The normal distribution and erf. Generic; a device's own header includes it after what it calls of that device.
#include "argument.h"
#include "functions/exponential.h"

namespace fusegen {
namespace {

// exp(-x² / 2) / √(2π)
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> normal(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = two_prod(x, x) * M(-0.5);
  return exp_dw(prescaled(t)) *
         double_word(M(0.39894228040143268), sizeof(M) == 8 ? M(-2.4923272022777433e-17) : M(-1.13351701e-08)) *
         unscale(t);
}

// Φ(-|x|), scaled as exp(-x² / 2) is
template <typename X>
HOST_DEVICE Promoted<X> ndtr_tail(X x) {
  using M = Scalar<X>;
  const M size = fabs(M(x)), s = size > M(39) ? M(39) : size;
  const Promoted<X> bell = exp_dw(prescaled(two_prod(x, x) * M(-0.5)));
  if constexpr (sizeof(M) == 8) return ndtr_tail_in_double(x, s, bell);
  // From 0.2 to 1.0, to 2^-23: python -m benchmarks.coefficients mills_float
  const double c[] = {0.09974633157253265,  0.0995214581489563,   0.09528786689043045, 0.07301277667284012,
                      0.08385130017995834,  0.017734583467245102, 0.02261105738580227, 0.05587935820221901,
                      -0.06453712284564972, 0.01689239591360092};
  const double k = 1.0 / (1.0 + 0.25 * s), y = k * polynomial(c, k);
  const M hi = M(y);
  return bell * double_word(hi, M(y - hi));
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> erf(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = x;
  const M v = M(t), lost = (t.hi - v) + t.lo, s = v * v;
  if constexpr (sizeof(M) == 8) return erf(v);
  const Promoted<X> line = double_word(v, lost * fma(s, fma(s, M(0.5), M(-1)), M(1))) *  // the slope is about e^-s
                           double_word(M(1.1283792257308960), M(-5.8635383e-08));
  // From 0.0 to 0.64, to 2^-28: python -m benchmarks.coefficients erf_float
  const M c[] = {M(-0.37612637877464294), M(0.11283770948648453),    M(-0.026864048093557358),
                 M(0.005214054137468338), M(-0.0008310915436595678), M(9.185887029161677e-05)};
  const Promoted<X> near = fast_two_sum(line.hi, line.lo + v * (s * polynomial(c, s)));
  const X most = fast_clamp_min(fast_clamp_max(x, M(7.5)), M(-7.5));
  const Promoted<X> tail = ndtr_tail(most * double_word(M(1.4142135381698608), M(2.4203234e-08)));
  const Promoted<X> far = one_plus(-(tail + tail));
  return s < M(0.64) ? near : x < M(0) ? -far : far;
}

template <typename M>
HOST_DEVICE DoubleWord<M> erf(DoubleWord<M> x) {
  return erf<DOUBLE_WORD>(x);
}

// Φ(x)
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> ndtr(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = two_prod(x, x) * M(-0.5), tail = ndtr_tail(x);
  const Promoted<X> y = tail * unscale(t);
  return x < M(0) ? y : one_plus(-y);
}

// x Φ(x)
template <typename M>
HOST_DEVICE GenericFor<M, M> times_ndtr(M x) {
  const DoubleWord<M> t = two_prod(x, x) * M(-0.5), tail = ndtr_tail(x);
  const M q = x * tail.lo;
  const M below = fma(x, tail.hi, q) * unscale(t), above = fma(-x, tail.hi, x - q);
  return x > M(0) ? (above == above ? above : x) : below;
}

// the slope of x Φ(x)
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> times_ndtr_slope(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = two_prod(x, x) * M(-0.5), tail = ndtr_tail(x);
  const Promoted<X> near =
      exp_dw(prescaled(t)) *
      double_word(M(0.39894228040143268), sizeof(M) == 8 ? M(-2.4923272022777433e-17) : M(-1.13351701e-08)) * x;
  return x < M(0) ? (tail + near) * unscale(t) : one_plus(-tail) + near;
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> times_ndtr(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = two_prod(x, x) * M(-0.5), tail = ndtr_tail(x);
  const Promoted<X> part = x * tail, y = x > M(0) ? x - part : part * unscale(t);
  const M above = y.hi == y.hi ? y.hi : M(x), hi = x > M(0) ? above : y.hi;
  return double_word(hi, y.lo == y.lo ? y.lo : M(0));
}
template <typename M>
HOST_DEVICE GenericFor<M, DoubleWord<M>> times_ndtr(DoubleWord<M> x) {
  return times_ndtr<DOUBLE_WORD>(x);
}

}  // namespace
}  // namespace fusegen
