#pragma once
// A team of threads with a row, on CUDA: it loads what the phases read, runs them and stores.
#include "cuda/centred_sums.cuh"
#include "cuda/team_sums.cuh"

namespace fusegen {
namespace {

// A team's kernel: a team's threads have a row, or, a block of a cluster, its part.
template <class F, typename T, class SHAPE, Features FEATURES>
struct Team {
  static constexpr int UNITS = SHAPE::units, WIDTH = WIDTH_OF<T>;
  // The units that a thread loads before it uses the first, of a row that is not kept.
  static constexpr int IN_FLIGHT = !SHAPE::whole ? 8 / WIDTH : SHAPE::walks || ONLY_STORES<F> ? 16 / WIDTH : 4;
  static constexpr unsigned LOADED = (F::SHARED | READ_ONCE<F>) & ~F::OF_FEATURES & ~F::INDICES;  // in registers
  using Memory = TeamMemory<F, T, SHAPE>;
  using I = std::conditional_t<SHAPE::kept == Kept::NOWHERE, int64_t, int>;
  // Registers keep elements in the type that phases compute in: a conversion takes as long as a few products.
  static constexpr bool WIDENS =
      SHAPE::kept == Kept::REGISTERS && (sizeof(T) == 2 || (F::RECOMPUTES && sizeof(T) == 4));
  using K = std::conditional_t<WIDENS, std::conditional_t<sizeof(T) == 4, double, float>, T>;
  template <class PHASE>
  using M = std::conditional_t<PHASE::EXACT && sizeof(K) == 8, double, MathOf<PHASE, F, T>>;
  template <class PHASE>
  using First = std::conditional_t<PHASE::EXACT && sizeof(K) == 8, double, FirstMathOf<PHASE, F, T>>;
  // The type in which a thread joins: that of elements, where joins of these do not round.
  template <class PHASE>
  using Total = std::conditional_t<PHASE::EXACT && !PHASE::ROUNDS, M<PHASE>, double>;
  using Values = typename F::Values;
  using Row = RowOf<F, T, SHAPE::apart>;
  using OfRows = std::conditional_t<SHAPE::kept == Kept::RUNS, ChannelSums<F, T>, TeamSums<F, T, UNITS>>;
  using Sums = std::conditional_t<FEATURES == Features::ADDED, OfRows, NoSums>;
  using Own = Unit<F, T, K>;
  using Loaded = Unit<F, T>;
  using Units = Own[UNITS ? UNITS : 1];

  __device__ __forceinline__ void load(Units& units, const Row& row) const {
#pragma unroll
    for (int u = 0; u < UNITS; ++u) row.template load<LOADED>(units[u], places, I(u));
  }
  // Has the L2 cache fetch what a row will load.
  __device__ __forceinline__ void prefetch(const Row& row) const {
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k)
#pragma unroll
      for (int u = 0; u < UNITS; ++u)
        if (LOADED >> k & 1 && places.has(I(u), 0))
          asm volatile("prefetch.global.L2 [%0];" ::"l"(row.data[k] + places.first(I(u))));
  }

  template <class... PHASES>
  __device__ __forceinline__ void run(const Row& row, const Units& units, Values& p) {
    if constexpr (Memory::HELD) memory.hold(row, places);
    read_saved<F>(memory.saved, row.number, p);
    int turn = 0;
    (phase<PHASES>(row, units, p, turn), ...);
    if (FEATURES == Features::LEFT && places.lane == 0 && active) memory.values[row.number] = p;
  }

  template <class PHASE>
  __device__ __forceinline__ void phase(const Row& row, const Units& units, Values& p, int& turn) {
    if constexpr (PHASE::STORES && SAVES<F> > 0)
      if (!save_values<F>(memory.saved, row.number, p, places.lane == 0 && active)) return;
    if constexpr (STORES_ROW<PHASE, F>) {
      each_row_result<PHASE, F>(p, [&](int k, double value) {
        if (places.lane == 0 && active) store_result(*row.data[k], value);
      });
    } else if constexpr (LOADS_ROW<PHASE, F>) {
      load_row<PHASE, F>(row, p);
    } else if constexpr (PHASE::PICKS) {
      run_picked<PHASE, F>(row, p, [&](int k) { return F::OF_ROW >> k & 1 ? *row.data[k] : row.at(k, row.picked); });
    } else if constexpr (IS_LARGEST_AND_SUM<PHASE>) {
      run_largest_and_sum<PHASE, SHAPE, F, T>(*this, row, units, p, turn);
    } else if constexpr (IS_ONE_LOOP_OF_SAVED<PHASE>) {
      run_behind_saved<PHASE>(*this, row, units, p, turn);
    } else if constexpr (IS_CENTRED<PHASE>) {
      run_centred<PHASE, SHAPE, T>(*this, row, units, p, turn);
    } else if constexpr (IS_PICKED_APART<PHASE>) {
      store_apart<PHASE, SHAPE, F, T>(*this, row, units, p, turn);
    } else if constexpr (PHASE::STORES && F::ONCE_A_ROW) {
      M<PHASE> out[PHASE::RESULTS];
      element_of<PHASE>(units[0], 0, out, p);
      for (int k = 0; k < F::OUTPUTS && places.lane == 0 && active; ++k)
        store_result(row.data[F::INPUTS + k][0], out[k]);
    } else {
      run_loop<PHASE>(row, units, p, turn);
    }
  }

  // Runs a phase for the elements of the row, and joins what it reduces.
  template <class PHASE>
  __device__ __forceinline__ void run_loop(const Row& row, const Units& units, Values& p, int& turn) {
    Total<PHASE> total[PHASE::RESULTS];
    if constexpr (!PHASE::STORES) clear<PHASE>(total);
    if constexpr (SHAPE::walks) walk<PHASE>(*this, row, units, p, total);
    else go_over<PHASE>(row, units, p, total);
    if constexpr (!PHASE::STORES) join_team<PHASE, SHAPE, F>(total, p, room, places.threads, turn++);
  }

  template <class PHASE>
  static __device__ __forceinline__ void clear(Total<PHASE> (&total)[PHASE::RESULTS]) {
    PHASE::each([&](int k, auto fold) { total[k] = Total<PHASE>(decltype(fold)::IDENTITY); });
  }

  // Runs a phase for the thread's elements: joins what it reduces to the totals, or stores.
  template <class PHASE>
  __device__ __forceinline__ void go_over(const Row& row, const Units& units, const Values& p,
                                       Total<PHASE> (&total)[PHASE::RESULTS]) {
    const bool in_range = !PHASE::STORES || !PHASE::WATCHES || sizeof(T) != 2 || are_in_range(p);
    Undecided<UNITS, I> again;
    each_unit<PHASE>(row, units, [&](const Own& unit, I u) {
      First<PHASE> out[WIDTH][PHASE::RESULTS];
      compute_unit<PHASE>(unit, out, p);
      if constexpr (!PHASE::STORES) join_in_range<PHASE>(unit, out, u, p, total);
      else {
        store_unit(row, u, out);
        if (in_range && suffices<F>(out)) return;
        if constexpr (DEFERS<F, SHAPE>) again.add(u);
        else store_again<PHASE>(row, u, p);
      }
    });
    if constexpr (DEFERS<F, SHAPE>) again.each([&](I u) { store_again<PHASE>(row, u, p); });
  }

  // Stores a unit's results, but for sums over the rows, as double has them.
  template <class PHASE>
  __device__ __forceinline__ void store_again(const Row& row, I u, const Values& p) {
    if constexpr (PHASE::WATCHES && sizeof(T) == 2) {
      Unit<F, T> unit;
      row.template load<PHASE::IN>(unit, places, u);
      M<PHASE> out[WIDTH][PHASE::RESULTS];
      compute_unit<PHASE>(unit, out, p);
      NoSums none;
      constexpr Features STORED = F::FEATURES && FEATURES == Features::ADDED ? Features::LEFT : FEATURES;
      Team<F, T, SHAPE, STORED>{places, active, room, memory, none}.store_unit(row, u, out);
    }
  }

  // Calls a function with each unit of the thread.
  template <class PHASE, class FUNCTION>
  __device__ __forceinline__ void each_unit(const Row& row, const Units& units, const FUNCTION& function) const {
    if constexpr (SHAPE::kept == Kept::REGISTERS) {
      constexpr int SEVERAL = sizeof(T) == 2 && UNITS % 2 == 0 ? 2 : 1;  // whose loads wait for no branch of another
#pragma unroll
      for (int first = 0; first < UNITS; first += SEVERAL) {
        Own several[SEVERAL];
#pragma unroll
        for (int u = 0; u < SEVERAL; ++u) {
          several[u] = units[first + u];
          row.template load<PHASE::IN & ~LOADED>(several[u], places, I(first + u));
        }
#pragma unroll
        for (int u = 0; u < SEVERAL; ++u) function(several[u], I(first + u));
      }
    } else if constexpr (SHAPE::kept == Kept::SHARED) {
#pragma unroll 2
      for (int u = 0; u < memory.held_units; ++u) {
        Unit<F, T> unit;
        row.template load<PHASE::IN & ~Memory::HELD>(unit, places, u);
        memory.template take<PHASE::IN>(unit, u);
        function(unit, u);
      }
    } else if constexpr (SHAPE::kept == Kept::RUNS) {
      memory.template each_of_run<PHASE::IN>(row, places, function, [&](int channel) {
        if constexpr (PHASE::STORES && FEATURES == Features::ADDED) sums.end_part(channel);
      });
    } else {
      for (I first = 0; places.begin(first) < places.n; first += IN_FLIGHT) {
        Unit<F, T> several[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; ++u) row.template load<PHASE::IN>(several[u], places, first + u);
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; ++u) function(several[u], first + u);
      }
    }
  }

  // True if the row has a unit, where it is whole vectors: runs have no other ones.
  __device__ __forceinline__ bool has(I u) const { return SHAPE::kept == Kept::RUNS || places.has(u, 0); }

  // Joins what a unit gives to each reduction; in double where float's range is left.
  template <class PHASE, typename M, typename V>
  __device__ __forceinline__ void join_in_range(const Own& unit, const M (&out)[WIDTH][PHASE::RESULTS], I u,
                                                const Values& p, V (&total)[PHASE::RESULTS]) {
    V part[PHASE::RESULTS];
    const bool in_range = join_unit<PHASE>(out, u, part);
    if constexpr (CHECKS_RANGE<PHASE, M> && sizeof(T) == 2)
      if (!in_range) {
        double wide[WIDTH][PHASE::RESULTS];
        compute_unit<PHASE>(unit, wide, p);
        join_unit<PHASE>(wide, u, part);
      }
    PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::join(total[k], part[k]); });
  }

  // Joins what a unit gives to each reduction, of those elements that the row has; returns whether all are finite.
  template <class PHASE, typename M, typename V>
  __device__ __forceinline__ bool join_unit(const M (&out)[WIDTH][PHASE::RESULTS], I u,
                                            V (&part)[PHASE::RESULTS]) {
    float size = 0;
    PHASE::each([&](int k, auto fold) {
      using FOLD = decltype(fold);
      using A = std::conditional_t<sizeof(M) == sizeof(double), double, Joined<PHASE, FOLD, F, T>>;
      A own = A(FOLD::IDENTITY);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e)
        own = FOLD::join(own, SHAPE::whole || places.has(u, e) ? A(out[e][k]) : A(FOLD::IDENTITY));
      size += fabsf(float(own));
      part[k] = !SHAPE::whole || has(u) ? V(own) : V(FOLD::IDENTITY);
    });
    return size < INFINITY;
  }

  template <int RESULTS, typename M>
  __device__ __forceinline__ void store_unit(const Row& row, I u, const M (&out)[WIDTH][RESULTS]) {
    if (!active) return;
    int sum = 0;
#pragma unroll
    for (int k = 0; k < F::OUTPUTS; ++k) {
      T* const to = row.data[F::INPUTS + k];
      if (FEATURES != Features::STORED && F::FEATURES >> k & 1) {
        if constexpr (FEATURES == Features::ADDED) sums.add(sum++, int(u), out, k);
      } else if (SHAPE::whole && !SHAPE::apart) {
        Vector<T> made;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) store_result(made.at[e], out[e][k]);
        if (has(u)) *reinterpret_cast<Vector<T>*>(to + places.first(u)) = made;
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          if (places.has(u, e)) store_result(row.at(F::INPUTS + k, places.at(u, e)), out[e][k]);
      }
    }
  }

  Places<WIDTH, SHAPE::whole, I> places;
  bool active;  // whether it has a row, as another team of its warp has
  RoomOf<F, SHAPE>& room;
  Memory memory;
  Sums& sums;
};

template <class TEAM, int IN, int OUT, int P, class VALUES, class... PHASES>
__device__ __forceinline__ void run_phases(TEAM& team, const typename TEAM::Row& row, const typename TEAM::Units& units,
                                           VALUES& p, const Rows<IN, OUT, P, VALUES, PHASES...>*) {
  team.template run<PHASES...>(row, units, p);
}

}  // namespace
}  // namespace fusegen
