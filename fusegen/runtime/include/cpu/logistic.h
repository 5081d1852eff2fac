#pragma once
// The logistic family on the CPU, with its single-word forms in float: of any argument, or from -1.2 on.
#include "cpu/exponential.h"
#include "cpu/logarithm.h"
#include "functions/logistic.h"

namespace fusegen {
namespace {

// x sigmoid(x)
template <Body BODY, typename M>
HOST_DEVICE ForBody<BODY, SINGLE_WORD, M> x_sigmoid(M x, M) {
  const M t = fast_clamp_min(x, -125.0f), v = prescaled(clamp_max_or_bound(t, 87.0f));
  const ReducedExp<M> e = exp_reduced(-v, 0.0f);
  const M s = exp2i<M>(e.n), one = 1.0f + s;
  const M d = fma(e.more, s, one), rest = fma(e.more, s, one - d);
  const M r = 1.0f / d;
  return t * fma(fma(-r, rest, fma(-r, d, 1.0f)), r, r) * unscale(t);
}

// x sigmoid(x), of an x from -1.2
template <Body BODY, typename M>
HOST_DEVICE ForBody<BODY, NEAR, M> x_sigmoid(M x, M) {
  const M v = clamp_max_or_bound(x, 87.0f);
  const ReducedExp<M> e = exp_reduced(-v, 0.0f);
  const M s = exp2i<M>(e.n), one = 1.0f + s;
  const M d = fma(e.more, s, one);
  return x / d;
}

// sigmoid(x), of an x from -1.2
template <Body BODY, typename M>
HOST_DEVICE ForBody<BODY, NEAR, M> sigmoid(M x) {
  const M v = fast_clamp_max(x, 87.0f);
  const ReducedExp<M> e = exp_reduced(-v, 0.0f);
  const M s = exp2i<M>(e.n), one = 1.0f + s;
  const M d = fma(e.more, s, one);
  return 1.0f / d;
}

}  // namespace
}  // namespace fusegen
