#pragma once
// Kernels of scans on the CPU: groups of rows over PyTorch's threads.
#include <vector>
#include "cpu/scan_tiles.h"

namespace fusegen {
namespace {

// Splits begin to end over PyTorch's own threads; the binding defines it.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context);

constexpr int64_t GRAIN = 32768;
template <class SCAN, class TILE>
void clear(Carried<SCAN, TILE>& carried) {
  for (auto& each : carried) each = SCAN::none();
}

// Calls a function with the tiles of n elements, from the last one on if REVERSE: the number, where it begins, and how
// many elements it has.
template <bool REVERSE, class TILE, class FUNCTION>
void each_tile(int64_t n, const FUNCTION& function) {
  const int64_t tiles = (n + TILE::LENGTH - 1) / TILE::LENGTH;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t tile = REVERSE ? tiles - 1 - i : i, j = tile * TILE::LENGTH;
    function(tile, j, std::min(TILE::LENGTH, n - j));
  }
}

// Scans a group of rows. Where a second scan goes the other way, what the first one carries into each tile is kept, and
// the tile scanned again.
template <class F, typename T, class TILE>
void scan_group(const GroupOf<F, T, TILE>& of) {
  using PHASES = PhasesOf<F>;
  Columns<F> in = {};
  if constexpr (PHASES::SCANS == 0)
    each_tile<false, TILE>(of.n, [&](int64_t, int64_t j, int64_t n) { store_tile(of, j, n, in); });
  else {
    using FIRST = typename PHASES::First;
    Carried<typename FIRST::Own, TILE> carried;
    clear<typename FIRST::Own, TILE>(carried);
    if constexpr (PHASES::SCANS == 1)
      each_tile<PHASES::REVERSE, TILE>(of.n, [&](int64_t, int64_t j, int64_t n) {
        load_tile(of, j, n, in);
        scan_tile<FIRST>(of, n, in, carried, in[F::INPUTS]);
        store_tile(of, j, n, in);
      });
    else {
      using SECOND = typename PHASES::Second;
      std::vector<typename FIRST::Own::Value> kept(size_t((of.n / TILE::LENGTH + 1) * TILE::ROWS));
      each_tile<!PHASES::REVERSE, TILE>(of.n, [&](int64_t tile, int64_t j, int64_t n) {
        std::copy(carried, carried + TILE::ROWS, kept.begin() + tile * TILE::ROWS);
        load_tile(of, j, n, in);
        scan_tile<FIRST>(of, n, in, carried, in[F::INPUTS]);
      });
      Carried<typename SECOND::Own, TILE> back;
      clear<typename SECOND::Own, TILE>(back);
      each_tile<PHASES::REVERSE, TILE>(of.n, [&](int64_t tile, int64_t j, int64_t n) {
        std::copy_n(kept.begin() + tile * TILE::ROWS, TILE::ROWS, carried);
        load_tile(of, j, n, in);
        scan_tile<FIRST>(of, n, in, carried, in[F::INPUTS]);
        scan_tile<SECOND>(of, n, in, back, in[F::INPUTS + 1]);
        store_tile(of, j, n, in);
      });
    }
  }
}

// True if one of n values side by side is found instead of another one.
template <class FOLD>
inline bool any_replaces(double best, const double* values, int64_t n) {
  int64_t any = 0;
  for (int64_t e = 0; e < n; ++e) any |= int64_t(replaces<FOLD>(best, values[e]));
  return any != 0;
}

// Finds an element of each row of a group.
template <class F, typename T, class TILE>
void find_group(const GroupOf<F, T, TILE>& of) {
  using PHASE = typename PhasesOf<F>::Last;
  using FOLD = typename PHASE::Fold;
  Columns<F> in = {};
  double out[1][SLOTS], best[TILE::ROWS];
  int64_t place[TILE::ROWS] = {};
  each_tile<false, TILE>(of.n, [&](int64_t, int64_t j, int64_t n) {
    load_tile(of, j, n, in);
    compute<PHASE, F>(in, out, of.p);
    if (j == 0)
      for (int64_t r = 0; r < TILE::ROWS; ++r) best[r] = out[0][r * TILE::ROW];
    if (TILE::ELEMENT == 1)
      for (int64_t r = 0; r < of.count; ++r) {
        const double* const own = out[0] + r * TILE::ROW;
        if (!any_replaces<FOLD>(best[r], own, n)) continue;
        for (int64_t e = 0; e < n; ++e)
          if (replaces<FOLD>(best[r], own[e])) best[r] = own[e], place[r] = j + e;
      }
    else
      for (int64_t e = 0; e < n; ++e)
#pragma GCC ivdep
        for (int64_t r = 0; r < TILE::ROWS; ++r) {
          const double own = out[0][e * TILE::ELEMENT + r];
          const bool better = replaces<FOLD>(best[r], own);
          best[r] = better ? own : best[r];
          place[r] = better ? j + e : place[r];
        }
  });
  for (int64_t r = 0; r < of.count; ++r) *of.template at<int64_t>(F::INPUTS, r, 0) = place[r];
}

template <class F, typename T, class TILE>
void run_groups(const CallOf<F>& call) {
  const auto some = [](int64_t begin, int64_t end, void* context) {
    const CallOf<F>& call = *static_cast<const CallOf<F>*>(context);
    for (int64_t group = begin; group < end; ++group) {
      const GroupOf<F, T, TILE> of(call, group * TILE::ROWS, rows_of(call));
      if constexpr (finds<F>) find_group(of);
      else scan_group(of);
    }
  };
  const int64_t groups = (rows_of(call) + TILE::ROWS - 1) / TILE::ROWS, n = call.size[call.rank - 1] * TILE::ROWS;
  parallel_for(0, groups, std::max(GRAIN / std::max(n, int64_t(1)), int64_t(1)), some, const_cast<CallOf<F>*>(&call));
}

template <class F, int... DTYPES>
void run_any(const CallOf<F>& call, Dtypes<DTYPES...>) {
  bool across = call.size[call.rank - 1] <= AcrossRows::LENGTH;
  for (int k = 0; k < F::INPUTS; ++k) across = across || call.stride[k][call.rank - 1] > 1;
  const auto run_as = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    if (across) run_groups<F, decltype(element), AcrossRows>(call);
    else run_groups<F, decltype(element), AlongRows>(call);
    return true;
  };
  (void)(run_as(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
}

// The call of a kernel; it returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  if (const char* refused = refuse_rows<F>(call)) return refused;
  run_any<F>(call, typename F::Elements());
  return nullptr;
}
template <class F>
int64_t workspace_bytes(const CallOf<F>&) {
  return 0;
}
template <class F>
const char* run_reducing(const CallOf<F>&, void*) {
  return REFUSED_SUM;
}

}  // namespace
}  // namespace fusegen
