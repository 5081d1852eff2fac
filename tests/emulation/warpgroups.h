// Products of matrices by warpgroups, from factors in shared memory, and the barriers between them, on the CPU.

#pragma once

#include "warps.h"

#define __shared__ static

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __ldg(const float* from) { return *from; }

inline size_t __cvta_generic_to_shared(const void* p) { return size_t(static_cast<const char*>(p) - shared<char>()); }

// The number of a warp's first thread.
inline int __shfl_sync(unsigned, int number, int) { return votes.show(number)[0]; }

// What the tensor cores read of a term of a row of a factor.
template <class Factor>
double read_factor(const Factor& of, int row, int term) {
  const char* const quad = shared<char>() + (of.at + uint32_t(row) + uint32_t(term / 4) * of.halves) * 16;
  uint32_t bits;
  std::memcpy(&bits, quad + term % 4 * 4, sizeof bits);
  return read_tf32(bits);
}

// Each thread computes its own sums; the sums of columns that no pixel is behind may be anything.
template <bool ONTO_ZERO, class Sums, class Factor>
void multiply_by_group(Sums& sums, const Factor& rows, const Factor& columns) {
  const int lane = int(threadIdx.x % 32), first = int(threadIdx.x % 128) / 32 * 16 + lane / 4;
  for (int j = 0; j < 16; ++j)
    for (int k = 0; k < 4; ++k) {
      float& sum = sums.at[j][k / 2][k % 2];
      double all = ONTO_ZERO ? 0.0 : double(sum);
      for (int term = 0; term < 8; ++term)
        all += read_factor(rows, first + k / 2 * 8, term) * read_factor(columns, j * 8 + lane % 4 * 2 + k % 2, term);
      sum = float(all);
    }
}

// Barriers by number, at which so many threads of a block arrive; those that wait go on when all have.
inline Barrier barriers[16];
inline void arrive_among(int number, unsigned threads) { barriers[number].arrive(threads); }
inline void wait_among(int number, unsigned threads) { barriers[number].wait(threads); }
