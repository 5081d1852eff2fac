#pragma once
// Products of small matrices by the tensor cores, in TF32 with float sums, from fragments that the 32 threads of a warp
// hold together. Source: mma.m16n8k8 as the PTX ISA describes it. A thread has the numbers group = lane / 4 and
// place = lane % 4. Chips before sm_80 have none of it: code for them computes nothing, and is not launched.
#include "basics.h"

namespace fusegen {
namespace {

constexpr int MMA_ROWS = 16, MMA_COLUMNS = 8, MMA_TERMS = 8;

// Of 16 rows and 8 terms: rows group and group + 8 of term place, then of term place + 4.
struct alignas(16) LeftFragment {
  uint32_t at[4];
};
// Of 8 terms and 8 columns: terms place and place + 4 of column group.
struct RightFragment {
  uint32_t at[2];
};
// Of 16 rows and 8 columns: columns 2 place and 2 place + 1 of row group, then of row group + 8.
struct SumFragment {
  float at[4];
};

// A number as the sum of two, of which the tensor cores read the first 19 bits: the nearest with 11 digits, ties away
// from 0, and the rest. The rest has 12 digits; to leave the last out is to round it, since what it stands for is a
// tie. The rest of an infinity and of NaN is NaN.
struct Tf32Parts {
  uint32_t big, rest;
};
__device__ __forceinline__ Tf32Parts split_as(float x, uint32_t rounded) {
  const uint32_t big = rounded & 0xffffe000;
  return {big, bit_cast<uint32_t>(x - bit_cast<float>(big))};
}
// Of finite numbers and infinities; NaN may become a zero or an infinity, and its rest is NaN.
struct SplitNumbers {
  static constexpr bool CHECKS = false;
  static __device__ __forceinline__ Tf32Parts split(float x) { return split_as(x, bit_cast<uint32_t>(x) + 0x1000); }
};
struct SplitAll {
  static constexpr bool CHECKS = true;
  static __device__ __forceinline__ Tf32Parts split(float x) {
    if (fabsf(x) < INFINITY) return SplitNumbers::split(x);
    return split_as(x, bit_cast<uint32_t>(x + x));  // a NaN with one of its first bits set
  }
};

// Adds the products of all left fragments with all right ones.
template <int LEFT, int RIGHT>
__device__ __forceinline__ void multiply_add(SumFragment (&sum)[LEFT][RIGHT], const LeftFragment (&a)[LEFT],
                                             const RightFragment (&b)[RIGHT]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#pragma unroll
  for (int i = 0; i < LEFT; ++i) {
#pragma unroll
    for (int j = 0; j < RIGHT; ++j) {
      float(&d)[4] = sum[i][j].at;
      asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[i].at[0]), "r"(a[i].at[1]), "r"(a[i].at[2]), "r"(a[i].at[3]), "r"(b[j].at[0]), "r"(b[j].at[1]));
    }
  }
#endif
}

}  // namespace
}  // namespace fusegen
