#pragma once
// Rows on CUDA with values in float32 beside elements of 16 bits: kernels reach these by pointers to elements.
#include "cuda/rows.cuh"
#include "row_wide_values.h"

namespace fusegen {
namespace {

// A phase that reads incoming gradients has the values of its kernel, but for numbers that were saved.
template <class VALUES>
struct WithoutSaved {
  using type = VALUES;
};
template <class VALUES, int COUNT>
struct WithoutSaved<WithSaved<VALUES, COUNT>> {
  using type = VALUES;
};
template <class PHASE, class KERNEL, int COUNT>
constexpr bool LOADS_ROW<PHASE, WithWideValues<KERNEL, COUNT>> =
    std::is_base_of_v<LoadsRow<typename WithoutSaved<typename KERNEL::Values>::type>, PHASE>;

// An element of T in memory, which is a value of a row to functions that load or store one.
template <typename T>
struct ElementOrValue {
  T* at;
  __device__ __forceinline__ operator T&() const { return *at; }
};
template <typename T>
__device__ __forceinline__ double load(const ElementOrValue<T>& from) {
  return double(value_at(from.at));
}
template <typename T, typename M>
__device__ __forceinline__ void store_result(const ElementOrValue<T>& to, M v) {
  if constexpr (sizeof(T) == 2) value_at(to.at) = float(double(v));
  else store_result(*to.at, v);
}

// A pointer to elements, of which phases of elements take the whole, and others what it points to.
template <typename T>
struct PointerToEither {
  T* to;
  __device__ __forceinline__ operator T*() const { return to; }
  __device__ __forceinline__ ElementOrValue<T> operator*() const { return {to}; }
  template <typename I>
  __device__ __forceinline__ ElementOrValue<T> operator[](I place) const {
    return {to + place};
  }
};

template <class KERNEL, int COUNT, typename T, typename K>
struct Unit<WithWideValues<KERNEL, COUNT>, T, K> : Unit<KERNEL, T, K> {};

// A row whose tensors such pointers lead to; loads of elements are those of KERNEL.
template <class KERNEL, int COUNT, typename T, bool APART>
struct RowOf<WithWideValues<KERNEL, COUNT>, T, APART> : RowOf<KERNEL, T, APART> {
  using Own = RowOf<KERNEL, T, APART>;
  __device__ __forceinline__ RowOf(const CallOf<KERNEL>& call, int64_t row) : Own(call, row) {
#pragma unroll
    for (int k = 0; k < Own::N; ++k) data[k].to = Own::data[k];
  }
  PointerToEither<T> data[Own::N];
};

}  // namespace
}  // namespace fusegen
