#pragma once
// Double-word arguments of functions: a quotient, and a value with a bound, three times which is finite.
#include "double_word.h"

namespace fusegen {
namespace {

// a / b; the corrections of a zero, which would lose its sign, and of an infinity are left out
template <typename M>
HOST_DEVICE DoubleWord<M> two_quotient(M a, M b) {
  const M c = M(1) / b, q = a * c, y = fma(fma(-b, q, a), c, q);
  const M hi = y == y && q != M(0) ? y : q, lo = fma(-b, hi, a) * c;
  return {hi, is_ordinary(lo) ? lo : M(0)};
}

template <typename M>
HOST_DEVICE DoubleWord<M> clamp_to_lowest(DoubleWord<M> x) {
  const M least = sizeof(M) == 8 ? M(-0x1p1022) : M(-0x1p126);
  return {x.hi < least ? least : x.hi, x.hi < least ? M(0) : x.lo};
}
template <typename M>
HOST_DEVICE DoubleWord<M> clamp_to_highest(DoubleWord<M> x) {
  const M most = sizeof(M) == 8 ? M(0x1p1022) : M(0x1p126);
  return {x.hi > most ? most : x.hi, x.hi > most ? M(0) : x.lo};
}

}  // namespace
}  // namespace fusegen
