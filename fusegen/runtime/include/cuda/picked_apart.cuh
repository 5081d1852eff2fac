#pragma once
// The results of the elements of a row of which an index picks one, on CUDA. A thread's vector with that element is
// stored apart: of all others the compiler knows that none is picked, so that what is left is most often a product.
#include "cuda/row_team.cuh"

namespace fusegen {
namespace {

// The phase STORED, of rows that an index has an element of.
template <class STORED>
struct PickedApart : STORED {
  using Stored = STORED;
};
template <class STORED>
constexpr bool IS_PICKED_APART<PickedApart<STORED>> = true;

// The inputs that it reads with each unit.
template <class STORED, class F>
struct Unpicked : STORED {
  static constexpr unsigned IN = STORED::IN & ~F::INDICES;
};

// Has no index pick an element of a unit.
template <class F, typename T, typename K>
__device__ __forceinline__ void pick_none(Unit<F, T, K>& unit) {
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) {
    if (!(F::INDICES >> k & 1)) continue;
#pragma unroll
    for (K& share : unit.at[k]) {
      if constexpr (std::is_same_v<K, T>) store(share, decltype(fusegen::load(T()))(0));
      else share = K(0);
    }
  }
}

// Stores the results of a unit; returns whether they are exact enough.
template <class STORED, class F, class TEAM, class ROW, typename T, typename K, typename I, class VALUES>
__device__ __forceinline__ bool store_unpicked(TEAM& team, const ROW& row, Unit<F, T, K> unit, I u, const VALUES& p) {
  const auto store = [&] {
    typename TEAM::template First<STORED> out[TEAM::WIDTH][STORED::RESULTS];
    compute_unit<STORED>(unit, out, p);
    team.store_unit(row, u, out);
    return suffices<F>(out);
  };
  if (uint64_t(row.picked - team.places.first(u)) >= uint64_t(TEAM::WIDTH)) {
    pick_none(unit);
    return store();
  }
  row.template load<F::INDICES>(unit, team.places, u);
  return store();
}

// Runs the phase for the thread's elements, as a team does; a thread has vectors, or else each element as it is.
template <class PHASE, class SHAPE, class F, typename T, class TEAM, class ROW, class UNITS, class VALUES>
__device__ __forceinline__ void store_apart(TEAM& team, const ROW& row, const UNITS& units, VALUES& p, int& turn) {
  using STORED = typename PHASE::Stored;
  if constexpr (!SHAPE::whole || SHAPE::apart) {
    team.template run_loop<STORED>(row, units, p, turn);
  } else {
    const bool in_range = !STORED::WATCHES || sizeof(T) != 2 || are_in_range(p);
    Undecided<TEAM::UNITS, typename TEAM::I> again;
    team.template each_unit<Unpicked<STORED, F>>(row, units, [&](const auto& unit, auto u) {
      if (store_unpicked<STORED, F>(team, row, unit, u, p) && in_range) return;
      if constexpr (DEFERS<F, SHAPE>) again.add(u);
      else team.template store_again<STORED>(row, u, p);
    });
    if constexpr (DEFERS<F, SHAPE>) again.each([&](auto u) { team.template store_again<STORED>(row, u, p); });
  }
}

}  // namespace
}  // namespace fusegen
