#pragma once
// Kernels of rows on CUDA. A team of threads has a row: it loads what the phases share once, into registers where the
// row is short enough, else into the shared memory of a block or of a cluster; longer rows are loaded by each phase.
// The result of a row depends on its elements alone, not on the number of rows, on alignment or on the number of SMs:
// element e of a team's thread is the same in every call of such a length.
#include "cuda/channel_rows.cuh"
#include "cuda/row_columns.cuh"

namespace fusegen {
namespace {

// The threads of a block, which has several teams of lanes or one of warps; and those that an SM has at least, for
// which registers are left: as many as softmax, layer norm and RMS norm of 1,024 and 4,096 columns were fastest with on
// an H200, and cross-entropy of 4,096 to 128,256.
template <class F>
constexpr bool IS_READ_ONCE = READ_ONCE<F> != 0 || ONLY_STORES<F>;
template <class SHAPE>
constexpr int MOST_OF_BLOCK = SHAPE::threads > WARP ? SHAPE::threads : SMALL_BLOCK;
template <class F, typename T, class SHAPE, Features FEATURES>
constexpr int resident_threads() {
  if (READ_ONCE<F>) return 1280;
  if (ONLY_STORES<F>) return 1024;
  if (FEATURES == Features::ADDED) return sizeof(T) == 2 ? 512 : SHAPE::threads > WARP ? 1024 : 768;
  if (OWN_INPUTS<F> > 1 || F::OUTPUTS > 1 || SHAPE::units > 4) return 512;
  if (SHAPE::threads > 256) return 1024;
  if (!F::RECOMPUTES || !SHAPE::whole) return 768;
  return sizeof(T) == 2 && SHAPE::threads <= WARP && F::INPUTS > 2 ? 640 : 1024;
}

template <class F, typename T, class SHAPE, Features FEATURES>
__global__ void __launch_bounds__(MOST_OF_BLOCK<SHAPE>,
                                  resident_threads<F, T, SHAPE, FEATURES>() / MOST_OF_BLOCK<SHAPE>)
    rows_kernel(const __grid_constant__ CallOf<F> call, int64_t rows, int threads, typename F::Values* values,
                double* partial, const SavedMemory<F> saved) {
  constexpr bool IS_LANES = SHAPE::threads <= WARP, ADDS = FEATURES == Features::ADDED;
  using TEAM = Team<F, T, SHAPE, FEATURES>;
  extern __shared__ double2 sums_memory[];
  __shared__ Room<F> room;
  const int bits = __ffs(threads) - 1;  // lanes are a power of two
  const int teams = IS_LANES ? SMALL_BLOCK >> bits : 1;
  const int together = IS_LANES ? (WARP >> bits) - 1 : 0;  // teams of a warp go on together
  const int64_t n = call.size[call.rank - 1], step = int64_t(gridDim.x) * teams;
  const int lane = IS_LANES ? threadIdx.x & (threads - 1) : threadIdx.x;
  typename TEAM::Sums sums;
  TEAM team{{typename TEAM::I(n), lane, threads}, true, room, {values, nullptr, 0, {}, saved}, sums};
  if constexpr (ADDS) {
    sums.memory = sums_memory;
    sums.threads = threads, sums.lane = lane, sums.team = IS_LANES ? threadIdx.x >> bits : 0;
    sums.clear();
  }
  int done = 0;
  const int64_t first = IS_LANES ? int64_t(blockIdx.x) * teams + (threadIdx.x >> bits) : blockIdx.x;
  for (int64_t row = first; (row & ~int64_t(together)) < rows; row += step) {
    team.active = !IS_LANES || row < rows;
    const RowOf<F, T> of(call, team.active ? row : 0);
    typename TEAM::Units units;
    team.load(units, of);
    if (ADDS && row + step < rows) team.prefetch(RowOf<F, T>(call, row + step));
    typename F::Values p = F::values(call, double(n));
    run_phases(team, of, units, p, static_cast<const F*>(nullptr));
    if constexpr (ADDS) sums.end_row(done++);
  }
  if constexpr (ADDS) sums.write(partial + blockIdx.x * n * SUMS_OF<F>, teams, team.places);
}

// Launches rows for teams of so many threads.
template <class F, typename T, class SHAPE, Features FEATURES>
cudaError_t launch_teams(const RowLaunch<F>& of, int threads) {
  constexpr bool ADDS = FEATURES == Features::ADDED;
  const int block = SHAPE::threads > WARP ? threads : SMALL_BLOCK, teams = block / threads;
  const int shared = ADDS ? SUMS_OF<F> * SHAPE::units * WIDTH_OF<T> * block * int(sizeof(double)) : 0;
  const int64_t most = ADDS ? summing_blocks(std::max(block, SMALL_BLOCK)) : (1u << 31) - 1;
  const int64_t blocks = std::min((of.rows + teams - 1) / teams, most);
  const auto kernel = rows_kernel<F, T, SHAPE, FEATURES>;
  const auto partial = static_cast<double*>(of.workspace);
  if constexpr (ADDS) {
    static Told told;
    const cudaError_t error = allow(kernel, shared, int(std::min(MOST_SUMS, of.shared)), of.call.device, told);
    if (error != cudaSuccess) return error;
  }
  if (of.rows > 0)
    kernel<<<unsigned(blocks), block, shared, static_cast<cudaStream_t>(of.call.stream)>>>(
        of.call, of.rows, threads, of.values(), partial, of.saved);
  if constexpr (ADDS) return add_all_parts<F, T>(of.call, partial, blocks);
  return cudaGetLastError();
}

// Launches rows for teams of lanes whose threads have so many units, in the least shape that holds these.
template <class F, typename T, int UNITS, bool WHOLE, Features FEATURES>
cudaError_t launch_lanes(const RowLaunch<F>& of, int team, int64_t units) {
  if constexpr (UNITS > 1)
    if (units <= UNITS / 2) return launch_lanes<F, T, UNITS / 2, WHOLE, FEATURES>(of, team, units);
  return launch_teams<F, T, Shape<WARP, UNITS, WHOLE>, FEATURES>(of, team);
}

// Launches rows that teams of MOST threads hold in registers, a thread UNITS units; returns false if they do not.
template <class F, typename T, int UNITS, int MOST, bool WHOLE, Features FEATURES>
bool launch_in_registers(const RowLaunch<F>& of, cudaError_t& error) {
  constexpr int WIDTH = WIDTH_OF<T>;
  const int64_t all = (of.call.size[of.call.rank - 1] + WIDTH - 1) / WIDTH, threads = (all + UNITS - 1) / UNITS;
  if (threads > MOST) return false;
  if constexpr (MOST > WARP) {
    error = launch_teams<F, T, Shape<MOST, UNITS, WHOLE>, FEATURES>(of, int(threads + WARP - 1) / WARP * WARP);
  } else {
    int team = LEAST_TEAM;
    while (team < threads) team *= 2;
    error = launch_lanes<F, T, UNITS, WHOLE, FEATURES>(of, team, (all + team - 1) / team);
  }
  return true;
}

// Launches rows whose outputs F::FEATURES are sums over the rows, or those of a row alone, whose other outputs so have
// the same bits; returns false if registers do not hold them, or shared memory not the sums.
template <class F, typename T, bool WHOLE, Features FEATURES>
bool launch_with_features(const RowLaunch<F>& of, cudaError_t& error) {
  constexpr int UNITS = sizeof(T) == 2 ? 2 : 8 / WIDTH_OF<T>, MOST = sizeof(T) == 2 ? 512 : 1024;
  const int64_t n = of.call.size[of.call.rank - 1];
  // a block may have some threads more than a row has units
  const bool has_room = n * SUMS_OF<F> * int64_t(sizeof(double)) <= std::min(MOST_SUMS, of.shared) * 9 / 10;
  return n > 0 && has_room && (launch_in_registers<F, T, UNITS, WARP, WHOLE, FEATURES>(of, error) ||
                               launch_in_registers<F, T, UNITS, MOST, WHOLE, FEATURES>(of, error));
}

// Launches rows in the shape that holds them: not in registers, if they are too long for sums of their features.
template <class F, typename T, bool WHOLE, Features FEATURES>
cudaError_t launch_rows(const RowLaunch<F>& of) {
  constexpr int UNITS = WHOLE || WIDTH_OF<T> < 8 ? 4 : 2;
  cudaError_t error = cudaSuccess;
  if constexpr (WHOLE && F::BY_CHANNEL && FEATURES == Features::STORED)
    if (launch_channel_rows<F, T, FEATURES>(of)) return cudaSuccess;
  if constexpr (FEATURES == Features::STORED && SUMS_OF<F> > 0 && !F::BY_CHANNEL) {
    if (launch_with_features<F, T, WHOLE, FEATURES>(of, error)) return error;
  } else if constexpr (FEATURES == Features::STORED || F::BY_CHANNEL) {
    if (of.call.size[of.call.rank - 1] > 0) {
      if constexpr (WHOLE && sizeof(T) == 4 && !F::RECOMPUTES && OWN_INPUTS<F> == 1) {  // long functions: more a thread
        if (launch_in_registers<F, T, 2 * UNITS, WARP, WHOLE, FEATURES>(of, error)) return error;
        if (launch_in_registers<F, T, 2 * UNITS, 128, WHOLE, FEATURES>(of, error)) return error;
      }
      if (launch_in_registers<F, T, UNITS, WARP, WHOLE, FEATURES>(of, error)) return error;
      if (launch_in_registers<F, T, UNITS, 256, WHOLE, FEATURES>(of, error)) return error;
      if constexpr (WHOLE && !IS_READ_ONCE<F>)
        if (launch_in_registers<F, T, UNITS, LARGE_BLOCK, WHOLE, FEATURES>(of, error)) return error;
    }
  }
  if constexpr (WHOLE)
    if (launch_held<F, T, FEATURES>(of)) return cudaSuccess;
  constexpr int BLOCK = IS_READ_ONCE<F> ? SMALL_BLOCK * 2 : LARGE_BLOCK;  // rows read once: more of them on an SM
  return launch_teams<F, T, Shape<BLOCK, 0, WHOLE>, FEATURES>(of, BLOCK);
}

// Launches rows whose outputs F::FEATURES are sums over the rows: in shared memory, where a block has room for those of
// a row; else a kernel of columns makes them of what that of rows has found.
template <class F, typename T, bool WHOLE>
cudaError_t launch_summing(const RowLaunch<F>& of) {
  cudaError_t error = cudaSuccess;
  if constexpr (F::BY_CHANNEL) {
    if constexpr (WHOLE)
      if (launch_channel_rows<F, T, Features::ADDED>(of)) return cudaSuccess;
    error = launch_rows<F, T, WHOLE, Features::LEFT>(of);
    return error == cudaSuccess ? sum_channels<F, T>(of.call, of.rows, of.workspace) : error;
  }
  if (launch_with_features<F, T, WHOLE, Features::ADDED>(of, error)) return error;
  error = launch_rows<F, T, WHOLE, Features::LEFT>(of);
  return error == cudaSuccess ? sum_columns<F, T, WHOLE>(of.call, of.rows, of.workspace) : error;
}

// Launches rows of T, which are whole vectors or not; those of 64 bits are taken as such that are not. Rows that might
// lie apart may begin anywhere: those that begin within a vector are read as rows that lie apart, in the order of whole
// vectors; others the binding copies to where vectors begin.
template <class F, typename T, bool SUMS>
cudaError_t launch_typed(const RowLaunch<F>& of) {
  const auto launch = [&](auto whole) {
    if constexpr (SUMS && SUMS_OF<F> > 0) return launch_summing<F, T, decltype(whole)::value>(of);
    else {
      if constexpr (F::APART)
        if (is_strided(of.call) || (decltype(whole)::value && !in_vectors<T>(of.call)))
          return run_apart<F, T, decltype(whole)::value>(of);
      return launch_rows<F, T, decltype(whole)::value, Features::STORED>(of);
    }
  };
  if constexpr (sizeof(T) < 8)
    if (of.call.size[of.call.rank - 1] % WIDTH_OF<T> == 0) return launch(std::true_type());
  return launch(std::false_type());
}

template <class F, bool SUMS, int... DTYPES>
const char* launch_any_rows(const CallOf<F>& call, void* workspace, Dtypes<DTYPES...>, SavedMemory<F> saved = {}) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  int most = 0;
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, call.device);
  const RowLaunch<F> of{call, rows_of(call), workspace, most - int64_t(sizeof(ClusterRoom<F>)), saved};
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    error = launch_typed<F, decltype(element), SUMS>(of);
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

// The launch of F with sums over the rows, in a workspace.
template <class F>
const char* run_reducing(const CallOf<F>& call, void* workspace) {
  if (const char* refused = refuse_sums<F>(call)) return refused;
  return launch_any_rows<F, true>(call, workspace, typename F::Elements());
}

// The launch of F with numbers of rows that are saved; with sums over the rows, if there is a workspace for these.
template <class F>
const char* run_saved(const CallOf<F>& call, void* workspace, const SavedMemory<F>& saved) {
  if constexpr (SUMS_OF<F> > 0)
    if (workspace != nullptr) {
      if (const char* refused = refuse_sums<F>(call)) return refused;
      return launch_any_rows<F, true>(call, workspace, typename F::Elements(), saved);
    }
  return launch_any_rows<F, false>(call, nullptr, typename F::Elements(), saved);
}

}  // namespace
}  // namespace fusegen
