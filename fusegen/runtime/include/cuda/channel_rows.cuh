#pragma once
// Rows of whole channels, as those of group norms, with a weight of each channel: a cluster of blocks holds a row in
// shared memory, in runs of its warps. A weight is read once for a part of a channel, and the gradient of one is summed
// where the row's gradient is stored, so that tensors are read once.
#include "cuda/feature_sums.cuh"

namespace fusegen {
namespace {

template <class F, typename T, Features FEATURES>
__global__ void __launch_bounds__(RUN_THREADS, RUN_RESIDENT)
    channel_rows_kernel(const __grid_constant__ CallOf<F> call, const RunsOfRow runs, double* partial,
                        const SavedMemory<F> saved) {
  using TEAM = Team<F, T, Shape<RUN_THREADS, 0, true, Kept::RUNS>, FEATURES>;
  constexpr int WARPS = RUN_THREADS / WARP, COUNT = count_of(HELD_OF<F>);
  extern __shared__ uint4 memory[];
  __shared__ ClusterRoom<F> room;
  arrive_at_cluster();  // before which no block may store in this one's room
  const int first = cluster_rank() * WARPS, warp = first + int(threadIdx.x) / WARP, warps = cluster_blocks() * WARPS;
  const auto begin_of = [&](int w) { return begin_of_warp(runs.vectors, w, warps); };
  const int n = int(call.size[call.rank - 1]), of_block = begin_of(first);
  const int64_t row = blockIdx.x / cluster_blocks();
  const typename TEAM::Memory own{nullptr, reinterpret_cast<Vector<T>*>(memory), runs.units,
                                  {begin_of(warp), begin_of(warp + 1), of_block, runs.share}, saved};
  typename TEAM::Sums sums;
  double* const parts = reinterpret_cast<double*>(memory + COUNT * runs.units);
  if constexpr (FEATURES == Features::ADDED) sums.of_part = parts - of_block / runs.share * SUMS_OF<F>;
  TEAM team{{n, 0, 1}, true, room, own, sums};
  typename F::Values p = F::values(call, double(n));
  const typename TEAM::Units units_in_registers{};
  wait_for_cluster();
  run_phases(team, RowOf<F, T>(call, row), units_in_registers, p, static_cast<const F*>(nullptr));
  if constexpr (FEATURES == Features::ADDED) {
    __syncthreads();
    const int of_row = runs.vectors / runs.share;
    const int64_t columns = columns_of<F>(call), channel = row * of_row, image = channel / columns;
    double* const to = partial + (image * cluster_blocks() + cluster_rank()) * SUMS_OF<F> * columns + channel % columns;
    for (int c = int(threadIdx.x); c < of_row; c += RUN_THREADS)
      for (int sum = 0; sum < SUMS_OF<F>; ++sum) {
        double total = 0;
        for (int w = 0; w < WARPS; ++w)
          if (begin_of(first + w) < begin_of(first + w + 1) && begin_of(first + w) < (c + 1) * runs.share &&
              c * runs.share < begin_of(first + w + 1))
            total += sums.of_part[(c + w) * SUMS_OF<F> + sum];
        to[sum * columns + c] = total;
      }
  }
}

// Launches a call whose rows are whole channels of many elements; returns false if they are not, or none hold them.
template <class F, typename T, Features FEATURES>
bool launch_channel_rows(const RowLaunch<F>& of) {
  const RunsOfRow runs = runs_of<F>(of.call, sizeof(T));
  const int64_t bytes = (int64_t(runs.units) * count_of(HELD_OF<F>) * 2 + runs.parts * SUMS_OF<F>) * 8;
  if (runs.blocks == 0 || of.rows == 0 || bytes > of.shared || of.rows > INT32_MAX / runs.blocks) return false;
  const auto kernel = channel_rows_kernel<F, T, FEATURES>;
  const auto partial = reinterpret_cast<double*>(static_cast<char*>(of.workspace) + bytes_of_values<F>(of.rows));
  static Told told;
  cudaError_t error = allow_cluster(kernel, runs.blocks, bytes, of.shared, of.call.device, told);
  const ClusterLaunch to(of.rows, runs.blocks, RUN_THREADS, bytes, of.call.stream);
  if (error == cudaSuccess) error = cudaLaunchKernelEx(&to.config, kernel, of.call, runs, partial, of.saved);
  if (error != cudaSuccess) (void)cudaGetLastError();  // another kernel takes such rows
  if constexpr (FEATURES == Features::ADDED)
    if (error == cudaSuccess) {
      const int64_t images = channels_of<F>(of.call, of.rows) / columns_of<F>(of.call);
      error = add_all_parts<F, T>(of.call, partial, images * runs.blocks);
    }
  return error == cudaSuccess;
}

}  // namespace
}  // namespace fusegen
