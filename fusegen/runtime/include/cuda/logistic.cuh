#pragma once
// The logistic family on CUDA, in float with single-word results, to less than 4 ulp.
#include "cuda/exponential.cuh"
#include "functions/gate.h"
#include "functions/logistic.h"

namespace fusegen {
namespace {

// x sigmoid(t)
template <typename X>
HOST_DEVICE SingleFor<X> x_sigmoid(Scalar<X> x, X t) {
  const X v = prescaled(fast_clamp_max(fast_clamp_min(t, -125.0f), 87.0f));
  const float e = exp_dw<false>(-v).hi;
  return x * reciprocal_newton(1.0f + e) * unscale(t);
}

// x sigmoid(t), of a t that is not far below 0
template <typename X>
HOST_DEVICE SingleFor<X> times_sigmoid(Scalar<X> x, X t) {
  return gate(x, t < 0.0f, double_word(exp_scaled(fast_clamp_min(neg_abs(t), -132.5f))));
}

// sigmoid(t) + a b sigmoid'(t)
template <typename X>
HOST_DEVICE SingleFor<X> x_sigmoid_slope(Scalar<X> a, Scalar<X> b, X t) {
  return sigmoid_plus_slope(a, b, t < 0.0f, double_word(exp_scaled(fast_clamp_min(neg_abs(t), -132.5f))));
}

template <typename X>
HOST_DEVICE SingleFor<X> sigmoid(X x) {
  const ScaledExp<float> p = exp_scaled(fast_clamp_min(neg_abs(x), -132.5f));
  const float e = p;
  const float a = x < 0.0f ? e : 0x1p64f;
  return divide_to_single(a, fma_dw(e, 0x1p-64f, 1.0f)) * 0x1p-64f;
}

// sigmoid'(x)
template <typename X>
HOST_DEVICE SingleFor<X> sigmoid_slope(X x) {
  const ScaledExp<float> p = exp_scaled(fast_clamp_min(neg_abs(x), -132.5f));
  const DoubleWord<float> e = double_word(p);
  const float s = e.hi * 0x1p-64f;
  const float slope = divide_to_single(e, fma_dw(s, s + 2.0f, 1.0f));
  return slope * 0x1p-64f;
}

template <typename X>
HOST_DEVICE SingleFor<X> softplus(X x) {
  const ScaledExp<float> p = exp_scaled(fast_clamp_min(neg_abs(x), -132.5f));
  const float e = p;
  // From 0.0 to 1.0, to 2^-25: python -m benchmarks.coefficients softplus_float
  const float c[] = {0.3333309292793274f,   -0.24993328750133514f,  0.19926466047763824f,
                     -0.16228903830051422f, 0.12680786848068237f,   -0.08593566715717316f,
                     0.04431314766407013f,  -0.014689257368445396f, 0.002277808031067252f};
  const DoubleWord<float> high = x < 0.0f ? X(0.0f) : x;
  const float s = e * 0x1p-64f, log = fma(s * fma(s, polynomial(c, s), -0.5f), e, e);
  return high.hi + fma(log, 0x1p-64f, high.lo);
}

}  // namespace
}  // namespace fusegen
