#pragma once
// Kernels of rows on CUDA. A team of threads has a row: it loads what the phases share once, into registers, where the
// row is short enough; else each phase loads it again. What a row gives depends on its elements alone, not on the
// number of rows, on alignment or on the GPU: element e of a team's thread is the same in every call of such a length.
#include "cuda/row_team.cuh"

namespace fusegen {
namespace {

constexpr int MOST_SUMMING = 264;  // blocks that sum over the rows, on any GPU

// The threads of a block: several teams of a warp, or one of more.
template <int THREADS>
constexpr int BLOCK_OF = THREADS > WARP ? THREADS : SMALL_BLOCK;

// The threads that an SM has at least, for which registers are left.
template <class F, bool SUMS>
constexpr int RESIDENT = SUMS || !F::RECOMPUTES || F::OUTPUTS > 1 ? 512 : 768;

template <class F, typename T, class SHAPE, bool SUMS>
__global__ void __launch_bounds__(BLOCK_OF<SHAPE::threads>, RESIDENT<F, SUMS> / BLOCK_OF<SHAPE::threads>)
    rows_kernel(const __grid_constant__ CallOf<F> call, int64_t rows, double* partial) {
  constexpr int THREADS = SHAPE::threads, TEAMS = BLOCK_OF<THREADS> / THREADS;
  __shared__ Room<F> room;
  const int64_t number = int64_t(blockIdx.x) * TEAMS + threadIdx.x / THREADS, n = call.size[call.rank - 1];
  using TEAM = Team<F, T, SHAPE, SUMS>;
  using I = typename TEAM::I;
  constexpr int IN_WARP = THREADS < WARP ? WARP / THREADS : 1;  // teams, which go on together
  TEAM team{{I(n), int(threadIdx.x % THREADS)}, true, room, partial + number * n * SUMS_OF<F>, {}};
  for (int64_t row = number; row / IN_WARP * IN_WARP < rows; row += int64_t(gridDim.x) * TEAMS) {
    team.active = IN_WARP == 1 || row < rows;
    team.places.n = team.active ? I(n) : I(0);
    typename F::Values p = F::values(call, double(n));
    run_phases(team, RowOf<F, T>(call, team.active ? row : 0), p, static_cast<const F*>(nullptr));
  }
  team.places.n = I(n);
  if constexpr (SUMS) team.write_sums();
}

// Adds the parts of the sums over the rows, in order, each for a column by eight threads.
constexpr int COLUMNS = 32, WALKERS = 8;
template <typename T>
__global__ void __launch_bounds__(COLUMNS* WALKERS)
    add_teams(const double* partial, int64_t teams, int64_t distance, int64_t n, T* to, int64_t step) {
  __shared__ double room[WALKERS][COLUMNS];
  const int64_t column = int64_t(blockIdx.x) * COLUMNS + threadIdx.x % COLUMNS;
  const int walker = threadIdx.x / COLUMNS;
  double sum = 0;
#pragma unroll 4
  for (int64_t team = walker; team < teams && column < n; team += WALKERS) sum += partial[team * distance + column];
  room[walker][threadIdx.x % COLUMNS] = sum;
  __syncthreads();
  if (walker > 0 || column >= n) return;
  for (int k = 1; k < WALKERS; ++k) sum += room[k][threadIdx.x];
  store_result(to[column * step], sum);
}

// A call on a device: its rows, how they are loaded, and the workspace of sums.
template <class F>
struct RowLaunch {
  const CallOf<F>& call;
  int64_t rows;
  double* workspace;
};

template <int THREADS>
int64_t blocks_of(int64_t rows, bool sums) {
  constexpr int TEAMS = BLOCK_OF<THREADS> / THREADS;
  return std::min((rows + TEAMS - 1) / TEAMS, int64_t(sums ? MOST_SUMMING : (1u << 31) - 1));
}

template <class F, typename T, class SHAPE, bool SUMS>
cudaError_t launch_teams(const RowLaunch<F>& of) {
  constexpr int BLOCK = BLOCK_OF<SHAPE::threads>;
  const int64_t n = of.call.size[of.call.rank - 1], blocks = blocks_of<SHAPE::threads>(of.rows, SUMS);
  const auto stream = static_cast<cudaStream_t>(of.call.stream);
  if (SUMS && SHAPE::units == 0) {
    const size_t bytes = size_t(blocks * n * SUMS_OF<F>) * sizeof(double);
    const cudaError_t error = cudaMemsetAsync(of.workspace, 0, bytes, stream);
    if (error != cudaSuccess) return error;
  }
  if (of.rows > 0)
    rows_kernel<F, T, SHAPE, SUMS><<<unsigned(blocks), BLOCK, 0, stream>>>(of.call, of.rows, of.workspace);
  if constexpr (SUMS) {
    const int64_t teams = of.rows > 0 ? blocks * (BLOCK / SHAPE::threads) : 0;
    for (int k = 0, sum = 0; k < F::OUTPUTS && n > 0; ++k) {
      if (!(F::FEATURES >> k & 1)) continue;
      T* const to = static_cast<T*>(of.call.data[F::INPUTS + k]);
      const int64_t step = of.call.stride[F::INPUTS + k][of.call.rank - 1];
      add_teams<T><<<unsigned((n + COLUMNS - 1) / COLUMNS), COLUMNS * WALKERS, 0, stream>>>(
          of.workspace + sum++ * n, teams, SUMS_OF<F> * n, n, to, step);
    }
  }
  return cudaGetLastError();
}

// The threads of a row, the units of each, and whether the row is whole vectors.
template <int THREADS, int UNITS, bool WHOLE>
struct Shape {
  static constexpr int threads = THREADS, units = UNITS;
  static constexpr bool whole = WHOLE;
};

// Launches a row of n elements in the shape that holds it: in sums over the rows of fewer units, each of which takes
// registers for its sums.
template <class F, typename T, bool SUMS>
cudaError_t launch_rows(const RowLaunch<F>& of) {
  constexpr int WIDTH = WIDTH_OF<T>, MOST = SUMS ? (WIDTH < 8 ? 8 / WIDTH : 1) : 4;
  const int64_t n = of.call.size[of.call.rank - 1], units = (n + WIDTH - 1) / WIDTH;
  if (n % WIDTH != 0 || sizeof(T) == 8) {
    if (units <= 32 * MOST) return launch_teams<F, T, Shape<32, MOST, false>, SUMS>(of);
    if (units <= 256 * MOST) return launch_teams<F, T, Shape<256, MOST, false>, SUMS>(of);
    return launch_teams<F, T, Shape<512, 0, false>, SUMS>(of);
  }
  if constexpr (sizeof(T) < 8) {
    if (units <= 8 * MOST) return launch_teams<F, T, Shape<8, MOST, true>, SUMS>(of);
    if (units <= 32 * MOST) return launch_teams<F, T, Shape<32, MOST, true>, SUMS>(of);
    if (units <= 64 * MOST) return launch_teams<F, T, Shape<64, MOST, true>, SUMS>(of);
    if (units <= 128 * MOST) return launch_teams<F, T, Shape<128, MOST, true>, SUMS>(of);
    if (units <= 256 * MOST) return launch_teams<F, T, Shape<256, MOST, true>, SUMS>(of);
    if (units <= 512 * MOST) return launch_teams<F, T, Shape<512, MOST, true>, SUMS>(of);
  }
  return launch_teams<F, T, Shape<512, 0, true>, SUMS>(of);
}

template <class F, bool SUMS, int... DTYPES>
const char* launch_any_rows(const CallOf<F>& call, double* workspace, Dtypes<DTYPES...>) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const RowLaunch<F> of{call, rows_of(call), workspace};
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    error = launch_rows<F, decltype(element), SUMS>(of);
    return true;
  };
  if (error == cudaSuccess) (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// Launches F on the current stream of the tensors' device; returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  return launch_any_rows<F, false>(call, nullptr, typename F::Elements());
}

// The bytes of workspace that sums over the rows need, and the launch with it.
template <class F>
int64_t workspace_bytes(const CallOf<F>& call) {
  constexpr int64_t TEAMS = SMALL_BLOCK / LEAST_TEAM;  // of a block, at most
  const int64_t n = call.size[call.rank - 1], rows = (rows_of(call) + TEAMS - 1) / TEAMS * TEAMS;
  return std::min(rows, MOST_SUMMING * TEAMS) * n * SUMS_OF<F> * int64_t(sizeof(double));
}
template <class F>
const char* run_reducing(const CallOf<F>& call, void* workspace) {
  if (const char* refused = refuse_sums<F>(call)) return refused;
  return launch_any_rows<F, true>(call, static_cast<double*>(workspace), typename F::Elements());
}

}  // namespace
}  // namespace fusegen
