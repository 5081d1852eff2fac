#pragma once
// Tiles of a convolution's output, as the threads of a block share them out and bring their input to shared memory.
#include <cuda_pipeline_primitives.h>
#include "convolution.h"
#include "cuda/access.cuh"
#include "cuda/launch.cuh"

namespace fusegen {
namespace {

constexpr int LEFT = 2, BLOCK_ROWS = 32;  // fragments of weights in a warp; output channels of a block
constexpr int RUN = 4;                    // pixels side by side that a thread has the results of
constexpr int LEAST_COLUMNS = 32;         // of the narrowest tile that has not whole rows

// The tiles of a block: each warp has GROUPS times 8 pixels of all output channels of the block.
template <int THREADS, int GROUPS>
struct ThinShape {
  static constexpr int OF_WARP = GROUPS * 8, PIXELS = THREADS / 32 * OF_WARP;
  static constexpr int BLOCKS = (GROUPS >= 4 ? 512 : 768) / THREADS;  // on an SM, by their registers
};
template <typename T>
constexpr int PARTS = sizeof(T) == 4 ? 2 : 1;  // TF32 numbers of a factor

// The work of a block: tiles of the output, from the part of the input that they read.
struct ThinPlan {
  Convolution of;
  int steps;                         // of 8 terms
  Divisor columns;                   // of a tile
  int rows;                          // of a tile
  int in_rows, pitch, plane;         // of the input's tile in shared memory: rows, elements of a row and of a channel
  int planes;                        // its channels, and one of zeros where the last step has fewer than 8 terms
  int lead;                          // elements before its first column, where vectors are read
  Divisor in_line, in_lines;         // vectors or elements of a row that are read; rows
  Divisor tiles_across, tiles_down;  // of an image
  int tiles, groups;                 // tiles of all images; groups of output channels
  bool vectors, strided, runs;       // reads vectors; has operands that differ within an image; writes runs
};

// The first pixel of a tile.
struct Place {
  int image, y, x;
};
__device__ __forceinline__ Place place_of(const ThinPlan& plan, int tile) {
  const uint32_t strip = quotient(uint32_t(tile), plan.tiles_across), image = quotient(strip, plan.tiles_down);
  return {int(image), int(strip - image * plan.tiles_down.size) * plan.rows,
          int(uint32_t(tile) - strip * plan.tiles_across.size) * int(plan.columns.size)};
}

// A row and a column of a tile.
struct Pixel {
  int y, x;
};
__device__ __forceinline__ Pixel pixel_of(const ThinPlan& plan, int number) {
  const int y = int(quotient(uint32_t(number), plan.columns));
  return {y, number - y * int(plan.columns.size)};
}

// A line of a tile's output: pixels that lie side by side in memory. Whole rows are one line.
struct Lines {
  int count, length;
};
__device__ __forceinline__ Lines lines_of(const ThinPlan& plan, int rows, int columns) {
  const bool whole = int(plan.columns.size) == plan.of.out_width;
  return {whole ? 1 : rows, whole ? rows * columns : columns};
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
  const int all = of.channels * plan.in_rows * int(plan.in_line.size);
#pragma unroll 2
  for (int i = int(threadIdx.x); i < all; i += int(blockDim.x)) {
    const int line = int(quotient(uint32_t(i), plan.in_line)), column = (i - line * int(plan.in_line.size)) * WIDTH;
    const int channel = int(quotient(uint32_t(line), plan.in_lines)), row = line - channel * plan.in_rows;
    const int y = top + row, x = left + column;
    const bool inside = uint32_t(y) < uint32_t(of.height) && uint32_t(x) < uint32_t(of.width);
    const T* const from = inside ? image + ((channel * of.height + y) * of.width + x) : image;
    fetch_run<T, WIDTH>(to + channel * plan.plane + row * plan.pitch + column, from, inside);
  }
  __pipeline_commit();
}

// Writes the first elements of a run, of which a plan that writes runs has all or none.
template <typename T>
__device__ __forceinline__ void write_run(const ThinPlan& plan, const Run<T, RUN>& made, int count, T* to) {
  if (plan.runs) {
    if (count > 0) *reinterpret_cast<Run<T, RUN>*>(to) = made;
  } else {
#pragma unroll
    for (int e = 0; e < RUN; ++e)
      if (e < count) to[e] = made.at[e];
  }
}

}  // namespace
}  // namespace fusegen
