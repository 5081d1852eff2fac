#pragma once
// Quotients of double-word values, as single words.
#include "double_word.h"

namespace fusegen {
namespace {

// a / d to half an ulp or little more, of a d from 2^-100 to 2^126.
template <typename M>
HOST_DEVICE M divide_to_single(M a, DoubleWord<M> d) {
  const M r = reciprocal_approx(d.hi), q = a * r;
  return fma(fma(-q, d.lo, fma(-q, d.hi, a)), r, q);
}
template <typename M>
HOST_DEVICE M divide_to_single(DoubleWord<M> a, DoubleWord<M> d) {
  const M r = reciprocal_approx(d.hi), q = a.hi * r;
  return fma(fma(-q, d.lo, fma(-q, d.hi, a.hi) + a.lo), r, q);
}

}  // namespace
}  // namespace fusegen
