#pragma once
// Forms in which little cancels, and slopes of functions; D as in comparison.h.
#include "comparison.h"
#include "dual_functions.h"

namespace {

template <class D>
HOST_DEVICE D scaled_hypot(const D& a, const D& b) { return sqrt(square(a) + square(b)); }
template <class D>
HOST_DEVICE D scaled_hypot_slope(const D& a, const D& b) { return a / scaled_hypot(a, b); }
template <class D>
HOST_DEVICE D sigmoid_slope(const D& x) { return sigmoid(x) * sigmoid(-x); }
template <class D>
HOST_DEVICE D tanh_slope(const D& x) { return constant_of<D>(4) * sigmoid_slope(constant_of<D>(2) * x); }
template <class D>
HOST_DEVICE D tanh_softplus(const D& x) { return tanh(softplus(x)); }
template <class D>
HOST_DEVICE D tanh_softplus_slope(const D& x) { return tanh_slope(softplus(x)) * sigmoid(x); }
template <class D>
HOST_DEVICE D times_tanh_softplus(const D& x) { return x * tanh_softplus(x); }
template <class D>
HOST_DEVICE D times_tanh_softplus_slope(const D& x) { return tanh_softplus(x) + x * tanh_softplus_slope(x); }
template <class D>
HOST_DEVICE D times_ndtr(const D& x) { return x * ndtr(x); }
template <class D>
HOST_DEVICE D times_ndtr_slope(const D& x) { return ndtr(x) + x * normal(x); }
template <class D>
HOST_DEVICE D tanh_of_exp_slope(const D& x) {
  const D tiny = number<D>(-TINY, TINY) * x;  // for e^-2000, and its slope
  return where(gt(x, constant_of<D>(7)), tiny, tanh_slope(exp(x)) * exp(x));
}

}  // namespace
