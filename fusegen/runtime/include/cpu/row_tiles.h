#pragma once
// A row on the CPU: its phases, in tiles, whose loops are vectorised. A row's sums are of the sixteen lanes of a tile,
// and of tiles, so that they depend on the row alone.
#include "launcher.h"
#include <algorithm>
#include "cpu/elements.h"
#include "cpu/math.h"
#include "row_picks.h"
#include "row_range.h"

namespace fusegen {
namespace {

constexpr int LANES = 16;
constexpr int64_t TILE = 256;

// A loop in which every call is inlined, however large it is: a call would keep the loop from being vectorised.
#define INLINES_ALL __attribute__((flatten)) inline

// The elements of an input that a tile takes, in the type that is computed in.
template <typename T, typename M>
INLINES_ALL void widen_tile(const T* from, int64_t step, M* to, int64_t n) {
  if (step == 1) widen(from, to, n);
  else
    for (int64_t e = 0; e < n; ++e) to[e] = load(from[e * step]);
}

// Calls a function for each of the n elements of a row from j on that share a value: with its number, the first of them
// and the one behind the last, from j on.
template <class FUNCTION>
INLINES_ALL void each_value(int64_t share, int64_t j, int64_t n, const FUNCTION& function) {
  for (int64_t value = j / share, e = 0; e < n; ++value) {
    const int64_t end = std::min(n, (value + 1) * share - j);
    function(value, e, end);
    e = end;
  }
}

// A row of a call: where its tensors begin, and the distances of their elements.
template <class F, typename T>
struct RowOf {
  static constexpr int N = F::INPUTS + F::OUTPUTS;
  RowOf() = default;
  RowOf(const Tensors<N>& call, int64_t row) : n(call.size[call.rank - 1]), picked(picked_of_row<F>(call, row)) {
    for (int k = 0; k < N; ++k) {
      begin[k] = begin_of_row(call, k, row);
      data[k] = static_cast<T*>(call.data[k]) + begin[k];
      step[k] = call.stride[k][call.rank - 1];
    }
    columns = columns_of<F>(call);
  }
  int64_t n, picked, columns, begin[N], step[N];
  T* data[N];
};

// The results of a phase, in M, for the n elements of a row from j on.
template <class PHASE, class F, typename T, typename M>
INLINES_ALL void compute_tile(const RowOf<F, T>& row, int64_t j, int64_t n, M (&out)[PHASE::RESULTS][TILE],
                              const typename F::Values& p) {
  M in[F::INPUTS][TILE];
  for (int k = 0; k < F::INPUTS; ++k) {
    if (!(PHASE::IN >> k & 1)) continue;
    if (F::INDICES >> k & 1)
      for (int64_t e = 0; e < n; ++e) in[k][e] = M(j + e == row.picked);
    else if (F::BY_CHANNEL && row.step[k] < 0)
      each_value(-row.step[k], j, n, [&](int64_t value, int64_t e, int64_t end) {
        std::fill(in[k] + e, in[k] + end, M(load(row.data[k][value])));
      });
    else widen_tile(row.data[k] + j * row.step[k], row.step[k], in[k], n);
  }
#pragma GCC ivdep
  for (int64_t e = 0; e < n; ++e) {
    M of[F::INPUTS], results[PHASE::RESULTS];
    for (int k = 0; k < F::INPUTS; ++k) of[k] = PHASE::IN >> k & 1 ? in[k][e] : M(0);
    PHASE::template element<T>(of, results, p);
    for (int k = 0; k < PHASE::RESULTS; ++k) out[k][e] = results[k];
  }
}

// Joins a tile's values by themselves before they join the row's, so that the error of a sum grows with the tiles.
template <class FOLD, typename M>
INLINES_ALL void join_tile(double (&lane)[LANES], const M (&values)[TILE], int64_t n) {
  double own[LANES];
  for (int l = 0; l < LANES; ++l) own[l] = FOLD::IDENTITY;
  for (int64_t e = 0; e + LANES <= n; e += LANES)
    for (int l = 0; l < LANES; ++l) own[l] = FOLD::join(own[l], double(values[e + l]));
  for (int64_t e = n - n % LANES, l = 0; e < n; ++e, ++l) own[l] = FOLD::join(own[l], double(values[e]));
  for (int l = 0; l < LANES; ++l) lane[l] = FOLD::join(lane[l], own[l]);
}

// True if a tile has results beyond float's range, or infinities and NaN.
template <int RESULTS, typename M>
INLINES_ALL bool leaves_range(const M (&out)[RESULTS][TILE], int64_t n) {
  int leaves = 0;
  for (int k = 0; k < RESULTS; ++k)
    for (int64_t e = 0; e < n; ++e) leaves |= int(!(fabs(out[k][e]) < M(INFINITY)));
  return leaves;
}

// Reduces what a phase computes in M of the n elements of a row from j on; false where M's range is left.
template <class PHASE, class F, typename T, typename M>
INLINES_ALL bool reduce_tile(const RowOf<F, T>& row, int64_t j, int64_t n, double (&lane)[PHASE::RESULTS][LANES],
                             const typename F::Values& p) {
  M out[PHASE::RESULTS][TILE];
  compute_tile<PHASE, F, T>(row, j, n, out, p);
  if (CHECKS_RANGE<PHASE, M> && leaves_range(out, n)) return false;
  PHASE::each([&](int k, auto fold) { join_tile<decltype(fold)>(lane[k], out[k], n); });
  return true;
}

// Adds the results of the n elements of a row from j on to the sums of output k over the rows.
template <class F, typename T, typename M>
INLINES_ALL void add_tile(const RowOf<F, T>& row, int k, int64_t j, const M (&out)[TILE], int64_t n, double* total) {
  if constexpr (F::BY_CHANNEL) {
    total += row.begin[F::INPUTS + k];
    const int64_t step = row.step[F::INPUTS + k];
    each_value(step < 0 ? -step : 1, j, n, [&](int64_t value, int64_t e, int64_t end) {
      double own = 0;
      for (; e < end; ++e) own += double(out[e]);
      total[value] += own;
    });
  } else
    for (int64_t e = 0; e < n; ++e) total[j + e] += double(out[e]);
}

// A phase of a row; sums of features go to `partial`, `columns` numbers for each.
template <class PHASE, class F, typename T>
void run_phase(const RowOf<F, T>& row, typename F::Values& p, double* partial) {
  using M = MathOf<PHASE, F, T>;
  if constexpr (PHASE::PICKS) {
    run_picked<PHASE, F>(row, p, [&](int k) { return row.data[k][row.picked * row.step[k]]; });
  } else if constexpr (PHASE::STORES) {
    M out[PHASE::RESULTS][TILE];
    const int64_t count = F::ONCE_A_ROW ? 1 : row.n;
    for (int64_t j = 0; j < count; j += TILE) {
      const int64_t n = std::min(TILE, count - j);
      compute_tile<PHASE, F, T>(row, j, n, out, p);
      for (int k = 0, sum = 0; k < F::OUTPUTS; ++k) {
        T* const to = row.data[F::INPUTS + k] + j * row.step[F::INPUTS + k];
        if (partial != nullptr && F::FEATURES >> k & 1) {
          double* const total = partial + sum++ * row.columns;
          add_tile<F>(row, k, j, out[k], n, total);
        } else if (row.step[F::INPUTS + k] == 1) narrow(out[k], to, n);
        else
          for (int64_t e = 0; e < n; ++e) to[e * row.step[F::INPUTS + k]] = cast_to_storage<T>(out[k][e]);
      }
    }
  } else {
    double lane[PHASE::RESULTS][LANES], total[PHASE::RESULTS];
    PHASE::each([&](int k, auto fold) { std::fill(lane[k], lane[k] + LANES, decltype(fold)::IDENTITY); });
    for (int64_t j = 0; j < row.n; j += TILE) {
      const int64_t n = std::min(TILE, row.n - j);
      if (!reduce_tile<PHASE, F, T, M>(row, j, n, lane, p)) reduce_tile<PHASE, F, T, WiderOf<M>>(row, j, n, lane, p);
    }
    PHASE::each([&](int k, auto fold) {
      for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lane[k][l] = decltype(fold)::join(lane[k][l], lane[k][l + half]);
      total[k] = lane[k][0];
    });
    PHASE::row(total, p);
  }
}

}  // namespace
}  // namespace fusegen
