#pragma once
// The sums of a part of a channel on the CPU, and how those of parts are joined.
#include "cpu/row_tiles.h"
#include "channel_parts.h"

namespace fusegen {
namespace {

// The sums of a phase of one channel's part.
template <class PHASE, class F, typename T>
struct PartSums {
  static constexpr int SIZE = PHASE::RESULTS;
  double lane[PHASE::RESULTS][LANES];
  PartSums() {
    PHASE::each([&](int k, auto fold) { std::fill(lane[k], lane[k] + LANES, decltype(fold)::IDENTITY); });
  }
  void add(const RowOf<F, T>& row, int64_t n, const typename F::Values& p) {
    using M = MathOf<PHASE, F, T>;
    if (!reduce_tile<PHASE, F, T, M>(row, 0, n, lane, p)) reduce_tile<PHASE, F, T, WiderOf<M>>(row, 0, n, lane, p);
  }
  void write(double* to) {
    PHASE::each([&](int k, auto fold) {
      for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lane[k][l] = decltype(fold)::join(lane[k][l], lane[k][l + half]);
      to[k] = lane[k][0];
    });
  }
  static void join(double* total, const double* part) {
    PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::join(total[k], part[k]); });
  }
};

// The same of the phase that finds moments: of a tile first the mean, then the squares.
template <class VALUES, unsigned INPUTS, class PHASE, class F, typename T>
struct PartMoments {
  static constexpr int SIZE = Moment::SIZE;
  Moment all{0, 0, 0};
  void add(const RowOf<F, T>& row, int64_t n, const typename F::Values& p) {
    using M = MathOf<PHASE, F, T>;
    M out[1][TILE];
    compute_tile<PHASE, F, T>(row, 0, n, out, p);
    if (CHECKS_RANGE<PHASE, M> && leaves_range(out, n)) {
      WiderOf<M> wide[1][TILE];
      compute_tile<PHASE, F, T>(row, 0, n, wide, p);
      take(wide[0], n);
    } else take(out[0], n);
  }
  template <typename M>
  INLINES_ALL void take(const M (&values)[TILE], int64_t n) {
    const double mean = folded(n, [&](int64_t e) { return double(values[e]); }) / double(n);
    all.join({double(n), mean, folded(n, [&](int64_t e) {
                const double d = double(values[e]) - mean;
                return d * d;
              })});
  }
  template <class FUNCTION>
  static INLINES_ALL double folded(int64_t n, const FUNCTION& function) {
    double own[LANES] = {};
    for (int64_t e = 0; e + LANES <= n; e += LANES)
      for (int l = 0; l < LANES; ++l) own[l] += function(e + l);
    for (int64_t e = n - n % LANES, l = 0; e < n; ++e, ++l) own[l] += function(e);
    for (int half = LANES / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) own[l] += own[l + half];
    return own[0];
  }
  void write(double* to) { to[0] = all.n, to[1] = all.mean, to[2] = all.squares; }
  static void join(double* total, const double* part) {
    Moment joined{total[0], total[1], total[2]};
    joined.join({part[0], part[1], part[2]});
    total[0] = joined.n, total[1] = joined.mean, total[2] = joined.squares;
  }
};
template <class PHASE, class F, typename T, class VALUES, unsigned INPUTS>
PartMoments<VALUES, INPUTS, PHASE, F, T> sums_for(const Moments<VALUES, INPUTS>&);
template <class PHASE, class F, typename T, class VALUES, unsigned INPUTS, class... FOLDS>
PartSums<PHASE, F, T> sums_for(const Reduces<VALUES, INPUTS, FOLDS...>&);
template <class PHASE, class F, typename T>
using SumsOf = decltype(sums_for<PHASE, F, T>(PHASE()));

}  // namespace
}  // namespace fusegen
