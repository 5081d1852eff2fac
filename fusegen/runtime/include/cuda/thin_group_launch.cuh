#pragma once
// The launch of a convolution by warpgroups.
#include "cuda/block_memory.cuh"
#include "cuda/thin_group_convolution.cuh"

namespace fusegen {
namespace {

constexpr int NARROWEST = 32, WIDEST = 256;   // columns of a tile of a wider image
constexpr int MOST_BYTES_STATIC = 1024;       // of shared memory besides the plan's

// True where warpgroups were measured to be faster than warps: more than half of the last 64 rows of the weights are
// output channels, and there are 4 input channels or more.
inline bool suits_warpgroups(const Convolution& of) {
  const int last_rows = of.out_channels % GROUP_ROWS;
  return (last_rows == 0 || last_rows > BLOCK_ROWS) && of.channels >= QUAD;
}

// The plan with its shared memory, of tiles of so many rows and columns.
inline GroupPlan with_tiles(GroupPlan plan, int rows, int columns) {
  const Convolution& of = plan.of;
  const int quads = (of.channels + QUAD - 1) / QUAD;
  plan.rows = rows, plan.columns = columns;
  plan.pitch = divisor((columns + (of.kernel_width - 1) / of.stride_x + 1) / 2 * 2);
  plan.in_rows = divisor(rows + (of.kernel_height - 1) / of.stride_y);
  plan.phases_x = divisor(of.stride_x), plan.phases_y = divisor(of.stride_y);
  plan.plane = int(plan.pitch.size * plan.in_rows.size), plan.part = plan.plane * quads * of.stride_x * of.stride_y;
  plan.units = (rows * int(plan.pitch.size) + GROUP_COLUMNS - 1) / GROUP_COLUMNS;
  const int slack = GROUP_COLUMNS + int(plan.pitch.size) * (of.kernel_height + 1);  // read for columns nobody writes
  plan.input = plan.steps * 2 * GROUP_ROWS * 2;
  plan.offsets = plan.input + 2 * 2 * plan.part + slack;
  plan.stage = plan.offsets + (plan.steps * int(sizeof(GroupFactor)) + 15) / 16;
  plan.quads = plan.stage + CONSUMERS * WARPGROUP / 32 * STAGE / QUAD;
  plan.tiles_across = divisor((of.out_width + columns - 1) / columns);
  plan.tiles_down = divisor((of.out_height + rows - 1) / rows);
  plan.tiles = int(plan.tiles_across.size * plan.tiles_down.size);
  return plan;
}

// The plan that takes the least time of those whose tiles fit; without any tile where none does. Time is counted in
// what the producer takes for a quad; a pixel of a unit takes 8.
inline GroupPlan best_group_plan(const Convolution& of, int64_t most) {
  GroupPlan plan{}, best{};
  plan.of = of, plan.groups = (of.out_channels + GROUP_ROWS - 1) / GROUP_ROWS;
  const int64_t quads = int64_t((of.channels + QUAD - 1) / QUAD) * of.kernel_height * of.kernel_width;
  if (quads * 2 * GROUP_ROWS * 16 > most) return best;  // the weights alone
  plan.steps = int(quads + 1) / 2;
  double least = INFINITY;
  for (int across = (of.out_width + WIDEST - 1) / WIDEST, columns;;
       across = std::max(across + 1, (of.out_width + columns - 3) / (columns - 2))) {
    columns = ((of.out_width + across - 1) / across + 1) / 2 * 2;
    if (best.tiles != 0 && columns < NARROWEST) break;
    for (int rows = 1; rows <= of.out_height; ++rows) {
      const GroupPlan next = with_tiles(plan, rows, columns);
      if (int64_t(next.quads) * 16 + MOST_BYTES_STATIC > most) break;
      const double time = double(next.tiles) * (8.0 * GROUP_COLUMNS * next.units + next.part);
      if (time < least) best = next, least = time;
    }
    if (columns <= NARROWEST / 2) break;  // narrower than where any fits
  }
  return best;
}

// Launches the kernel, if it is faster than that of warps and fits.
template <class F, typename M>
bool launch_by_warpgroups(const CallOf<F>& call, const Convolution& of, cudaError_t& error) {
  static Told told{};
  if (!suits_warpgroups(of)) return false;
  int most = 0, chips = 0;
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, call.device);
  cudaDeviceGetAttribute(&chips, cudaDevAttrMultiProcessorCount, call.device);
  GroupPlan plan = best_group_plan(of, most);
  if (plan.tiles == 0 || call.size[0] * plan.tiles > INT32_MAX / 2) return false;
  plan.tiles *= int(call.size[0]);
  const bool even = of.out_width % 2 == 0;
  plan.pairs = even && reinterpret_cast<uintptr_t>(call.data[F::INPUTS]) % (2 * sizeof(float)) == 0;
  plan.strided = has_strided<F>(call);
  const auto kernel = thin_group_convolution<F, M>;
  error = allow(kernel, plan.quads * 16, most - MOST_BYTES_STATIC, call.device, told);
  if (error != cudaSuccess) return true;
  const unsigned blocks = unsigned(std::min(plan.tiles, std::max(1, chips / plan.groups)) * plan.groups);
  const auto on = static_cast<cudaStream_t>(call.stream);
  kernel<<<blocks, GROUP_THREADS, plan.quads * 16, on>>>(call, plan, params<ParamsOf<F, M>>(call));
  error = cudaGetLastError();
  return true;
}

}  // namespace
}  // namespace fusegen
