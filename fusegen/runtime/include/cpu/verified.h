#pragma once
// 16-bit results whose rounding is verified (Ziv's rounding test): those of float, but where float's error bound leaves
// the rounding undecided, double's. Source: Ziv 1991, ACM Trans. Math. Softw. 17.
#include "launcher.h"
#include <limits>
#include "cpu/loops.h"

namespace fusegen {
namespace {

// Element j of a tile's outputs as double gives it.
template <class F, typename T, int N>
void in_double(const float (&m)[N][TILE], int64_t j, T* const (&data)[N], const CallOf<F>& call) {
  double in[F::INPUTS], out[F::OUTPUTS];
  for (int k = 0; k < F::INPUTS; ++k) in[k] = m[k][j];
  F::template element<T>(in, out, params<ParamsOf<F, double>>(call));
  for (int k = 0; k < F::OUTPUTS; ++k) data[F::INPUTS + k][j] = cast_to_storage<T>(out[k]);
}

// True if a result is within MAX_ULP float ulp of a midpoint between two values of T, so that float's error bound
// leaves its rounding undecided, or not finite, as a factor may overflow before another makes the product finite.
// Subnormals of T take the places of the least of its normals.
template <typename T>
inline bool rounding_undecided(float y) {
  using Limits = std::numeric_limits<T>;
  constexpr uint32_t HALF = 1u << (23 - Limits::digits), MAX_ULP = 6;
  const float least = exp2i<float>(Limits::min_exponent - 1), size = std::fabs(y);
  const float shifted = size < least ? size + least : size;
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof(bits));
  return (((bits - (HALF - MAX_ULP)) & (2 * HALF - 1)) <= 2 * MAX_ULP) | !(size < INFINITY);
}

// Rounds a tile's outputs; double computes those that UNDECIDED says.
template <class F, typename T, int N, typename UNDECIDED>
inline void round_verified(const float (&m)[N][TILE], int64_t n, T* const (&data)[N], const CallOf<F>& call,
                           const UNDECIDED& undecided) {
  uint8_t open[TILE] = {};
  for (int k = F::INPUTS; k < N; ++k) {
    narrow(m[k], data[k], n);
    for (int64_t j = 0; j < n; ++j) open[j] |= undecided(m[k][j]);
  }
  for (const uint8_t* at = open; (at = static_cast<const uint8_t*>(memchr(at, 1, open + n - at))) != nullptr; ++at)
    in_double<F>(m, at - open, data, call);
}

}  // namespace

// The method: FAST, unless its error decides the rounding; then EXACT.
template <typename FAST, typename EXACT>
struct Verified;
template <>
struct Verified<float, double> {
  using type = float;
  template <typename T>
  static constexpr bool IN_TILES = true;
  template <class F>
  static bool prepare() {
    return true;
  }
  template <class F, typename T, int N>
  static void compute(float (&m)[N][TILE], int64_t n, T* const (&data)[N], const CallOf<F>& call,
                      const ParamsOf<F, float>& p) {
    tiled_loop<F, T, float>(m, n, p);
    round_verified<F>(m, n, data, call, [](float y) { return rounding_undecided<T>(y); });
  }
};

}  // namespace fusegen
