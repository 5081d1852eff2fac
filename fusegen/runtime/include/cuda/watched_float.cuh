#pragma once
// The type that 16-bit elements are computed in where terms may cancel: a float that knows the size of the terms that
// it is the sum of. Where that is far above the sum, the element is computed again in double.
#include "row_range.h"

namespace fusegen {
namespace {

// For elements of T, in B's arithmetic. An element as it was read is exact, and a product of such is its own size: the
// compiler knows both, so that only sums cost an instruction more.
template <typename T, typename B>
struct WatchedFloat {
  // Of a sum to its terms: of a float's 24 bits it loses 12 or 9, and has 4 more than those of T.
  static constexpr float LEAST = std::is_same_v<T, __half> ? 0x1p-9f : 0x1p-12f;
  HOST_DEVICE WatchedFloat(B v = B(0.0f)) : v(v), size(0), is_sum(false), is_exact(false) {}
  HOST_DEVICE WatchedFloat(B v, float size) : v(v), size(size), is_sum(true), is_exact(false) {}
  HOST_DEVICE explicit operator float() const { return float(v); }
  HOST_DEVICE float terms() const { return is_sum ? size : fabsf(float(v)); }
  // The size beyond that share of its terms' which float needs: below 0 or NaN where float does not suffice.
  HOST_DEVICE float excess() const {
    const float own = fabsf(float(v));
    return is_sum ? fmaf(-LEAST, size, own) : 0.0f * own;
  }
  friend HOST_DEVICE WatchedFloat operator+(WatchedFloat a, WatchedFloat b) {
    return {a.v + b.v, a.terms() + b.terms()};
  }
  friend HOST_DEVICE WatchedFloat operator-(WatchedFloat a) {
    a.v = -a.v;
    return a;
  }
  friend HOST_DEVICE WatchedFloat operator-(WatchedFloat a, WatchedFloat b) { return a + -b; }
  friend HOST_DEVICE WatchedFloat operator*(WatchedFloat a, WatchedFloat b) {
    if (!a.is_sum && !b.is_sum) return WatchedFloat(a.v * b.v);
    return {a.v * b.v, a.terms() * b.terms()};
  }
  // The error of an exponential is that of its argument, which the terms' size bounds.
  friend HOST_DEVICE WatchedFloat exp(WatchedFloat x) {
    const B y = exp(x.v);
    if (!x.is_sum) return WatchedFloat(y);
    return {y, float(y) * fmaxf(x.size, 1.0f)};
  }
  // An element less a value of the row in two floats, both of which are exact enough.
  friend HOST_DEVICE WatchedFloat less_two(WatchedFloat x, WatchedFloat hi, WatchedFloat lo) {
    const WatchedFloat near(x.v - hi.v - lo.v);
    return x.is_exact ? near : WatchedFloat(near.v, x.terms() + hi.terms());
  }
  B v;
  float size;
  bool is_sum, is_exact;
};
template <typename T, typename B>
constexpr bool IN_FLOAT<WatchedFloat<T, B>> = true;

// An element as it was read.
template <typename M>
HOST_DEVICE M as_read(M v) {
  return v;
}
template <typename T, typename B>
HOST_DEVICE WatchedFloat<T, B> as_read(WatchedFloat<T, B> v) {
  v.is_exact = true;
  return v;
}

}  // namespace
}  // namespace fusegen
