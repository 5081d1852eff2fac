#pragma once
// A team of threads with a row, on CUDA: it runs the phases, and joins what its threads have.
#include "cuda/row_elements.cuh"

namespace fusegen {
namespace {

constexpr int WARP = 32, LEAST_TEAM = 8, SMALL_BLOCK = 128;

// The shared memory of a block: a value of each warp for each reduction, and the values of the row.
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
  template <class PHASE>
  using M = MathOf<PHASE, F, T>;
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
      M<PHASE> out[PHASE::RESULTS];
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
        M<PHASE> out[PHASE::RESULTS];
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
      M<PHASE> out[PHASE::RESULTS];
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

}  // namespace
}  // namespace fusegen
