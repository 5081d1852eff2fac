#pragma once
// The launch of a convolution of few input channels with the kernel behind it.
#include "cuda/thin_group_launch.cuh"

namespace fusegen {
namespace {

// The bytes of shared memory that a block takes.
template <typename T>
int64_t thin_bytes(const ThinPlan& plan) {
  const int64_t weights = int64_t(plan.steps) * (PARTS<T> * LEFT * sizeof(LeftFragment) * 32 + 4 * sizeof(int2));
  return weights + int64_t(sizeof(T)) * 2 * plan.planes * plan.plane;
}

// A plan with tiles of at most so many columns. Rows and channels of the input that follow one another begin in
// different halves of the banks.
template <typename T, class SHAPE>
ThinPlan with_tiles(ThinPlan plan, int most) {
  constexpr int WIDTH = 16 / sizeof(T), BANKS = 128 / sizeof(T), HALF = BANKS / 2;
  const Convolution& of = plan.of;
  const int columns = std::min(most, of.out_width);
  plan.columns = divisor(columns);
  plan.rows = std::min(SHAPE::PIXELS / columns, of.out_height);
  plan.in_rows = (plan.rows - 1) * of.stride_y + of.kernel_height;
  const int in_columns = (columns - 1) * of.stride_x + of.kernel_width + plan.lead;
  const int line = plan.vectors ? (in_columns + WIDTH - 1) / WIDTH : in_columns;
  const int taken = plan.vectors ? line * WIDTH : line;
  plan.pitch = (taken - HALF + BANKS - 1) / BANKS * BANKS + HALF;
  plan.plane = (plan.in_rows | 1) * plan.pitch;
  plan.in_line = divisor(line), plan.in_lines = divisor(plan.in_rows);
  plan.tiles_across = divisor((of.out_width + columns - 1) / columns);
  plan.tiles_down = divisor((of.out_height + plan.rows - 1) / plan.rows);
  return plan;
}

// The plan with the fewest tiles, then the one that reads the least of the input; without any tile where none fits a
// block's shared memory.
template <typename T, class SHAPE>
ThinPlan best_plan(const Convolution& of, int64_t most) {
  constexpr int WIDTH = 16 / sizeof(T);
  ThinPlan plan{}, best{};
  const int terms = of.channels * of.kernel_height * of.kernel_width;
  plan.of = of;
  plan.steps = (terms + MMA_TERMS - 1) / MMA_TERMS;
  plan.planes = of.channels + (terms % MMA_TERMS != 0);
  plan.groups = (of.out_channels + BLOCK_ROWS - 1) / BLOCK_ROWS;
  plan.vectors = of.width % WIDTH == 0 && reinterpret_cast<uintptr_t>(of.x) % 16 == 0;
  plan.lead = plan.vectors ? (WIDTH - of.padding_x % WIDTH) % WIDTH : 0;  // as tiles begin at multiples of WIDTH
  if (thin_bytes<T>(plan) > most) return best;  // the weights alone
  int64_t fewest = INT64_MAX, least = INT64_MAX;
  for (int columns = LEAST_COLUMNS; columns <= SHAPE::PIXELS; columns *= 2) {
    const ThinPlan next = with_tiles<T, SHAPE>(plan, columns);
    const int64_t tiles = int64_t(next.tiles_across.size) * next.tiles_down.size, read = tiles * next.plane;
    if (thin_bytes<T>(next) > most || tiles > fewest || (tiles == fewest && read >= least)) continue;
    best = next, fewest = tiles, least = read, best.tiles = int(tiles);
  }
  return best;
}

// True if each run of pixels begins at a multiple of its bytes and ends where its line does, or before.
template <class F, typename T>
bool has_runs(const CallOf<F>& call, const ThinPlan& plan) {
  const Convolution& of = plan.of;
  const int columns = int(plan.columns.size);
  const int64_t line = columns < of.out_width ? of.out_width : int64_t(plan.rows) * columns;
  const int64_t area = int64_t(of.out_height) * of.out_width;
  return (area | line) % RUN == 0 && reinterpret_cast<uintptr_t>(call.data[F::INPUTS]) % (RUN * sizeof(T)) == 0;
}

// Launches the kernel with blocks of one shape, if a tile fits shared memory.
template <class F, typename T, typename M, int THREADS, int GROUPS>
bool launch_thin_as(const CallOf<F>& call, const Convolution& of, cudaError_t& error) {
  using Shape = ThinShape<THREADS, GROUPS>;
  static Told told{};
  int most = 0, chips = 0;
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, call.device);
  cudaDeviceGetAttribute(&chips, cudaDevAttrMultiProcessorCount, call.device);
  ThinPlan plan = best_plan<T, Shape>(of, most);
  if (plan.tiles == 0 || call.size[0] * plan.tiles > INT32_MAX / 2) return false;
  plan.tiles *= int(call.size[0]);
  plan.runs = has_runs<F, T>(call, plan);
  plan.strided = has_strided<F>(call);
  const int bytes = int(thin_bytes<T>(plan)), turns = std::max(1, chips * Shape::BLOCKS / plan.groups);
  const auto kernel = thin_convolution<F, T, M, THREADS, GROUPS>;
  error = allow(kernel, bytes, most, call.device, told);
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
    const int chip = chip_of(call.device);
    if (chip < 80 || std::max(of.stride_y, of.stride_x) > 2) return false;
#ifdef FUSEGEN_SM90A
    if constexpr (sizeof(T) == sizeof(float)) {
      if (chip == 90 && launch_by_warpgroups<F, M>(call, of, error)) return true;
    }
#endif
    const Launch by = select_config(ROWS, chip, call.numel * int64_t(sizeof(T)));
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
#define FUSEGEN_CONVOLVED(NAME, F, ROWS16, ROWS32)                                             \
  extern "C" const char* NAME##_convolved_launch(const fusegen::CallOf<fusegen::F>& call,      \
                                                 const fusegen::Convolution& of, bool& fits) { \
    return fusegen::run_thin<fusegen::F, ROWS16, ROWS32>(call, of, fits);                      \
  }
