#pragma once
// Functions with kinks, and values without a slope; D as in comparison.h.
#include "comparison.h"

namespace {

// PyTorch's conventions at the kinks: what a tie chooses.
template <class D>
HOST_DEVICE D clamp_min(const D& x, const D& low) { return where(lt(x, low), low, x); }
template <class D>
HOST_DEVICE D clamp_max(const D& x, const D& high) { return where(gt(x, high), high, x); }
template <class D>
HOST_DEVICE D clamp(const D& x, const D& low, const D& high) { return clamp_max(clamp_min(x, low), high); }
template <class D>
HOST_DEVICE D saturate(const D& x, const D& low, const D& high) {
  return where(le(x, low), low, where(ge(x, high), high, x));
}
template <class D>
HOST_DEVICE D relu(const D& x) { return where(le(x, constant_of<D>(0)), constant_of<D>(0), x); }
template <class D>
HOST_DEVICE D relu6(const D& x) { return saturate(x, constant_of<D>(0), constant_of<D>(6)); }
template <class D>
HOST_DEVICE D maximum(const D& a, const D& b) {
  const D half = constant_of<D>(0.5);
  return where(eq(a, b), half * a + half * b, where(gt(a, b), a, b));
}
template <class D>
HOST_DEVICE D minimum(const D& a, const D& b) { return -maximum(-a, -b); }
template <class D>
HOST_DEVICE D abs(const D& x) {
  const D zero = constant_of<D>(0);
  return where(eq(x, zero), zero, where(gt(x, zero), x, -x));
}
template <class D>
HOST_DEVICE D sign(const D& x) {
  const D zero = constant_of<D>(0);
  return where(eq(x, zero), zero, where(gt(x, zero), constant_of<D>(1), constant_of<D>(-1)));
}
template <class D>
HOST_DEVICE D detach(const D& x) {
  D y{};
  whole(y) = whole(x);
  return y;
}

}  // namespace
