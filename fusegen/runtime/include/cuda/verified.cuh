#pragma once
// 16-bit kernels whose results are rounded as those of double are (Ziv's rounding test). What the fast functions give
// errs by less than MARGIN as a rule, by more where an argument is large or terms cancel next to a zero; where so
// little decides how a result is rounded, double computes it. Source: Ziv 1991, ACM Trans. Math. Softw. 17.
#include "launcher.h"
#include "cuda/fast_float.cuh"
#include "cuda/pointwise.cuh"

namespace fusegen {
namespace {

// The scalars, in double too.
template <class F>
struct VerifiedParams : ParamsOf<F, FastFloat> {
  ParamsOf<F, double> in_double;
  template <int P>
  static VerifiedParams from(const double (&given)[P]) {
    return {ParamsOf<F, FastFloat>::from(given), ParamsOf<F, double>::from(given)};
  }
};

template <class F>
struct Ziv : F {
  using F::INPUTS, F::OUTPUTS;
  static constexpr bool TWO_PHASES = true;
  template <typename>
  using Params = VerifiedParams<F>;
  static constexpr float MARGIN = 0x1p-21f, ABOVE = 1 + MARGIN, BELOW = 1 - MARGIN;
  template <typename T>
  static __device__ __forceinline__ bool try_fast(const FastFloat* in, FastFloat* out, const VerifiedParams<F>& p) {
    F::template element<T>(in, out, p);
    bool all = true;
#pragma unroll
    for (int k = 0; k < OUTPUTS; ++k) {
      T above, below;
      store(above, out[k].v * ABOVE);
      store(below, out[k].v * BELOW);
      all = all && bit_cast<uint16_t>(above) == bit_cast<uint16_t>(below);
    }
    return all;
  }
  template <typename T, int N>
  static __device__ __forceinline__ uint32_t undecided(Vector<T> (&v)[N], const VerifiedParams<F>& p) {
    constexpr int WIDTH = 8;
    FastFloat out[WIDTH][OUTPUTS];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      FastFloat in[INPUTS];
#pragma unroll
      for (int k = 0; k < INPUTS; ++k) in[k] = load(v[k].at[e]);
      F::template element<T>(in, out[e], p);
    }
    Vector<uint32_t> differ[OUTPUTS];  // pairs of elements, as one conversion gives them
    uint32_t any = 0, open = 0;
#pragma unroll
    for (int k = 0; k < OUTPUTS; ++k) {
      Vector<uint32_t> above;
#pragma unroll
      for (int i = 0; i < WIDTH / 2; ++i) {
        const float a = out[2 * i][k].v, b = out[2 * i + 1][k].v;
        above.at[i] = pack(T(), a * ABOVE, b * ABOVE);
        differ[k].at[i] = above.at[i] ^ pack(T(), a * BELOW, b * BELOW);
        any |= differ[k].at[i];
      }
      v[INPUTS + k] = bit_cast<Vector<T>>(above);
    }
    if (any != 0) {
#pragma unroll
      for (int k = 0; k < OUTPUTS; ++k) {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) {
          const uint32_t first = (differ[k].at[i] & 0xffff) != 0, second = differ[k].at[i] > 0xffff;
          open |= (first | second << 1) << 2 * i;
        }
      }
    }
    return open;
  }
  template <typename T>
  static __device__ __forceinline__ void fallback(const FastFloat* in, FastFloat* out, const VerifiedParams<F>& p) {
    double x[INPUTS], y[OUTPUTS];
#pragma unroll
    for (int k = 0; k < INPUTS; ++k) x[k] = in[k].v;
    F::template element<T>(x, y, p.in_double);
#pragma unroll
    for (int k = 0; k < OUTPUTS; ++k) out[k] = round_to_odd(y[k]);
  }
  template <typename T, typename M>
  static __device__ __forceinline__ void element(const M* in, M* out, const VerifiedParams<F>& p) {
    fast_or_fallback<Ziv, T, M>(in, out, p);
  }
};

}  // namespace

// The method: FAST, unless its error decides the rounding; then EXACT.
template <typename FAST, typename EXACT>
struct Verified;
template <>
struct Verified<FastFloat, double> {
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    return fusegen::launch<Ziv<F>, T, FastFloat>(call);
  }
  template <class F, typename T>
  static cudaError_t reduce(const CallOf<F>& call, void* workspace) {
    return reduce_with<Ziv<F>, T, FastFloat>(call, workspace);
  }
};

}  // namespace fusegen
