#pragma once
// Tiles of a convolution for warpgroups. One, the producer, brings the input of a tile to shared memory, split into
// TF32 numbers, while others compute the tile before. Four channels of a pixel lie side by side, a quad. The output's
// pixels are columns of a product, and what they read for one element of the kernel lies as they do, so that a product
// reads it where it is. Where the stride is 2, odd and even rows and columns lie in planes of their own.
#include "cuda/thin_tiles.cuh"
#include "cuda/warpgroups.cuh"

namespace fusegen {
namespace {

constexpr int CONSUMERS = 3;                            // warpgroups that compute
constexpr int GROUP_THREADS = WARPGROUP * (CONSUMERS + 1);
constexpr int BATCH = 4;                                // quads that a thread of the producer loads at once
constexpr int STAGE_ROWS = 8, STAGE_PITCH = GROUP_COLUMNS + 8;  // of results that a warp exchanges
constexpr int STAGE = STAGE_ROWS * STAGE_PITCH;

// The work of a block. Sizes of shared memory are in quads.
struct GroupPlan {
  Convolution of;
  int steps;                         // of 8 terms: two quads of weights and of pixels
  int rows, columns;                 // of a tile
  Divisor pitch, in_rows;            // pixels of a row, and rows, of a plane in shared memory
  Divisor phases_x, phases_y;        // planes for a stride: of columns, and of rows
  int plane, part;                   // of a plane, and of all planes of a tile
  int units;                         // of 128 pixels of a tile, unused ones at the end of rows among them
  int input, offsets, stage, quads;  // where in shared memory they begin; all of it
  Divisor tiles_across, tiles_down;  // of an image
  int tiles, groups;                 // tiles of all images; groups of 64 output channels
  bool pairs, strided;               // writes pairs of pixels; has operands that differ within an image
};

// Which tiles, and whether the weights, have a number that is not finite, or so large that products may overflow.
struct Large {
  int tile[2];  // the last one of a slot
  int weights;
};
__device__ __forceinline__ bool is_large(float x) { return !(fabsf(x) < 0x1p56f); }

__device__ __forceinline__ Place place_of(const GroupPlan& plan, int tile) {
  const uint32_t strip = quotient(uint32_t(tile), plan.tiles_across), image = quotient(strip, plan.tiles_down);
  return {int(image), int(strip - image * plan.tiles_down.size) * plan.rows,
          int(uint32_t(tile) - strip * plan.tiles_across.size) * plan.columns};
}

// The quads of weights of a step, by number, and where the pixels of each lie; the nearer one comes first. The last
// one of an odd number stands twice, with half its weights: a zero in its place would make NaN of an infinity.
struct Step {
  int quad[2], at[2];
};
__device__ __forceinline__ int offset_of(const GroupPlan& plan, int quad) {
  const Convolution& of = plan.of;
  const int area = of.kernel_height * of.kernel_width, channels = quad / area, tap = quad - channels * area;
  const int y = tap / of.kernel_width, x = tap - y * of.kernel_width;
  const int plane = (channels * of.stride_y + y % of.stride_y) * of.stride_x + x % of.stride_x;
  return plane * plan.plane + y / of.stride_y * int(plan.pitch.size) + x / of.stride_x;
}
__device__ __forceinline__ Step step_of(const GroupPlan& plan, int step) {
  const Convolution& of = plan.of;
  const int quads = (of.channels + QUAD - 1) / QUAD * of.kernel_height * of.kernel_width;
  const int first = 2 * step, second = min(first + 1, quads - 1), at = offset_of(plan, first);
  const int other = offset_of(plan, second);
  return other < at ? Step{{second, first}, {other, at}} : Step{{first, second}, {at, other}};
}

// Brings the weights of a block's output channels to shared memory, first their big parts, and the offsets of steps.
__device__ void prepare(const GroupPlan& plan, int group, float4* memory, Large& large) {
  const Convolution& of = plan.of;
  const int area = of.kernel_height * of.kernel_width, terms = of.channels * area;
  const int count = plan.steps * 2 * GROUP_ROWS * QUAD;
  float* const weights = reinterpret_cast<float*>(memory);
  for (int i = int(threadIdx.x); i < count; i += GROUP_THREADS) {
    const int half = i / (QUAD * GROUP_ROWS), row = group * GROUP_ROWS + i / QUAD % GROUP_ROWS;
    const Step step = step_of(plan, half / 2);
    const int quad = step.quad[half % 2], tap = quad % area, channel = quad / area * QUAD + i % QUAD;
    const float share = step.quad[0] == step.quad[1] ? 0.5f : 1.0f;
    const bool there = channel < of.channels && row < of.out_channels;
    const float* const from = static_cast<const float*>(of.weight) + (int64_t(row) * terms + channel * area + tap);
    const Tf32Parts parts = SplitAll::split(there ? *from : 0.0f);
    weights[i] = share * bit_cast<float>(parts.big), weights[count + i] = share * bit_cast<float>(parts.rest);
    if (is_large(bit_cast<float>(parts.big))) large.weights = 1;
  }
  GroupFactor* const offsets = reinterpret_cast<GroupFactor*>(memory + plan.offsets);
  for (int i = int(threadIdx.x); i < plan.steps; i += GROUP_THREADS) {
    const Step step = step_of(plan, i);
    offsets[i] = {uint32_t(step.at[0]), uint32_t(step.at[1] - step.at[0])};
  }
}

// Four channels of a pixel.
struct Quad {
  float at[QUAD];
};
__device__ __forceinline__ Quad load_quad(const GroupPlan& plan, const Place& at, const float* image, int number) {
  const Convolution& of = plan.of;
  const int line = int(quotient(uint32_t(number), plan.pitch)), plane = int(quotient(uint32_t(line), plan.in_rows));
  const int above = int(quotient(uint32_t(plane), plan.phases_x));
  const int channel = int(quotient(uint32_t(above), plan.phases_y)) * QUAD;
  const int row = line - plane * int(plan.in_rows.size), column = number - line * int(plan.pitch.size);
  const int phase_y = above - channel / QUAD * of.stride_y, phase_x = plane - above * of.stride_x;
  const int y = (at.y + row) * of.stride_y + phase_y - of.padding_y;
  const int x = (at.x + column) * of.stride_x + phase_x - of.padding_x;
  const bool inside = number < plan.part && uint32_t(y) < uint32_t(of.height) && uint32_t(x) < uint32_t(of.width);
  const int area = of.height * of.width;
  const float* const from = image + (inside ? channel * area + y * of.width + x : 0);
  Quad made;
#pragma unroll
  for (int e = 0; e < QUAD; ++e) made.at[e] = inside && channel + e < of.channels ? __ldg(from + e * area) : 0.0f;
  return made;
}

// Brings the input of a tile to shared memory: of all quads the big parts, then the rests. Returns true if a number of
// the thread is large.
__device__ __forceinline__ bool bring_tile(const GroupPlan& plan, int tile, float4* to) {
  const Place at = place_of(plan, tile);
  const int64_t image = int64_t(plan.of.channels) * plan.of.height * plan.of.width;
  const float* const from = static_cast<const float*>(plan.of.x) + at.image * image;
  bool large = false;
  for (int first = int(threadIdx.x) % WARPGROUP; first < plan.part; first += WARPGROUP * BATCH) {
    Quad v[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; ++k) v[k] = load_quad(plan, at, from, first + k * WARPGROUP);
#pragma unroll
    for (int k = 0; k < BATCH; ++k) {
      const int number = first + k * WARPGROUP;
      if (number >= plan.part) break;
      float big[QUAD], rest[QUAD];
#pragma unroll
      for (int e = 0; e < QUAD; ++e) {
        const Tf32Parts parts = SplitAll::split(v[k].at[e]);
        big[e] = bit_cast<float>(parts.big), rest[e] = bit_cast<float>(parts.rest);
        large = large || is_large(big[e]);
      }
      to[number] = make_float4(big[0], big[1], big[2], big[3]);
      to[plan.part + number] = make_float4(rest[0], rest[1], rest[2], rest[3]);
    }
  }
  return large;
}

}  // namespace
}  // namespace fusegen
