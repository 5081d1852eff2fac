#pragma once
// The type that 16-bit results are computed in: a float with fast functions, whose errors of a few ulp of float are far
// below half an ulp of the result. ex2 and rcp are the SFU's 2^x and 1 / x, to 2 ulp; both flush subnormals, so a value
// that may be as small is exp4_approx(x) = 4^x, the square of ex2(x). Source: ex2.approx and rcp.approx as the PTX ISA
// describes them.
#include "cuda/math.cuh"

namespace fusegen {
namespace {
namespace fast_float {

HOST_DEVICE float ex2(float x) {
#ifdef __CUDACC__
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
#else
  return exp2f(x);
#endif
}
HOST_DEVICE float rcp(float x) {
#ifdef __CUDACC__
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
#else
  return 1.0f / x;
#endif
}
HOST_DEVICE float exp4_approx(float x) {
  const float root = ex2(x);
  return root * root;
}

struct FastFloat {
  __host__ HOST_DEVICE FastFloat(float v = 0) : v(v) {}
  HOST_DEVICE explicit operator float() const { return v; }
  friend HOST_DEVICE FastFloat operator+(FastFloat a, FastFloat b) { return a.v + b.v; }
  friend HOST_DEVICE FastFloat operator-(FastFloat a, FastFloat b) { return a.v - b.v; }
  friend HOST_DEVICE FastFloat operator*(FastFloat a, FastFloat b) { return a.v * b.v; }
  friend HOST_DEVICE FastFloat operator/(FastFloat a, FastFloat b) {
    return a.v * (0.25f * rcp(0.25f * b.v));  // a quarter, since it flushes the inverse of the largest
  }
  friend HOST_DEVICE FastFloat operator-(FastFloat a) { return -a.v; }
  friend HOST_DEVICE bool operator<(FastFloat a, FastFloat b) { return a.v < b.v; }
  friend HOST_DEVICE bool operator<=(FastFloat a, FastFloat b) { return a.v <= b.v; }
  friend HOST_DEVICE bool operator>(FastFloat a, FastFloat b) { return a.v > b.v; }
  friend HOST_DEVICE bool operator>=(FastFloat a, FastFloat b) { return a.v >= b.v; }
  friend HOST_DEVICE bool operator==(FastFloat a, FastFloat b) { return a.v == b.v; }
  friend HOST_DEVICE bool operator!=(FastFloat a, FastFloat b) { return a.v != b.v; }
  float v;
};

// The math library's own.
HOST_DEVICE FastFloat fabs(FastFloat x) { return fabsf(x.v); }
HOST_DEVICE FastFloat sqrt(FastFloat x) { return sqrtf(x.v); }
HOST_DEVICE FastFloat exp2(FastFloat x) { return exp2f(x.v); }
HOST_DEVICE FastFloat log(FastFloat x) { return logf(x.v); }
HOST_DEVICE FastFloat log2(FastFloat x) { return log2f(x.v); }
HOST_DEVICE FastFloat log1p(FastFloat x) { return log1pf(x.v); }
HOST_DEVICE FastFloat sin(FastFloat x) { return sinf(x.v); }
HOST_DEVICE FastFloat cos(FastFloat x) { return cosf(x.v); }
HOST_DEVICE FastFloat tanh(FastFloat x) { return tanhf(x.v); }
HOST_DEVICE FastFloat erf(FastFloat x) { return erff(x.v); }
HOST_DEVICE FastFloat fma(FastFloat a, FastFloat b, FastFloat c) { return fmaf(a.v, b.v, c.v); }

// Double-word operations: a single word is enough here, and the tails of 16 bits are no smaller than those of a float.
HOST_DEVICE FastFloat double_word(FastFloat hi, FastFloat lo) { return hi; }
HOST_DEVICE FastFloat two_prod(FastFloat a, FastFloat b) { return a * b; }
HOST_DEVICE FastFloat two_sum(FastFloat a, FastFloat b) { return a + b; }
HOST_DEVICE FastFloat scaled(FastFloat x, FastFloat hi, FastFloat lo) { return x * hi; }
HOST_DEVICE FastFloat quotient(FastFloat a, FastFloat b) { return a / b; }
HOST_DEVICE FastFloat product_plus(FastFloat a, FastFloat b, FastFloat c, FastFloat d) {
  return fmaf(a.v * b.v, c.v, d.v);
}
HOST_DEVICE FastFloat prescaled(FastFloat x) { return x; }
HOST_DEVICE FastFloat unscale(FastFloat x) { return 1.0f; }
HOST_DEVICE FastFloat linear(FastFloat b, FastFloat b_lo, FastFloat a, FastFloat a_lo, FastFloat x) {
  return fmaf(b.v, x.v, a.v + a_lo.v);
}

}  // namespace fast_float

using fast_float::FastFloat;

template <>
struct Words<FastFloat> {
  using single = FastFloat;
  using two = FastFloat;
};

}  // namespace
}  // namespace fusegen
