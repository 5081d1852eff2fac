#pragma once
// A convolution of few input channels, and the kernel behind it, as one kernel on the tensor cores: the output of the
// convolution is never in memory. It is a matrix product: of the weights, a row for each output channel, and of a
// matrix with a column for each output pixel, whose terms are elements of the input, read where they lie in shared
// memory. In float32 each factor is the sum of two TF32 numbers, big + small, and a product is big * big + (big * small
// + small * big), which errs by less than float32's own sums. 16-bit elements are TF32 numbers as they are.
#include <cuda_pipeline_primitives.h>
#include "convolution.h"
#include "cuda/access.cuh"
#include "cuda/launch.cuh"
#include "cuda/matrix_multiply.cuh"

namespace fusegen {
namespace {

constexpr int LEFT = 2, BLOCK_ROWS = LEFT * MMA_ROWS;  // output channels of a block
constexpr int LEAST_ACROSS = 3;                        // log2 of the columns of the narrowest tile

// How the threads of a block share out a tile of output pixels.
template <int THREADS, int GROUPS>
struct ThinShape {
  static constexpr int WARPS = THREADS / 32, OF_WARP = GROUPS * MMA_COLUMNS, PIXELS = WARPS * OF_WARP;
  static constexpr int PITCH = PIXELS + 8;  // of the sums in shared memory: no two threads meet in a bank
  static constexpr int BLOCKS = (GROUPS >= 4 ? 512 : 768) / THREADS;  // on an SM, by their registers
};
template <typename T>
constexpr int PARTS = sizeof(T) == 4 ? 2 : 1;  // TF32 numbers of a factor

// What a block does: tiles of `across` by `down` pixels, from the part of the input that they read.
struct ThinPlan {
  Convolution of;
  int steps;                                // of 8 terms
  int across, down;                         // log2 of the columns and rows of a tile
  int rows, columns, pitch, plane, planes;  // of a tile of the input in shared memory
  Divisor lines, tiles_across, tiles_down;  // `lines` divides by rows
  int tiles, groups;                        // tiles of all images; groups of output channels
  int width;                                // elements of the output that are written at once
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

__device__ __forceinline__ void fetch(float* to, const float* from, bool inside) {
  __pipeline_memcpy_async(to, from, 4, inside ? 0 : 4);
}
template <typename T>
__device__ __forceinline__ void fetch(T* to, const T* from, bool inside) {
  T v;
  store(v, 0.0f);
  *to = inside ? *from : v;
}

// Brings the part of the input that a tile reads into shared memory, with zeros around the image.
template <typename T>
__device__ __forceinline__ void fetch_tile(const ThinPlan& plan, int tile, T* to, int warps) {
  const Convolution& of = plan.of;
  const Place at = place_of(plan, tile);
  const int lane = int(threadIdx.x) % 32;
  const int top = at.y * of.stride_y - of.padding_y, left = at.x * of.stride_x - of.padding_x;
  const T* const image = static_cast<const T*>(of.x) + int64_t(at.image) * of.channels * of.height * of.width;
  for (int line = int(threadIdx.x) / 32; line < of.channels * plan.rows; line += warps) {
    const int channel = int(quotient(uint32_t(line), plan.lines)), row = line - channel * plan.rows, y = top + row;
    const T* const from = image + (channel * of.height + y) * of.width + left;
    T* const row_to = to + channel * plan.plane + row * plan.pitch;
    for (int column = lane; column < plan.columns; column += 32) {
      const bool inside = uint32_t(y) < uint32_t(of.height) && uint32_t(left + column) < uint32_t(of.width);
      fetch(row_to + column, inside ? from + column : image, inside);
    }
  }
  __pipeline_commit();
}

// The weights of a block's output channels as fragments, and where in a tile of the input each term lies.
template <typename T>
__device__ void prepare(const ThinPlan& plan, int group, uint32_t* weights, int2* offsets) {
  const Convolution& of = plan.of;
  const int area = of.kernel_height * of.kernel_width, terms = of.channels * area;
  for (int i = int(threadIdx.x); i < plan.steps * BLOCK_ROWS * MMA_TERMS; i += int(blockDim.x)) {
    const int k = i % 4, lane = i / 4 % 32, left = i / 128 % LEFT, step = i / (128 * LEFT);
    const int row = group * BLOCK_ROWS + left * MMA_ROWS + lane / 4 + k % 2 * 8;
    const int term = step * MMA_TERMS + lane % 4 + k / 2 * 4;
    const bool there = row < of.out_channels && term < terms;
    const float w = there ? load(static_cast<const T*>(of.weight)[int64_t(row) * terms + term]) : 0.0f;
    uint32_t* const to = weights + (step * PARTS<T> * LEFT + left) * 128 + lane * 4 + k;
    to[0] = to_tf32(w);
    if constexpr (PARTS<T> == 2) to[LEFT * 128] = to_tf32(w - bit_cast<float>(to[0]));
  }
  const auto offset = [&](int term) {  // behind the last term a plane of zeros
    if (term >= terms) return of.channels * plan.plane;
    const int channel = term / area, y = (term - channel * area) / of.kernel_width;
    return channel * plan.plane + y * plan.pitch + term - channel * area - y * of.kernel_width;
  };
  for (int i = int(threadIdx.x); i < plan.steps * 4; i += int(blockDim.x)) {
    const int term = i / 4 * MMA_TERMS + i % 4;
    offsets[i] = make_int2(offset(term), offset(term + 4));
  }
}

// The sums of a warp: of its output channels and pixels, all terms.
template <typename T, int GROUPS>
__device__ __forceinline__ void convolve(const ThinPlan& plan, const LeftFragment* weights, const int2* offsets,
                                         const T* input, SumFragment (&sum)[LEFT][GROUPS]) {
  const int lane = int(threadIdx.x) % 32, first = int(threadIdx.x) / 32 * GROUPS * MMA_COLUMNS + lane / 4;
  const T* at[GROUPS];
  SumFragment small[LEFT][GROUPS];
#pragma unroll
  for (int j = 0; j < GROUPS; ++j) {
    const int pixel = first + j * MMA_COLUMNS, y = pixel >> plan.across, x = pixel - (y << plan.across);
    at[j] = input + y * plan.of.stride_y * plan.pitch + x * plan.of.stride_x;
#pragma unroll
    for (int i = 0; i < LEFT; ++i) sum[i][j] = small[i][j] = {};
  }
  weights += lane;
#pragma unroll 1
  for (int step = 0; step < plan.steps; ++step, weights += PARTS<T> * LEFT * 32) {
    const int2 offset = offsets[step * 4 + lane % 4];
    RightFragment big[GROUPS], rest[GROUPS];
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) {
      const float v[2] = {load(at[j][offset.x]), load(at[j][offset.y])};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        big[j].at[k] = PARTS<T> == 2 ? to_tf32(v[k]) : bit_cast<uint32_t>(v[k]);
        rest[j].at[k] = to_tf32(v[k] - bit_cast<float>(big[j].at[k]));
      }
    }
    const LeftFragment a[LEFT] = {weights[0], weights[32]};
    multiply_add(sum, a, big);
    if constexpr (PARTS<T> == 2) {
      const LeftFragment b[LEFT] = {weights[64], weights[96]};
      multiply_add(small, a, rest);
      multiply_add(small, b, big);
    }
  }
  // the small products of an infinity may be NaN, where the big one alone is what float32 gives
#pragma unroll
  for (int i = 0; i < LEFT; ++i) {
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (PARTS<T> == 2 && fabsf(sum[i][j].at[k]) < INFINITY) sum[i][j].at[k] += small[i][j].at[k];
    }
  }
}

// A few elements side by side.
template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Run {
  T at[WIDTH];
};

// Computes the elements of a tile from its sums and writes them, WIDTH at a time: a warp has whole channels.
template <class F, typename T, typename M, int WIDTH, class SHAPE>
__device__ __forceinline__ void write_tile(const CallOf<F>& call, const ThinPlan& plan, int group, const Place& at,
                                           const float* sums, const ParamsOf<F, M>& p) {
  const Convolution& of = plan.of;
  const int lane = int(threadIdx.x) % 32;
  for (int row = int(threadIdx.x) / 32; row < BLOCK_ROWS; row += SHAPE::WARPS) {
    const int channel = group * BLOCK_ROWS + row;
    if (channel >= of.out_channels) break;
    M in[F::INPUTS], out[1];
    const T* from[F::INPUTS];
#pragma unroll
    for (int k = 1; k < F::INPUTS; ++k) {
      const auto& stride = call.stride[k];
      from[k] = static_cast<const T*>(call.data[k]) + at.image * stride[0] + channel * stride[1];
      in[k] = load(*from[k]);
    }
    T* const to = static_cast<T*>(call.data[F::INPUTS]) + at.image * call.stride[F::INPUTS][0] +
                  channel * call.stride[F::INPUTS][1];
#pragma unroll 1
    for (int pixel = lane * WIDTH; pixel < SHAPE::PIXELS; pixel += 32 * WIDTH) {
      const int down = pixel >> plan.across, y = at.y + down, x = at.x + pixel - (down << plan.across);
      if (y >= of.out_height || x >= of.out_width) continue;
      const auto v = *reinterpret_cast<const Run<float, WIDTH>*>(sums + row * SHAPE::PITCH + pixel);
      Run<T, WIDTH> made;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        in[0] = v.at[e];
#pragma unroll
        for (int k = 1; k < F::INPUTS; ++k) {
          const auto& stride = call.stride[k];
          if ((stride[2] | stride[3]) != 0) in[k] = load(from[k][y * stride[2] + (x + e) * stride[3]]);
        }
        F::template element<T>(in, out, p);
        store_rounded(made.at[e], out[0]);
      }
      *reinterpret_cast<Run<T, WIDTH>*>(to + y * of.out_width + x) = made;
    }
  }
}

template <class F, typename T, typename M, int THREADS, int GROUPS>
__global__ void __launch_bounds__(THREADS, ThinShape<THREADS, GROUPS>::BLOCKS)
    thin_convolution(const __grid_constant__ CallOf<F> call, const __grid_constant__ ThinPlan plan,
                     const ParamsOf<F, M> p) {
  using Shape = ThinShape<THREADS, GROUPS>;
  extern __shared__ double room[];
  uint32_t* const weights = reinterpret_cast<uint32_t*>(room);
  int2* const offsets = reinterpret_cast<int2*>(weights + plan.steps * PARTS<T> * LEFT * 128);
  float* const sums = reinterpret_cast<float*>(offsets + plan.steps * 4);
  T* const input = reinterpret_cast<T*>(sums + BLOCK_ROWS * Shape::PITCH);
  const int group = int(blockIdx.x) % plan.groups, turn = int(gridDim.x) / plan.groups;
  const int lane = int(threadIdx.x) % 32, size = plan.planes * plan.plane;
  int tile = int(blockIdx.x) / plan.groups;
  prepare<T>(plan, group, weights, offsets);
  for (int i = plan.of.channels * plan.plane + int(threadIdx.x); i < size; i += THREADS)
    store(input[i], 0.0f), store(input[size + i], 0.0f);
  if (tile < plan.tiles) fetch_tile(plan, tile, input, Shape::WARPS);
#pragma unroll 1
  for (int slot = 0; tile < plan.tiles; tile += turn, slot ^= 1) {
    __pipeline_wait_prior(0);
    __syncthreads();
    if (tile + turn < plan.tiles) fetch_tile(plan, tile + turn, input + (slot ^ 1) * size, Shape::WARPS);
    SumFragment sum[LEFT][GROUPS];
    convolve<T, GROUPS>(plan, reinterpret_cast<const LeftFragment*>(weights), offsets, input + slot * size, sum);
    float* const own = sums + lane / 4 * Shape::PITCH + int(threadIdx.x) / 32 * Shape::OF_WARP + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
#pragma unroll
      for (int j = 0; j < GROUPS; ++j) {
#pragma unroll
        for (int k = 0; k < 2; ++k)
          *reinterpret_cast<Run<float, 2>*>(own + (i * MMA_ROWS + k * 8) * Shape::PITCH + j * MMA_COLUMNS) = {
              sum[i][j].at[2 * k], sum[i][j].at[2 * k + 1]};
      }
    }
    __syncthreads();
    const Place at = place_of(plan, tile);
    if (plan.width == 4) write_tile<F, T, M, 4, Shape>(call, plan, group, at, sums, p);
    else if (plan.width == 2) write_tile<F, T, M, 2, Shape>(call, plan, group, at, sums, p);
    else write_tile<F, T, M, 1, Shape>(call, plan, group, at, sums, p);
  }
}

}  // namespace
}  // namespace fusegen
