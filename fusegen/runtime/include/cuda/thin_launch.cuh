#pragma once
// The launch of a convolution of few input channels with the kernel behind it.
#include "cuda/thin_convolution.cuh"

namespace fusegen {
namespace {

// The bytes of shared memory that a block takes.
template <typename T, class SHAPE>
int64_t thin_bytes(const ThinPlan& plan) {
  const int64_t weights = int64_t(plan.steps) * (PARTS<T> * LEFT * sizeof(LeftFragment) * 32 + 4 * sizeof(int2));
  return weights + int64_t(sizeof(float)) * BLOCK_ROWS * SHAPE::PITCH +
         2 * int64_t(sizeof(T)) * plan.planes * plan.plane;
}

// A plan with tiles of so many columns.
template <class SHAPE>
ThinPlan with_tiles(ThinPlan plan, int across) {
  const Convolution& of = plan.of;
  plan.across = across, plan.down = 0;
  while (SHAPE::PIXELS >> across >> (plan.down + 1)) ++plan.down;
  plan.rows = ((1 << plan.down) - 1) * of.stride_y + of.kernel_height;
  plan.columns = ((1 << across) - 1) * of.stride_x + of.kernel_width;
  plan.pitch = (plan.columns + 19) / 32 * 32 + 12;  // rows begin in banks that the pixels of a fragment leave free
  plan.plane = plan.rows * plan.pitch;
  plan.lines = divisor(plan.rows);
  plan.tiles_across = divisor((of.out_width + (1 << across) - 1) >> across);
  plan.tiles_down = divisor((of.out_height + (1 << plan.down) - 1) >> plan.down);
  return plan;
}

// The plan whose tiles have the fewest pixels outside the image, then read the least of the input; without any tile
// where none fits a block's shared memory.
template <typename T, class SHAPE>
ThinPlan best_plan(const Convolution& of, int64_t most) {
  ThinPlan plan{}, best{};
  const int terms = of.channels * of.kernel_height * of.kernel_width;
  plan.of = of;
  plan.steps = (terms + MMA_TERMS - 1) / MMA_TERMS;
  plan.planes = of.channels + (terms % MMA_TERMS != 0);
  plan.groups = (of.out_channels + BLOCK_ROWS - 1) / BLOCK_ROWS;
  int64_t fewest = INT64_MAX, least = INT64_MAX;
  for (int across = LEAST_ACROSS; SHAPE::PIXELS >> across; ++across) {
    const ThinPlan next = with_tiles<SHAPE>(plan, across);
    const int64_t tiles = int64_t(next.tiles_across.size) * next.tiles_down.size, read = tiles * next.plane;
    if (thin_bytes<T, SHAPE>(next) > most || tiles > fewest || (tiles == fewest && read >= least)) continue;
    best = next, fewest = tiles, least = read, best.tiles = int(tiles);
  }
  return best;
}

// The elements that are written at once: as many as lie side by side at a multiple of their size.
template <class F, typename T>
int width_of(const CallOf<F>& call) {
  const auto& stride = call.stride[F::INPUTS];
  const int64_t rows = (stride[0] | stride[1] | stride[2]) * int64_t(sizeof(T));
  const int64_t all = rows | int64_t(reinterpret_cast<uintptr_t>(call.data[F::INPUTS]));
  return all % (4 * sizeof(T)) == 0 ? 4 : all % (2 * sizeof(T)) == 0 ? 2 : 1;
}

// Launches the kernel with blocks of one shape, if a tile fits shared memory.
template <class F, typename T, typename M, int THREADS, int GROUPS>
bool launch_thin_as(const CallOf<F>& call, const Convolution& of, cudaError_t& error) {
  using Shape = ThinShape<THREADS, GROUPS>;
  int most = 0, chips = 0;
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, call.device);
  cudaDeviceGetAttribute(&chips, cudaDevAttrMultiProcessorCount, call.device);
  ThinPlan plan = best_plan<T, Shape>(of, most);
  if (plan.tiles == 0 || call.size[0] * plan.tiles > INT32_MAX) return false;
  plan.tiles *= int(call.size[0]);
  plan.width = width_of<F, T>(call);
  const int bytes = int(thin_bytes<T, Shape>(plan)), turns = std::max(1, chips * Shape::BLOCKS / plan.groups);
  const auto kernel = thin_convolution<F, T, M, THREADS, GROUPS>;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return true;
  const unsigned blocks = unsigned(std::min(plan.tiles, turns) * plan.groups);
  const auto on = static_cast<cudaStream_t>(call.stream);
  kernel<<<blocks, THREADS, bytes, on>>>(call, plan, params<ParamsOf<F, M>>(call));
  error = cudaGetLastError();
  return true;
}

// The rows of the launches as types, for elements of 16 and of 32 bits: `vectors` are the groups of 8 pixels of a warp.
template <const Launch* ROWS16, const Launch* ROWS32>
struct ThinRows {
  template <class F, typename T, typename M>
  static bool launch(const CallOf<F>& call, const Convolution& of, cudaError_t& error) {
    constexpr const Launch* ROWS = sizeof(T) == 2 ? ROWS16 : ROWS32;
    const Launch by = select_config(ROWS, chip_of(call.device), call.numel * int64_t(sizeof(T)));
    bool fits = false;
    const auto as = [&](auto threads, auto groups) {
      if constexpr (has(ROWS, threads, groups)) {
        if (by.threads == threads && by.vectors == groups)
          fits = launch_thin_as<F, T, M, threads, groups>(call, of, error);
      }
    };
    as(Number<128>(), Number<2>()), as(Number<128>(), Number<4>());
    as(Number<256>(), Number<2>()), as(Number<256>(), Number<4>());
    return fits;
  }

 private:
  template <int N>
  using Number = std::integral_constant<int, N>;
  static constexpr bool has(const Launch* row, int threads, int groups) {
    return row->threads && ((row->threads == threads && row->vectors == groups) || has(row + 1, threads, groups));
  }
};

// A convolution with what a method computes behind it: only a formula, no table and no polynomials.
template <class METHOD>
struct Behind {
  template <class ROWS, class F, typename T>
  static bool launch(const CallOf<F>&, const Convolution&, cudaError_t&) {
    return false;
  }
};
template <typename M>
struct Behind<Formula<M>> {
  template <class ROWS, class F, typename T>
  static bool launch(const CallOf<F>& call, const Convolution& of, cudaError_t& error) {
    if constexpr (sizeof(T) > 4) return false;
    else return ROWS::template launch<F, T, M>(call, of, error);
  }
};

template <class F, class ROWS, int... DTYPES>
bool launch_thin(const CallOf<F>& call, const Convolution& of, cudaError_t& error, Dtypes<DTYPES...>) {
  bool fits = false;
  const auto launched = [&](int dtype, auto element) {
    using T = decltype(element);
    if (call.dtype != dtype) return false;
    fits = Behind<MethodOf<F, T>>::template launch<ROWS, F, T>(call, of, error);
    return true;
  };
  (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return fits;
}

// Launches the convolution with F behind it, if it fits; returns what went wrong, or nothing.
template <class F, const Launch* ROWS16, const Launch* ROWS32>
const char* run_thin(const CallOf<F>& call, const Convolution& of, bool& fits) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  if (error == cudaSuccess) fits = launch_thin<F, ThinRows<ROWS16, ROWS32>>(call, of, error, typename F::Elements());
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace
}  // namespace fusegen

// The function that the binding calls, in a library of its own.
#define FUSEGEN_CONVOLVED(NAME, F, ROWS16, ROWS32)                                                       \
  extern "C" const char* NAME##_convolved_launch(const fusegen::CallOf<fusegen::F>& call,                \
                                                 const fusegen::Convolution& of, bool& fits) {           \
    return fusegen::run_thin<fusegen::F, ROWS16, ROWS32>(call, of, fits);              \
  }
