#pragma once
// The mish family on CUDA, in float with single-word results, to less than 4 ulp.
#include "cuda/exponential.cuh"
#include "functions/mish.h"

namespace fusegen {
namespace {

// tanh(softplus(x))
template <typename X>
HOST_DEVICE SingleFor<X> tanh_softplus(X x) {
  const X near = fast_clamp_min(fast_clamp_max(x, 20.0f), -132.5f);
  const float u = exp_scaled(near), n = fma(u * 0x1p-64f, u, u + u);
  const DoubleWord<float> d = fma_dw(n, 0x1p-64f, 2.0f);
  return divide_to_single(n, d) * 0x1p-64f;
}

// the slope of tanh(softplus(x))
template <typename X>
HOST_DEVICE SingleFor<X> tanh_softplus_slope(X x) {
  const X near = fast_clamp_min(fast_clamp_max(x, 20.0f), -132.5f);
  const float u = exp_scaled(near), n = fma(u * 0x1p-64f, u, u + u);
  const DoubleWord<float> d = fma_dw(n, 0x1p-64f, 2.0f);
  const float r = reciprocal_newton(d);
  return 4.0f * fma(u * 0x1p-64f, u, u) * r * r * 0x1p-64f;
}

// x tanh(softplus(x))
template <typename X>
HOST_DEVICE SingleFor<X> times_tanh_softplus(X x) {
  const X near = fast_clamp_min(fast_clamp_max(x, 20.0f), -132.5f);
  const float u = exp_scaled(near), n = fma(u * 0x1p-64f, u, u + u);
  const DoubleWord<float> d = fma_dw(n, 0x1p-64f, 2.0f);
  const float v = x, q = divide_to_single(v > 0.0f ? 2.0f : n, d);
  return v > 0.0f ? fma(-float(near), q, v) : v * q * 0x1p-64f;
}

// the slope of x tanh(softplus(x))
template <typename X>
HOST_DEVICE SingleFor<X> times_tanh_softplus_slope(X x) {
  const X near = fast_clamp_min(fast_clamp_max(x, 20.0f), -132.5f);
  const float u = exp_scaled(near), n = fma(u * 0x1p-64f, u, u + u);
  const DoubleWord<float> d = fma_dw(n, 0x1p-64f, 2.0f);
  const float rise = 4.0f * fma(u * 0x1p-64f, u, u);
  const float slope = divide_to_single(rise, d);
  return divide_to_single(fma_to_single(near, slope, n), d) * 0x1p-64f;
}

}  // namespace
}  // namespace fusegen
