#pragma once
// Kernels of rows on CUDA. A team of threads has a row: it loads what the phases share once, into registers where the
// row is short enough, else into the shared memory of a block or of a cluster; of longer rows each phase loads it again.
// What a row gives depends on its elements alone, not on the number of rows, on alignment or on the number of SMs:
// element e of a team's thread is the same in every call of such a length.
#include "cuda/feature_sums.cuh"
#include "cuda/held_rows.cuh"

namespace fusegen {
namespace {

// The threads of a block: several teams of a warp, or one of more.
template <int THREADS>
constexpr int BLOCK_OF = THREADS > WARP ? THREADS : SMALL_BLOCK;

// The threads that an SM has at least, for which registers are left.
template <class F, Features FEATURES>
constexpr int RESIDENT = FEATURES == Features::ADDED ? 1024 : !F::RECOMPUTES || F::OUTPUTS > 1 ? 512 : 768;

template <class F, typename T, class SHAPE, Features FEATURES>
__global__ void
__launch_bounds__(BLOCK_OF<SHAPE::threads>, RESIDENT<F, FEATURES> / BLOCK_OF<SHAPE::threads>)
    rows_kernel(const __grid_constant__ CallOf<F> call, int64_t rows, typename F::Values* values, double* partial) {
  constexpr int THREADS = SHAPE::threads, TEAMS = BLOCK_OF<THREADS> / THREADS;
  constexpr int IN_WARP = THREADS < WARP ? WARP / THREADS : 1;  // teams, which go on together
  constexpr bool ADDS = FEATURES == Features::ADDED;
  using TEAM = Team<F, T, SHAPE, FEATURES>;
  extern __shared__ double2 sums_memory[];
  __shared__ Room<F> room;
  const int64_t n = call.size[call.rank - 1], step = int64_t(gridDim.x) * TEAMS;
  typename TEAM::Sums sums;
  TEAM team{{typename TEAM::I(n), int(threadIdx.x % THREADS), THREADS}, true, room, {values, nullptr, 0}, sums};
  if constexpr (ADDS) sums.memory = sums_memory, sums.clear();
  int done = 0;
  for (int64_t row = int64_t(blockIdx.x) * TEAMS + threadIdx.x / THREADS; row / IN_WARP * IN_WARP < rows; row += step) {
    team.active = IN_WARP == 1 || row < rows;
    const RowOf<F, T> of(call, team.active ? row : 0);
    typename TEAM::Units units;
    team.load(units, of);
    if (ADDS && row + step < rows) team.prefetch(RowOf<F, T>(call, row + step));
    typename F::Values p = F::values(call, double(n));
    run_phases(team, of, units, p, static_cast<const F*>(nullptr));
    if constexpr (ADDS) sums.end_row(done++);
  }
  if constexpr (ADDS) sums.write(partial + blockIdx.x * n * SUMS_OF<F>, TEAMS, team.places);
}

template <class F, typename T, class SHAPE, Features FEATURES>
cudaError_t launch_teams(const RowLaunch<F>& of) {
  constexpr int BLOCK = BLOCK_OF<SHAPE::threads>, TEAMS = BLOCK / SHAPE::threads;
  constexpr bool ADDS = FEATURES == Features::ADDED;
  constexpr int SHARED = ADDS ? SUMS_OF<F> * SHAPE::units * WIDTH_OF<T> * BLOCK * int(sizeof(double)) : 0;
  const int64_t most = ADDS ? summing_blocks(BLOCK) : (1u << 31) - 1;
  const int64_t blocks = std::min((of.rows + TEAMS - 1) / TEAMS, most);
  const auto kernel = rows_kernel<F, T, SHAPE, FEATURES>;
  const auto partial = static_cast<double*>(of.workspace);
  if (SHARED > 0) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (error != cudaSuccess) return error;
  }
  if (of.rows > 0)
    kernel<<<unsigned(blocks), BLOCK, SHARED, static_cast<cudaStream_t>(of.call.stream)>>>(of.call, of.rows, of.values(),
                                                                                         partial);
  if constexpr (ADDS) return add_all_parts<F, T>(of.call, partial, blocks);
  return cudaGetLastError();
}

// Launches a row of n elements in the shape that holds it: not in registers, if it is too long for sums of its features.
template <class F, typename T, Features FEATURES>
cudaError_t launch_rows(const RowLaunch<F>& of) {
  constexpr int WIDTH = WIDTH_OF<T>, ODD = WIDTH < 8 ? 4 : 2;  // units of rows that are not whole vectors
  const int64_t n = of.call.size[of.call.rank - 1], units = (n + WIDTH - 1) / WIDTH;
  if (n == 0) return launch_teams<F, T, Shape<512, 0, true>, FEATURES>(of);
  if (n % WIDTH != 0 || sizeof(T) == 8) {
    if constexpr (FEATURES == Features::STORED) {
      if (units <= 32 * ODD) return launch_teams<F, T, Shape<32, ODD, false>, FEATURES>(of);
      if (units <= 256 * ODD) return launch_teams<F, T, Shape<256, ODD, false>, FEATURES>(of);
    }
    return launch_teams<F, T, Shape<512, 0, false>, FEATURES>(of);
  }
  if constexpr (sizeof(T) < 8) {
    if constexpr (FEATURES == Features::STORED) {
      if (units <= 8 * 4) return launch_teams<F, T, Shape<8, 4, true>, FEATURES>(of);
      if (units <= 32 * 4) return launch_teams<F, T, Shape<32, 4, true>, FEATURES>(of);
      if (units <= 64 * 4) return launch_teams<F, T, Shape<64, 4, true>, FEATURES>(of);
      if (units <= 128 * 4) return launch_teams<F, T, Shape<128, 4, true>, FEATURES>(of);
      if (units <= 256 * 4) return launch_teams<F, T, Shape<256, 4, true>, FEATURES>(of);
      if (units <= 512 * 4) return launch_teams<F, T, Shape<512, 4, true>, FEATURES>(of);
    }
    if (launch_held<F, T, FEATURES>(of)) return cudaSuccess;
  }
  return launch_teams<F, T, Shape<512, 0, true>, FEATURES>(of);
}

// Launches rows whose outputs F::FEATURES are sums over the rows: in shared memory, where a block has room for those of
// a row; else a kernel of columns makes them of what that of rows has found.
template <class F, typename T>
cudaError_t launch_summing(const RowLaunch<F>& of) {
  constexpr int WIDTH = WIDTH_OF<T>, UNITS = WIDTH < 8 ? 8 / WIDTH : 1;
  const int64_t n = of.call.size[of.call.rank - 1], units = (n + WIDTH - 1) / WIDTH;
  if (n > 0 && n * SUMS_OF<F> * int64_t(sizeof(double)) <= MOST_SUMS) {
    if (n % WIDTH != 0 || sizeof(T) == 8) {
      if (units <= 32 * UNITS) return launch_teams<F, T, Shape<32, UNITS, false>, Features::ADDED>(of);
      if (units <= 256 * UNITS) return launch_teams<F, T, Shape<256, UNITS, false>, Features::ADDED>(of);
    }
    if constexpr (sizeof(T) < 8) {
      if (n % WIDTH == 0) {
        if (units <= 32 * UNITS) return launch_teams<F, T, Shape<32, UNITS, true>, Features::ADDED>(of);
        if (units <= 128 * UNITS) return launch_teams<F, T, Shape<128, UNITS, true>, Features::ADDED>(of);
        if (units <= 512 * UNITS) return launch_teams<F, T, Shape<512, UNITS, true>, Features::ADDED>(of);
        if (units <= 1024 * UNITS) return launch_teams<F, T, Shape<1024, UNITS, true>, Features::ADDED>(of);
      }
    }
  }
  const cudaError_t error = launch_rows<F, T, Features::LEFT>(of);
  return error == cudaSuccess ? sum_columns<F, T>(of.call, of.rows, of.workspace) : error;
}

template <class F, class LAUNCH, int... DTYPES>
const char* launch_any_rows(const CallOf<F>& call, void* workspace, const LAUNCH& launch, Dtypes<DTYPES...>) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const RowLaunch<F> of{call, rows_of(call), workspace};
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    error = launch(of, element);
    return true;
  };
  if (error == cudaSuccess) (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// Launches F on the current stream of the tensors' device; returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  const auto launch = [](const RowLaunch<F>& of, auto element) {
    return launch_rows<F, decltype(element), Features::STORED>(of);
  };
  return launch_any_rows<F>(call, nullptr, launch, typename F::Elements());
}

// The launch of F with sums over the rows, in a workspace.
template <class F>
const char* run_reducing(const CallOf<F>& call, void* workspace) {
  if (const char* refused = refuse_sums<F>(call)) return refused;
  const auto launch = [](const RowLaunch<F>& of, auto element) {
    if constexpr (SUMS_OF<F> > 0) return launch_summing<F, decltype(element)>(of);
    else return launch_rows<F, decltype(element), Features::STORED>(of);
  };
  return launch_any_rows<F>(call, workspace, launch, typename F::Elements());
}

}  // namespace
}  // namespace fusegen
