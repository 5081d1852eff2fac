#pragma once
// erf and the normal distribution on CUDA, in float with single-word results, to less than 4 ulp.
#include "cuda/exponential.cuh"

namespace fusegen {
namespace {

// Φ(-|x|)
template <typename X>
HOST_DEVICE Promoted<X> half_erfc(X x) {
  using M = Scalar<X>;
  const Promoted<X> root = double_word(M(0.70710678118654757), M(-4.83364665672645e-17));
  const Promoted<X> z = -neg_abs(x) * root;
  const M rest = M(0) - M(0.56418958354775628) * z.lo * exp(-z.hi * z.hi);
  return {M(0.5) * erfc(z.hi), rest};
}

// Φ(-x) / exp(-x² / 2), of an x from 25 to 39
template <typename M>
HOST_DEVICE M mills(M x) {
  // From -1.0 to 1.0, to 2^-52: python -m benchmarks.coefficients mills_double
  const M c[] = {M(0.012454807005573594),    M(-0.002719193561543745),  M(0.0005930927436513156),
                 M(-0.00012923664591724435), M(2.813393841730016e-05),  M(-6.118688880279523e-06),
                 M(1.3294450357627637e-06),  M(-2.885811037574175e-07), M(6.258234034284736e-08),
                 M(-1.3558583736995122e-08), M(2.9347754604053426e-09), M(-6.351735268968079e-10),
                 M(1.3722459061959175e-10),  M(-2.90408504117585e-11),  M(6.26281968197227e-12),
                 M(-1.679465889571381e-12),  M(3.6134757122700257e-13)};
  return polynomial(c, (x - M(32)) * M(0.14285714285714286));
}

// Φ(-|x|), scaled as the bell, e^(-x^2 / 2), is; of doubles. s is |x|, at most 39.
template <typename X>
HOST_DEVICE Promoted<X> ndtr_tail_in_double(X x, Scalar<X> s, Promoted<X> bell) {
  using M = Scalar<X>;
  return s < M(25) ? half_erfc(x) : bell * mills(s);
}

}  // namespace
}  // namespace fusegen

#include "functions/normal.h"
#include "functions/normal_slope.h"

namespace fusegen {
namespace {

// exp(-x² / 2) / √(2π)
template <typename X>
HOST_DEVICE SingleFor<X> normal(X x) {
  const X s = fast_clamp_max(-neg_abs(x), 16.0f);
  const ScaledExp<float> bell = exp_scaled(two_prod(s, -0.5f * s));
  return float(bell) * (0.39894228f * 0x1p-64f);
}

// Φ(x)
template <typename X>
HOST_DEVICE SingleFor<X> ndtr(X x) {
  const X s = fast_clamp_max(-neg_abs(x), 16.0f);
  const ScaledExp<float> bell = exp_scaled(two_prod(s, -0.5f * s));
  // From 0.2 to 1.0, to 2^-23: python -m benchmarks.coefficients mills_float
  const float c[] = {0.0995214581489563f,  0.09528786689043045f,  0.07301277667284012f,
                     0.08385130017995834f, 0.017734583467245102f, 0.02261105738580227f,
                     0.05587935820221901f, -0.06453712284564972f, 0.01689239591360092f};
  const float size = float(s), d = fma(0.25f, size, 1.0f), k = reciprocal_approx(d), p = k * polynomial(c, k);
  const float first = 0.09974633157253265f, rest = fma(k, size, fma(4.0f, k, -4.0f)) * d;
  const float bend = rest * fma(size, k * (first + p), -0.39894228f);
  const float mills = fma(k, first, fma(k, p, bend));
  const float tail = fma(bell.more, mills, mills) * bell.size;
  return fma(tail, x < 0.0f ? 0x1p-64f : -0x1p-64f, x < 0.0f ? 0.0f : 1.0f);
}

// x Φ(x)
template <typename X>
HOST_DEVICE SingleFor<X> times_ndtr(X x) {
  const X s = fast_clamp_max(-neg_abs(x), 16.0f);
  const ScaledExp<float> bell = exp_scaled(two_prod(s, -0.5f * s));
  // From 0.2 to 1.0, to 2^-23: python -m benchmarks.coefficients mills_float
  const float c[] = {0.0995214581489563f,  0.09528786689043045f,  0.07301277667284012f,
                     0.08385130017995834f, 0.017734583467245102f, 0.02261105738580227f,
                     0.05587935820221901f, -0.06453712284564972f, 0.01689239591360092f};
  const float size = float(s), d = fma(0.25f, size, 1.0f), k = reciprocal_approx(d), p = k * polynomial(c, k);
  const float first = 0.09974633157253265f, rest = fma(k, size, fma(4.0f, k, -4.0f)) * d;
  const float bend = rest * fma(size, k * (first + p), -0.39894228f);
  const float mills = fma(k, first, fma(k, p, bend));
  const float y = size * mills, rest_of_y = fma(size, mills, -y);
  const float tail = y + fma(bell.more, y, rest_of_y);
  return fma(tail * bell.size, -0x1p-64f, fast_clamp_min(float(x), -0.0f));
}

// the slope of x Φ(x)
template <typename X>
HOST_DEVICE SingleFor<X> times_ndtr_slope(X x) {
  const X s = fast_clamp_max(-neg_abs(x), 16.0f);
  const ScaledExp<float> bell = exp_scaled(two_prod(s, -0.5f * s));
  const float size = s, tail = ndtr_slope_over_bell(size, rest_of(s, size), bell.more) * bell.size;
  return fma(tail, x < 0.0f ? 0x1p-64f : -0x1p-64f, x < 0.0f ? 0.0f : 1.0f);
}

}  // namespace
}  // namespace fusegen
