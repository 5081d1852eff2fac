#pragma once
// tanh and its relatives. Generic; a device's own header includes it after what it calls of that device.
#include "functions/exponential.h"

namespace fusegen {
namespace {

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> tanh(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = x;
  const M v = M(t), lost = (t.hi - v) + t.lo, s = v * v;
  // From 0.0 to 0.36, to 2^-27: python -m benchmarks.coefficients tanh_float
  const M c[] = {M(-0.33333298563957214), M(0.13331958651542664), M(-0.053786683827638626), M(0.02080538496375084),
                 M(-0.005905868019908667)},
          // From 0.0 to 1.563, to 2^-52: python -m benchmarks.coefficients tanh_shrink_double
          fine[] = {M(0.3333333333333333),      M(-0.13333333333333316),    M(0.05396825396823853),
                    M(-0.02186948853562987),    M(0.008863235520411152),    M(-0.003592127931383934),
                    M(0.001455833607387484),    M(-0.0005900233513532234),  M(0.00023911332841141452),
                    M(-9.686926720553123e-05),  M(3.9174286465576325e-05),  M(-1.5734861799614973e-05),
                    M(6.19352085593154e-06),    M(-2.3250472081440946e-06), M(7.975228710658438e-07),
                    M(-2.3631394317179296e-07), M(5.652480059872008e-08),   M(-1.001293046608393e-08),
                    M(1.1497985946032148e-09),  M(-6.355146496204461e-11)};
  const M bend = sizeof(M) == 8 ? -polynomial(fine, s) : polynomial(c, s);
  // Next to 0 the low word counts as much as the high one's rounding error: it is multiplied by the slope, 1 - y².
  const M y = fma(v, s * bend, v), slope = fma(-y, y, M(1));
  const Promoted<X> near = fast_two_sum(v, fma(lost, slope, v * (s * bend)));
  const Promoted<X> e = exp_dw(neg_abs(x) * M(2)), far = divide(one_plus(-e), one_plus(e));
  return s < M(0.36) ? near : x < M(0) ? -far : far;
}

template <typename M>
HOST_DEVICE DoubleWord<M> tanh(DoubleWord<M> x) {
  return tanh<DOUBLE_WORD>(x);
}

// tanh'(x)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> tanh_slope(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = neg_abs(x) * M(2), e = exp_dw(prescaled(t));
  const Promoted<X> r = divide(Promoted<X>(M(2)), one_plus(e));
  return e * r * r * unscale(t);
}
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> tanh_slope(X x) {
  return tanh_slope<DOUBLE_WORD>(x);
}

// x - tanh(x)
template <typename M>
HOST_DEVICE M tanh_shrink(M x) {
  const M s = x * x, far = x - tanh(x);
  // From 0.0 to 1.563, to 2^-52: python -m benchmarks.coefficients tanh_shrink_double
  const M fine[] = {
      M(0.3333333333333333),     M(-0.13333333333333316),    M(0.05396825396823853),    M(-0.02186948853562987),
      M(0.008863235520411152),   M(-0.003592127931383934),   M(0.001455833607387484),   M(-0.0005900233513532234),
      M(0.00023911332841141452), M(-9.686926720553123e-05),  M(3.9174286465576325e-05), M(-1.5734861799614973e-05),
      M(6.19352085593154e-06),   M(-2.3250472081440946e-06), M(7.975228710658438e-07),  M(-2.3631394317179296e-07),
      M(5.652480059872008e-08),  M(-1.001293046608393e-08),  M(1.1497985946032148e-09), M(-6.355146496204461e-11)};
  if constexpr (sizeof(M) == 8) return s < M(1.5625) ? M(0) + x * (s * polynomial(fine, s)) : far;
  // From 0.0 to 1.563, to 2^-23: python -m benchmarks.coefficients tanh_shrink_float
  const M c[] = {M(0.3333333432674408),    M(-0.1333332657814026),    M(0.05396692827343941), M(-0.021858293563127518),
                 M(0.008814364671707153),  M(-0.0034663931000977755), M(0.00125079823192209), M(-0.0003682256501633674),
                 M(7.378138980129734e-05), M(-7.177246970968554e-06)};
  return s < M(1.5625) ? M(0) + x * (s * polynomial(c, s)) : far;
}

// tanh(exp(x))
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> tanh_of_exp(X x) {
  using M = Scalar<X>;
  return tanh(exp_dw(x > M(10) ? X(M(10)) : x));
}

// the slope of tanh(exp(x))
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> tanh_of_exp_slope(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = exp_dw(x > M(10) ? X(M(10)) : x), e = exp_dw(t * M(-2));
  const Promoted<X> r = divide(Promoted<X>(M(2)), one_plus(e));
  return t * e * (r * r);
}

}  // namespace
}  // namespace fusegen
