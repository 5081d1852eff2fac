#pragma once
// The hyperbolic family on CUDA, in float with single-word results, to less than 4 ulp.
#include "cuda/exponential.cuh"
#include "functions/hyperbolic.h"

namespace fusegen {
namespace {

// tanh'(x)
template <typename X>
HOST_DEVICE SingleFor<X> tanh_slope(X x) {
  const ScaledExp<float> p = exp_scaled(fast_clamp_min(neg_abs(x) * 2.0f, -132.5f));
  const DoubleWord<float> e = double_word(p);
  const float s = e.hi * 0x1p-64f;
  const float slope = divide_to_single(e, fma_dw(s, s + 2.0f, 1.0f));
  return slope * 0x1p-62f;
}

// tanh(exp(x))
template <typename X>
HOST_DEVICE SingleFor<X> tanh_of_exp(X x) {
  return tanh(exp_dw(fast_clamp_max(x, 10.0f)).hi);
}

// the slope of tanh(exp(x))
template <typename X>
HOST_DEVICE SingleFor<X> tanh_of_exp_slope(X x) {
  const float u = exp_dw(fast_clamp_max(x, 10.0f)).hi, t = tanh(u);
  const ScaledExp<float> p = exp_scaled(fast_clamp_min(-2.0f * u, -132.5f));
  const DoubleWord<float> e = double_word(p);
  const float s = e.hi * 0x1p-64f;
  const float slope = divide_to_single(e, fma_dw(s, s + 2.0f, 1.0f));
  return u < 0.5f ? u * fma(-t, t, 1.0f) : u * slope * 0x1p-62f;
}

}  // namespace
}  // namespace fusegen
