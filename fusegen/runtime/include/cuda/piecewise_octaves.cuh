#pragma once
// Float kernels by the cubic polynomials of each octave.
#include "cuda/lazy_init.cuh"
#include "cuda/octave_fit.cuh"
#include "cuda/pointwise.cuh"

namespace fusegen {
namespace {
namespace piecewise_octaves {

template <class F>
struct OctavesKernel : F {
  using F::INPUTS;
  static constexpr bool TWO_PHASES = true;
  static constexpr int RESIDENT_THREADS = 1536;
  // Stores a polynomial's value, times the incoming gradient if it is a slope; true if it is the result.
  static __device__ __forceinline__ bool store_if_valid(float y, const float* in, float* out) {
    out[0] = INPUTS == 1 ? y : in[0] * y;
    return out[0] == out[0] && (INPUTS == 1 || fabsf(y) < INFINITY);
  }
  template <typename>
  static __device__ __forceinline__ bool try_fast(const float* in, float* out, const ParamsOf<F, float>&) {
    const float x = in[INPUTS - 1];
    const uint4 by = bits_per_piece<F>;
    const Place at = place(x, by);
    const float y = value(cubics<F>[at.piece], at.t);
    return store_if_valid(y == y ? y : value_in_subpiece<F>(x, by), in, out);
  }
  template <typename T, int N>
  static __device__ __forceinline__ uint32_t undecided(Vector<T> (&v)[N], const ParamsOf<F, float>&) {
    const Vector<T>& x = v[INPUTS - 1];
    const uint4 by = bits_per_piece<F>;
    float y[4];
    bool given = true;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const Place at = place(x.at[e], by);
      y[e] = value(cubics<F>[at.piece], at.t);
      given = given && y[e] == y[e];
    }
    if (!given) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (y[e] != y[e]) y[e] = value_in_subpiece<F>(x.at[e], by);
    }
    uint32_t open = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float in[INPUTS];
#pragma unroll
      for (int k = 0; k < INPUTS; ++k) in[k] = v[k].at[e];
      open |= uint32_t(!store_if_valid(y[e], in, &v[INPUTS].at[e])) << e;
    }
    return open;
  }
  template <typename>
  static __device__ __forceinline__ void fallback(const float* in, float* out, const ParamsOf<F, float>&) {
    double x[INPUTS], y[1];
#pragma unroll
    for (int k = 0; k < INPUTS; ++k) x[k] = in[k];
    F::template element<float>(x, y, fitted_with<F>());
    out[0] = float(y[0]);
  }
  template <typename T, typename M>
  static __device__ __forceinline__ void element(const M* in, M* out, const ParamsOf<F, M>& p) {
    fast_or_fallback<OctavesKernel, T, M>(in, out, p);
  }
};

}  // namespace piecewise_octaves
}  // namespace

// The method: the pieces of each octave.
struct PiecewiseOctaves {
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    using namespace piecewise_octaves;
    static std::atomic<uint64_t> scalars_kept{0}, tried_out{0}, chosen{0}, fitted_out{0}, parted{0};
    cudaError_t error = cudaSuccess;
    if constexpr (F::SCALARS > 0) error = filled<F>(call, keep<F>, 1, scalars_kept);
    if (error == cudaSuccess) error = filled<F>(call, try_levels<F>, 2 * PIECES, tried_out);
    if (error == cudaSuccess) error = filled<F>(call, choose_levels<F>, 2 * CLASSES, chosen);
    if (error == cudaSuccess) error = filled<F>(call, fit<F>, 2 * PIECES, fitted_out);
    if (error == cudaSuccess) error = filled<F>(call, subdivide<F>, 2 * PIECES, parted);
    return error == cudaSuccess ? fusegen::launch<OctavesKernel<F>, float, float>(call) : error;
  }
};

}  // namespace fusegen
