#pragma once
// Rows whose elements lie apart, along a dimension that is not the last one of memory, on CUDA: the lanes of a warp
// have neighbouring rows, so that loads lie side by side, and the warps of a block walk along these rows. A walker has
// the elements of one thread of the team that would have the row if it lay side by side, or of 32 such threads in turn;
// they are joined as in that team, so that a row has the same bits in both layouts, unless shared memory holds it.
#include "cuda/row_team.cuh"

namespace fusegen {
namespace {

// True if elements of rows lie apart in a tensor.
template <int N>
bool is_strided(const Tensors<N>& call) {
  for (int k = 0; k < N; ++k)
    if (call.stride[k][call.rank - 1] > 1) return true;
  return false;
}

// The blocks for which an SM has registers: of threads with one unit several, whose loads go on while others join.
template <class F, class SHAPE>
constexpr int COLUMNS_RESIDENT = SHAPE::walks ? 1 : SHAPE::units > 1 ? 0 : F::INPUTS == 1 ? 3 : 2;

template <class F, typename T, class SHAPE>
__global__ void __launch_bounds__(LARGE_BLOCK, (COLUMNS_RESIDENT<F, SHAPE>))
    columns_of_rows(const __grid_constant__ CallOf<F> call, int64_t rows, int threads,
                    const SavedMemory<F> saved) {
  using TEAM = Team<F, T, SHAPE, Features::STORED>;
  __shared__ ColumnRoom<F> room;
  const int64_t n = call.size[call.rank - 1], row = int64_t(blockIdx.x) * WARP + threadIdx.x % WARP;
  const bool active = row < rows;
  NoSums none;
  TEAM team{{typename TEAM::I(n), int(threadIdx.x) / WARP, threads}, active, room,
            {nullptr, nullptr, 0, {}, saved}, none};
  const typename TEAM::Row of(call, active ? row : 0);
  typename TEAM::Units units;
  team.load(units, of);
  typename F::Values p = F::values(call, double(n));
  run_phases(team, of, units, p, static_cast<const F*>(nullptr));
}

// Launches rows for teams of so many threads; a walker has one of them, or a warp's.
template <class F, typename T, class SHAPE>
cudaError_t launch_columns(const RowLaunch<F>& of, int threads) {
  const int64_t blocks = (of.rows + WARP - 1) / WARP;
  const int walkers = SHAPE::walks ? threads / WARP : threads;
  if (of.rows > 0)
    columns_of_rows<F, T, SHAPE><<<unsigned(blocks), walkers * WARP, 0, static_cast<cudaStream_t>(of.call.stream)>>>(
        of.call, of.rows, threads, of.saved);
  return cudaGetLastError();
}

// The threads of the team that `launch_rows` gives rows of n elements side by side, and the units that each has.
struct TeamSize {
  int64_t threads, units;
};
template <class F, typename T, bool WHOLE>
constexpr int MOST_UNITS = WHOLE && sizeof(T) == 4 && !F::RECOMPUTES && OWN_INPUTS<F> == 1 ? 8
                           : WHOLE || WIDTH_OF<T> < 8                                       ? 4
                                                                                            : 2;
template <class F, typename T, bool WHOLE>
TeamSize team_size(int64_t n) {
  constexpr int WIDTH = WIDTH_OF<T>, MOST = MOST_UNITS<F, T, WHOLE>, UNITS = MOST > 4 ? 4 : MOST;
  const int64_t all = (n + WIDTH - 1) / WIDTH;
  for (const int64_t units : {MOST, UNITS}) {
    const int64_t threads = (all + units - 1) / units, most = units > UNITS ? 128 : WHOLE ? LARGE_BLOCK : 256;
    int64_t team = LEAST_TEAM;
    while (team < threads && team < WARP) team *= 2;
    if (threads > WARP) team = (threads + WARP - 1) / WARP * WARP;
    if (threads <= most && n > 0) return {team, (all + team - 1) / team};
  }
  return {LARGE_BLOCK, (all + LARGE_BLOCK - 1) / LARGE_BLOCK};
}

// Launches rows that lie apart, in the order of the teams of `launch_rows`.
template <class F, typename T, bool WHOLE>
cudaError_t run_apart(const RowLaunch<F>& of) {
  const TeamSize team = team_size<F, T, WHOLE>(of.call.size[of.call.rank - 1]);
  const auto lanes = [&](auto units) {
    return launch_columns<F, T, Shape<WARP, decltype(units)::value, WHOLE, Kept::REGISTERS, Apart::LANES>>(
        of, int(team.threads));
  };
  if (team.threads <= MOST_WALKERS) {
    if (team.units <= 1) return lanes(std::integral_constant<int, 1>());
    if (team.units <= 2) return lanes(std::integral_constant<int, 2>());
    if constexpr (MOST_UNITS<F, T, WHOLE> >= 4)
      if (team.units <= 4) return lanes(std::integral_constant<int, 4>());
    if constexpr (MOST_UNITS<F, T, WHOLE> >= 8) return lanes(std::integral_constant<int, 8>());
  }
  return launch_columns<F, T, Shape<LARGE_BLOCK, 0, WHOLE, Kept::NOWHERE, Apart::WARPS>>(of, int(team.threads));
}

}  // namespace
}  // namespace fusegen
