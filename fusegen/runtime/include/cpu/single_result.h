#pragma once
// Functions in float whose argument may be a double-word value and whose result is a single word, to less than 4 ulp:
// for chains in which double-word arithmetic would take longer and eager's error is larger. Tails are prescaled by
// 2^64, so that nothing underflows before it is multiplied. Sources: those of cpu/exponential.h and
// cpu/normal.h; for the logarithm Moshier 1989, Methods and Programs for Mathematical Functions.
#include "cpu/exponential.h"
#include "functions/gate.h"
#include "functions/normal_slope.h"

namespace fusegen {
namespace {

constexpr Body SINGLE_RESULT = Body(NEAR + 1);

// As in basics.h, by one comparison.
inline float replace_infinity(float x, float size) {
  return std::fabs(x) == INFINITY ? std::copysign(size, x) : x;
}

// max(x, least) and min(x, most); NaN propagates.
inline float bound_below(float x, float least) { return x <= least ? least : x; }
inline float bound_above(float x, float most) { return x >= most ? most : x; }
inline DoubleWord<float> bound_below(DoubleWord<float> x, float least) {
  return {x.hi <= least ? least : x.hi, x.hi <= least ? 0.0f : x.lo};
}
inline DoubleWord<float> bound_above(DoubleWord<float> x, float most) {
  return {x.hi >= most ? most : x.hi, x.hi >= most ? 0.0f : x.lo};
}

// The high word, which has the sign.
inline float high_word(float x) { return x; }
inline float high_word(DoubleWord<float> x) { return x.hi; }

// e^x as (1 + more) 2^n, of an x from -132.5 to 89.
inline ReducedExp<float> reduced_exp(float x) { return exp_reduced(x, 0.0f); }
inline ReducedExp<float> reduced_exp(DoubleWord<float> x) { return exp_reduced(x.hi, x.lo); }

// 2^64 e^x, of an x up to 44 and from -132.5, where it is 0.
template <typename X>
HOST_DEVICE float prescaled_exp(X x) {
  const ReducedExp<float> e = reduced_exp(x);
  const float size = exp2i<float>(e.n + 64);
  return fma(e.more, size, size);
}
// 2^64 e^-|x|
template <typename X>
HOST_DEVICE float prescaled_exp_neg_abs(X x) {
  return prescaled_exp(bound_below(neg_abs(x), -132.5f));
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> exp(X x) {
  const ReducedExp<float> e = reduced_exp(bound_below(bound_above(x, 89.0f), -104.0f));
  const int32_t half = e.n >> 1;  // 2^n in two factors, as it may be subnormal
  const float size = exp2i<float>(half);
  return fma(e.more, size, size) * exp2i<float>(e.n - half);
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> expm1(X x) {
  const ReducedExp<float> e = reduced_exp(bound_below(bound_above(x, 89.0f), -60.0f));
  const float half = exp2i<float>(e.n - 1), y = fma(e.more, half, half - 0.5f);  // 2^n may be infinite
  return std::copysign(y + y, high_word(x));  // -0.0 stays
}

template <Body BODY>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, float> log1p(float x) {
  // From -0.2929 to 0.4142, to 2^-28: python -m benchmarks.coefficients log1p_single_result
  constexpr float c[] = {3.3333331174e-1f,  -2.4999993993e-1f, 2.0000714765e-1f,  -1.6668057665e-1f, 1.4249322787e-1f,
                         -1.2420140846e-1f, 1.1676998740e-1f,  -1.1514610310e-1f, 7.0376836292e-2f};
  const float u = 1.0f + x, lost = (x - (u - 1.0f)) / u;
  const uint32_t bits = bit_cast<uint32_t>(u) - 0x3f3504f3;  // for an m from root 1/2 to root 2
  const float n = float(int32_t(bits) >> 23), m = bit_cast<float>((bits & 0x007fffff) + 0x3f3504f3);
  const float f = m - 1.0f, s = f * f, bend = fma(f * s, polynomial(c, f), fma(n, -2.12194440e-4f, -0.5f * s));
  const float y = std::copysign(fma(n, 0.693359375f, f + (bend + lost)), x);  // ln 2 in two
  const float special = x == -1.0f ? -INFINITY : x > 0.0f ? x : NAN;
  return x > -1.0f && x < INFINITY ? y : special;
}

// exp(-x²)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> gauss(X x) {
  return prescaled_exp(bound_below(-two_prod(x, x), -132.5f)) * 0x1p-64f;
}

// x, but -126 from -125 down, for which e^(-x - 37) overflows
inline float clamp_to_overflow(float x) { return x <= -125.0f ? -126.0f : x; }
inline DoubleWord<float> clamp_to_overflow(DoubleWord<float> x) {
  return {clamp_to_overflow(x.hi), x.hi <= -125.0f ? 0.0f : x.lo};
}

// x sigmoid(t)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> x_sigmoid(Scalar<X> x, X t) {
  const X near = clamp_to_overflow(bound_above(t, 87.0f));
  const ReducedExp<float> e = reduced_exp(-prescaled(near));
  const float size = exp2i<float>(e.n);
  return x / fma(e.more, size, 1.0f + size) * unscale(near);
}

// 2^64 e^-|t|
template <typename X>
HOST_DEVICE DoubleWord<float> prescaled_exp_words(X t) {
  const ReducedExp<float> p = reduced_exp(bound_below(neg_abs(t), -132.5f));
  const float size = exp2i<float>(p.n + 64), e = fma(p.more, size, size);
  return {e, fma(p.more, size, size - e)};
}

// x sigmoid(t), of a t that is not far below 0
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> times_sigmoid(Scalar<X> x, X t) {
  return gate(x, t < 0.0f, prescaled_exp_words(t));
}

// sigmoid(t) + a b sigmoid'(t)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> x_sigmoid_slope(Scalar<X> a, Scalar<X> b, X t) {
  return sigmoid_plus_slope(a, b, t < 0.0f, prescaled_exp_words(t));
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> sigmoid(X x) {
  const float e = prescaled_exp_neg_abs(x);
  return (x < 0.0f ? e : 0x1p64f) / fma(e, 0x1p-64f, 1.0f) * 0x1p-64f;
}

// sigmoid'(x)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> sigmoid_slope(X x) {
  const float e = prescaled_exp_neg_abs(x), s = e * 0x1p-64f;
  return e / fma(s, s + 2.0f, 1.0f) * 0x1p-64f;
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> softplus(X x) {
  // From 0.0 to 1.0, to 2^-25: python -m benchmarks.coefficients softplus_float
  constexpr float c[] = {0.3333309292793274f,   -0.24993328750133514f,  0.19926466047763824f,
                         -0.16228903830051422f, 0.12680786848068237f,   -0.08593566715717316f,
                         0.04431314766407013f,  -0.014689257368445396f, 0.002277808031067252f};
  const float e = prescaled_exp_neg_abs(x), s = e * 0x1p-64f, log = fma(s * fma(s, polynomial(c, s), -0.5f), e, e);
  const DoubleWord<float> high = x < 0.0f ? X(0.0f) : x;
  return high.hi + fma(log, 0x1p-64f, std::fabs(high.lo) < INFINITY ? high.lo : 0.0f);
}

// tanh'(x)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> tanh_slope(X x) {
  const float e = prescaled_exp_neg_abs(x * 2.0f), s = e * 0x1p-64f;
  return e / fma(s, s + 2.0f, 1.0f) * 0x1p-62f;
}

// The parts of tanh(softplus(x)) = n / (n + 2), n being e^2x + 2 e^x: x, e^x, n and n + 2. e^x and n are 2^64 times
// as large.
struct TanhSoftplusParts {
  float near, u, n, d;
};
template <typename X>
HOST_DEVICE TanhSoftplusParts tanh_softplus_parts(X x) {
  const X near = bound_below(bound_above(x, 20.0f), -132.5f);
  const float u = prescaled_exp(near), n = fma(u * 0x1p-64f, u, u + u);
  return {float(near), u, n, fma(n, 0x1p-64f, 2.0f)};
}

// tanh(softplus(x))
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> tanh_softplus(X x) {
  const TanhSoftplusParts p = tanh_softplus_parts(x);
  return p.n / p.d * 0x1p-64f;
}

// x tanh(softplus(x))
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> times_tanh_softplus(X x) {
  const TanhSoftplusParts p = tanh_softplus_parts(x);
  const float v = x, q = (v > 0.0f ? 2.0f : p.n) / p.d;
  return v > 0.0f ? fma(-p.near, q, v) : v * q * 0x1p-64f;
}

// the slope of x tanh(softplus(x))
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> times_tanh_softplus_slope(X x) {
  const TanhSoftplusParts p = tanh_softplus_parts(x);
  const float slope = 4.0f * fma(p.u * 0x1p-64f, p.u, p.u) / p.d;
  return fma(p.near, slope, p.n) / p.d * 0x1p-64f;
}

// exp(-x² / 2) / √(2π)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> normal(X x) {
  const X size = bound_above(-neg_abs(x), 16.0f);
  return prescaled_exp(two_prod(size, -0.5f * size)) * (0.39894228f * 0x1p-64f);
}

// Φ(-|x|) / exp(-x² / 2), that divided by |x|, and 2^64 exp(-x² / 2), of an |x| of at most 16.
struct NormalTail {
  float size, mills, more, scale;
};
template <typename X>
HOST_DEVICE NormalTail normal_tail_of(X x) {
  // From 0.2 to 1.0, to 2^-23: python -m benchmarks.coefficients mills_float
  constexpr float c[] = {0.0995214581489563f,  0.09528786689043045f,  0.07301277667284012f,
                         0.08385130017995834f, 0.017734583467245102f, 0.02261105738580227f,
                         0.05587935820221901f, -0.06453712284564972f, 0.01689239591360092f};
  const X s = bound_above(-neg_abs(x), 16.0f);
  const ReducedExp<float> bell = reduced_exp(two_prod(s, -0.5f * s));
  const float size = float(s), d = fma(0.25f, size, 1.0f), k = 1.0f / d, p = k * polynomial(c, k);
  const float first = 0.09974633157253265f, rest = fma(k, size, fma(4.0f, k, -4.0f)) * d;
  const float bend = rest * fma(size, k * (first + p), -0.39894228f);
  return {size, fma(k, first, fma(k, p, bend)), bell.more, exp2i<float>(bell.n + 64)};
}
// Φ(x), or a sum with it, from the tail beyond |x|.
inline float cdf_from_tail(float tail, float x) {
  return fma(tail, x < 0.0f ? 0x1p-64f : -0x1p-64f, x < 0.0f ? 0.0f : 1.0f);
}

// Φ(x)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> ndtr(X x) {
  const NormalTail t = normal_tail_of(x);
  return cdf_from_tail(fma(t.more, t.mills, t.mills) * t.scale, x);
}

// x Φ(x)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> times_ndtr(X x) {
  const NormalTail t = normal_tail_of(x);
  const float v = x, y = t.size * t.mills, tail = y + fma(t.more, y, fma(t.size, t.mills, -y));
  return fma(tail * t.scale, -0x1p-64f, v < 0.0f ? -0.0f : v);
}

// the slope of x Φ(x)
template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, SINGLE_RESULT, Scalar<X>> times_ndtr_slope(X x) {
  const X s = bound_above(-neg_abs(x), 16.0f);
  const ReducedExp<float> bell = reduced_exp(two_prod(s, -0.5f * s));
  const float size = s, tail = ndtr_slope_over_bell(size, rest_of(s, size), bell.more) * exp2i<float>(bell.n + 64);
  return cdf_from_tail(tail, x);
}

}  // namespace
}  // namespace fusegen
