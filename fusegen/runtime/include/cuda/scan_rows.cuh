#pragma once
// Rows that a block or a warp scans, a tile at a time. Elements are joined thread by thread, warp by warp and tile by
// tile, so that the bits of a row depend on the row alone.
#include "cuda/scan_items.cuh"

namespace fusegen {
namespace {

HOST_DEVICE double shuffled(double value, int from) { return __shfl_sync(0xffffffff, value, from); }
template <typename V>
HOST_DEVICE V shuffled(V value, int from) {
  return {shuffled(value.sum, from), shuffled(value.m, from), shuffled(value.next, from),
          int(shuffled(double(value.signs), from))};
}

// The threads of a row, and where its warps leave their totals, in turns.
template <int THREADS>
struct Scanners {
  static constexpr int WARPS = THREADS / LANES;
  int thread;
  double (*left)[WARPS][4];
  int turn = 0;

  HOST_DEVICE void leave(int warp, double value) const { left[turn][warp][0] = value; }
  HOST_DEVICE double taken(int warp, double) const { return left[turn][warp][0]; }
  template <typename V>
  HOST_DEVICE void leave(int warp, V value) const {
    double* const to = left[turn][warp];
    to[0] = value.sum, to[1] = value.m, to[2] = value.next, to[3] = value.signs;
  }
  template <typename V>
  HOST_DEVICE V taken(int warp, V) const {
    const double* const from = left[turn][warp];
    return {from[0], from[1], from[2], int(from[3])};
  }

  // The value of the threads before this one, behind what is carried, which all of them add to; `own` is the thread's.
  template <class SCAN>
  HOST_DEVICE typename SCAN::Value before(typename SCAN::Value own, typename SCAN::Value& carried) {
    using V = typename SCAN::Value;
    const int lane = thread % LANES, rank = SCAN::REVERSE ? LANES - 1 - lane : lane;
    V all = own;
    UNROLL
    for (int distance = 1; distance < LANES; distance *= 2) {
      const int from = SCAN::REVERSE ? lane + distance : lane - distance;
      const V other = shuffled(all, from & (LANES - 1));
      if (rank >= distance) all = SCAN::join(other, all);
    }
    const V found = shuffled(all, (SCAN::REVERSE ? lane + 1 : lane - 1) & (LANES - 1));
    V total = shuffled(all, SCAN::REVERSE ? 0 : LANES - 1), start = carried;
    if constexpr (WARPS > 1) {
      const int warp = thread / LANES;
      turn ^= 1;
      if (lane == 0) leave(warp, total);
      __syncthreads();
      UNROLL
      for (int i = 0; i < WARPS; ++i) {
        const int w = SCAN::REVERSE ? WARPS - 1 - i : i;
        if (w == warp && i > 0) start = SCAN::join(carried, total);
        total = i > 0 ? SCAN::join(total, taken(w, V())) : taken(w, V());
      }
    }
    carried = SCAN::join(carried, total);
    return rank > 0 ? SCAN::join(start, found) : start;
  }
};

// Scans a thread's elements, of which n are in the row; `to` gets the results.
template <class PHASE, class F, int THREADS>
HOST_DEVICE void scan_items(Scanners<THREADS>& team, int n, const Columns<F>& in,
                            typename PHASE::Own::Value& carried, double (&to)[ITEMS], const typename F::Values& p) {
  using SCAN = typename PHASE::Own;
  double own[ITEMS][PHASE::RESULTS];
  auto all = SCAN::none();
  UNROLL
  for (int i = 0; i < ITEMS; ++i) {
    const int e = SCAN::REVERSE ? ITEMS - 1 - i : i;
    if (e >= n) continue;
    compute<PHASE, F>(in, e, own[e], p);
    all = SCAN::join(all, SCAN::of(own[e]));
  }
  auto value = team.template before<SCAN>(all, carried);
  UNROLL
  for (int i = 0; i < ITEMS; ++i) {
    const int e = SCAN::REVERSE ? ITEMS - 1 - i : i;
    if (e >= n) continue;
    const auto joined = SCAN::join(value, SCAN::of(own[e]));
    to[e] = SCAN::result(SCAN::EXCLUSIVE ? value : joined, own[e]);
    value = joined;
  }
}

// Scans a row. Where a second scan goes the other way, what the first one carries into each tile is kept, and the tile
// scanned again: of rows of more than KEPT tiles for so many at a time.
template <class F, typename T, bool WHOLE, int THREADS>
HOST_DEVICE void scan_row(Scanners<THREADS>& team, const ScannedRow<F, T>& row, const typename F::Values& p,
                          [[maybe_unused]] double* kept) {
  using PHASES = PhasesOf<F>;
  constexpr int64_t TILE = THREADS * ITEMS;
  const int64_t tiles = (row.n + TILE - 1) / TILE;
  const auto place = [&](int64_t tile, int64_t& j, int& n) {
    j = tile * TILE + team.thread * ITEMS;
    n = int(row.n - j < 0 ? 0 : row.n - j < ITEMS ? row.n - j : ITEMS);
  };
  Columns<F> in = {};
  int64_t j;
  int n;
  if constexpr (PHASES::SCANS == 0) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      place(tile, j, n);
      store_items<F, T, WHOLE>(row, j, n, in, p);
    }
  } else if constexpr (PHASES::SCANS == 1) {
    auto carried = PHASES::First::Own::none();
    for (int64_t i = 0; i < tiles; ++i) {
      place(PHASES::REVERSE ? tiles - 1 - i : i, j, n);
      load_items<F, T, WHOLE>(row, j, n, in);
      scan_items<typename PHASES::First>(team, n, in, carried, in.at[F::INPUTS], p);
      store_items<F, T, WHOLE>(row, j, n, in, p);
    }
  } else {
    using FIRST = typename PHASES::First;
    auto back = PHASES::Second::Own::none();
    const auto nth = [&](int64_t i) { return PHASES::REVERSE ? i : tiles - 1 - i; };  // in the first scan's order
    for (int64_t end = tiles; end > 0; end = (end - 1) / KEPT * KEPT) {
      const int64_t begin = (end - 1) / KEPT * KEPT;
      auto carried = FIRST::Own::none();
      for (int64_t i = 0; i < end; ++i) {
        if (i >= begin && team.thread == 0) kept[i - begin] = carried;
        place(nth(i), j, n);
        load_items<F, T, WHOLE>(row, j, n, in);
        scan_items<FIRST>(team, n, in, carried, in.at[F::INPUTS], p);
      }
      if constexpr (THREADS > LANES) __syncthreads();
      else __syncwarp();
      for (int64_t i = end - 1; i >= begin; --i) {
        carried = kept[i - begin];
        place(nth(i), j, n);
        load_items<F, T, WHOLE>(row, j, n, in);
        scan_items<FIRST>(team, n, in, carried, in.at[F::INPUTS], p);
        scan_items<typename PHASES::Second>(team, n, in, back, in.at[F::INPUTS + 1], p);
        store_items<F, T, WHOLE>(row, j, n, in, p);
      }
      if constexpr (THREADS > LANES) __syncthreads();
      else __syncwarp();
    }
  }
}

// Finds an element of a row; each thread has the result.
template <class F, typename T, bool WHOLE, int THREADS>
HOST_DEVICE void find_in_row(Scanners<THREADS>& team, const ScannedRow<F, T>& row, int64_t* to,
                             const typename F::Values& p) {
  using PHASE = typename PhasesOf<F>::Last;
  using FOLD = typename PHASE::Fold;
  Found best{0, -1};
  Columns<F> in = {};
  for (int64_t j = team.thread * ITEMS; j < row.n; j += THREADS * ITEMS) {
    const int n = int(row.n - j < ITEMS ? row.n - j : ITEMS);
    load_items<F, T, WHOLE>(row, j, n, in);
    UNROLL
    for (int e = 0; e < ITEMS; ++e) {
      if (e >= n) continue;
      double value[1];
      compute<PHASE, F>(in, e, value, p);
      if (best.place < 0 || replaces<FOLD>(best.value, value[0])) best = {value[0], j + e};
    }
  }
  const auto take = [&](double value, double place) {
    const Found other{value, int64_t(place)};
    if (is_better<FOLD>(best, other)) best = other;
  };
  UNROLL
  for (int distance = LANES / 2; distance > 0; distance /= 2) {
    const int from = (team.thread % LANES) ^ distance;
    const double value = shuffled(best.value, from), place = shuffled(double(best.place), from);
    take(value, place);
  }
  if constexpr (THREADS > LANES) {
    team.turn ^= 1;
    if (team.thread % LANES == 0) {
      team.left[team.turn][team.thread / LANES][0] = best.value;
      team.left[team.turn][team.thread / LANES][1] = double(best.place);
    }
    __syncthreads();
    UNROLL
    for (int w = 0; w < THREADS / LANES; ++w) take(team.left[team.turn][w][0], team.left[team.turn][w][1]);
  }
  if (team.thread == 0) *to = best.place;
}

}  // namespace
}  // namespace fusegen
