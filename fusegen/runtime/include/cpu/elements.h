#pragma once
// The element types on the CPU: conversions to the type that is computed in, and back, rounded to nearest, ties to
// even.
#include <cstdint>
#if __has_include(<torch/headeronly/util/Half.h>)
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#else
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#endif
#ifdef __F16C__
#include <immintrin.h>
#endif
#include "basics.h"
#include "call.h"

namespace fusegen {
namespace {

template <int DTYPE>
struct ElementOf;
template <>
struct ElementOf<FLOAT16> {
  using type = c10::Half;
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
  using type = c10::BFloat16;
};

inline float load(float v) { return v; }
inline float load(c10::Half v) { return v; }
inline float load(c10::BFloat16 v) { return v; }
inline double load(double v) { return v; }

// A value rounded once to what is stored.
template <typename T>
inline T cast_to_storage(float y) {
  return T(y);
}
template <typename T>
inline T cast_to_storage(double y) {
  if constexpr (sizeof(T) == 2) return T(round_to_odd(y));
  return T(y);
}

// Eager's rounding to the element type between two of its operations.
template <typename T, typename M>
inline M round_to_storage(M v) {
  return load(T(v));
}

// Conversions of n elements in a row.
template <typename T, typename M>
inline void widen(const T* in, M* out, int64_t n) {
  for (int64_t k = 0; k < n; ++k) out[k] = load(in[k]);
}
template <typename T, typename M>
inline void narrow(const M* in, T* out, int64_t n) {
  for (int64_t k = 0; k < n; ++k) out[k] = cast_to_storage<T>(in[k]);
}
#ifdef __F16C__  // eight at a time: GCC does not find these instructions in the loops above
inline void widen(const c10::Half* in, float* out, int64_t n) {
  int64_t k = 0;
  for (; k + 8 <= n; k += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + k));
    _mm256_storeu_ps(out + k, _mm256_cvtph_ps(halves));
  }
  for (; k < n; ++k) out[k] = load(in[k]);
}
inline void narrow(const float* in, c10::Half* out, int64_t n) {
  int64_t k = 0;
  for (; k + 8 <= n; k += 8) {
    const __m256 floats = _mm256_loadu_ps(in + k);
    const __m128i halves = _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + k), halves);
  }
  for (; k < n; ++k) out[k] = c10::Half(in[k]);
}
#endif

}  // namespace
}  // namespace fusegen
