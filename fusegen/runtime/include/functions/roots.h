#pragma once
// Roots of sums of squares; a NaN operand stays.
// Generic; a device's own header includes it after what it calls of that device.
#include "basics.h"

namespace fusegen {
namespace {

// The power of two that moves two operands to where neither square overflows nor loses digits, and its inverse.
template <typename M>
struct Scale {
  HOST_DEVICE Scale(M a, M b) {
    constexpr bool WIDE = sizeof(M) == 8;
    const M least = M(WIDE ? 0x1p-450 : 0x1p-50), most = M(WIDE ? 0x1p510 : 0x1p62);
    const M up = M(WIDE ? 0x1p600 : 0x1p90), down = M(WIDE ? 0x1p-600 : 0x1p-90);
    const M x = fabs(a), y = fabs(b), larger = x > y ? x : y;
    by = larger > most ? down : larger < least ? up : M(1);
    back = larger > most ? up : larger < least ? down : M(1);
  }
  M by, back;
};

// sqrt(a² + b²)
template <typename M>
HOST_DEVICE M scaled_hypot(M a, M b) {
  const Scale<M> scale(a, b);
  const M p = a * scale.by, q = b * scale.by;
  return sqrt(p * p + q * q) * scale.back;
}

// a / sqrt(a² + b²), the slope of that by a
template <typename M>
HOST_DEVICE M scaled_hypot_slope(M a, M b) {
  const Scale<M> scale(a, b);
  const M p = a * scale.by, q = b * scale.by;
  return p / sqrt(p * p + q * q);
}

}  // namespace
}  // namespace fusegen
