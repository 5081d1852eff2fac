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

// Adds the products of a step to sums that are rounded to nearest.
template <int GROUPS>
__device__ __forceinline__ void add_products(SumFragment (&sum)[LEFT][GROUPS], const LeftFragment (&a)[LEFT],
                                             const RightFragment (&b)[GROUPS]) {
  SumFragment step[LEFT][GROUPS] = {};
  multiply_add(step, a, b);
#pragma unroll
  for (int i = 0; i < LEFT; ++i) {
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[i][j].at[k] += step[i][j].at[k];
    }
  }
}

// The sums of a warp: of its output channels and pixels, all terms. Its pixels are of one row, STRIDE elements apart.
template <typename T, int GROUPS, int STRIDE>
__device__ __forceinline__ void convolve(const ThinPlan& plan, const LeftFragment* weights, const int2* offsets,
                                         const T* input, SumFragment (&sum)[LEFT][GROUPS]) {
  const int lane = int(threadIdx.x) % 32, pixel = int(threadIdx.x) / 32 * GROUPS * MMA_COLUMNS + lane / 4;
  const int y = pixel >> plan.across, x = pixel - (y << plan.across);
  const T* const at = input + y * plan.of.stride_y * plan.pitch + x * STRIDE + plan.lead;
  SumFragment small[LEFT][GROUPS] = {};
#pragma unroll
  for (int i = 0; i < LEFT; ++i) {
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) sum[i][j] = {};
  }
  weights += lane;
#pragma unroll 1
  for (int step = 0; step < plan.steps; ++step, weights += PARTS<T> * LEFT * 32) {
    const int2 offset = offsets[step * 4 + lane % 4];
    const T *const first = at + offset.x, *const second = at + offset.y;
    RightFragment big[GROUPS], rest[GROUPS];
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) {
      const float v[2] = {load(first[j * MMA_COLUMNS * STRIDE]), load(second[j * MMA_COLUMNS * STRIDE])};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        big[j].at[k] = PARTS<T> == 2 ? to_tf32(v[k]) : bit_cast<uint32_t>(v[k]);
        rest[j].at[k] = to_tf32(v[k] - bit_cast<float>(big[j].at[k]));
      }
    }
    const LeftFragment a[LEFT] = {weights[0], weights[32]};
    if constexpr (PARTS<T> == 2) {
      const LeftFragment b[LEFT] = {weights[64], weights[96]};
      add_products(sum, a, big);
      multiply_add(small, a, rest);
      multiply_add(small, b, big);
    } else {
      multiply_add(sum, a, big);
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

// Computes what comes behind the sums of a thread and gives it away, two neighbours of a channel at a time.
template <class F, typename T, typename M, class SHAPE, int GROUPS, class PUT>
__device__ __forceinline__ void compute_results(const CallOf<F>& call, const ThinPlan& plan, int group, const Place& at,
                                                const SumFragment (&sum)[LEFT][GROUPS], const ParamsOf<F, M>& p,
                                                const PUT& put) {
  const int lane = int(threadIdx.x) % 32, pixel = int(threadIdx.x) / 32 * SHAPE::OF_WARP + lane % 4 * 2;
  const int down = pixel >> plan.across, across = pixel - (down << plan.across);
  const int y = min(at.y + down, plan.of.out_height - 1);
#pragma unroll
  for (int i = 0; i < 2 * LEFT; ++i) {
    const int row = i / 2 * MMA_ROWS + i % 2 * 8 + lane / 4;
    const int channel = min(group * BLOCK_ROWS + row, plan.of.out_channels - 1);
    M in[F::INPUTS], out[1];
    const T* from[F::INPUTS];
#pragma unroll
    for (int k = 1; k < F::INPUTS; ++k) {
      const auto& stride = call.stride[k];
      from[k] = static_cast<const T*>(call.data[k]) + at.image * stride[0] + channel * stride[1] + y * stride[2];
      in[k] = load(*from[k]);
    }
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) {
      Run<T, 2> made;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (plan.strided) {
          const int x = min(at.x + across + j * MMA_COLUMNS + e, plan.of.out_width - 1);
#pragma unroll
          for (int k = 1; k < F::INPUTS; ++k) in[k] = load(from[k][x * call.stride[k][3]]);
        }
        in[0] = sum[i / 2][j].at[i % 2 * 2 + e];
        F::template element<T>(in, out, p);
        store_rounded(made.at[e], out[0]);
      }
      put(row, down, across + j * MMA_COLUMNS, made);
    }
  }
}

template <class F, typename T, typename M, int THREADS, int GROUPS, int STRIDE>
__global__ void __launch_bounds__(THREADS, ThinShape<THREADS, GROUPS>::BLOCKS)
    thin_convolution(const __grid_constant__ CallOf<F> call, const __grid_constant__ ThinPlan plan,
                     const ParamsOf<F, M> p) {
  using Shape = ThinShape<THREADS, GROUPS>;
  extern __shared__ double room[];
  uint32_t* const weights = reinterpret_cast<uint32_t*>(room);
  int2* const offsets = reinterpret_cast<int2*>(weights + plan.steps * PARTS<T> * LEFT * 128);
  T* const results = reinterpret_cast<T*>(offsets + plan.steps * 4);
  T* const input = results + Shape::template RESULTS<T>;
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
  fetch(tile, 0);
#pragma unroll 1
  for (int slot = 0; tile < plan.tiles; tile += turn, slot ^= 1) {
    __pipeline_wait_prior(0);
    __syncthreads();
    fetch(tile + turn, slot ^ 1);
    SumFragment sum[LEFT][GROUPS];
    const auto fragments = reinterpret_cast<const LeftFragment*>(weights);
    convolve<T, GROUPS, STRIDE>(plan, fragments, offsets, input + slot * size, sum);
    const Place at = place_of(plan, tile);
    T* const to = static_cast<T*>(call.data[F::INPUTS]);
    if constexpr (PARTS<T> == 2) {  // three products take longer than to write pairs
      const auto put = [&](int row, int down, int across, const Run<T, 2>& made) {
        write_pair(plan, {at.image, at.y + down, at.x + across}, group * BLOCK_ROWS + row, made, to);
      };
      compute_results<F, T, M, Shape>(call, plan, group, at, sum, p, put);
    } else {
      const auto put = [&](int row, int down, int across, const Run<T, 2>& made) {
        T* const own = results + row * Shape::PITCH + down * plan.row + across;
        if (across < plan.row) *reinterpret_cast<Run<T, 2>*>(own) = made;
      };
      compute_results<F, T, M, Shape>(call, plan, group, at, sum, p, put);
      __syncthreads();
      if (plan.width == 16) write_tile<T, 16 / sizeof(T), Shape>(plan, group, at, results, to);
      else if (plan.width == 8) write_tile<T, 8 / sizeof(T), Shape>(plan, group, at, results, to);
      else write_tile<T, 1, Shape>(plan, group, at, results, to);
    }
  }
}

}  // namespace
}  // namespace fusegen
