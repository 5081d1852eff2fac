#pragma once
// A convolution of few input channels, and the kernel behind it, as one kernel on the tensor cores: the output of the
// convolution is never in memory. It is a matrix product: of the weights, a row for each output channel, and of a
// matrix with a column for each output pixel, whose terms are elements of the input, read where they lie in shared
// memory. In float32 each factor is the sum of two TF32 numbers, big + small, and a product is big * big + (big * small
// + small * big); the sums of big products are rounded outside of the tensor cores, which round towards 0. Source:
// Ootomo and Yokota 2022, Int. J. High Perform. Comput. Appl. 36(4). 16-bit elements are TF32 numbers as they are.
#include "cuda/matrix_multiply.cuh"
#include "cuda/thin_tiles.cuh"

namespace fusegen {
namespace {

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
    const Tf32Parts parts = SplitAll::split(w);
    to[0] = parts.big;
    if constexpr (PARTS<T> == 2) to[LEFT * 128] = parts.rest;
  }
  const auto offset = [&](int term) {  // in bytes; behind the last term a plane of zeros
    if (term >= terms) return of.channels * plan.plane * int(sizeof(T));
    const int channel = term / area, y = (term - channel * area) / of.kernel_width;
    const int x = term - channel * area - y * of.kernel_width;
    return (channel * plan.plane + y * plan.pitch + x) * int(sizeof(T));
  };
  for (int i = int(threadIdx.x); i < plan.steps * 4; i += int(blockDim.x)) {
    const int term = i / 4 * MMA_TERMS + i % 4;
    offsets[i] = make_int2(offset(term), offset(term + 4));
  }
}

// The pixels of a thread. Of two fragments side by side it has the results of pairs of columns: the pixels of a warp
// are shared out so that both pairs are one run.
template <class SHAPE>
struct Pixels {
  static constexpr int RUNS = SHAPE::OF_WARP / 16;
  // The first pixel of a run.
  static __device__ __forceinline__ int of_run(int q) {
    return int(threadIdx.x) / 32 * SHAPE::OF_WARP + q * 16 + int(threadIdx.x) % 4 * RUN;
  }
  // The pixel of the column that a thread brings to the products.
  static __device__ __forceinline__ int of_column(int j) {
    const int column = int(threadIdx.x) % 32 / 4;
    return int(threadIdx.x) / 32 * SHAPE::OF_WARP + j / 2 * 16 + column / 2 * RUN + j % 2 * 2 + column % 2;
  }
};

// Calls a function with each sum of a thread and its place.
template <int GROUPS, class FUNCTION>
__device__ __forceinline__ void for_each(SumFragment (&sum)[LEFT][GROUPS], const FUNCTION& function) {
#pragma unroll
  for (int i = 0; i < LEFT; ++i) {
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) function(sum[i][j].at[k], i, j, k);
    }
  }
}

// The products of a step: the tensor cores' sums of big products, and of those that are small.
template <typename T, class SPLIT, int GROUPS>
__device__ __forceinline__ void add_step(const LeftFragment* weights, const char* const (&input)[GROUPS], int2 offset,
                                         SumFragment (&large)[LEFT][GROUPS], SumFragment (&small)[LEFT][GROUPS]) {
  RightFragment big[GROUPS], rest[GROUPS];
#pragma unroll
  for (int j = 0; j < GROUPS; ++j) {
    const float v[2] = {load(*reinterpret_cast<const T*>(input[j] + offset.x)),
                        load(*reinterpret_cast<const T*>(input[j] + offset.y))};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const Tf32Parts parts = SPLIT::split(v[k]);
      big[j].at[k] = PARTS<T> == 2 ? parts.big : bit_cast<uint32_t>(v[k]);
      rest[j].at[k] = parts.rest;
    }
  }
  const LeftFragment a[LEFT] = {weights[0], weights[32]};
  multiply_add(large, a, big);
  if constexpr (PARTS<T> == 2) {
    const LeftFragment b[LEFT] = {weights[64], weights[96]};
    multiply_add(small, a, rest);
    multiply_add(small, b, big);
  }
}

// The sums of a warp: of its output channels and pixels, all terms. Returns true if all of a thread are finite. The
// small products of an infinity may be NaN, where the big one alone is what float32 gives.
template <typename T, class SPLIT, int GROUPS>
__device__ __forceinline__ bool convolve(const ThinPlan& plan, const LeftFragment* weights, const int2* offsets,
                                         const char* const (&input)[GROUPS], SumFragment (&sum)[LEFT][GROUPS]) {
  constexpr int WINDOW = PARTS<T> == 2 ? 3 : 1 << 20;  // steps whose sums the tensor cores round
  SumFragment small[LEFT][GROUPS] = {};
  for_each(sum, [](float& of, int, int, int) { of = 0.0f; });
#pragma unroll 1
  for (int first = 0; first < plan.steps; first += WINDOW) {
    SumFragment large[LEFT][GROUPS] = {};
    int left = min(WINDOW, plan.steps - first);
#pragma unroll 1
    do {
      add_step<T, SPLIT>(weights, input, *offsets, large, small);
      weights += PARTS<T> * LEFT * 32, offsets += 4;
    } while (--left > 0);
    for_each(sum, [&](float& of, int i, int j, int k) { of += large[i][j].at[k]; });
  }
  bool finite = true;
  for_each(sum, [&](float& of, int i, int j, int k) {
    if (PARTS<T> == 2 && (!SPLIT::CHECKS || fabsf(of) < INFINITY)) of += small[i][j].at[k];
    finite = finite && fabsf(of) < INFINITY;
  });
  return finite;
}

// The elements of the operands: one for all pixels of a channel, or for each pixel its own.
enum class Operands { OF_CHANNELS, OF_PIXELS };

// True if an operand differs within an image.
template <class F>
bool has_strided(const CallOf<F>& call) {
  for (int k = 1; k < F::INPUTS; ++k)
    if (call.stride[k][2] != 0 || call.stride[k][3] != 0) return true;
  return false;
}

// Loads the operands of a pixel of a channel.
template <typename T, class F, typename M>
__device__ __forceinline__ void load_operands(const CallOf<F>& call, int image, int channel, const Pixel& at,
                                              M (&in)[F::INPUTS]) {
#pragma unroll
  for (int k = 1; k < F::INPUTS; ++k) {
    const auto& stride = call.stride[k];
    const int64_t place = image * stride[0] + channel * stride[1] + at.y * stride[2] + at.x * stride[3];
    in[k] = load(static_cast<const T*>(call.data[k])[place]);
  }
}

// Computes what comes behind the sums of a thread, and writes it in runs.
template <class F, typename T, typename M, class SHAPE, Operands OPERANDS, int GROUPS>
__device__ __forceinline__ void write_results(const CallOf<F>& call, const ThinPlan& plan, int group, const Place& at,
                                              const SumFragment (&sum)[LEFT][GROUPS], const ParamsOf<F, M>& p) {
  const Convolution& of = plan.of;
  const int height = of.out_height, width = of.out_width, columns = int(plan.columns.size);
  const Lines lines = lines_of(plan, min(plan.rows, height - at.y), min(columns, width - at.x));
  const int first = group * BLOCK_ROWS + int(threadIdx.x) % 32 / 4;
  T* to = static_cast<T*>(call.data[F::INPUTS]) + (at.y * width + at.x) +
          (int64_t(at.image) * of.out_channels + first) * (height * width);
#pragma unroll
  for (int i = 0; i < 2 * LEFT; ++i, to += int64_t(8) * (height * width)) {
    const int channel = first + i * 8;
    if (channel >= of.out_channels) break;
    M in[F::INPUTS], out[1];
    if (OPERANDS == Operands::OF_CHANNELS) load_operands<T, F>(call, at.image, channel, {0, 0}, in);
#pragma unroll
    for (int q = 0; q < Pixels<SHAPE>::RUNS; ++q) {
      const int number = Pixels<SHAPE>::of_run(q);
      const Pixel first_of = pixel_of(plan, number);
      Pixel own = first_of;
      Run<T, RUN> made;
#pragma unroll
      for (int e = 0; e < RUN; ++e) {
        if (OPERANDS == Operands::OF_PIXELS) {
          const Pixel inside = {min(at.y + own.y, height - 1), min(at.x + own.x, width - 1)};
          load_operands<T, F>(call, at.image, channel, inside, in);
          if (++own.x == columns) own = {own.y + 1, 0};
        }
        in[0] = sum[i / 2][2 * q + e / 2].at[i % 2 * 2 + e % 2];
        F::template element<T>(in, out, p);
        store_rounded(made.at[e], out[0]);
      }
      const Pixel in_lines = columns == width ? Pixel{0, number} : first_of;
      const int count = in_lines.y < lines.count ? lines.length - in_lines.x : 0;
      write_run(plan, made, count, to + (in_lines.y * width + in_lines.x));
    }
  }
}

template <class F, typename T, typename M, int THREADS, int GROUPS>
__global__ void __launch_bounds__(THREADS, ThinShape<THREADS, GROUPS>::BLOCKS)
    thin_convolution(const __grid_constant__ CallOf<F> call, const __grid_constant__ ThinPlan plan,
                     const ParamsOf<F, M> p) {
  using Shape = ThinShape<THREADS, GROUPS>;
  extern __shared__ uint4 memory[];  // aligned as what is read from it at once
  uint32_t* const weights = reinterpret_cast<uint32_t*>(memory);
  int2* const offsets = reinterpret_cast<int2*>(weights + plan.steps * PARTS<T> * LEFT * 128);
  T* const input = reinterpret_cast<T*>(offsets + plan.steps * 4);
  const int group = int(blockIdx.x) % plan.groups, turn = int(gridDim.x) / plan.groups;
  const int size = plan.planes * plan.plane;
  int tile = int(blockIdx.x) / plan.groups;
  prepare<T>(plan, group, weights, offsets);
  for (int i = plan.of.channels * plan.plane + int(threadIdx.x); i < size; i += THREADS)
    store(input[i], 0.0f), store(input[size + i], 0.0f);
  const auto fetch = [&](int next, int slot) {
    if (next >= plan.tiles) return;
    if (plan.vectors) fetch_tile<T, 16 / sizeof(T)>(plan, next, input + slot * size);
    else fetch_tile<T, 1>(plan, next, input + slot * size);
  };
  const auto fragments = reinterpret_cast<const LeftFragment*>(weights) + threadIdx.x % 32;
  const int2* const own_offsets = offsets + threadIdx.x % 4;
  int pixels[GROUPS];  // where in a tile of the input begins what they read
#pragma unroll
  for (int j = 0; j < GROUPS; ++j) {
    const Pixel at = pixel_of(plan, min(Pixels<Shape>::of_column(j), plan.rows * int(plan.columns.size) - 1));
    pixels[j] = at.y * plan.of.stride_y * plan.pitch + at.x * plan.of.stride_x + plan.lead;
  }
  fetch(tile, 0);
#pragma unroll 1
  for (int slot = 0; tile < plan.tiles; tile += turn, slot ^= 1) {
    __pipeline_wait_prior(0);
    __syncthreads();
    fetch(tile + turn, slot ^ 1);
    __syncwarp();  // the products are those of whole warps
    SumFragment sum[LEFT][GROUPS];
    const char* from[GROUPS];
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) from[j] = reinterpret_cast<const char*>(input + slot * size + pixels[j]);
    const bool finite = convolve<T, SplitNumbers>(plan, fragments, own_offsets, from, sum);
    if (PARTS<T> == 2 && __any_sync(~0u, !finite)) convolve<T, SplitAll>(plan, fragments, own_offsets, from, sum);
    const Place at = place_of(plan, tile);
    if (plan.strided) write_results<F, T, M, Shape, Operands::OF_PIXELS>(call, plan, group, at, sum, p);
    else write_results<F, T, M, Shape, Operands::OF_CHANNELS>(call, plan, group, at, sum, p);
  }
}

}  // namespace
}  // namespace fusegen
