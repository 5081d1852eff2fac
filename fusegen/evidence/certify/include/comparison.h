#pragma once
// Comparisons, and the choice between two branches.
#include "dual.h"

namespace {

// True if a comparison holds: for certain, certainly not, or perhaps. From here to the formula, D is a number
// with derivatives of some kind.
enum Truth { NO, YES, PERHAPS };
template <class D>
HOST_DEVICE Truth lt(const D& x, const D& y) {
  const Real &a = whole(x), &b = whole(y);
  return a.hi < b.lo ? YES : a.lo >= b.hi ? NO : PERHAPS;
}
HOST_DEVICE Truth opposite(Truth t) { return t == YES ? NO : t == NO ? YES : PERHAPS; }
template <class D>
HOST_DEVICE Truth gt(const D& a, const D& b) { return lt(b, a); }
template <class D>
HOST_DEVICE Truth ge(const D& a, const D& b) { return opposite(lt(a, b)); }
template <class D>
HOST_DEVICE Truth le(const D& a, const D& b) { return opposite(lt(b, a)); }
template <class D>
HOST_DEVICE Truth eq(const D& x, const D& y) {
  const Real &a = whole(x), &b = whole(y);
  if (a.lo == b.hi && a.hi == b.lo) return YES;
  return a.hi < b.lo || a.lo > b.hi ? NO : PERHAPS;
}
template <class D>
HOST_DEVICE Truth ne(const D& a, const D& b) { return opposite(eq(a, b)); }
template <class D>
HOST_DEVICE D where(Truth t, const D& a, const D& b) { return t == YES ? a : t == NO ? b : hull(a, b); }
template <class D>
HOST_DEVICE D constant_of(double v) { return number<D>(v, v); }

}  // namespace
