#ifndef FUSEGEN_HALF_H
#define FUSEGEN_HALF_H
// In place of torch/headeronly/util/Half.h and BFloat16.h in builds for the CPU: what kernels use of them, by the same
// instructions. To read these, and the streams of C++ that they include, takes a compiler a third of a second.
#if defined(__F16C__) && defined(__GNUC__) && !defined(__clang__) && !defined(_IMMINTRIN_H_INCLUDED)
#include <cstdint>
#include <cstring>
#include <limits>
#include <immintrin.h>

namespace c10 {

struct alignas(2) Half {
  uint16_t x;
  Half() = default;
  Half(float value) : x(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  operator float() const { return _cvtsh_ss(x); }
};

struct alignas(2) BFloat16 {
  uint16_t x;
  BFloat16() = default;
  BFloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    x = __builtin_isnan(value) ? 0x7FC0 : uint16_t((bits + ((bits >> 16) & 1) + 0x7FFF) >> 16);
  }
  operator float() const {
    const uint32_t bits = uint32_t(x) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
};

}  // namespace c10

template <>
struct std::numeric_limits<c10::Half> {
  static constexpr int digits = 11, min_exponent = -13;
};
template <>
struct std::numeric_limits<c10::BFloat16> {
  static constexpr int digits = 8, min_exponent = -125;
};
#else
#include_next <torch/headeronly/util/BFloat16.h>
#include_next <torch/headeronly/util/Half.h>
#endif
#endif
