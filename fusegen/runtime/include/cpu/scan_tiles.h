#pragma once
// Tiles of scans on the CPU: so many elements of a group of rows, in double. A row's elements are joined one after the
// other, from the first on; those of a group's rows side by side, so that none waits for another. So the bits of a row
// depend on the row alone.
#include <algorithm>
#include "launcher.h"
#include "cpu/elements.h"
#include "cpu/math.h"
#include "scan_phases.h"

namespace fusegen {
namespace {

constexpr int64_t SLOTS = 512;  // the elements of a group that are computed together

// The layout of a tile in memory: LENGTH elements of ROWS rows. Those of a row are side by side, or those of all rows.
struct AlongRows {
  static constexpr int64_t ROWS = 8, LENGTH = SLOTS / ROWS, ROW = LENGTH, ELEMENT = 1;
};
struct AcrossRows {
  static constexpr int64_t ROWS = 64, LENGTH = SLOTS / ROWS, ROW = 1, ELEMENT = ROWS;
};

// A group of rows: where each begins in each tensor, and the distances of their elements.
template <class F, typename T, class TILE>
struct GroupOf {
  static constexpr int N = F::INPUTS + F::OUTPUTS;

  GroupOf(const CallOf<F>& call, int64_t first, int64_t rows)
      : n(call.size[call.rank - 1]), count(std::min(TILE::ROWS, rows - first)), p(F::values(call, double(n))) {
    for (int k = 0; k < N; ++k) {
      step[k] = call.stride[k][call.rank - 1];
      are_neighbours[k] = count == TILE::ROWS;
      for (int64_t r = 0; r < count; ++r) {
        begin[k][r] = begin_of_row(call, k, first + r);
        are_neighbours[k] = are_neighbours[k] && begin[k][r] == begin[k][0] + r;
      }
      data[k] = call.data[k];
    }
  }
  template <typename E = T>
  E* at(int k, int64_t r, int64_t j) const {
    return static_cast<E*>(data[k]) + begin[k][r] + j * step[k];
  }

  int64_t n, count, step[N], begin[N][TILE::ROWS];
  bool are_neighbours[N];  // whether an element of all rows is a run of memory
  void* data[N];
  typename F::Values p;
};

// The values of a group's elements: those of the tensors, and those of scans.
template <class F>
using Columns = double[F::INPUTS + 2][SLOTS];
template <class JOIN, class TILE>
using Carried = typename JOIN::Value[TILE::ROWS];

// Loads the n elements from j on of a group's rows.
template <class F, typename T, class TILE>
void load_tile(const GroupOf<F, T, TILE>& of, int64_t j, int64_t n, Columns<F>& in) {
  for (int k = 0; k < F::INPUTS; ++k) {
    if (!(read_by<PhasesOf<F>>() >> k & 1)) continue;
    if (TILE::ELEMENT == 1)
      for (int64_t r = 0; r < of.count; ++r) {
        const T* const from = of.at(k, r, j);
        double* const to = in[k] + r * TILE::ROW;
        if (of.step[k] == 1)
          for (int64_t e = 0; e < n; ++e) to[e] = load(from[e]);
        else
          for (int64_t e = 0; e < n; ++e) to[e] = load(from[e * of.step[k]]);
      }
    else
      for (int64_t e = 0; e < n; ++e) {
        const T* const from = of.at(k, 0, j + e);
        double* const to = in[k] + e * TILE::ELEMENT;
        if (of.are_neighbours[k])
          for (int64_t r = 0; r < TILE::ROWS; ++r) to[r] = load(from[r]);
        else
          for (int64_t r = 0; r < of.count; ++r) to[r] = load(from[of.begin[k][r] - of.begin[k][0]]);
      }
  }
}

// The results of a phase.
template <class PHASE, class F, class VALUES>
__attribute__((flatten)) inline void compute(const Columns<F>& in, double (&out)[PHASE::RESULTS][SLOTS],
                                             const VALUES& p) {
#pragma GCC ivdep
  for (int64_t e = 0; e < SLOTS; ++e) {
    double of[F::INPUTS + 2], results[PHASE::RESULTS];
    for (int k = 0; k < F::INPUTS + 2; ++k) of[k] = PHASE::IN >> k & 1 ? in[k][e] : 0;
    PHASE::template element<double>(of, results, p);
    for (int k = 0; k < PHASE::RESULTS; ++k) out[k][e] = results[k];
  }
}

// Scans the n elements of a tile, behind what is carried; `to` gets the results.
template <class PHASE, class F, typename T, class TILE>
void scan_tile(const GroupOf<F, T, TILE>& of, int64_t n, const Columns<F>& in,
               Carried<typename PHASE::Own, TILE>& carried, double (&to)[SLOTS]) {
  using SCAN = typename PHASE::Own;
  double out[PHASE::RESULTS][SLOTS];
  compute<PHASE, F>(in, out, of.p);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t e = SCAN::REVERSE ? n - 1 - i : i;
#pragma GCC ivdep
    for (int64_t r = 0; r < TILE::ROWS; ++r) {
      const int64_t at = r * TILE::ROW + e * TILE::ELEMENT;
      double own[PHASE::RESULTS];
      for (int k = 0; k < PHASE::RESULTS; ++k) own[k] = out[k][at];
      const auto joined = SCAN::join(carried[r], SCAN::of(own));
      to[at] = SCAN::result(SCAN::EXCLUSIVE ? carried[r] : joined, own);
      carried[r] = joined;
    }
  }
}

// Stores the n results from j on.
template <class F, typename T, class TILE>
void store_tile(const GroupOf<F, T, TILE>& of, int64_t j, int64_t n, const Columns<F>& in) {
  double out[F::OUTPUTS][SLOTS];
  compute<typename PhasesOf<F>::Last, F>(in, out, of.p);
  for (int k = 0; k < F::OUTPUTS; ++k)
    if (TILE::ELEMENT == 1)
      for (int64_t r = 0; r < of.count; ++r) {
        T* const to = of.at(F::INPUTS + k, r, j);
        const double* const from = out[k] + r * TILE::ROW;
        if (of.step[F::INPUTS + k] == 1)
          for (int64_t e = 0; e < n; ++e) to[e] = cast_to_storage<T>(from[e]);
        else
          for (int64_t e = 0; e < n; ++e) to[e * of.step[F::INPUTS + k]] = cast_to_storage<T>(from[e]);
      }
    else
      for (int64_t e = 0; e < n; ++e) {
        T* const to = of.at(F::INPUTS + k, 0, j + e);
        const double* const from = out[k] + e * TILE::ELEMENT;
        if (of.are_neighbours[F::INPUTS + k])
          for (int64_t r = 0; r < TILE::ROWS; ++r) to[r] = cast_to_storage<T>(from[r]);
        else
          for (int64_t r = 0; r < of.count; ++r) *of.at(F::INPUTS + k, r, j + e) = cast_to_storage<T>(from[r]);
      }
}

}  // namespace
}  // namespace fusegen
