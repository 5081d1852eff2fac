#pragma once
// Reciprocals, and the constants that a formula may name; D as in comparison.h.
#include "comparison.h"

namespace {

template <class D>
HOST_DEVICE D reciprocal(const D& x) { return constant_of<D>(1) / x; }
template <class D>
HOST_DEVICE D rsqrt(const D& x) { return reciprocal(sqrt(x)); }
template <class D>
HOST_DEVICE D pi() { return number<D>(0x1.921fb54442d18p+1, 0x1.921fb54442d19p+1); }
template <class D>
HOST_DEVICE D e() { return number<D>(0x1.5bf0a8b145769p+1, 0x1.5bf0a8b14576ap+1); }

}  // namespace
