#pragma once
// A step of a product by one warp, by halves or by TF32: 32 terms of 16 rows and of some columns, with the sums in the
// order that warpgroups have (product_steps.cuh).
#include "cuda/product_steps.cuh"
#include "cuda/warp_products.cuh"

namespace fusegen {
namespace {

// The right factor of a step: of each 16 terms the firsts and the rests, of columns from one of the tile on.
struct RightHalves {
  RightTerms big[STEP / 16][COLUMN_GROUPS], small[STEP / 16][COLUMN_GROUPS];
  __device__ __forceinline__ RightHalves(const uint8_t* box, int first_column) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int group = 0; group < COLUMN_GROUPS; ++group) {
      const int column = first_column + group * 8 + lane % 8;
      const uint4 firsts = load_matrices(box + swizzled_part(column, lane / 8));
      const uint4 rests = load_matrices(box + swizzled_part(column, 4 + lane / 8));
      big[0][group] = {firsts.x, firsts.y}, big[1][group] = {firsts.z, firsts.w};
      small[0][group] = {rests.x, rests.y}, small[1][group] = {rests.z, rests.w};
    }
  }
};

template <Terms TERMS>
struct WarpHalves {
  using Tile = ByHalves<GROUP, TERMS>;  // whose tiles and columns it has
  using Right = RightHalves;
  static constexpr int COLUMNS = WARP_COLUMNS;
  static constexpr Terms TERMS_OF_LEFT = TERMS;
  static __device__ __forceinline__ bool owns(int known) { return Tile::owns(known); }
  static __device__ __forceinline__ int exponent(int known) { return Tile::exponent(known); }

  HalvesOfStep left;
  __device__ __forceinline__ WarpHalves(const uint8_t* left, int first_row)
      : left(halves_of_step<TERMS>(left, first_row)) {}
  __device__ __forceinline__ void multiply(SumsOfWarp& sums, const Right& right) const {
#pragma unroll
    for (int half = 0; half < STEP / 16; ++half)
      add_halves(sums, left.small[half], right.big[half]), add_halves(sums, left.big[half], right.small[half]);
#pragma unroll
    for (int half = 0; half < STEP / 16; ++half) add_halves(sums, left.big[half], right.big[half]);
  }
  __device__ __forceinline__ float back(int row) const { return left.back[row]; }
};

// The right factor of a step in float32, of which each eight terms are split when they are multiplied.
struct RightFloats {
  const uint8_t* box;
  int column;
  __device__ __forceinline__ RightFloats(const uint8_t* box, int first_column)
      : box(box), column(first_column + threadIdx.x % 32 / 4) {}
  __device__ __forceinline__ void split(int eight, RightTerms (&big)[COLUMN_GROUPS],
                                        RightTerms (&rest)[COLUMN_GROUPS]) const {
#pragma unroll
    for (int group = 0; group < COLUMN_GROUPS; ++group)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int term = eight * 8 + k * 4 + threadIdx.x % 4;
        const Tf32Parts parts = SplitAll::split(*LeftBox<Terms::TOGETHER>::at(box, column + group * 8, term));
        big[group].at[k] = parts.big, rest[group].at[k] = parts.rest;
      }
  }
};

template <Terms TERMS>
struct WarpTf32 {
  using Tile = ByTf32<TERMS>;
  using Right = RightFloats;
  static constexpr int COLUMNS = WARP_COLUMNS;
  static constexpr Terms TERMS_OF_LEFT = TERMS;
  static __device__ __forceinline__ bool owns(int known) { return Tile::owns(known); }
  static __device__ __forceinline__ int exponent(int known) { return Tile::exponent(known); }

  Tf32OfStep left;
  __device__ __forceinline__ WarpTf32(const uint8_t* left, int first_row)
      : left(tf32_of_step<TERMS>(left, first_row)) {}
  __device__ __forceinline__ void multiply(SumsOfWarp& sums, const Right& right) const {
    RightTerms big[COLUMN_GROUPS], rest[COLUMN_GROUPS];
#pragma unroll
    for (int eight = 0; eight < STEP / 8; ++eight) {
      right.split(eight, big, rest);
      add_tf32(sums, left.rest[eight], big), add_tf32(sums, left.big[eight], rest);
    }
#pragma unroll
    for (int eight = 0; eight < STEP / 8; ++eight) {
      right.split(eight, big, rest);
      add_tf32(sums, left.big[eight], big);
    }
  }
  __device__ __forceinline__ float back(int) const { return 1.0f; }
};

}  // namespace
}  // namespace fusegen
