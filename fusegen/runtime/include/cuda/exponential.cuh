#pragma once
// Exponentials on CUDA. In float they err by less than 4 ulp; arguments, which would magnify a rounding, are in
// double-word arithmetic all the same.
#include "cuda/math.cuh"

namespace fusegen {
namespace {

// e^(x + rest) of doubles.
template <typename M>
HOST_DEVICE DoubleWord<M> exp_dw_in_double(M x, M rest) {
  const M y = exp(x);
  return {y, y > 0 ? y * rest : 0};
}

}  // namespace
}  // namespace fusegen

#include "functions/exponential.h"

namespace fusegen {
namespace {

// 2^64 e^x in float as (1 + more) size, of an x up to 44 and from -132.5, where it is 0.
template <typename M>
struct ScaledExp {
  M more, size;
  HOST_DEVICE operator M() const { return fma(more, size, size); }
};
template <typename M>
HOST_DEVICE DoubleWord<M> double_word(ScaledExp<M> p) {
  const M e = p;
  return {e, fma(p.more, p.size, p.size - e)};
}
template <typename X>
HOST_DEVICE ScaledExp<Scalar<X>> exp_scaled(X of) {
  const DoubleWord<Scalar<X>> x = of;
  const ReducedExp<Scalar<X>> e = exp_reduced(x.hi, x.lo);
  return {e.more, exp2i<Scalar<X>>(e.n + 64)};
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_WORD, SingleFor<X>> exp(X x) {
  const X t = fast_clamp_min(fast_clamp_max(x, 89.0f), -104.0f);
  const DoubleWord<float> near = t;
  const ReducedExp<float> e = exp_reduced(near.hi, near.lo);
  const int32_t half = e.n >> 1;
  const float size = exp2i<float>(half);
  return fma(e.more, size, size) * exp2i<float>(e.n - half);
}

template <typename M>
HOST_DEVICE SingleFor<M> exp(DoubleWord<M> x) {
  return exp<SINGLE_WORD>(x);
}

// exp(-x²)
template <typename X>
HOST_DEVICE SingleFor<X> gauss(X x) {
  const DoubleWord<float> t = fast_clamp_min(-two_prod(x, x), -132.5f);
  return float(exp_scaled(t)) * 0x1p-64f;
}

}  // namespace
}  // namespace fusegen
