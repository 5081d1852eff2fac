#pragma once
// The logistic function and its relatives. Generic; a device's own header includes it after what it calls of that
// device.
#include "functions/exponential.h"

namespace fusegen {
namespace {

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> sigmoid(X x) {
  using M = Scalar<X>;
  const Promoted<X> e = exp_dw(neg_abs(x));
  return divide(x < M(0) ? e : Promoted<X>(M(1)), one_plus(e));
}
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> sigmoid(X x) {
  return sigmoid<DOUBLE_WORD>(x);
}

template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> softplus(X x) {
  using M = Scalar<X>;
  const Promoted<X> e = exp_dw(neg_abs(x));
  const Promoted<X> high = x < M(0) ? Promoted<X>(M(0)) : Promoted<X>(x);
  const M s = e.hi;
  if constexpr (sizeof(M) == 8) return high + log1p(s);
  // From 0.0 to 1.0, to 2^-25: python -m benchmarks.coefficients softplus_float
  const M c[] = {M(0.3333309292793274),   M(-0.24993328750133514),  M(0.19926466047763824),
                 M(-0.16228903830051422), M(0.12680786848068237),   M(-0.08593566715717316),
                 M(0.04431314766407013),  M(-0.014689257368445396), M(0.002277808031067252)},
          cubic = s * (s * (s * polynomial(c, s)));
  const Promoted<X> square = two_prod(s, M(-0.5) * s), near = fast_two_sum(s, square.hi);
  const M slope = fma(s, fma(s, M(0.3713268f), M(-0.86177497f)), M(1));  // 1 / (1 + s) to 1 %, for the low word
  return high + fast_two_sum(near.hi, near.lo + (square.lo + fma(e.lo, slope, cubic)));
}

// sigmoid'(x)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> sigmoid_slope(X x) {
  using M = Scalar<X>;
  const Promoted<X> e = exp_dw(neg_abs(x));
  const Promoted<X> r = divide(Promoted<X>(M(1)), one_plus(e));
  return e * r * r;
}
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> sigmoid_slope(X x) {
  return sigmoid_slope<DOUBLE_WORD>(x);
}

// x sigmoid(t)
template <typename X>
HOST_DEVICE GenericFor<X, Scalar<X>> x_sigmoid(Scalar<X> x, X t) {
  using M = Scalar<X>;
  const X v = prescaled(fast_clamp_max(fast_clamp_min(t, M(-126)), M(87)));
  const Promoted<X> d = one_plus(exp_dw<false>(-v));
  const M r = reciprocal_approx(d.hi), q = x * r, y = fma(fma(-q, d.lo, fma(-q, d.hi, x)), r, q);
  return (y < q || y > q ? y : q) * unscale(t);
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> x_sigmoid(Scalar<X> x, X t) {
  using M = Scalar<X>;
  const Promoted<X> e = exp_dw(neg_abs(prescaled(t))), one = M(1);
  const Promoted<X> y = x * divide(t < M(0) ? e : one, one_plus(e)) * unscale(t);
  return double_word(y.hi, y.lo == y.lo ? y.lo : M(0));
}
template <typename M>
HOST_DEVICE GenericFor<M, DoubleWord<M>> x_sigmoid(DoubleWord<M> x, DoubleWord<M> t) {
  return x_sigmoid<DOUBLE_WORD>(x, t);
}

}  // namespace
}  // namespace fusegen
