#pragma once
// A float32 as the sum of two float16: its first 11 digits, and the next 11. Numbers are first brought near the
// largest float16 by a power of two that many of them share, so that few fall below the smallest.
#include <cuda_fp16.h>

#include "basics.h"

namespace fusegen {
namespace {

// The exponent e by which the largest of some magnitudes, times 2^e, lies in [2^14, 2^15); at most 126, of
// subnormals.
__device__ __forceinline__ int exponent_for(float largest) {
  const int e = 14 + 127 - int(bit_cast<uint32_t>(largest) >> 23);
  return e < 126 ? e : 126;
}
__device__ __forceinline__ float power_of_two(int e) { return bit_cast<float>(uint32_t(e + 127) << 23); }
// x * 2^e, of e from -252 to 254.
__device__ __forceinline__ float times_power(float x, int e) {
  return x * power_of_two(e >> 1) * power_of_two(e - (e >> 1));
}

// Two numbers as halves: both firsts, and both rests.
struct HalfPairs {
  uint32_t big, small;
};
__device__ __forceinline__ HalfPairs in_halves(float a, float b) {
  const __half2 big = __floats2half2_rn(a, b);
  const float2 whole = __half22float2(big);
  const __half2 small = __floats2half2_rn(a - whole.x, b - whole.y);
  return {bit_cast<uint32_t>(big), bit_cast<uint32_t>(small)};
}

}  // namespace
}  // namespace fusegen
