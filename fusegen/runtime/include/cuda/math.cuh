#pragma once
// The math library of CUDA, and what single-word functions in float are made of.
#include <type_traits>
#include "functions/quotient.h"

namespace fusegen {
namespace {

using std::erf;
using std::exp;
using std::expm1;
using std::tanh;

// The value of a function of floats, in single-word or double-word arithmetic: a single word.
template <typename X>
using SingleFor = std::enable_if_t<std::is_same_v<Scalar<X>, float>, float>;
// R, where the generic function serves X: in double; floats have single-word functions instead.
template <typename X, typename R>
using GenericFor = std::enable_if_t<sizeof(Scalar<X>) == 8, R>;

// 1 / x to half an ulp or little more, of an x from 2^-100 to 2^126.
template <typename M>
HOST_DEVICE M reciprocal_newton(M x) {
  const M r = reciprocal_approx(x);
  return fma(fma(-x, r, M(1)), r, r);
}
template <typename M>
HOST_DEVICE M reciprocal_newton(DoubleWord<M> x) {
  const M r = reciprocal_approx(x.hi);
  return fma(fma(-r, x.lo, fma(-r, x.hi, M(1))), r, r);
}

// a b + c
template <typename M>
HOST_DEVICE M fma_to_single(M a, M b, M c) {
  return fma(a, b, c);
}
template <typename M>
HOST_DEVICE M fma_to_single(DoubleWord<M> a, M b, M c) {
  return fma(a.hi, b, fma(a.lo, b, c));
}

// a b + c in double-word arithmetic, of an a b no larger than c.
template <typename M>
HOST_DEVICE DoubleWord<M> fma_dw(M a, M b, M c) {
  const M s = fma(a, b, c);
  return {s, fma(a, b, c - s)};
}

}  // namespace
}  // namespace fusegen
