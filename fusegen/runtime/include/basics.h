#pragma once
// The first header of both devices.
#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __NVCC_DIAG_PRAGMA_SUPPORT__
#pragma nv_diag_suppress 177  // a kernel calls few of the functions that the headers define
#endif
// A function for both devices: inline, and on CUDA __device__.
#ifdef __CUDACC__
#define HOST_DEVICE __device__ __forceinline__
#define HOST_DEVICE_NOINLINE __device__ __noinline__
#define UNROLL _Pragma("unroll")
#else
#define HOST_DEVICE inline
#define HOST_DEVICE_NOINLINE inline
#define UNROLL _Pragma("GCC unroll 32")
#endif
// Inlined in a loop at all times: a call would keep the loop from being vectorised.
#define ALWAYS_INLINE __attribute__((always_inline)) inline

namespace fusegen {
namespace {

using std::fabs;
using std::fma;

// A number of a function for several types, where float has another one than the nearest.
template <typename M>
HOST_DEVICE M constant(float of_float, double of_double) {
  if constexpr (sizeof(M) == 8) return M(of_double);
  else return M(of_float);
}

// True if x is 0, or neither tiny nor huge: beside such a number another one can stand for an infinity.
template <typename M>
HOST_DEVICE bool is_ordinary(M x) {
  const M size = fabs(x);
  return (size == M(0)) | ((size >= M(0x1p-40)) & (size <= M(0x1p40)));
}

// x, or a number of a given size where it is infinite.
template <typename M>
HOST_DEVICE M replace_infinity(M x, M size) {
  return x == M(INFINITY) ? size : x == -M(INFINITY) ? -size : x;
}

// y, or an infinity where it is huge and x is infinite, for which a number stood in y.
template <typename R, typename Y, typename M>
HOST_DEVICE R restore_infinity(Y y, M x) {
  return fabs(x) == M(INFINITY) ? R(fabs(M(y)) > M(0x1p64) ? y * M(INFINITY) : y) : R(y);
}

// y, or an infinity where it is huge and x was replaced by another number.
template <typename R, typename Y, typename M>
HOST_DEVICE R restore_replaced(Y y, M finite, M x) {
  return finite == x ? R(y) : R(fabs(M(y)) > M(0x1p64) ? y * M(INFINITY) : y);
}

// c[0] + c[1] x + c[2] x^2 + ..., by Horner's scheme.
template <typename M, int N>
HOST_DEVICE M polynomial(const M (&c)[N], M x) {
  M y = c[N - 1];
  UNROLL
  for (int k = N - 2; k >= 0; --k) y = fma(y, x, c[k]);
  return y;
}

// The bits of a number in one type as a number of another.
template <typename To, typename From>
HOST_DEVICE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// 2^n in float, for an n from -126 to 127; 0 and infinity next to these.
template <typename M>
HOST_DEVICE M exp2i(int32_t n) {
  const uint32_t bits = uint32_t(n + 127) << 23;
  M y;
  memcpy(&y, &bits, sizeof(y));
  return y;
}

// A double as a float, rounded to odd: the last bit is set if the float is inexact, so that rounding it once more to
// fewer digits rounds as the double would be rounded.
[[maybe_unused]] HOST_DEVICE float round_to_odd(double v) {
  float y = float(v);
  if (double(y) == v) return y;
  uint32_t bits;
  memcpy(&bits, &y, sizeof(bits));
  bits = (bits - (std::fabs(double(y)) > std::fabs(v))) | 1;
  memcpy(&y, &bits, sizeof(y));
  return y;
}

}  // namespace
}  // namespace fusegen
