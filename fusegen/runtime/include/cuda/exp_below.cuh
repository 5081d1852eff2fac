#pragma once
// The exponential of what is at most 0, as an element less the largest of its row, on CUDA. It has no upper bound to
// look for, and tests the lower one on the upper word of a double, as integers: comparisons of doubles and selections
// of their words were a sixth of a softmax's instructions.
#include "cuda/fast_functions.cuh"
#include "cuda/plain_double_39.cuh"

namespace fusegen {
namespace {

template <typename M>
HOST_DEVICE M exp_below(M x) {
  return exp(x);
}

namespace fast_float {

// As exp, but of the SFU's 2^x as a function, of which the compiler knows that two equal ones are one.
HOST_DEVICE FastFloat exp_below(FastFloat x) {
#ifdef __CUDA_ARCH__
  const float root = __nvvm_ex2_approx_ftz_f(0.7213475204444817f * x.v);
  return root * root;
#else
  return exp(x);
#endif
}

}  // namespace fast_float
namespace plain_double {

// of e^r = 1 + r + r^2 p(r)
// From -0.3466 to 0.3466, to 2^-32: python -m benchmarks.coefficients exp_below
static __constant__ const double EXP_BELOW[] = {0.5000000013457727,    0.16666666681614256,   0.04166646500604005,
                                                0.008333310934448869,  0.0013933641031986701, 0.00019890980869750327};

// x, or -709.25 in place of what is below, of which the power's exponent is that of 0; NaN stays.
HOST_DEVICE double at_least_zeros(double x) {
  constexpr uint32_t LEAST = 0xc0862a00, INFINITE = 0xfff00000;  // the upper words of -709.25 and -infinity
  uint32_t words[2];
  memcpy(words, &x, sizeof(words));
  words[1] = words[1] - LEAST <= INFINITE - LEAST ? LEAST : words[1];
  memcpy(&x, words, sizeof(x));
  return x;
}

// e^x to a relative error of 2^-32, of an x up to 0; 0 where it would be subnormal
HOST_DEVICE PlainDouble exp_below(PlainDouble x) {
  constexpr double TO_INTEGER = 0x1.8p52;
  const double t = at_least_zeros(x.v);
  const double shifted = ::fma(t, 1.4426950408889634, TO_INTEGER), n = shifted - TO_INTEGER;
  const double r = reduce(t, n), rise = r * ::fma(r, polynomial(EXP_BELOW, r), 1.0);
  uint32_t words[2];
  memcpy(words, &shifted, sizeof(words));
  words[1] = (words[0] + 1023) << 20, words[0] = 0;
  double size;  // 2^n
  memcpy(&size, words, sizeof(size));
  return ::fma(rise, size, size);
}

}  // namespace plain_double
}  // namespace
}  // namespace fusegen
