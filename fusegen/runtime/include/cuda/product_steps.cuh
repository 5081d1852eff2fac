#pragma once
// A step of a product, by halves or by TF32: the factors of 32 terms, split, and their products.
#include "cuda/left_terms.cuh"
#include "cuda/split_right.cuh"

namespace fusegen {
namespace {

constexpr int MULTIPLIERS = 2 * WARPGROUP;  // threads of a block that multiply

// Products by halves.
template <int COLUMNS_, Terms TERMS>
struct ByHalves {
  static constexpr int COLUMNS = COLUMNS_, SCRATCH = 0;
  static constexpr int BOX_COLUMNS = 2 * STEP;  // of the right factor: halves of a step
  static constexpr Terms TERMS_OF_LEFT = TERMS;
  static __device__ __forceinline__ bool owns(int known) { return known != NOT_BY_HALVES; }
  static __device__ __forceinline__ bool has_work(int others, int columns) { return others < columns; }
  static __device__ __forceinline__ int exponent(int known) { return known; }

  HalvesOfStep left;
  uint32_t right;
  __device__ __forceinline__ ByHalves(const uint8_t* left, const uint8_t* right, int first_row, uint8_t*)
      : left(halves_of_step<TERMS>(left, first_row)), right(place_of(right)) {}
  __device__ __forceinline__ void multiply(SumsOfThread<COLUMNS>& sums) const {
    constexpr int TERMS_BYTES = 32, RESTS = 64;  // of 16 terms; from the firsts to the rests
    multiply_halves<Onto::ZERO>(sums, left.small[0], right);
    multiply_halves<Onto::SUMS>(sums, left.big[0], right + RESTS);
    multiply_halves<Onto::SUMS>(sums, left.small[1], right + TERMS_BYTES);
    multiply_halves<Onto::SUMS>(sums, left.big[1], right + TERMS_BYTES + RESTS);
    multiply_halves<Onto::SUMS>(sums, left.big[0], right);
    multiply_halves<Onto::SUMS>(sums, left.big[1], right + TERMS_BYTES);
  }
  __device__ __forceinline__ float back(int row) const { return left.back[row]; }
};

// Products by TF32. Both warpgroups together split the right factor in shared memory, in one of two places in turn:
// when both have come to a step, nobody reads what was split two steps before.
template <Terms TERMS>
struct ByTf32 {
  static constexpr int COLUMNS = GROUP, RIGHT_BYTES = COLUMNS * BOX_BYTES, PLACE = 2 * RIGHT_BYTES, SCRATCH = 2 * PLACE;
  static constexpr int BOX_COLUMNS = STEP, BOTH_HERE = 3;
  static constexpr Terms TERMS_OF_LEFT = TERMS;
  static __device__ __forceinline__ bool owns(int known) { return known == NOT_BY_HALVES; }
  static __device__ __forceinline__ bool has_work(int others, int) { return others > 0; }
  static __device__ __forceinline__ int exponent(int) { return 0; }

  Tf32OfStep left;
  uint32_t right;
  __device__ __forceinline__ ByTf32(const uint8_t* left, const uint8_t* right, int first_row, uint8_t* place)
      : left(tf32_of_step<TERMS>(left, first_row)), right(place_of(place)) {
#pragma unroll
    for (int part = threadIdx.x * 16; part < RIGHT_BYTES; part += MULTIPLIERS * 16) {
      const float4 x = *reinterpret_cast<const float4*>(right + part);
      const Tf32Parts p[] = {SplitAll::split(x.x), SplitAll::split(x.y), SplitAll::split(x.z), SplitAll::split(x.w)};
      *reinterpret_cast<uint4*>(place + part) = make_uint4(p[0].big, p[1].big, p[2].big, p[3].big);
      *reinterpret_cast<uint4*>(place + RIGHT_BYTES + part) = make_uint4(p[0].rest, p[1].rest, p[2].rest, p[3].rest);
    }
    show_to_products();
    wait_at(BOTH_HERE);
  }
  __device__ __forceinline__ void multiply(SumsOfThread<COLUMNS>& sums) const {
    constexpr int TERMS_BYTES = 32;  // of 8 terms
#pragma unroll
    for (int eight = 0; eight < STEP / 8; ++eight) {
      const uint32_t at = right + eight * TERMS_BYTES;
      if (eight == 0) multiply_tf32<Onto::ZERO>(sums, left.rest[eight], at);
      else multiply_tf32<Onto::SUMS>(sums, left.rest[eight], at);
      multiply_tf32<Onto::SUMS>(sums, left.big[eight], at + RIGHT_BYTES);
    }
#pragma unroll
    for (int eight = 0; eight < STEP / 8; ++eight)
      multiply_tf32<Onto::SUMS>(sums, left.big[eight], right + eight * TERMS_BYTES);
  }
  __device__ __forceinline__ float back(int) const { return 1.0f; }
};

}  // namespace
}  // namespace fusegen
