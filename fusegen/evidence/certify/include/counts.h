#pragma once
// The counts that the results of a run add to the totals.
#include "sums.h"
#include "enclosed.h"
#include "found.h"

namespace {

// Adds what one column of results gives.
inline void count_column(const Run& run, int k, int who, SweepTotals* totals) {
  const float* values = run.values(k, who);
  const double *real = run.real[k], off = run.p[k].off;
  const auto error = [=](int64_t i) { return (fabs(double(values[i]) - real[i]) + off) * per_ulp(real[i]); };
  totals->misrounded[k][who] += number_of(run.count, [=](int64_t i) { return values[i] != float(real[i]); });
  const uint32_t first = run.task.start + uint32_t(run.begin);
  const double most_of_run = maximum_of(run.count, error);
  uint64_t& worst = *worst_of(run.task.cells, k, who, first >> CELL_BITS);
  if (packed(most_of_run, 0) >> 32 > worst >> 32)
    for (int64_t i = 0; i < run.count; ++i) worst = larger(worst, packed(error(i), first + uint32_t(i)));
  if (has_level(most_of_run)) {
    uint32_t* above = above_of(run.task.cells, k, who, first >> CELL_BITS);
    for (int64_t i = 0; i < run.count; ++i)
      if (has_level(error(i))) ++above[level_of(error(i))];
  }
  if (who == 0) {
    const double low = maximum_of(run.count, [=](int64_t i) { return -double(values[i]); });
    const double high = maximum_of(run.count, [=](int64_t i) { return double(values[i]); });
    totals->lowest_given[k] = most(totals->lowest_given[k], low);
    totals->highest_given[k] = most(totals->highest_given[k], high);
  }
}

// Adds the steps on which results go down though the function goes up, or up though it goes down, as `judged`
// does: within blocks of RUN.
inline void count_monotonicity_breaks(const Run& run, int who, SweepTotals* totals) {
  const float* values = run.values(0, who);
  const double *real = run.real[0], way = run.step < 0 ? -1 : 1;
  for (int64_t block = 0; block < run.count; block += RUN) {
    uint32_t breaks = 0;
    for (int64_t i = block + 1; i < block + RUN; ++i) {
      const double moved = way * (real[i] - real[i - 1]), went = way * (double(values[i]) - double(values[i - 1]));
      breaks += (run.rises & (moved >= 0) & (went < 0)) | (run.sinks & (moved <= 0) & (went > 0));
    }
    totals->monotonicity_breaks[who] += breaks;
  }
}

}  // namespace
