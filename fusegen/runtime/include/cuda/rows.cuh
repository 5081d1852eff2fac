#pragma once
// Kernels of rows on CUDA. A team of threads has a row: it loads what the phases share once, into registers, where the
// row is short enough; else each phase loads it again. What a row gives depends on its elements alone, not on the
// number of rows, on alignment or on the GPU: element e of a team's thread is the same in every call of such a length.
#include "cuda/launch.cuh"
#include "cuda/vector.cuh"
#include "launcher.h"
#include "rows.h"

namespace fusegen {
namespace {

constexpr int WARP = 32, LEAST_TEAM = 8, SMALL_BLOCK = 128;
constexpr int MOST_SUMMING = 264;  // blocks that sum over the rows, on any GPU

// The elements of a thread that lie side by side where rows are in whole vectors.
template <typename T>
constexpr int WIDTH_OF = 16 / int(sizeof(T));

// The places of a thread's elements in a row: side by side in vectors where rows are WHOLE ones, else one for each
// thread in turn. A place is an int where a team holds the row.
template <int THREADS, int WIDTH, bool WHOLE, typename I>
struct Places {
  static constexpr bool IS_WHOLE = WHOLE;
  I n;
  int lane;
  __device__ __forceinline__ I first(I unit) const {
    return WHOLE ? (unit * THREADS + lane) * WIDTH : unit * THREADS * WIDTH + lane;
  }
  __device__ __forceinline__ I at(I unit, int e) const { return first(unit) + (WHOLE ? e : e * THREADS); }
  __device__ __forceinline__ bool has(I unit, int e) const { return WHOLE ? first(unit) < n : at(unit, e) < n; }
};

// Elements of each input of a thread.
template <class F, typename T>
struct Unit {
  T at[F::INPUTS][WIDTH_OF<T>];
};

// Hides from the compiler that elements are those of another phase, whose results it would keep in registers.
template <unsigned INPUTS, class F, typename T>
__device__ __forceinline__ void forget(Unit<F, T>& unit) {
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) {
    if (!(INPUTS >> k & 1)) continue;
    uint32_t words[4];
    memcpy(words, unit.at[k], sizeof(words));
#pragma unroll
    for (uint32_t& word : words) asm volatile("" : "+r"(word));
    memcpy(unit.at[k], words, sizeof(words));
  }
}

// A row of a call: where its tensors begin. The elements of a row lie side by side, where it has WHOLE vectors in such.
template <class F, typename T>
struct RowOf {
  static constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = WIDTH_OF<T>;
  __device__ __forceinline__ RowOf(const CallOf<F>& call, int64_t row) {
    const Tensors<N>& tensors = call;
#pragma unroll
    for (int k = 0; k < N; ++k) data[k] = static_cast<T*>(call.data[k]) + begin_of_row(tensors, k, row);
  }
  template <unsigned INPUTS, class PLACES, typename I>
  __device__ __forceinline__ void load(Unit<F, T>& to, const PLACES& places, I unit) const {
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k) {
      if (!(INPUTS >> k & 1)) continue;
      if (F::OF_ROW >> k & 1) {
        for (T& value : to.at[k]) value = *data[k];
      } else if (PLACES::IS_WHOLE) {
        if (!places.has(unit, 0)) continue;
        const Vector<T> v = *reinterpret_cast<const Vector<T>*>(data[k] + places.first(unit));
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to.at[k][e] = v.at[e];
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          if (places.has(unit, e)) to.at[k][e] = data[k][places.at(unit, e)];
      }
    }
  }
  T* data[N];
};

// A result, rounded once.
template <typename T, typename M>
__device__ __forceinline__ void store_result(T& y, M v) {
  using W = decltype(fusegen::load(T()));
  if constexpr (sizeof(T) == 2 && sizeof(M) == 8) store(y, W(round_to_odd(double(v))));
  else store(y, W(v));
}

// The type in which the results of some elements are joined.
template <typename T>
using Joined = std::conditional_t<sizeof(T) == 2, float, double>;

// What a phase computes of an element.
template <class PHASE, class F, typename T>
__device__ __forceinline__ void element_of(const Unit<F, T>& unit, int e, MathOf<F, T> (&out)[PHASE::RESULTS],
                                           const typename F::Values& p) {
  using M = MathOf<F, T>;
  M in[F::INPUTS];
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) in[k] = PHASE::IN >> k & 1 ? M(load(unit.at[k][e])) : M(0);
  PHASE::template element<T>(in, out, p);
}

// What the threads of a block share: a value of each warp for each reduction, and the values of the row.
template <class F>
struct Room {
  double of_warp[F::MOST_RESULTS][WARP];
  typename F::Values values;
};

// Joins a value of each of some neighbouring lanes, for each reduction of a phase.
template <class PHASE, int LANES>
__device__ __forceinline__ void join_lanes(double (&value)[PHASE::RESULTS]) {
  PHASE::each([&](int k, auto fold) {
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2)
      value[k] = decltype(fold)::join(value[k], __shfl_xor_sync(~0u, value[k], d));
  });
}

// Joins a value of each thread of a team, and computes what follows once a row: in a block, by one warp for all.
template <class PHASE, int THREADS, class F>
__device__ __forceinline__ void join_team(double (&value)[PHASE::RESULTS], typename F::Values& p, Room<F>& room) {
  if constexpr (THREADS <= WARP) {
    join_lanes<PHASE, THREADS>(value);
    PHASE::row(value, p);
  } else {
    join_lanes<PHASE, WARP>(value);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (lane == 0) PHASE::each([&](int k, auto) { room.of_warp[k][warp] = value[k]; });
    __syncthreads();
    if (warp == 0) {
      PHASE::each([&](int k, auto) { value[k] = room.of_warp[k][lane % (THREADS / WARP)]; });
      join_lanes<PHASE, THREADS / WARP>(value);
      PHASE::row(value, p);
      if (lane == 0) PHASE::take(room.values, p);
    }
    __syncthreads();
    PHASE::take(p, room.values);
  }
}

// A team's kernel: THREADS threads have a row, a thread has UNITS units of it in registers; with 0 units each phase
// loads them again. With SUMS the outputs F::FEATURES are sums over the rows, of which each team has a part.
template <class F, typename T, class SHAPE, bool SUMS>
struct Team {
  static constexpr int THREADS = SHAPE::threads, UNITS = SHAPE::units, WIDTH = WIDTH_OF<T>;
  static constexpr int KEPT = UNITS ? UNITS : 1, ADDED = SUMS && UNITS ? SUMS_OF<F> : 0;
  using I = std::conditional_t<(UNITS > 0), int, int64_t>;
  using M = MathOf<F, T>;
  using Values = typename F::Values;

  template <class... PHASES>
  __device__ __forceinline__ void run(const RowOf<F, T>& row, Values& p) {
    Unit<F, T> units[KEPT];
    if constexpr (UNITS > 0) {
#pragma unroll
      for (int u = 0; u < UNITS; ++u) row.template load<F::SHARED>(units[u], places, I(u));
    }
    (phase<PHASES>(row, units, p), ...);
  }

  template <class PHASE>
  __device__ __forceinline__ void phase(const RowOf<F, T>& row, const Unit<F, T> (&units)[KEPT], Values& p) {
    if constexpr (PHASE::STORES && F::ONCE_A_ROW) {
      M out[PHASE::RESULTS];
      element_of<PHASE, F, T>(units[0], 0, out, p);
      if (places.lane == 0 && active) store_result(row.data[F::INPUTS][0], out[0]);
    } else {
      double total[PHASE::RESULTS];
      if constexpr (!PHASE::STORES) PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::IDENTITY; });
      if constexpr (UNITS > 0) {
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
          Unit<F, T> unit = units[u];
          if constexpr (F::RECOMPUTES) forget<PHASE::IN & F::SHARED>(unit);
          row.template load<PHASE::IN & ~F::SHARED>(unit, places, I(u));
          use<PHASE>(row, unit, I(u), total, p);
        }
      } else {
        for (I u = 0; u * THREADS * WIDTH < places.n; ++u) {
          Unit<F, T> unit;
          row.template load<PHASE::IN>(unit, places, u);
          use<PHASE>(row, unit, u, total, p);
        }
      }
      if constexpr (!PHASE::STORES) join_team<PHASE, THREADS, F>(total, p, room);
    }
  }

  template <class PHASE>
  __device__ __forceinline__ void use(const RowOf<F, T>& row, const Unit<F, T>& unit, I u,
                                      double (&total)[PHASE::RESULTS], const Values& p) {
    if constexpr (PHASE::STORES) store_unit<PHASE>(row, unit, u, p);
    else {
      Joined<T> part[PHASE::RESULTS];
      PHASE::each([&](int k, auto fold) { part[k] = Joined<T>(decltype(fold)::IDENTITY); });
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        if (!places.has(u, e)) continue;
        M out[PHASE::RESULTS];
        element_of<PHASE, F, T>(unit, e, out, p);
        PHASE::each([&](int k, auto fold) { part[k] = decltype(fold)::join(part[k], Joined<T>(out[k])); });
      }
      PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::join(total[k], double(part[k])); });
    }
  }

  template <class PHASE>
  __device__ __forceinline__ void store_unit(const RowOf<F, T>& row, const Unit<F, T>& unit, I u, const Values& p) {
    Vector<T> made[F::OUTPUTS];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      if (!places.has(u, e)) continue;
      M out[PHASE::RESULTS];
      element_of<PHASE, F, T>(unit, e, out, p);
      int sum = 0;
#pragma unroll
      for (int k = 0; k < F::OUTPUTS; ++k) {
        if (SUMS && F::FEATURES >> k & 1) add(sum++, u, e, Joined<T>(out[k]));
        else if (SHAPE::whole) store_result(made[k].at[e], out[k]);
        else store_result(row.data[F::INPUTS + k][places.at(u, e)], out[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < F::OUTPUTS; ++k)
      if (SHAPE::whole && !(SUMS && F::FEATURES >> k & 1) && places.has(u, 0))
        *reinterpret_cast<Vector<T>*>(row.data[F::INPUTS + k] + places.first(u)) = made[k];
  }

  __device__ __forceinline__ void add(int sum, I u, int e, double value) {
    if constexpr (UNITS > 0) sums[sum][u][e] += value;
    else partial[sum * places.n + places.at(u, e)] += value;
  }

  // Writes the sums of the team's rows.
  __device__ __forceinline__ void write_sums() {
#pragma unroll
    for (int sum = 0; sum < ADDED; ++sum)
#pragma unroll
      for (int u = 0; u < UNITS; ++u)
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          if (places.has(u, e)) partial[int64_t(sum) * places.n + places.at(u, e)] = sums[sum][u][e];
  }

  Places<THREADS, WIDTH, SHAPE::whole, I> places;
  bool active;  // whether it has a row, as another team of its warp has
  Room<F>& room;
  double* partial;  // of this team
  double sums[ADDED ? ADDED : 1][KEPT][WIDTH];
};

template <class TEAM, class F, typename T, int IN, int OUT, int P, class VALUES, class... PHASES>
__device__ __forceinline__ void run_phases(TEAM& team, const RowOf<F, T>& row, VALUES& p,
                                           const Rows<IN, OUT, P, VALUES, PHASES...>*) {
  team.template run<PHASES...>(row, p);
}

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
    const cudaError_t error = cudaMemsetAsync(of.workspace, 0, size_t(blocks * n * SUMS_OF<F>) * sizeof(double), stream);
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
  return launch_any_rows<F, true>(call, static_cast<double*>(workspace), typename F::Elements());
}

}  // namespace
}  // namespace fusegen
