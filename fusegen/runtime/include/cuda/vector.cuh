#pragma once
// Where elements lie, and 16-byte vectors of them.
#include "cuda/elements.cuh"

namespace fusegen {
namespace {

// The index of an element: a division by 64 bits would cost more than all the rest.
template <bool DENSE>
using Index = std::conditional_t<DENSE, int64_t, uint32_t>;

// Where element i of each tensor lies.
template <bool DENSE, int N>
__device__ __forceinline__ void locate(const Tensors<N>& call, Index<DENSE> i, int64_t (&at)[N]) {
  for (int64_t& place : at) place = DENSE ? int64_t(i) : 0;
  if constexpr (!DENSE) {
    for (int d = call.rank - 1; d > 0; --d) {
      const uint32_t size = uint32_t(call.size[d]), rest = i / size, index = i - rest * size;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += int64_t(index) * call.stride[k][d];
      i = rest;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] += int64_t(i) * call.stride[k][0];
  }
}

template <typename T>
struct alignas(16) Vector {
  T at[16 / sizeof(T)];
};

// The vector at p; one element throughout where the input stands still along the innermost dimension.
template <typename T>
__device__ __forceinline__ Vector<T> vector(const T* p, bool moves) {
  if (moves) return *reinterpret_cast<const Vector<T>*>(p);
  Vector<T> v;
#pragma unroll
  for (T& element : v.at) element = *p;
  return v;
}

// Element e of the outputs, from element e of the inputs.
template <class F, typename T, typename M, int N>
__device__ __forceinline__ void element(Vector<T> (&v)[N], int e, const ParamsOf<F, M>& p) {
  M in[F::INPUTS], out[F::OUTPUTS];
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) in[k] = load(v[k].at[e]);
  F::template element<T>(in, out, p);
#pragma unroll
  for (int k = 0; k < F::OUTPUTS; ++k) store_rounded(v[F::INPUTS + k].at[e], out[k]);
}

}  // namespace
}  // namespace fusegen
