#pragma once
// Functions of FastFloat. Polynomials are minimax in the relative error. Source: Lawson's iteration for the polynomials
// (Rice and Usow 1968, Math. Comp. 22); the tails of erfc and of the normal distribution as t 2^(P(t) - z^2),
// t = 1 / (1 + kz), after Press et al. 1992, Numerical Recipes, section 6.2.
#include "launcher.h"
#include "cuda/fast_float.cuh"

namespace fusegen {
namespace {
namespace fast_float {

HOST_DEVICE FastFloat exp(FastFloat x) { return exp4_approx(0.7213475204444817f * x.v); }

HOST_DEVICE FastFloat expm1(FastFloat x) {
  // From -0.5 to 0.5, to 2^-21: python -m benchmarks.coefficients expm1_fast
  const float c[] = {
      1.0f, 0.5f, 0.16665974259376526f, 0.04166870191693306f, 0.008407682180404663f, 0.0013888811226934195f};
  return fabsf(x.v) < 0.5f ? x.v * polynomial(c, x.v) : ex2(1.4426950408889634f * x.v) - 1.0f;
}

HOST_DEVICE FastFloat erfc(FastFloat x) {
  // From 0.1667 to 1.0, to 2^-20: python -m benchmarks.coefficients erfc_fast
  const float c[] = {-0.9128822684288025f, 0.7208625078201294f,  0.2807910442352295f, -0.01744920015335083f,
                     0.23149903118610382f, -0.6998054385185242f, 0.5294689536094666f, -0.1324850618839264f};
  const float z = fabsf(x.v), t = rcp(fmaf(0.5f, z, 1.0f));
  const float y = t * exp4_approx(fmaf(-0.7213475204444817f * z, z, polynomial(c, t)));
  return x.v < 0.0f ? 2.0f - y : y;
}

HOST_DEVICE FastFloat x_sigmoid(FastFloat x, FastFloat t) {
  const float e = exp4_approx(-0.7213475204444817f * fabsf(t.v)), r = rcp(1.0f + e);
  return x.v * (t.v < 0.0f ? e * r : r);
}

HOST_DEVICE FastFloat times_sigmoid(FastFloat x, FastFloat t) { return x_sigmoid(x, t); }

HOST_DEVICE FastFloat x_sigmoid_slope(FastFloat a, FastFloat b, FastFloat t) {
  const float e = exp4_approx(-0.7213475204444817f * fabsf(t.v)), r = rcp(1.0f + e);
  return r * fmaf(a.v * b.v, e * r, t.v < 0.0f ? e : 1.0f);
}

HOST_DEVICE FastFloat ndtr(FastFloat x) {
  // From 0.1667 to 1.0, to 2^-19: python -m benchmarks.coefficients ndtr_fast
  const float c[] = {-1.4623193740844727f, 0.7155240178108215f,  0.33131253719329834f, -0.14030638337135315f,
                     0.5570431351661682f,  -0.9834111928939819f, 0.6207029223442078f,  -0.13854536414146423f};
  const float t = rcp(fmaf(0.33f, fabsf(x.v), 1.0f));
  const float y = t * exp4_approx(fmaf(-0.36067376022224085f * x.v, x.v, polynomial(c, t)));
  return x.v < 0.0f ? y : 1.0f - y;
}

HOST_DEVICE FastFloat times_ndtr(FastFloat x) {
  // From 0.1667 to 1.0, to 2^-19: python -m benchmarks.coefficients ndtr_fast
  const float c[] = {-1.4623193740844727f, 0.7155240178108215f,  0.33131253719329834f, -0.14030638337135315f,
                     0.5570431351661682f,  -0.9834111928939819f, 0.6207029223442078f,  -0.13854536414146423f};
  const float t = rcp(fmaf(0.33f, fabsf(x.v), 1.0f));
  const float y = t * exp4_approx(fmaf(-0.36067376022224085f * x.v, x.v, polynomial(c, t)));
  return x.v * (x.v < 0.0f ? y : 1.0f - y);
}

HOST_DEVICE FastFloat times_ndtr_slope(FastFloat x) {
  // From 0.1667 to 1.0, to 2^-19: python -m benchmarks.coefficients ndtr_fast
  const float c[] = {-1.4623193740844727f, 0.7155240178108215f,  0.33131253719329834f, -0.14030638337135315f,
                     0.5570431351661682f,  -0.9834111928939819f, 0.6207029223442078f,  -0.13854536414146423f};
  const float t = rcp(fmaf(0.33f, fabsf(x.v), 1.0f));
  const float y = t * exp4_approx(fmaf(-0.36067376022224085f * x.v, x.v, polynomial(c, t)));
  const float bell = 0.3989422804014327f * exp4_approx(-0.36067376022224085f * x.v * x.v);
  return (x.v < 0.0f ? y : 1.0f - y) + x.v * bell;
}

HOST_DEVICE FastFloat normal(FastFloat x) {
  return 0.3989422804014327f * exp4_approx(-0.36067376022224085f * x.v * x.v);
}

HOST_DEVICE FastFloat gauss(FastFloat x) { return exp4_approx(-0.7213475204444817f * x.v * x.v); }

HOST_DEVICE FastFloat softplus(FastFloat x) {
  // From 0.0 to 1.0, to 2^-21: python -m benchmarks.coefficients softplus_fast
  const float c[] = {0.9999998211860657f,  -0.4999740421772003f,  0.33275479078292847f,  -0.24495449662208557f,
                     0.17745204269886017f, -0.10768117010593414f, 0.044089239090681076f, -0.00853909645229578f};
  const float e = exp4_approx(-0.7213475204444817f * fabsf(x.v));
  return (x.v < 0.0f ? 0.0f : x.v) + e * polynomial(c, e);
}

HOST_DEVICE FastFloat sigmoid(FastFloat x) {
  const float e = exp4_approx(-0.7213475204444817f * fabsf(x.v)), r = rcp(1.0f + e);
  return x.v < 0.0f ? e * r : r;
}

HOST_DEVICE FastFloat sigmoid_slope(FastFloat x) {
  const float e = exp4_approx(-0.7213475204444817f * fabsf(x.v)), r = rcp(1.0f + e);
  return e * r * r;
}

HOST_DEVICE FastFloat tanh_of_exp(FastFloat x) {
  return tanhf(exp4_approx(0.7213475204444817f * (x.v > 10.0f ? 10.0f : x.v)));
}

HOST_DEVICE FastFloat tanh_of_exp_slope(FastFloat x) {
  const float t = exp4_approx(0.7213475204444817f * (x.v > 10.0f ? 10.0f : x.v));
  const float e = exp4_approx(-1.4426950408889634f * t), r = rcp(1.0f + e);
  return t * (4.0f * e) * (r * r);
}

HOST_DEVICE FastFloat tanh_slope(FastFloat x) {
  const float e = exp4_approx(-1.4426950408889634f * fabsf(x.v)), r = rcp(1.0f + e);
  return 4.0f * e * r * r;
}

HOST_DEVICE FastFloat tanh_shrink(FastFloat x) {
  // From 0.0 to 1.563, to 2^-22: python -m benchmarks.coefficients tanh_shrink_fast
  const float c[] = {0.3333333134651184f,   -0.13333067297935486f,  0.053931597620248795f,  -0.02167247235774994f,
                     0.008325383998453617f, -0.002748817903921008f, 0.0006410788046196103f, -7.354012632276863e-05f};
  const float s = x.v * x.v;
  return s < 1.5625f ? 0.0f + x.v * (s * polynomial(c, s)) : x.v - tanhf(x.v);
}

HOST_DEVICE FastFloat tanh_softplus(FastFloat x) {
  const float e = exp4_approx(-0.7213475204444817f * fabsf(x.v));
  const float n = x.v > 0.0f ? fmaf(2.0f, e, 1.0f) : e * (e + 2.0f);
  const float r = rcp(n + (x.v > 0.0f ? 2.0f * e * e : 2.0f));
  return n * r;
}

HOST_DEVICE FastFloat times_tanh_softplus(FastFloat x) {
  const float e = exp4_approx(-0.7213475204444817f * fabsf(x.v));
  const float n = x.v > 0.0f ? fmaf(2.0f, e, 1.0f) : e * (e + 2.0f);
  const float r = rcp(n + (x.v > 0.0f ? 2.0f * e * e : 2.0f));
  return x.v * (n * r);
}

HOST_DEVICE FastFloat tanh_softplus_slope(FastFloat x) {
  const float e = exp4_approx(-0.7213475204444817f * fabsf(x.v));
  const float n = x.v > 0.0f ? fmaf(2.0f, e, 1.0f) : e * (e + 2.0f);
  const float r = rcp(n + (x.v > 0.0f ? 2.0f * e * e : 2.0f));
  const float slope = (x.v > 0.0f ? e : 1.0f) * (4.0f * e) * (1.0f + e) * (r * r);
  return slope;
}

HOST_DEVICE FastFloat times_tanh_softplus_slope(FastFloat x) {
  const float e = exp4_approx(-0.7213475204444817f * fabsf(x.v));
  const float n = x.v > 0.0f ? fmaf(2.0f, e, 1.0f) : e * (e + 2.0f);
  const float r = rcp(n + (x.v > 0.0f ? 2.0f * e * e : 2.0f));
  const float slope = (x.v > 0.0f ? e : 1.0f) * (4.0f * e) * (1.0f + e) * (r * r);
  return n * r + (x.v > 20.0f ? 20.0f : x.v) * slope;
}

HOST_DEVICE FastFloat pow(FastFloat x, FastFloat exponent) { return powf(x.v, exponent.v); }

// In double-word arithmetic: a single word is enough.
template <Body>
HOST_DEVICE FastFloat exp(FastFloat x) {
  return exp(x);
}
template <Body>
HOST_DEVICE FastFloat tanh(FastFloat x) {
  return tanh(x);
}
template <Body>
HOST_DEVICE FastFloat erf(FastFloat x) {
  return erf(x);
}
template <Body>
HOST_DEVICE FastFloat sigmoid(FastFloat x) {
  return sigmoid(x);
}
template <Body>
HOST_DEVICE FastFloat sigmoid_slope(FastFloat x) {
  return sigmoid_slope(x);
}
template <Body>
HOST_DEVICE FastFloat tanh_slope(FastFloat x) {
  return tanh_slope(x);
}
template <Body>
HOST_DEVICE FastFloat x_sigmoid(FastFloat x, FastFloat t) {
  return x_sigmoid(x, t);
}
template <Body>
HOST_DEVICE FastFloat times_tanh_softplus(FastFloat x) {
  return times_tanh_softplus(x);
}
template <Body>
HOST_DEVICE FastFloat times_tanh_softplus_slope(FastFloat x) {
  return times_tanh_softplus_slope(x);
}
template <Body>
HOST_DEVICE FastFloat times_ndtr(FastFloat x) {
  return times_ndtr(x);
}

}  // namespace fast_float
}  // namespace
}  // namespace fusegen
