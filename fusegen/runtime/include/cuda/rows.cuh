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

constexpr int WARP = 32, SMALL_BLOCK = 128, MOST_SUMMING = 264;  // blocks that sum over the rows, on any GPU

// The elements of a thread that lie side by side where rows are in whole vectors.
template <typename T>
constexpr int WIDTH_OF = 16 / int(sizeof(T));

// The places of a thread's elements in a row: in vectors, or one for each thread in turn.
template <int THREADS, int WIDTH>
struct Places {
  int64_t n;
  int lane;
  bool whole;
  __device__ int64_t first(int64_t unit) const { return whole ? (unit * THREADS + lane) * WIDTH : unit * THREADS * WIDTH + lane; }
  __device__ int64_t pace() const { return whole ? 1 : THREADS; }
};

// Elements of each input of a thread.
template <class F, typename T>
struct Unit {
  T at[F::INPUTS][WIDTH_OF<T>];
};

// A row of a call: where its tensors begin; the bits of `vectors` say which of them are loaded in vectors.
template <class F, typename T>
struct RowOf {
  static constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = WIDTH_OF<T>;
  __device__ RowOf(const CallOf<F>& call, int64_t row, unsigned vectors) : vectors(vectors) {
    const Tensors<N>& tensors = call;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      data[k] = static_cast<T*>(call.data[k]) + begin_of_row(tensors, k, row);
      step[k] = call.stride[k][call.rank - 1];
    }
  }
  template <unsigned INPUTS, class PLACES>
  __device__ __forceinline__ void load(Unit<F, T>& to, const PLACES& places, int64_t unit) const {
    const int64_t first = places.first(unit), pace = places.pace();
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k) {
      if (!(INPUTS >> k & 1)) continue;
      if (vectors >> k & 1) {
        if (first >= places.n) continue;
        const Vector<T> v = *reinterpret_cast<const Vector<T>*>(data[k] + first);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to.at[k][e] = v.at[e];
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          if (first + e * pace < places.n) to.at[k][e] = data[k][(first + e * pace) * step[k]];
      }
    }
  }
  T* data[N];
  int64_t step[N];
  unsigned vectors;
};

// A result, rounded once.
template <typename T>
__device__ __forceinline__ void store_double(T& y, double v) {
  store(y, sizeof(T) == 2 ? decltype(fusegen::load(T()))(round_to_odd(v)) : decltype(fusegen::load(T()))(v));
}

// What a phase computes of an element.
template <class PHASE, class F, typename T>
__device__ __forceinline__ void element_of(const Unit<F, T>& unit, int e, double (&results)[PHASE::RESULTS],
                                           const typename F::Values& p) {
  using M = std::conditional_t<sizeof(T) == 8, double, typename F::Math>;
  M in[F::INPUTS], out[PHASE::RESULTS];
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) in[k] = PHASE::IN >> k & 1 ? double(load(unit.at[k][e])) : 0.0;
  PHASE::template element<T>(in, out, p);
#pragma unroll
  for (int k = 0; k < PHASE::RESULTS; ++k) results[k] = double(out[k]);
}

// Joins a value of each thread of a team, for each reduction of a phase; every thread has the result.
template <class PHASE, int THREADS>
__device__ __forceinline__ void join_team(double (&value)[PHASE::RESULTS], double (*room)[WARP]) {
  PHASE::each([&](int k, auto fold) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
      value[k] = decltype(fold)::join(value[k], __shfl_xor_sync(~0u, value[k], d));
  });
  if constexpr (THREADS > WARP) {
    constexpr int WARPS = THREADS / WARP;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < PHASE::RESULTS; ++k)
      if (lane == 0) room[k][warp] = value[k];
    __syncthreads();
    PHASE::each([&](int k, auto fold) {
      value[k] = room[k][lane % WARPS];
#pragma unroll
      for (int d = WARPS / 2; d > 0; d /= 2)
        value[k] = decltype(fold)::join(value[k], __shfl_xor_sync(~0u, value[k], d));
    });
  }
}

// A team's kernel: THREADS threads have a row, a thread has UNITS units of it in registers; with 0 units each phase
// loads them again. With SUMS the outputs F::FEATURES are sums over the rows, of which each team has a part.
template <class F, typename T, int THREADS, int UNITS, bool SUMS>
struct Team {
  static constexpr int WIDTH = WIDTH_OF<T>, KEPT = UNITS ? UNITS : 1, ADDED = SUMS && UNITS ? SUMS_OF<F> : 0;
  using Values = typename F::Values;

  template <unsigned SHARED, class... PHASES>
  __device__ __forceinline__ void run(const RowOf<F, T>& row, Values& p) {
    Unit<F, T> units[KEPT];
    if constexpr (UNITS > 0) {
#pragma unroll
      for (int u = 0; u < UNITS; ++u) row.template load<SHARED>(units[u], places, u);
    }
    (phase<SHARED, PHASES>(row, units, p), ...);
  }

  template <unsigned SHARED, class PHASE>
  __device__ __forceinline__ void phase(const RowOf<F, T>& row, const Unit<F, T> (&units)[KEPT], Values& p) {
    if constexpr (PHASE::STORES && F::ONCE_A_ROW) {
      double out[PHASE::RESULTS];
      element_of<PHASE, F, T>(units[0], 0, out, p);
      if (places.lane == 0) store_double(row.data[F::INPUTS][0], out[0]);
    } else {
      double total[PHASE::RESULTS];
      if constexpr (!PHASE::STORES) PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::identity(); });
      if constexpr (UNITS > 0) {
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
          Unit<F, T> unit = units[u];
          row.template load<PHASE::IN & ~SHARED>(unit, places, u);
          use<PHASE>(row, unit, u, total, p);
        }
      } else {
        for (int64_t u = 0; u * THREADS * WIDTH < places.n; ++u) {
          Unit<F, T> unit;
          row.template load<PHASE::IN>(unit, places, u);
          use<PHASE>(row, unit, u, total, p);
        }
      }
      if constexpr (!PHASE::STORES) {
        join_team<PHASE, THREADS>(total, room);
        PHASE::row(total, p);
      }
    }
  }

  template <class PHASE>
  __device__ __forceinline__ void use(const RowOf<F, T>& row, const Unit<F, T>& unit, int64_t u,
                                      double (&total)[PHASE::RESULTS], const Values& p) {
    const int64_t first = places.first(u), pace = places.pace();
    Vector<T> made[F::OUTPUTS];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      if (first + e * pace >= places.n) continue;
      double out[PHASE::RESULTS];
      element_of<PHASE, F, T>(unit, e, out, p);
      if constexpr (!PHASE::STORES) PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::join(total[k], out[k]); });
      else {
        int sum = 0;
#pragma unroll
        for (int k = 0; k < F::OUTPUTS; ++k) {
          if (SUMS && F::FEATURES >> k & 1) add(sum++, u, e, first + e * pace, out[k]);
          else if (row.vectors >> (F::INPUTS + k) & 1) store_double(made[k].at[e], out[k]);
          else store_double(row.data[F::INPUTS + k][(first + e * pace) * row.step[F::INPUTS + k]], out[k]);
        }
      }
    }
    if constexpr (PHASE::STORES) {
#pragma unroll
      for (int k = 0; k < F::OUTPUTS; ++k)
        if (!(SUMS && F::FEATURES >> k & 1) && row.vectors >> (F::INPUTS + k) & 1 && first < places.n)
          *reinterpret_cast<Vector<T>*>(row.data[F::INPUTS + k] + first) = made[k];
    }
  }

  __device__ __forceinline__ void add(int sum, int64_t u, int e, int64_t place, double value) {
    if constexpr (UNITS > 0) sums[sum][u][e] += value;
    else partial[sum * places.n + place] += value;
  }

  // Writes the sums of the team's rows.
  __device__ __forceinline__ void write_sums() {
#pragma unroll
    for (int sum = 0; sum < ADDED; ++sum)
#pragma unroll
      for (int u = 0; u < UNITS; ++u)
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
          const int64_t place = places.first(u) + e * places.pace();
          if (place < places.n) partial[sum * places.n + place] = sums[sum][u][e];
        }
  }

  Places<THREADS, WIDTH> places;
  double (*room)[WARP];
  double* partial;  // of this team
  double sums[ADDED ? ADDED : 1][KEPT][WIDTH];
};

template <class TEAM, class F, typename T, int IN, int OUT, int P, class VALUES, class... PHASES>
__device__ __forceinline__ void run_phases(TEAM& team, const RowOf<F, T>& row, VALUES& p,
                                           const Rows<IN, OUT, P, VALUES, PHASES...>*) {
  team.template run<F::SHARED, PHASES...>(row, p);
}

template <int THREADS>
constexpr int BLOCK_OF = THREADS > SMALL_BLOCK ? THREADS : SMALL_BLOCK;

template <class F, typename T, int THREADS, int UNITS, bool SUMS>
__global__ void __launch_bounds__(BLOCK_OF<THREADS>)
    rows_kernel(const __grid_constant__ CallOf<F> call, int64_t rows, unsigned vectors, bool whole, double* partial) {
  constexpr int TEAMS = BLOCK_OF<THREADS> / THREADS;
  __shared__ double room[F::MOST_RESULTS][WARP];
  const int64_t number = int64_t(blockIdx.x) * TEAMS + threadIdx.x / THREADS, n = call.size[call.rank - 1];
  Team<F, T, THREADS, UNITS, SUMS> team{};
  team.places = {n, int(threadIdx.x % THREADS), whole};
  team.room = room;
  team.partial = partial + number * n * SUMS_OF<F>;
  for (int64_t row = number; row < rows; row += int64_t(gridDim.x) * TEAMS) {
    typename F::Values p = F::values(call, double(n));
    run_phases(team, RowOf<F, T>(call, row, vectors), p, static_cast<const F*>(nullptr));
  }
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
  store_double(to[column * step], sum);
}

// True if each row of a tensor begins at a multiple of 16 bytes and its elements lie side by side.
template <typename T, int N>
bool row_in_vectors(const Tensors<N>& call, int k) {
  bool whole = reinterpret_cast<uintptr_t>(call.data[k]) % 16 == 0 && call.stride[k][call.rank - 1] == 1;
  for (int d = 0; d < call.rank - 1; ++d) whole = whole && call.stride[k][d] % WIDTH_OF<T> == 0;
  return whole;
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

template <class F, typename T, int THREADS, int UNITS, bool SUMS>
cudaError_t launch_teams(const RowLaunch<F>& of) {
  const Tensors<F::INPUTS + F::OUTPUTS>& tensors = of.call;
  const int64_t n = of.call.size[of.call.rank - 1], blocks = blocks_of<THREADS>(of.rows, SUMS);
  const bool whole = n % WIDTH_OF<T> == 0;
  unsigned vectors = 0;
  for (int k = 0; k < F::INPUTS + F::OUTPUTS && whole; ++k) vectors |= unsigned(row_in_vectors<T>(tensors, k)) << k;
  const auto stream = static_cast<cudaStream_t>(of.call.stream);
  if (of.rows > 0)
    rows_kernel<F, T, THREADS, UNITS, SUMS><<<unsigned(blocks), BLOCK_OF<THREADS>, 0, stream>>>(
        of.call, of.rows, vectors, whole, of.workspace);
  if constexpr (SUMS) {
    const int64_t teams = of.rows > 0 ? blocks * (BLOCK_OF<THREADS> / THREADS) : 0;
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

// The threads of a row, and the units of each: in sums over the rows fewer, which each take registers for their sums.
template <int THREADS, int UNITS>
struct Shape {
  static constexpr int threads = THREADS, units = UNITS;
};
template <typename T, bool SUMS, class FUNCTION>
auto with_team(int64_t n, FUNCTION&& function) {
  constexpr int MOST = SUMS ? (WIDTH_OF<T> < 8 ? 8 / WIDTH_OF<T> : 1) : 4;
  const int64_t units = (n + WIDTH_OF<T> - 1) / WIDTH_OF<T>;
  if (units <= 32) return function(Shape<32, 1>());
  if (units <= 32 * MOST) return function(Shape<32, MOST>());
  if (units <= 128 * MOST) return function(Shape<128, MOST>());
  if (units <= 256 * MOST) return function(Shape<256, MOST>());
  if (units <= 512 * MOST) return function(Shape<512, MOST>());
  return function(Shape<512, 0>());
}

template <class F, typename T, bool SUMS>
cudaError_t launch_rows(const RowLaunch<F>& of) {
  const int64_t n = of.call.size[of.call.rank - 1];
  return with_team<T, SUMS>(n, [&](auto shape) {
    using SHAPE = decltype(shape);
    if constexpr (SUMS && SHAPE::units == 0) {
      const size_t bytes = size_t(blocks_of<SHAPE::threads>(of.rows, true)) * n * SUMS_OF<F> * sizeof(double);
      const cudaError_t error = cudaMemsetAsync(of.workspace, 0, bytes, static_cast<cudaStream_t>(of.call.stream));
      if (error != cudaSuccess) return error;
    }
    return launch_teams<F, T, SHAPE::threads, SHAPE::units, SUMS>(of);
  });
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
  constexpr int64_t TEAMS = SMALL_BLOCK / WARP;  // of a block, at most
  const int64_t n = call.size[call.rank - 1], rows = (rows_of(call) + TEAMS - 1) / TEAMS * TEAMS;
  return std::min(rows, MOST_SUMMING * TEAMS) * n * SUMS_OF<F> * int64_t(sizeof(double));
}
template <class F>
const char* run_reducing(const CallOf<F>& call, void* workspace) {
  return launch_any_rows<F, true>(call, static_cast<double*>(workspace), typename F::Elements());
}

}  // namespace
}  // namespace fusegen
