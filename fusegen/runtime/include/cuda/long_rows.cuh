#pragma once
// Rows of more elements than the blocks of a cluster hold, on CUDA: each phase is a launch, in which several blocks
// have parts of a row. All that they join, each block of the next launch joins once more, in order, so that none waits
// for another. The length of a row alone decides its parts. Modules whose declared rows are so long include this.
#include "cuda/rows.cuh"

namespace fusegen {
namespace {

constexpr int64_t LEAST_LONG = 1 << 19, LEAST_PART = 1 << 16;  // elements of a row, and of a part of one
constexpr int MOST_PARTS = 1024, PART_THREADS = 512;           // of a row, and of a block

inline int parts_of_row(int64_t n) {
  return int(std::min((n + LEAST_PART - 1) / LEAST_PART, int64_t(MOST_PARTS)));
}

// The values that blocks have joined, in global memory: for each phase, row and reduction, one of each part.
template <class F>
struct PartValues {
  double* memory;
  int64_t rows;
  int parts;
  __device__ __forceinline__ double* of(int phase, int64_t row, int result) const {
    return memory + ((phase * rows + row) * F::MOST_RESULTS + result) * parts;
  }
};

// The phases that are launches: of two in one loop that loop, and the second one for rows that need it, or both.
template <class... PHASES>
struct Launches {
  static constexpr int COUNT = sizeof...(PHASES);
};
template <class CENTRED>
struct Again : CENTRED {};
template <class PHASE, typename T>
auto launches_of() {
  using SHAPE = Shape<PART_THREADS, 0, true>;
  if constexpr (IS_ONE_LOOP<PHASE, T, SHAPE>) return std::tuple<PHASE, Again<typename PHASE::Centred>>();
  else if constexpr (IS_CENTRED<PHASE>) return std::tuple<typename PHASE::Sums, typename PHASE::Centred>();
  else return std::tuple<PHASE>();
}
template <class... PHASES>
Launches<PHASES...> listed(const std::tuple<PHASES...>&);
template <typename T, int IN, int OUT, int P, class VALUES, class... PHASES>
auto launches(const Rows<IN, OUT, P, VALUES, PHASES...>*) {
  return decltype(listed(std::tuple_cat(launches_of<PHASES, T>()...)))();
}
template <class F, typename T>
using LaunchesOf = decltype(launches<T>(static_cast<const F*>(nullptr)));

template <class PHASE>
constexpr bool IS_AGAIN = false;
template <class CENTRED>
constexpr bool IS_AGAIN<Again<CENTRED>> = true;

// Joins what the parts of a row have, and computes what follows once a row: one warp of each block for all its threads.
template <class PHASE, class F>
__device__ __forceinline__ void join_parts(const PartValues<F>& made, int phase, int64_t row, typename F::Values& p,
                                           Room<F>& room) {
  if (threadIdx.x < WARP) {
    double value[PHASE::RESULTS];
    PHASE::each([&](int k, auto fold) {
      const double* const of_part = made.of(phase, row, k);
      value[k] = decltype(fold)::IDENTITY;
      for (int part = threadIdx.x; part < made.parts; part += WARP)
        value[k] = decltype(fold)::join(value[k], of_part[part]);
    });
    join_lanes<PHASE>(value, WARP);
    finish_row<PHASE>(value, p);
    if (threadIdx.x == 0) PHASE::take(room.values, p);
  }
  __syncthreads();
  PHASE::take(p, room.values);
  __syncthreads();  // before the room has what another phase makes
}

// Runs phase number I in the launch of phase number AT: the one for a part, and of those before it what follows them.
template <int AT, int I, class PHASE, class F, class TEAM>
__device__ __forceinline__ void run_phase_of_part(TEAM& team, const typename TEAM::Row& row,
                                                  const PartValues<F>& made, typename F::Values& p) {
  const typename TEAM::Units none{};
  if constexpr (IS_CENTRED<PHASE> && I <= AT) set_shift<PHASE>(team, row, p);
  if constexpr (IS_AGAIN<PHASE> && I <= AT)
    if (!p.again) return;
  if constexpr (IS_ONE_LOOP_OF_SAVED<PHASE> && I <= AT) PHASE::begin(p);
  if constexpr (PHASE::RESULTS == 0) {
    return;
  } else if constexpr (I < AT) {
    join_parts<PHASE, F>(made, I, row.number, p, team.room);
  } else if constexpr (I == AT && PHASE::STORES) {
    int turn = 0;
    team.template phase<PHASE>(row, none, p, turn);
    if (team.memory.values && team.places.lane == 0) team.memory.values[row.number] = p;
  } else if constexpr (I == AT) {
    typename TEAM::template Total<PHASE> total[PHASE::RESULTS];
    TEAM::template clear<PHASE>(total);
    team.template go_over<PHASE>(row, none, p, total);
    join_warps<PHASE>(total, team.room);
    const int part = team.places.lane / PART_THREADS;
    if (threadIdx.x == 0) PHASE::each([&](int k, auto) { made.of(I, row.number, k)[part] = double(total[k]); });
  }
}
template <int AT, class F, class TEAM, class... PHASES, size_t... I>
__device__ __forceinline__ void run_part(TEAM& team, const typename TEAM::Row& row, const PartValues<F>& made,
                                         typename F::Values& p, Launches<PHASES...>, std::index_sequence<I...>) {
  (run_phase_of_part<AT, I, PHASES, F>(team, row, made, p), ...);
}

template <class F, typename T, bool WHOLE, Features FEATURES, int AT>
__global__ void __launch_bounds__(PART_THREADS)
    part_of_row(const __grid_constant__ CallOf<F> call, const PartValues<F> made, typename F::Values* values,
                const SavedMemory<F> saved) {
  using TEAM = Team<F, T, Shape<PART_THREADS, 0, WHOLE>, FEATURES>;
  __shared__ Room<F> room;
  const int64_t n = call.size[call.rank - 1], row = blockIdx.x / made.parts;
  const int part = int(blockIdx.x - row * made.parts);
  NoSums none;
  TEAM team{{n, part * PART_THREADS + int(threadIdx.x), made.parts * PART_THREADS},
            true, room, {values, nullptr, 0, {}, saved}, none};
  typename F::Values p = F::values(call, double(n));
  read_saved<F>(saved, row, p);
  using All = LaunchesOf<F, T>;
  run_part<AT, F>(team, RowOf<F, T>(call, row), made, p, All(), std::make_index_sequence<All::COUNT>());
}

template <class F, typename T, bool WHOLE, Features FEATURES, int AT>
void launch_phase(const RowLaunch<F>& of, const PartValues<F>& made) {
  const auto kernel = part_of_row<F, T, WHOLE, FEATURES, AT>;
  const auto values = FEATURES == Features::LEFT ? of.values() : nullptr;
  const auto stream = static_cast<cudaStream_t>(of.call.stream);
  kernel<<<unsigned(made.rows * made.parts), PART_THREADS, 0, stream>>>(of.call, made, values, of.saved);
}

// Launches the phases of rows, one after the other; in the order of the stream, what blocks join has memory meanwhile.
template <class F, typename T, bool WHOLE, Features FEATURES, size_t... AT>
cudaError_t launch_phases(const RowLaunch<F>& of, std::index_sequence<AT...>) {
  constexpr int PHASES = sizeof...(AT);
  const auto stream = static_cast<cudaStream_t>(of.call.stream);
  PartValues<F> made{nullptr, of.rows, parts_of_row(of.call.size[of.call.rank - 1])};
  const size_t bytes = size_t(PHASES * of.rows * F::MOST_RESULTS * made.parts) * sizeof(double);
  cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&made.memory), bytes, stream);
  if (error != cudaSuccess) return cudaGetLastError();  // which forgets it, so that no later launch reports it
  (launch_phase<F, T, WHOLE, FEATURES, AT>(of, made), ...);
  error = cudaGetLastError();
  const cudaError_t freed = cudaFreeAsync(made.memory, stream);
  return error == cudaSuccess ? freed : error;
}
// Launches rows of T, with the sums over them in another kernel.
template <class F, typename T, bool SUMS, bool WHOLE>
cudaError_t launch_long(const RowLaunch<F>& of) {
  constexpr bool ADDS = SUMS && SUMS_OF<F> > 0;
  constexpr Features FEATURES = ADDS ? Features::LEFT : Features::STORED;
  constexpr int COUNT = LaunchesOf<F, T>::COUNT;
  const cudaError_t error = launch_phases<F, T, WHOLE, FEATURES>(of, std::make_index_sequence<COUNT>());
  if constexpr (ADDS && F::BY_CHANNEL)
    return error == cudaSuccess ? sum_channels<F, T>(of.call, of.rows, of.workspace) : error;
  else if constexpr (ADDS)
    return error == cudaSuccess ? sum_columns<F, T, WHOLE>(of.call, of.rows, of.workspace) : error;
  else return error;
}

template <class F, bool SUMS, int... DTYPES>
const char* launch_any_long(const CallOf<F>& call, void* workspace, Dtypes<DTYPES...>, SavedMemory<F> saved = {}) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const RowLaunch<F> of{call, rows_of(call), workspace, 0, saved};
  const auto launched = [&](int dtype, auto element) {
    using T = decltype(element);
    if (call.dtype != dtype) return false;
    const bool whole = sizeof(T) < 8 && call.size[call.rank - 1] % WIDTH_OF<T> == 0;
    error = whole ? launch_long<F, T, SUMS, sizeof(T) < 8>(of) : launch_long<F, T, SUMS, false>(of);
    return true;
  };
  if (error == cudaSuccess) (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class F>
bool has_long_rows(const CallOf<F>& call) {
  return call.size[call.rank - 1] >= LEAST_LONG && rows_of(call) > 0;
}
template <class F>
const char* run_any_length(const CallOf<F>& call) {
  return has_long_rows<F>(call) ? launch_any_long<F, false>(call, nullptr, typename F::Elements()) : run<F>(call);
}
template <class F>
const char* run_reducing_any_length(const CallOf<F>& call, void* workspace) {
  if (!has_long_rows<F>(call)) return run_reducing<F>(call, workspace);
  if (const char* refused = refuse_sums<F>(call)) return refused;
  return launch_any_long<F, true>(call, workspace, typename F::Elements());
}
template <class F>
const char* run_saved_any_length(const CallOf<F>& call, void* workspace, const SavedMemory<F>& saved) {
  if (!has_long_rows<F>(call)) return run_saved<F>(call, workspace, saved);
  if constexpr (SUMS_OF<F> > 0)
    if (workspace != nullptr) {
      if (const char* refused = refuse_sums<F>(call)) return refused;
      return launch_any_long<F, true>(call, workspace, typename F::Elements(), saved);
    }
  return launch_any_long<F, false>(call, nullptr, typename F::Elements(), saved);
}

}  // namespace
}  // namespace fusegen

// The functions that the binding calls, as launcher.h and saved_values.cuh have them.
#undef FUSEGEN_RUN_SAVED
#define FUSEGEN_RUN_SAVED run_saved_any_length
#undef FUSEGEN_LAUNCHER
#define FUSEGEN_LAUNCHER(NAME, F)                                                 \
  extern "C" const char* NAME##_launch(const fusegen::CallOf<fusegen::F>& call) { \
    return fusegen::run_any_length<fusegen::F>(call);                             \
  }
#ifndef WITHOUT_BACKWARD
#undef FUSEGEN_REDUCING
#define FUSEGEN_REDUCING(NAME)                                                                              \
  extern "C" int64_t NAME##_backward_workspace(const fusegen::CallOf<fusegen::Backward>& call) {            \
    return fusegen::workspace_bytes<fusegen::Backward>(call);                                               \
  }                                                                                                         \
  extern "C" const char* NAME##_backward_reduce(const fusegen::CallOf<fusegen::Backward>& call, void* to) { \
    return fusegen::run_reducing_any_length<fusegen::Backward>(call, to);                                   \
  }
#endif
