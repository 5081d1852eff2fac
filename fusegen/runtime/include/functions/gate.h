#pragma once
// A product with a sigmoid and its slope, in float, from 2^64 e^-|t|.
#include "functions/quotient.h"

namespace fusegen {
namespace {

// x sigmoid(t), of a t below 0 or not. An infinite x stays infinite, and -0 keeps its sign.
HOST_DEVICE float gate(float x, bool below, DoubleWord<float> e) {
  const float s = e.hi * 0x1p-64f, s_lo = e.lo * 0x1p-64f;
  const DoubleWord<float> p = two_prod(x, below ? s : 1.0f), d = one_plus(double_word(s, s_lo));
  const float y = divide_to_single(double_word(p.hi, fma(x, below ? s_lo : 0.0f, p.lo)), d);
  return fabs(y) > 0.0f ? y : p.hi * (0.5f * d.hi);
}

// sigmoid(t) + a b sigmoid'(t). With w = a b and e = e^-|t| it is (1 + e + w) e / (1 + e)^2 below 0, and
// (1 + e + w e) / (1 + e)^2 from 0 on: where it passes 0 only the first factor cancels, and there its fma is exact.
HOST_DEVICE float sigmoid_plus_slope(float a, float b, bool below, DoubleWord<float> e) {
  const float s = e.hi * 0x1p-64f, d = 1.0f + s, d_lo = fma(e.lo, 0x1p-64f, s - (d - 1.0f));
  const float sum = fma(below ? a : a * s, b, d) + d_lo, by = below ? e.hi : 0x1p64f;
  return divide_to_single(sum * 0x1p-64f * by, square<DOUBLE_WORD>(double_word(d, d_lo)));
}

}  // namespace
}  // namespace fusegen
