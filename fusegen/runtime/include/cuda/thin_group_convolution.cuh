#pragma once
// A convolution of few input channels, and the kernel behind it, by warpgroups: the same sums as in
// thin_convolution.cuh, for chips whose tensor cores read both factors from shared memory.
#include "cuda/thin_convolution.cuh"
#include "cuda/thin_group_tiles.cuh"

namespace fusegen {
namespace {

constexpr int GROUP_WINDOW = 2;  // steps, of which there may be one less, whose sums the tensor cores round
constexpr int PRODUCER_REGISTERS = 32, CONSUMER_REGISTERS = 160;

// Where the factors of a unit's products lie.
struct GroupUnit {
  const GroupFactor* offsets;  // of pixels, by step
  uint32_t weights, weights_rest, input, input_rest;
};
__device__ __forceinline__ GroupFactor weights_of(uint32_t from, int step) {
  return {from + uint32_t(step * 2 * GROUP_ROWS), GROUP_ROWS};
}
__device__ __forceinline__ GroupFactor pixels_of(uint32_t from, const GroupFactor& offset) {
  return {from + offset.at, offset.halves};
}

// The sums of some steps. The small products come first, and are rounded as such.
template <int COUNT>
__device__ __forceinline__ void sum_steps(const GroupUnit& unit, int first, GroupSums& sums) {
  GroupFactor pixels[COUNT];
#pragma unroll
  for (int s = 0; s < COUNT; ++s) pixels[s] = unit.offsets[first + s];
  begin_products();
#pragma unroll
  for (int s = 0; s < COUNT; ++s) {
    const GroupFactor w = weights_of(unit.weights, first + s), rest = pixels_of(unit.input_rest, pixels[s]);
    if (s == 0) multiply_group<Onto::ZERO>(sums, w, rest);
    else multiply_group<Onto::SUMS>(sums, w, rest);
    multiply_group<Onto::SUMS>(sums, weights_of(unit.weights_rest, first + s), pixels_of(unit.input, pixels[s]));
  }
#pragma unroll
  for (int s = 0; s < COUNT; ++s)
    multiply_group<Onto::SUMS>(sums, weights_of(unit.weights, first + s), pixels_of(unit.input, pixels[s]));
  end_products(sums);
}

// Calls a function with each sum of a thread and its place.
template <class FUNCTION>
__device__ __forceinline__ void for_each(GroupSums& sums, const FUNCTION& function) {
#pragma unroll
  for (int j = 0; j < GROUP_PAIRS; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) function(sums.at[j][k / 2][k % 2], j, k / 2, k % 2);
  }
}

template <int COUNT>
__device__ __forceinline__ void add_steps(const GroupUnit& unit, int first, GroupSums& sums) {
  GroupSums more;
  sum_steps<COUNT>(unit, first, more);
  for_each(sums, [&](float& of, int j, int row, int column) { of += more.at[j][row][column]; });
}

// Puts the sums of big products in place of those that are not finite: the small products of an infinity may be NaN,
// and those that overflow of another sign, where the big ones alone are what float32 gives.
__device__ __forceinline__ void mend_infinities(const GroupUnit& unit, int steps, GroupSums& sums) {
  GroupSums big;
  for_each(big, [](float& of, int, int, int) { of = 0.0f; });
  begin_products();
#pragma unroll 1
  for (int s = 0; s < steps; ++s)
    multiply_group<Onto::SUMS>(big, weights_of(unit.weights, s), pixels_of(unit.input, unit.offsets[s]));
  end_products(big);
  for_each(sums, [&](float& of, int j, int row, int column) {
    if (!(fabsf(of) < INFINITY)) of = big.at[j][row][column];
  });
}

// Two pixels side by side, as a thread writes them: in the output, how far from the first of the image, and whether
// each is in the tile.
struct PixelPair {
  Pixel at;
  int offset;
  bool there[2];
};
__device__ __forceinline__ PixelPair pair_of(const GroupPlan& plan, const Place& at, int number) {
  const Convolution& of = plan.of;
  const int y = int(quotient(uint32_t(number), plan.pitch)), x = number - y * int(plan.pitch.size);
  const int columns = y < min(plan.rows, of.out_height - at.y) ? min(plan.columns, of.out_width - at.x) : 0;
  const Pixel in_image = {min(at.y + y, of.out_height - 1), min(at.x + x, of.out_width - 1)};
  return {in_image, (at.y + y) * of.out_width + (at.x + x), {x < columns, x + 1 < columns}};
}

// Computes what comes behind the sums of 8 channels, and writes it, WIDTH pixels at once.
template <class F, typename M, Operands OPERANDS, int WIDTH>
__device__ __forceinline__ void write_channels(const CallOf<F>& call, const GroupPlan& plan, int image, int channel,
                                               const PixelPair (&pairs)[2], const float* stage,
                                               const ParamsOf<F, M>& p) {
  const Convolution& of = plan.of;
  M in[STAGE_ROWS][F::INPUTS], out[1];
  float made[STAGE_ROWS][2][2];
#pragma unroll
  for (int row = 0; row < STAGE_ROWS; ++row) {
    const int own = min(channel + row, of.out_channels - 1);
    if (OPERANDS == Operands::OF_CHANNELS) load_operands<float, F>(call, image, own, {0, 0}, in[row]);
#pragma unroll
    for (int k = 0; k < 2 * 2; ++k) {
      const Pixel& at = pairs[k / 2].at;
      const float2 sums = *reinterpret_cast<const float2*>(stage + row * STAGE_PITCH + k / 2 * (GROUP_COLUMNS / 2));
      if (OPERANDS == Operands::OF_PIXELS)
        load_operands<float, F>(call, image, own, {at.y, min(at.x + k % 2, of.out_width - 1)}, in[row]);
      in[row][0] = k % 2 ? sums.y : sums.x;
      F::template element<float>(in[row], out, p);
      store_rounded(made[row][k / 2][k % 2], out[0]);
    }
  }
  const int64_t area = int64_t(of.out_height) * of.out_width;
  float* const to = static_cast<float*>(call.data[F::INPUTS]) + (int64_t(image) * of.out_channels + channel) * area;
#pragma unroll
  for (int row = 0; row < STAGE_ROWS; ++row) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float(&v)[2] = made[row][k];
      const bool is_channel = channel + row < of.out_channels;
      float* const pixel = to + (row * area + pairs[k].offset);
      if (WIDTH == 2) {
        write_if(is_channel && pairs[k].there[0], pixel, v[0], v[1]);
      } else {
        write_if(is_channel && pairs[k].there[0], pixel, v[0]);
        write_if(is_channel && pairs[k].there[1], pixel + 1, v[1]);
      }
    }
  }
}

// Brings the sums of a warp to shared memory, 8 channels at a time, so that it writes pixels side by side.
template <class F, typename M>
__device__ __forceinline__ void write_unit(const CallOf<F>& call, const GroupPlan& plan, int group, int tile, int unit,
                                           const GroupSums& sums, float* stage, const ParamsOf<F, M>& p) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) % WARPGROUP / 32, first = unit * GROUP_COLUMNS;
  const Place at = place_of(plan, tile);
  const PixelPair pairs[2] = {pair_of(plan, at, first + 2 * lane),
                              pair_of(plan, at, first + GROUP_COLUMNS / 2 + 2 * lane)};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < GROUP_PAIRS; ++j)
      *reinterpret_cast<float2*>(stage + lane / 4 * STAGE_PITCH + j * 8 + lane % 4 * 2) =
          make_float2(sums.at[j][half][0], sums.at[j][half][1]);
    __syncwarp();
    const int channel = group * GROUP_ROWS + warp * 16 + half * STAGE_ROWS;
    const float* const own = stage + 2 * lane;
    const auto write = [&](auto width) {
      constexpr int WIDTH = decltype(width)::value;
      if (plan.strided) write_channels<F, M, Operands::OF_PIXELS, WIDTH>(call, plan, at.image, channel, pairs, own, p);
      else write_channels<F, M, Operands::OF_CHANNELS, WIDTH>(call, plan, at.image, channel, pairs, own, p);
    };
    if (plan.pairs) write(std::integral_constant<int, 2>());
    else write(std::integral_constant<int, 1>());
  }
}

// The tiles of a block, and where its shared memory begins.
struct Share {
  int group, first, turn;  // of output channels; the first tile, and how far it is to the next
  float4* quads;
};

// The barriers at which a consumer waits for the input of a slot, and the producer for the slot.
__device__ __forceinline__ int brought(int slot, int consumer) { return 1 + slot * CONSUMERS + consumer; }
__device__ __forceinline__ int computed(int slot, int consumer) { return 1 + (2 + slot) * CONSUMERS + consumer; }

__device__ __forceinline__ void produce(const GroupPlan& plan, const Share& share, Large& large) {
  int slot = 0, waits = 0;
  for (int tile = share.first; tile < plan.tiles; tile += share.turn, slot ^= 1, waits = min(waits + 1, 2)) {
    for (int k = 0; k < CONSUMERS && waits == 2; ++k) wait_at(computed(slot, k));
    float4* const input = share.quads + plan.input + slot * 2 * plan.part;
    if (bring_tile(plan, tile, input)) large.tile[slot] = tile;
    show_to_products();
    for (int k = 0; k < CONSUMERS; ++k) arrive_at(brought(slot, k));
  }
}

// Computes every third unit of all tiles.
template <class F, typename M>
__device__ __forceinline__ void consume(const CallOf<F>& call, const GroupPlan& plan, const Share& share, int who,
                                        const Large& large, const ParamsOf<F, M>& p) {
  float* const stage = reinterpret_cast<float*>(share.quads + plan.stage) + int(threadIdx.x) / 32 * STAGE;
  const auto offsets = reinterpret_cast<const GroupFactor*>(share.quads + plan.offsets);
  const uint32_t weights = quad_of(share.quads);
  int number = who, slot = 0;
#pragma unroll 1
  for (int tile = share.first; tile < plan.tiles; tile += share.turn, slot ^= 1) {
    wait_at(brought(slot, who));
#pragma unroll 1
    for (; number < plan.units; number += CONSUMERS) {
      const uint32_t input = weights + uint32_t(plan.input + slot * 2 * plan.part + number * GROUP_COLUMNS);
      const GroupUnit unit = {offsets, weights, weights + uint32_t(plan.input / 2), input, input + uint32_t(plan.part)};
      GroupSums sums;
      int step = min(GROUP_WINDOW, plan.steps);
      if (step < GROUP_WINDOW) sum_steps<1>(unit, 0, sums);
      else sum_steps<GROUP_WINDOW>(unit, 0, sums);
#pragma unroll 1
      for (; step + GROUP_WINDOW <= plan.steps; step += GROUP_WINDOW) add_steps<GROUP_WINDOW>(unit, step, sums);
#pragma unroll 1
      for (; step < plan.steps; ++step) add_steps<1>(unit, step, sums);
      if (large.tile[slot] == tile || large.weights) mend_infinities(unit, plan.steps, sums);
      write_unit<F, M>(call, plan, share.group, tile, number, sums, stage, p);
    }
    number -= plan.units;
    arrive_at(computed(slot, who));
  }
}

template <class F, typename M>
__global__ void __launch_bounds__(GROUP_THREADS, 1)
    thin_group_convolution(const __grid_constant__ CallOf<F> call, const __grid_constant__ GroupPlan plan,
                           const ParamsOf<F, M> p) {
  extern __shared__ uint4 memory[];
  __shared__ Large large;
  const int block = int(blockIdx.x), blocks = int(gridDim.x);
  const Share share = {block % plan.groups, block / plan.groups, blocks / plan.groups,
                       reinterpret_cast<float4*>(memory)};
  if (threadIdx.x == 0) large = {{-1, -1}, 0};
  __syncthreads();
  prepare(plan, share.group, share.quads, large);
  for (int i = plan.input + int(threadIdx.x); i < plan.offsets; i += GROUP_THREADS)
    share.quads[i] = make_float4(0, 0, 0, 0);
  show_to_products();
  __syncthreads();
  const int who = __shfl_sync(~0u, int(threadIdx.x) / WARPGROUP, 0);  // one number for a warp, as the compiler sees
  if (who == CONSUMERS) {
    leave_registers<PRODUCER_REGISTERS>();
    produce(plan, share, large);
  } else {
    take_registers<CONSUMER_REGISTERS>();
    consume<F, M>(call, plan, share, who, large, p);
  }
}

}  // namespace
}  // namespace fusegen
