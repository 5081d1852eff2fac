#pragma once
// The slope of x Φ(x) in float, single-word.
#include "double_word.h"

namespace fusegen {
namespace {

// x - rounded, of a sum that has been rounded
HOST_DEVICE float rest_of(float, float) { return 0.0f; }
HOST_DEVICE float rest_of(DoubleWord<float> x, float rounded) { return (x.hi - rounded) + x.lo; }

// (1 + more) (Φ(-s) e^(s² / 2) - s / √(2π)) of s = size + rest, from 0 to 16: s minus the zero, times what is smooth in
// 1 / (1 + s / 4). The zero is 0.75179154 - 1.2114450e-08, in two words, so that digits are kept next to it, too.
HOST_DEVICE float ndtr_slope_over_bell(float size, float rest, float more) {
  const float c[] = {-0.3989637792110443f,   -0.07455173879861832f, -0.06774785369634628f,
                     -0.034489408135414124f, -0.08455690741539001f, 0.056944817304611206f,
                     -0.09603030234575272f,  0.03794815391302109f,  -0.003630971536040306f};
  const float q = polynomial(c, reciprocal_approx(fma(0.25f, size, 1.0f)));
  const float p = q * 0.75179154f, y = fma(q, size, -p);
  const float t = y - fma(q, -1.2114450e-08f - rest, fma(q, 0.75179154f, -p));
  return fma(more, t, t);
}

}  // namespace
}  // namespace fusegen
