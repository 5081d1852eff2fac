#pragma once
// The left factor of a step, of which shared memory has 128 rows of 32 terms in float32, as a thread's registers
// multiply it: a thread has two rows of its warp's 16.
//
// The copy engine brings rows whose terms lie together in one box, and those whose terms lie apart in four, of 32
// rows each, of which 128 bytes have one term. Rows are dealt out to lanes so that those that read at once meet
// different banks.
#include "cuda/halves.cuh"
#include "cuda/matrix_multiply.cuh"
#include "cuda/swizzled_products.cuh"
#include "linear.h"

namespace fusegen {
namespace {

constexpr int LEFT_BYTES = LEFT_ROWS * BOX_BYTES;
constexpr int BOX_ROWS = 32;  // of a left factor whose terms lie apart

template <Terms TERMS>
struct LeftBox;

template <>
struct LeftBox<Terms::TOGETHER> {
  // The row, of eight, that a thread has: eight lanes that read pairs at once have four rows, all even or all odd.
  static __device__ __forceinline__ int own_row() { return threadIdx.x % 16 / 4 * 2 + threadIdx.x % 32 / 16; }
  static __device__ __forceinline__ const float* at(const uint8_t* box, int row, int term) {
    return reinterpret_cast<const float*>(box + swizzled_part(row, term / 4)) + term % 4;
  }
  static __device__ __forceinline__ float2 pair(const uint8_t* box, int row, int term) {
    return *reinterpret_cast<const float2*>(at(box, row, term));
  }
};
template <>
struct LeftBox<Terms::APART> {
  static __device__ __forceinline__ int own_row() { return threadIdx.x % 32 / 4; }
  static __device__ __forceinline__ const float* at(const uint8_t* boxes, int row, int term) {
    const uint8_t* const box = boxes + row / BOX_ROWS * STEP * BOX_BYTES;
    return reinterpret_cast<const float*>(box + swizzled_part(term, row % BOX_ROWS / 4)) + row % 4;
  }
  static __device__ __forceinline__ float2 pair(const uint8_t* boxes, int row, int term) {
    return make_float2(*at(boxes, row, term), *at(boxes, row, term + 1));
  }
};

// The terms of a step in halves: of each 16, both firsts and rests; and what takes the rows' powers of two back. A
// row has one power of two for a step, so that halves hold rows of any range.
struct HalvesOfStep {
  LeftTerms big[STEP / 16], small[STEP / 16];
  float back[2];
};
template <Terms TERMS>
__device__ __forceinline__ HalvesOfStep halves_of_step(const uint8_t* box, int first_row) {
  HalvesOfStep made;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + r * 8 + LeftBox<TERMS>::own_row();
    float2 x[STEP / 8];
    float largest = 0;
#pragma unroll
    for (int eight = 0; eight < STEP / 8; ++eight) {
      x[eight] = LeftBox<TERMS>::pair(box, row, eight * 8 + threadIdx.x % 4 * 2);
      largest = fmaxf(largest, fmaxf(fabsf(x[eight].x), fabsf(x[eight].y)));
    }
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    const int exponent = exponent_for(largest);
    const float scale = power_of_two(exponent);
    made.back[r] = power_of_two(-exponent);
#pragma unroll
    for (int eight = 0; eight < STEP / 8; ++eight) {
      const HalfPairs pairs = in_halves(x[eight].x * scale, x[eight].y * scale);
      made.big[eight / 2].at[eight % 2 * 2 + r] = pairs.big;
      made.small[eight / 2].at[eight % 2 * 2 + r] = pairs.small;
    }
  }
  return made;
}

// The terms of a step in TF32: of each 8, firsts and rests.
struct Tf32OfStep {
  LeftTerms big[STEP / 8], rest[STEP / 8];
};
template <Terms TERMS>
__device__ __forceinline__ Tf32OfStep tf32_of_step(const uint8_t* box, int first_row) {
  Tf32OfStep made;
#pragma unroll
  for (int eight = 0; eight < STEP / 8; ++eight)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int row = first_row + k % 2 * 8 + LeftBox<TERMS>::own_row();
      const float x = *LeftBox<TERMS>::at(box, row, eight * 8 + k / 2 * 4 + threadIdx.x % 4);
      const Tf32Parts parts = SplitAll::split(x);
      made.big[eight].at[k] = parts.big, made.rest[eight].at[k] = parts.rest;
    }
  return made;
}

}  // namespace
}  // namespace fusegen
