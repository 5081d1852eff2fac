#pragma once
// Kernels in double for every element type, since float loses too many digits.
#include "cuda/pointwise.cuh"

namespace fusegen {
namespace {

// The formula, whose results of 16 bits are floats rounded to odd. It stands below ByDouble, since sweeps take the
// kernel below one of two phases and would round its doubles twice: -1 - 2^-11 - 2^-24 to -1 in float16.
template <class F>
struct RoundedToOdd : F {
  template <typename T, typename M>
  static __device__ __forceinline__ void element(const M* in, M* out, const ParamsOf<F, M>& p) {
    F::template element<T>(in, out, p);
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int k = 0; k < F::OUTPUTS; ++k) out[k] = round_to_odd(double(out[k]));
    }
  }
};

// In double-word arithmetic an element is long: a call.
template <class F>
struct ByDouble : F {
  template <typename, typename M>
  static __device__ __forceinline__ bool try_fast(const M*, M*, const ParamsOf<F, M>&) {
    return false;
  }
  template <typename T, typename M>
  static __device__ __forceinline__ void fallback(const M* in, M* out, const ParamsOf<F, M>& p) {
    F::template element<T>(in, out, p);
  }
  template <typename T, typename M>
  static __device__ __forceinline__ void element(const M* in, M* out, const ParamsOf<F, M>& p) {
    if constexpr (std::is_same_v<M, double>) fast_or_fallback<ByDouble, T, M>(in, out, p);
    else fallback<T>(in, out, p);
  }
};

}  // namespace

// The method: the formula in M, which is double or PlainDouble, for elements of fewer bits.
template <typename M>
struct Widened {
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    return fusegen::launch<ByDouble<RoundedToOdd<F>>, T, M>(call);
  }
  template <class F, typename T>
  static cudaError_t reduce(const CallOf<F>& call, void* workspace) {
    return reduce_with<ByDouble<RoundedToOdd<F>>, T, M>(call, workspace);
  }
};

}  // namespace fusegen
