#pragma once
// Products with tanh(softplus(x)). Generic; a device's own header includes it after what it calls of that device.
#include "functions/exponential.h"

namespace fusegen {
namespace {

// tanh(softplus(x))
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> tanh_softplus(X x) {
  using M = Scalar<X>;
  const M most = sizeof(M) == 8 ? M(40) : M(20);
  const Promoted<X> n = quadratic(exp_dw(x > most ? X(most) : x));
  return divide(n, plus_two(n));
}

// the slope of tanh(softplus(x))
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> tanh_softplus_slope(X x) {
  using M = Scalar<X>;
  const Promoted<X> e = exp_dw(neg_abs(x));
  const Promoted<X> n = x > M(0) ? one_plus(e + e) : e * (e + M(2));
  const Promoted<X> r = divide(Promoted<X>(M(2)), n + (x > M(0) ? (e + e) * e : Promoted<X>(M(2))));
  return e * one_plus(e) * (x > M(0) ? e : Promoted<X>(M(1))) * (r * r);
}

// x tanh(softplus(x))
template <typename M>
HOST_DEVICE GenericFor<M, M> times_tanh_softplus(M x) {
  const M most = sizeof(M) == 8 ? M(40) : M(20);
  const DoubleWord<M> u = exp_dw<false>(prescaled(fast_clamp_min(fast_clamp_max(x, most), M(-125)))), n = quadratic(u),
                      d = plus_two(n);
  return M(x * divide(n, d)) * unscale(x);
}

// the slope of x tanh(softplus(x))
template <typename M>
HOST_DEVICE GenericFor<M, M> times_tanh_softplus_slope(M x) {
  const M most = sizeof(M) == 8 ? M(40) : M(20);
  const DoubleWord<M> u = exp_dw<false>(prescaled(fast_clamp_min(fast_clamp_max(x, most), M(-125)))), n = quadratic(u),
                      d = plus_two(n);
  const DoubleWord<M> rise = (n - u) * (x > most ? most : x) * M(4);
  return M(divide(n + divide(rise, d), d)) * unscale(x);
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> times_tanh_softplus(X x) {
  using M = Scalar<X>;
  const M most = sizeof(M) == 8 ? M(40) : M(20);
  const DoubleWord<M> u = exp_dw<false>(prescaled(fast_clamp_min(fast_clamp_max(x, most), M(-125)))), n = quadratic(u),
                      d = n + M(2);
  const Promoted<X> y = x * divide(n, d) * unscale(x);
  return double_word(y.hi, y.lo == y.lo ? y.lo : M(0));
}
template <typename M>
HOST_DEVICE GenericFor<M, DoubleWord<M>> times_tanh_softplus(DoubleWord<M> x) {
  return times_tanh_softplus<DOUBLE_WORD>(x);
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> times_tanh_softplus_slope(X x) {
  using M = Scalar<X>;
  const M most = sizeof(M) == 8 ? M(40) : M(20);
  const DoubleWord<M> u = exp_dw<false>(prescaled(fast_clamp_min(fast_clamp_max(x, most), M(-125)))), n = quadratic(u),
                      d = plus_two(n);
  const DoubleWord<M> rise = (n - u) * (x > most ? X(most) : x) * M(4);
  return divide(n + divide(rise, d), d) * unscale(x);
}
template <typename M>
HOST_DEVICE GenericFor<M, DoubleWord<M>> times_tanh_softplus_slope(DoubleWord<M> x) {
  return times_tanh_softplus_slope<DOUBLE_WORD>(x);
}

}  // namespace
}  // namespace fusegen
