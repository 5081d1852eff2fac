#pragma once
// Tiles of a convolution's output, as the threads of a block share them out and bring them to and from shared memory.
#include <cuda_pipeline_primitives.h>
#include "convolution.h"
#include "cuda/access.cuh"
#include "cuda/launch.cuh"

namespace fusegen {
namespace {

constexpr int LEFT = 2, BLOCK_ROWS = 32;  // fragments of weights in a warp; output channels of a block
constexpr int LEAST_ACROSS = 5;           // log2 of the columns of the narrowest tile: the pixels of a warp

// The tiles of a block: each warp has GROUPS times 8 pixels of all output channels of the block.
template <int THREADS, int GROUPS>
struct ThinShape {
  static constexpr int WARPS = THREADS / 32, OF_WARP = GROUPS * 8, PIXELS = WARPS * OF_WARP;
  static constexpr int PITCH = PIXELS + 8;  // of results in shared memory: no two threads meet in a bank
  static constexpr int BLOCKS = (GROUPS >= 4 ? 512 : 768) / THREADS;  // on an SM, by their registers
  template <typename T>
  static constexpr int RESULTS = sizeof(T) == 4 ? 0 : BLOCK_ROWS * PITCH;  // in shared memory, before they are written
};
template <typename T>
constexpr int PARTS = sizeof(T) == 4 ? 2 : 1;  // TF32 numbers of a factor

// The work of a block: tiles of `across` by `down` pixels, from the part of the input that they read.
struct ThinPlan {
  Convolution of;
  int steps;                                // of 8 terms
  int across, down;                         // log2 of the columns and rows of a tile
  int rows, columns, pitch, plane, planes;  // of a tile of the input in shared memory
  int lead;                                 // elements before its first column, where vectors are read
  Divisor in_line, lines;                   // vectors or elements of a row; rows
  Divisor tiles_across, tiles_down;
  int tiles, groups;      // tiles of all images; groups of output channels
  int row;                // elements of a row of the results in shared memory
  int width;              // bytes of the output that are written at once
  bool vectors, strided;  // reads the input in vectors; has operands that differ within an image
};

// The first pixel of a tile.
struct Place {
  int image, y, x;
};
__device__ __forceinline__ Place place_of(const ThinPlan& plan, int tile) {
  const uint32_t strip = quotient(uint32_t(tile), plan.tiles_across), image = quotient(strip, plan.tiles_down);
  return {int(image), int(strip - image * plan.tiles_down.size) << plan.down,
          int(uint32_t(tile) - strip * plan.tiles_across.size) << plan.across};
}

// A few elements side by side.
template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Run {
  T at[WIDTH];
};

// Copies a run, or zeros where it is not inside; bytes of 4 and more past the registers.
template <typename T, int WIDTH>
__device__ __forceinline__ void fetch_run(T* to, const T* from, bool inside) {
  if constexpr (sizeof(T) * WIDTH >= 4) {
    __pipeline_memcpy_async(to, from, sizeof(T) * WIDTH, inside ? 0 : sizeof(T) * WIDTH);
  } else {
    T v;
    store(v, 0.0f);
    *to = inside ? *from : v;
  }
}

// Brings the part of the input that a tile reads into shared memory, WIDTH elements at a time, which are all inside of
// the image or all outside, with zeros there.
template <typename T, int WIDTH>
__device__ __forceinline__ void fetch_tile(const ThinPlan& plan, int tile, T* to) {
  const Convolution& of = plan.of;
  const Place at = place_of(plan, tile);
  const int top = at.y * of.stride_y - of.padding_y, left = at.x * of.stride_x - of.padding_x - plan.lead;
  const T* const image = static_cast<const T*>(of.x) + int64_t(at.image) * of.channels * of.height * of.width;
  const int all = of.channels * plan.rows * int(plan.in_line.size);
#pragma unroll 2
  for (int i = int(threadIdx.x); i < all; i += int(blockDim.x)) {
    const int line = int(quotient(uint32_t(i), plan.in_line)), column = (i - line * int(plan.in_line.size)) * WIDTH;
    const int channel = int(quotient(uint32_t(line), plan.lines)), row = line - channel * plan.rows;
    const int y = top + row, x = left + column;
    const bool inside = uint32_t(y) < uint32_t(of.height) && uint32_t(x) < uint32_t(of.width);
    const T* const from = inside ? image + ((channel * of.height + y) * of.width + x) : image;
    fetch_run<T, WIDTH>(to + line * plan.pitch + column, from, inside);
  }
  __pipeline_commit();
}

// Writes two neighbours of a row, the first of which begins a pair where rows have an even length.
template <typename T>
__device__ __forceinline__ void write_pair(const ThinPlan& plan, const Place& at, int channel, const Run<T, 2>& made,
                                           T* to) {
  const Convolution& of = plan.of;
  if (channel >= of.out_channels || at.y >= of.out_height || at.x >= of.out_width) return;
  to += ((int64_t(at.image) * of.out_channels + channel) * of.out_height + at.y) * of.out_width + at.x;
  if (plan.width >= int(2 * sizeof(T))) {
    *reinterpret_cast<Run<T, 2>*>(to) = made;
  } else {
    to[0] = made.at[0];
    if (at.x + 1 < of.out_width) to[1] = made.at[1];
  }
}

// Writes a tile out of shared memory, WIDTH elements at a time, of which all lengths are multiples: a warp has whole
// channels. Where a tile has whole rows of the image, they lie side by side in both.
template <typename T, int WIDTH, class SHAPE>
__device__ __forceinline__ void write_tile(const ThinPlan& plan, int group, const Place& at, const T* results, T* to) {
  const Convolution& of = plan.of;
  const int lane = int(threadIdx.x) % 32, area = of.out_height * of.out_width;
  const int rows = min(1 << plan.down, of.out_height - at.y), columns = min(plan.row, of.out_width - at.x);
  const bool whole = columns == of.out_width && plan.row == of.out_width;
  const int runs = whole ? 1 : rows, length = whole ? rows * columns : columns;
  const int first = group * BLOCK_ROWS;
  to += (int64_t(at.image) * of.out_channels + first) * area + (at.y * of.out_width + at.x);
#pragma unroll 1
  for (int c = int(threadIdx.x) / 32; c < BLOCK_ROWS && first + c < of.out_channels; c += SHAPE::WARPS) {
#pragma unroll 1
    for (int run = 0; run < runs; ++run) {
      const T* const from = results + c * SHAPE::PITCH + run * plan.row;
      T* const row = to + int64_t(c) * area + run * of.out_width;
#pragma unroll 2
      for (int i = lane * WIDTH; i < length; i += 32 * WIDTH)
        *reinterpret_cast<Run<T, WIDTH>*>(row + i) = *reinterpret_cast<const Run<T, WIDTH>*>(from + i);
    }
  }
}

}  // namespace
}  // namespace fusegen
