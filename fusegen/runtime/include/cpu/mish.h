#pragma once
// The mish family on the CPU, with its single-word form in float, from -1.2 on.
#include "cpu/exponential.h"
#include "functions/mish.h"

namespace fusegen {
namespace {

// x tanh(softplus(x)), of an x from -1.2
template <Body BODY, typename M>
HOST_DEVICE ForBody<BODY, NEAR, M> times_tanh_softplus(M x) {
  const ReducedExp<M> e = exp_reduced(clamp_max_or_bound(x, 20.0f), 0.0f);
  const M s = exp2i<M>(e.n), u = fma(e.more, s, s), u_rest = fma(e.more, s, s - u);
  const DoubleWord<M> n = quadratic(double_word(u, u_rest)), d = plus_two(n);
  const M r = 1.0f / d.hi, q = n.hi * r;
  return x * fma(fma(-q, d.lo, fma(-q, d.hi, n.hi) + n.lo), r, q);
}

}  // namespace
}  // namespace fusegen
