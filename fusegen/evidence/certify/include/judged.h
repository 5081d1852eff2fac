#pragma once
// Checks a run of inputs against the formula, one by one.
#include "enclosed.h"
#include "found.h"

namespace {

// Checks one run against the formula; reports the inputs that intervals leave undecided, and each error above
// COUNTED by its column and its level.
template <class Open, class Above>
HOST_DEVICE Found judged(const Task& task, int64_t begin, Open open, Above above) {
  Found found{};
  found.first_mismatch = ~0ull;
  for (int k = 0; k < 2; ++k) {
    found.lowest[k] = found.lowest_given[k] = INF;
    found.highest[k] = found.highest_given[k] = -INF;
  }
  Real before{}, slope_before{};
  float given_before[WHO] = {};
  const int64_t end = begin + RUN < task.count ? begin + RUN : task.count;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t bits = task.start + uint32_t(i);
    const double x = double(float_of(bits));
    if (!(fabs(x) < INF)) break;
    if (x < LOW || x > HIGH) continue;
    const Dual y = enclosed(&x);
    bool decided = true;  // in value and slope: otherwise both are left to others
    for (int k = 0; k < 2; ++k) {
      const Real& real = output(y, k);
      const double lo = on_scale(real.lo), hi = on_scale(real.hi);
      decided = decided && (hi - lo) * per_ulp(0.5 * (lo + hi)) <= 0x1p-12;
    }
    if (!decided) open(bits);
    found.inputs += decided;
    for (int k = 0; k < 2; ++k) {
      const Real& real = output(y, k);
      const double lo = on_scale(real.lo), hi = on_scale(real.hi), v = 0.5 * (lo + hi);
      const double scale = per_ulp(v);
      if (decided) found.signs[k] |= (lo > 0 ? POSITIVE : 0) | (hi < 0 ? NEGATIVE : 0);
      const float rounded = float(lo), other = float(hi);  // both, where a tie is that near
      found.lowest[k] = least(found.lowest[k], hi);
      found.highest[k] = most(found.highest[k], lo);
      for (int who = 0; who < WHO; ++who) {
        const float* values = who ? task.eager[k] : task.given[k];
        if (!values) continue;
        const float got = values[i];
        const double place = on_scale(double(got));
        if (who == 0 && got == got) {
          found.lowest_given[k] = least(found.lowest_given[k], double(got));
          found.highest_given[k] = most(found.highest_given[k], double(got));
        }
        if (!decided) continue;
        if (fabs(double(got)) == INF && fabs(double(rounded)) < INF && fabs(double(other)) < INF) {
          found.overflows[k][who] += 1;  // too early, but not by some number of ulp
          continue;
        }
        const double error = got == got ? most(fabs(place - lo), fabs(place - hi)) * scale : INF;
        found.worst[k][who] = larger(found.worst[k][who], packed(error, bits));
        if (has_level(error)) above(k, who, level_of(error));
        found.misrounded[k][who] += !(got == rounded || got == other);
        if (who == 1 && k == 0 && fabs(double(got)) < INF) {
          const double away = fabs(place - v), size = most(most(fabs(v), fabs(x)), 0x1p-126);
          if (away > 0x1p-12 * size) {
            const double gap = away / size;
            found.mismatches += 1;
            const uint64_t order = uint64_t(ordered(bits));
            found.first_mismatch = found.first_mismatch < order ? found.first_mismatch : order;
            found.worst_mismatch = larger(found.worst_mismatch, packed(gap, bits));
          }
        }
      }
      if (task.given[k] && task.eager[k]) {
        const float a = task.given[k][i], b = task.eager[k][i];
        const bool differs = bits_of(a) != bits_of(b) && (a == a || b == b);
        found.bits_differ[k] += differs;
        if (decided && differs) {
          const double ours = fabs(on_scale(double(a)) - v), theirs = fabs(on_scale(double(b)) - v);
          found.worse_than_eager[k] += !(ours <= theirs * (1 + 0x1p-12));
        }
      }
    }
    // x moves away from zero, so that along negative inputs a rising function falls
    const double way = bits >> 31 ? -1 : 1;
    const bool rises = i > begin && least(y.d[0].lo, slope_before.lo) >= 0 && way * y.v.lo >= way * before.lo;
    const bool falls = i > begin && most(y.d[0].hi, slope_before.hi) <= 0 && way * y.v.lo <= way * before.lo;
    for (int who = 0; who < WHO; ++who) {
      const float* values = who ? task.eager[0] : task.given[0];
      if (!values) continue;
      const double step = way * (double(values[i]) - double(given_before[who]));
      found.monotonicity_breaks[who] += (rises && step < 0) || (falls && step > 0);
      given_before[who] = values[i];
    }
    before = y.v;
    slope_before = y.d[0];
  }
  return found;
}

}  // namespace
