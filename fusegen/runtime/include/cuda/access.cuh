#pragma once
// The access of a thread to elements of tensors of several shapes or layouts.
#include "call.h"
#include "cuda/vector.cuh"

namespace fusegen {
namespace {

constexpr int MOST_DIMS = 4;

// A divisor of numbers below 2^31. Source: Granlund and Montgomery 1994, PLDI.
struct Divisor {
  uint32_t size, multiplier, shift;
};
Divisor divisor(int64_t size) {
  uint32_t shift = 0;
  while ((int64_t(1) << shift) < size) ++shift;
  return {uint32_t(size), uint32_t((((uint64_t(1) << shift) - uint64_t(size)) << 32) / uint64_t(size) + 1), shift};
}
__device__ __forceinline__ uint32_t quotient(uint32_t n, const Divisor& by) {
  return uint32_t((uint64_t(n) * by.multiplier >> 32) + n) >> by.shift;
}

// The access of a thread to a vector of a tensor.
enum class Access : int {
  FLAT,      // in the order of the elements, by vectors
  VECTOR,    // along the innermost dimension, by vectors
  CONSTANT,  // one element for all of the innermost dimension
  ELEMENTS   // one by one
};

// The access to tensor k by vectors of elements T.
template <typename T, int N>
Access access_of(const Tensors<N>& call, int k) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  const int inner = call.rank - 1;
  const bool aligned = reinterpret_cast<uintptr_t>(call.data[k]) % 16 == 0;
  bool flat = aligned, vectors = aligned && call.size[inner] % WIDTH == 0 && call.stride[k][inner] == 1;
  int64_t run = 1;
  for (int d = inner; d >= 0; run *= call.size[d--]) {
    flat = flat && (call.size[d] == 1 || call.stride[k][d] == run);
    vectors = vectors && (d == inner || call.stride[k][d] % WIDTH == 0);
  }
  if (flat || vectors) return flat ? Access::FLAT : Access::VECTOR;
  return call.stride[k][inner] == 0 ? Access::CONSTANT : Access::ELEMENTS;
}

}  // namespace
}  // namespace fusegen
