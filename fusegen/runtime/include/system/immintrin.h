#ifndef FUSEGEN_IMMINTRIN_H
#define FUSEGEN_IMMINTRIN_H
// In place of immintrin.h in builds for the CPU: the intrinsics that kernels use, as GCC defines them. To read all of
// them takes a quarter of a second.
#if defined(__F16C__) && defined(__GNUC__) && !defined(__clang__) && !defined(_IMMINTRIN_H_INCLUDED)
#define _MM_FROUND_TO_NEAREST_INT 0
typedef float __m256 __attribute__((vector_size(32), may_alias));
typedef float fusegen_unaligned_floats __attribute__((vector_size(32), may_alias, aligned(1)));
typedef long long __m128i __attribute__((vector_size(16), may_alias));
typedef long long fusegen_unaligned_integers __attribute__((vector_size(16), may_alias, aligned(1)));
typedef short fusegen_shorts __attribute__((vector_size(16)));
typedef float fusegen_floats __attribute__((vector_size(16)));
#define FUSEGEN_INTRINSIC __attribute__((always_inline, artificial)) inline

// Between pointers to vectors whose alignment alone differs, a cast is none for GCC: it takes the address as aligned.
FUSEGEN_INTRINSIC __m128i _mm_loadu_si128(const __m128i* from) {
  return *static_cast<const fusegen_unaligned_integers*>(static_cast<const void*>(from));
}
FUSEGEN_INTRINSIC void _mm_storeu_si128(__m128i* to, __m128i v) {
  *static_cast<fusegen_unaligned_integers*>(static_cast<void*>(to)) = v;
}
FUSEGEN_INTRINSIC __m256 _mm256_loadu_ps(const float* from) {
  return *reinterpret_cast<const fusegen_unaligned_floats*>(from);
}
FUSEGEN_INTRINSIC void _mm256_storeu_ps(float* to, __m256 v) { *reinterpret_cast<fusegen_unaligned_floats*>(to) = v; }
FUSEGEN_INTRINSIC __m256 _mm256_cvtph_ps(__m128i v) { return __builtin_ia32_vcvtph2ps256((fusegen_shorts)v); }
#define _mm256_cvtps_ph(V, ROUNDING) ((__m128i)__builtin_ia32_vcvtps2ph256(V, ROUNDING))
FUSEGEN_INTRINSIC float _cvtsh_ss(unsigned short v) {
  return __builtin_ia32_vcvtph2ps((fusegen_shorts){(short)v, 0, 0, 0, 0, 0, 0, 0})[0];
}
#define _cvtss_sh(V, ROUNDING) \
  ((unsigned short)__builtin_ia32_vcvtps2ph((fusegen_floats){V, 0, 0, 0}, ROUNDING)[0])
#else
#include_next <immintrin.h>
#endif
#endif
