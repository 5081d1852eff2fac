#pragma once
// Rows that registers do not hold, in the shared memory of a block or, from sm_90 on, of a cluster of blocks. A thread
// reads what it has copied itself, so that only joins are waited for.
#include "cuda/block_memory.cuh"
#include "cuda/row_team.cuh"

namespace fusegen {
namespace {

constexpr int HELD_THREADS = 512, HELD_RESIDENT = 3;  // of a block, and blocks for which an SM has registers
constexpr int64_t HELD_BYTES = 70 << 10;  // of a block, while a cluster can have more: so that an SM holds three
constexpr int64_t MOST_HELD = 110 << 10;  // of a block of the largest cluster: so that an SM holds two

template <class F, typename T, Features FEATURES>
__global__ void __launch_bounds__(HELD_THREADS, HELD_RESIDENT)
    held_rows_kernel(const __grid_constant__ CallOf<F> call, typename F::Values* values, int units,
                     const SavedMemory<F> saved) {
  using TEAM = Team<F, T, Shape<HELD_THREADS, 0, true, Kept::SHARED>, FEATURES>;
  extern __shared__ uint4 memory[];
  __shared__ ClusterRoom<F> room;
  arrive_at_cluster();  // before which no block may store in this one's room
  const int blocks = cluster_blocks(), n = int(call.size[call.rank - 1]);
  const int lane = cluster_rank() * HELD_THREADS + int(threadIdx.x);
  const typename TEAM::Memory own{values, reinterpret_cast<Vector<T>*>(memory), units, {}, saved};
  NoSums none;
  TEAM team{{n, lane, blocks * HELD_THREADS}, true, room, own, none};
  typename F::Values p = F::values(call, double(n));
  const typename TEAM::Units units_in_registers{};
  wait_for_cluster();
  run_phases(team, RowOf<F, T>(call, blockIdx.x / blocks), units_in_registers, p, static_cast<const F*>(nullptr));
}

// A call on a device: its rows, the workspace of sums, the shared memory that a block may take beside its room,
// and what is saved.
template <class F>
struct RowLaunch {
  const CallOf<F>& call;
  int64_t rows;
  void* workspace;
  int64_t shared;
  SavedMemory<F> saved;
  typename F::Values* values() const { return static_cast<typename F::Values*>(workspace); }
};

// A launch of blocks, in clusters of so many.
struct ClusterLaunch {
  cudaLaunchAttribute cluster[1] = {};
  cudaLaunchConfig_t config = {};
  ClusterLaunch(int64_t rows, int blocks, int threads, int64_t bytes, void* stream) {
    cluster[0].id = cudaLaunchAttributeClusterDimension;
    cluster[0].val.clusterDim = {unsigned(blocks), 1, 1};
    config.gridDim = dim3(unsigned(rows * blocks));
    config.blockDim = dim3(unsigned(threads));
    config.dynamicSmemBytes = size_t(bytes);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = cluster;
    config.numAttrs = blocks > 1;
  }
};

// The blocks of so many bytes that hold rows of so many: as few as give several to an SM.
inline int blocks_of_row(int64_t bytes, int64_t of_block) {
  int blocks = 1;
  while (bytes > of_block * blocks && blocks < MOST_BLOCKS) blocks *= 2;
  return blocks;
}

constexpr int RUN_THREADS = 256, RUN_RESIDENT = 4;  // of rows by channels, as HELD_THREADS
constexpr int64_t RUN_BYTES = 52 << 10;
constexpr int LEAST_SHARE = WARP / 2;  // vectors of a channel, of which a warp has parts

// The rows of a call by channels as runs, of elements of so many bytes: the vectors of a row and of a channel, the
// blocks of a cluster, and what each holds. No blocks, if rows are not whole channels of many elements.
struct RunsOfRow {
  int vectors, share, blocks, units, parts;
};
template <class F>
RunsOfRow runs_of(const CallOf<F>& call, int bytes) {
  constexpr int COUNT = count_of(HELD_OF<F>);
  const int64_t n = call.size[call.rank - 1], share = share_of_values(call, first_of(F::OF_FEATURES));
  const int64_t width = 16 / bytes, vectors = n / width, held = n * bytes * COUNT,
                blocks = blocks_of_row(held, RUN_BYTES);
  const bool fits = COUNT > 0 && n % width == 0 && share % width == 0 && share / width >= LEAST_SHARE &&
                    vectors >= RUN_THREADS && held <= MOST_HELD * blocks;
  if (!fits) return {0, 1, 0, 0, 0};
  const int64_t rounds = (vectors + WARP - 1) / WARP, units = (rounds + blocks - 1) / blocks * WARP;
  const int64_t parts = units * width / share + 2 + RUN_THREADS / WARP;
  return {int(vectors), int(share / width), int(blocks), int(units), F::FEATURES ? int(parts) : 0};
}

// Tells the device that blocks of a kernel may take shared memory, and be so many of a cluster.
template <typename Kernel>
cudaError_t allow_cluster(Kernel kernel, int blocks, int64_t bytes, int64_t most, int device, Told& told) {
  cudaError_t error = allow(kernel, int(bytes), int(most), device, told);
  if (error == cudaSuccess && blocks > 8)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  return error;
}

// Launches a call whose rows are held; returns false if no blocks are large enough, or the GPU has no such clusters.
template <class F, typename T, Features FEATURES>
bool launch_held(const RowLaunch<F>& of) {
  constexpr int COUNT = count_of(HELD_OF<F>);
  if (COUNT == 0 || of.rows == 0) return false;
  const int64_t n = of.call.size[of.call.rank - 1];
  const int blocks = blocks_of_row(n * int64_t(sizeof(T)) * COUNT, HELD_BYTES);
  const int64_t units = (n / WIDTH_OF<T> + blocks * HELD_THREADS - 1) / (blocks * HELD_THREADS);
  const int64_t of_block = units * HELD_THREADS * 16 * COUNT, most = std::min(MOST_HELD, of.shared);
  if (of_block > most || of.rows > INT32_MAX / blocks) return false;
  const auto kernel = held_rows_kernel<F, T, FEATURES>;
  static Told told;
  cudaError_t error = allow_cluster(kernel, blocks, of_block, most, of.call.device, told);
  const ClusterLaunch to(of.rows, blocks, HELD_THREADS, of_block, of.call.stream);
  if (error == cudaSuccess) error = cudaLaunchKernelEx(&to.config, kernel, of.call, of.values(), int(units), of.saved);
  if (error != cudaSuccess) (void)cudaGetLastError();  // each phase loads the row again
  return error == cudaSuccess;
}

}  // namespace
}  // namespace fusegen
