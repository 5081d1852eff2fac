#pragma once
// Exponentials. Generic; a device's own header includes it after what it calls of that device.
#include "double_word.h"

namespace fusegen {
namespace {

// The n of n + 1.5 2^23 in float.
template <typename M>
HOST_DEVICE int32_t integer(M shifted) {
  int32_t bits;
  memcpy(&bits, &shifted, sizeof(bits));
  return bits - 0x4b400000;
}

// e^(x + rest) in float as (1 + more) 2^n, of an x from -132.5 to 89. With n the integer next to x / ln 2,
// x - n ln 2 lies between -0.35 and 0.35, where a minimax polynomial errs by 2^-27.
template <typename M>
struct ReducedExp {
  M more;
  int32_t n;
};
template <typename M>
HOST_DEVICE ReducedExp<M> exp_reduced(M x, M rest) {
  // From -0.3466 to 0.3466, to 2^-27: python -m benchmarks.coefficients exp_reduced
  const M c[] = {0.49999994f, 0.166665152f, 0.0416684560f, 0.00836941879f, 0.00138131448f};
  const M shifted = fma(x, 1.44269504f, 12582912.0f), n = shifted - 12582912.0f;
  const M r = fma(n, -0.693145752f, x) + fma(n, -1.42860677e-6f, rest);  // ln 2 as a double-word value
  return {fma(r * r, polynomial(c, r), r), integer(shifted)};
}

// e^(x + rest). In float x is at most 88; where SUBNORMAL is false it is between -88 and 89, which give 0 and
// infinity.
template <bool SUBNORMAL = true, typename M>
HOST_DEVICE DoubleWord<M> exp_dw(M x, M rest) {
  if constexpr (sizeof(M) == 8) {
    return exp_dw_in_double(x, rest);
  } else {
    const ReducedExp<M> e = exp_reduced(SUBNORMAL && x <= -104.0f ? -104.0f : x, rest);  // it is 0 there
    const M one = 1.0f + e.more;
    const int32_t half = SUBNORMAL ? e.n >> 1 : 0;
    const M size = SUBNORMAL ? exp2i<M>(half) * exp2i<M>(e.n - half) : exp2i<M>(e.n);
    return {one * size, (e.more - (one - 1.0f)) * size};
  }
}
template <bool SUBNORMAL = true, typename M>
HOST_DEVICE DoubleWord<M> exp_dw(M x) {
  return exp_dw<SUBNORMAL>(x, M(0));
}
template <bool SUBNORMAL = true, typename M>
HOST_DEVICE DoubleWord<M> exp_dw(DoubleWord<M> x) {
  return exp_dw<SUBNORMAL>(x.hi, x.hi > M(-104) || sizeof(M) == 8 ? x.lo : M(0));
}

// Where e^x is tiny, the argument of a larger power, so that nothing is lost before it is multiplied: x + 37, since
// e^-37 is all but a float, or x + 86 in double. The sum is exact.
template <typename M>
HOST_DEVICE M prescaled(M x) {
  if constexpr (sizeof(M) == 8) return x < M(-600) ? x + M(86) : x;
  return x < M(-64) ? x + M(37) : x;
}
template <typename M>
HOST_DEVICE DoubleWord<M> prescaled(DoubleWord<M> x) {
  return {prescaled(x.hi), x.lo};
}
// The factor that undoes the scaling.
template <typename X>
HOST_DEVICE Scalar<X> unscale(X x) {
  using M = Scalar<X>;
  if constexpr (sizeof(M) == 8) return x < M(-600) ? M(4.4737793061811207e-38) : M(1);
  return x < M(-64) ? M(8.53304763e-17) : M(1);
}

template <Body BODY, typename X>
HOST_DEVICE GenericFor<X, ForBody<BODY, DOUBLE_WORD, Promoted<X>>> exp(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = x, near = fast_clamp_min(fast_clamp_max(t, M(89)), M(-104));
  if constexpr (sizeof(M) == 8) return exp(t.hi) * double_word(M(1), t.lo);
  const ReducedExp<float> e = exp_reduced(float(near.hi), float(near.lo));
  const int32_t half = e.n >> 1;
  const M one = M(1) + e.more;
  const M size = exp2i<float>(half), rest = exp2i<float>(e.n - half);
  return {one * size * rest, (e.more - (one - M(1))) * size * rest};
}

template <typename M>
HOST_DEVICE GenericFor<M, DoubleWord<M>> exp(DoubleWord<M> x) {
  return exp<DOUBLE_WORD>(x);
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> expm1(X x) {
  using M = Scalar<X>;
  const Promoted<X> t = x;
  const M v = t.hi, own = sizeof(M) == 8 ? expm1(v) : M(0);
  if constexpr (sizeof(M) == 8) return double_word(own, fma(own, t.lo, t.lo));
  // From -0.5 to 0.5, to 2^-26: python -m benchmarks.coefficients expm1_float
  const M c[] = {M(0.5000000596046448),   M(0.16666662693023682),   M(0.041665319353342056),
                 M(0.008333634585142136), M(0.0013997324276715517), M(0.00019841187167912722)};
  const Promoted<X> near = fast_two_sum(v, fma(v * v, polynomial(c, v), fma(v, t.lo, t.lo)));
  const Promoted<X> far = exp(t) - M(1);
  const bool small = fabs(v) < M(0.5);
  return double_word(small ? near.hi : far.hi, small ? near.lo : far.lo);
}

template <typename M>
HOST_DEVICE DoubleWord<M> expm1(DoubleWord<M> x) {
  return expm1<DOUBLE_WORD>(x);
}

// exp(-x²)
template <typename X>
HOST_DEVICE GenericFor<X, Promoted<X>> gauss(X x) {
  const Promoted<X> t = -two_prod(x, x);
  return exp_dw(prescaled(t)) * unscale(t);
}

}  // namespace
}  // namespace fusegen
