#pragma once
// The element types on CUDA: loads into the type that is computed in, and stores, rounded to nearest, ties to even.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "basics.h"
#include "call.h"

namespace fusegen {
namespace {

template <int DTYPE>
struct ElementOf;
template <>
struct ElementOf<FLOAT16> {
  using type = __half;
};
template <>
struct ElementOf<FLOAT32> {
  using type = float;
};
template <>
struct ElementOf<FLOAT64> {
  using type = double;
};
template <>
struct ElementOf<BFLOAT16> {
  using type = __nv_bfloat16;
};

HOST_DEVICE float load(float v) { return v; }
HOST_DEVICE float load(__half v) { return __half2float(v); }
HOST_DEVICE float load(__nv_bfloat16 v) { return __bfloat162float(v); }
HOST_DEVICE double load(double v) { return v; }
HOST_DEVICE uint16_t load(uint16_t v) { return v; }
HOST_DEVICE void store(float& y, float v) { y = v; }
HOST_DEVICE void store(__half& y, float v) { y = __float2half_rn(v); }
HOST_DEVICE void store(__nv_bfloat16& y, float v) { y = __float2bfloat16_rn(v); }
HOST_DEVICE void store(double& y, double v) { y = v; }
HOST_DEVICE void store(uint16_t& y, uint16_t v) { y = v; }

// Stores a result, rounded from the type that it was computed in.
template <typename T, typename M>
HOST_DEVICE void store_rounded(T& y, M v) {
  store(y, decltype(load(T()))(v));
}

// Two results of 16 bits as one 32-bit word, by one conversion.
HOST_DEVICE uint32_t pack(__half, float a, float b) { return bit_cast<uint32_t>(__floats2half2_rn(a, b)); }
HOST_DEVICE uint32_t pack(__nv_bfloat16, float a, float b) { return bit_cast<uint32_t>(__floats2bfloat162_rn(a, b)); }

// Eager's rounding to the element type between two of its operations.
template <typename T, typename M>
HOST_DEVICE M round_to_storage(M v) {
  T stored;
  store(stored, v);
  return load(stored);
}
// Eager's operations on 16-bit elements, and on wider ones.
template <typename T, typename M>
HOST_DEVICE M select_by_width(M narrow, M wide) {
  return sizeof(T) == 2 ? narrow : wide;
}

}  // namespace
}  // namespace fusegen
