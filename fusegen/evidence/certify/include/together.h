#pragma once
// Neighbouring inputs judged together.
#include "series_functions.h"
#include "decided.h"
#include "counts.h"

namespace {

// The formula, once.
__attribute__((noinline)) Series series_of(const Series& x) { return formula(&x); }

// Judges inputs of one binade, MANY at most, where polynomials can; says whether they could.
inline bool together(const Task& task, int64_t begin, int64_t count, SweepTotals* totals) {
  const uint32_t first = task.start + uint32_t(begin);
  const double from = float_of(first), to = float_of(first + uint32_t(count - 1));
  if (!(fabs(to) < INF) || least(from, to) < LOW || most(from, to) > HIGH) return false;
  const double middle = float_of(first + uint32_t(count / 2)), step = (to - from) / double(count - 1);
  const double reach = most(fabs(from - middle), fabs(to - middle));
  const Real all = {least(from, to), most(from, to)};
  const Series y = series_of({exactly(middle), exactly(1)}), z = series_of({all, exactly(1)});
  Run run{task, begin, count, middle, step,
          {Polynomial(y.c[0], y.c[1], y.c[2], z.c[3], reach),
           Polynomial(y.c[1], exactly(2) * y.c[2], exactly(3) * z.c[3], exactly(0), reach)},
          z.c[1].lo >= 0, z.c[1].hi <= 0};
  for (int k = 0; k < 2; ++k)
    if (!(2 * run.p[k].off * per_ulp(run.p[k].c[0]) <= 0x1p-12)) return false;
  for (int k = 0; k < 2; ++k)
    for (int64_t i = 0; i < count; ++i) run.real[k][i] = run.p[k](run.input(i));
  if (!decided(run)) return false;

  for (int k = 0; k < 2; ++k) {
    const double *real = run.real[k], off = run.p[k].off;
    const double low = -maximum_of(count, [=](int64_t i) { return -real[i]; });
    const double high = maximum_of(count, [=](int64_t i) { return real[i]; });
    totals->lowest[k] = most(totals->lowest[k], -low - off);
    totals->highest[k] = most(totals->highest[k], high - off);
    task.cells.signs[k * CELLS + (first >> CELL_BITS)] |= (high > off ? POSITIVE : 0) | (low < -off ? NEGATIVE : 0);
    const float *ours = run.values(k, 0), *theirs = run.values(k, 1);
    if (ours) count_column(run, k, 0, totals);
    if (theirs) count_column(run, k, 1, totals);
    if (!ours || !theirs) continue;
    const auto differ = [=](int64_t i) { return bits_of(ours[i]) != bits_of(theirs[i]); };
    totals->bits_differ[k] += number_of(count, differ);
    totals->worse_than_eager[k] += number_of(count, [=](int64_t i) {
      const double a = fabs(double(ours[i]) - real[i]), b = fabs(double(theirs[i]) - real[i]);
      return differ(i) & !(a <= b * (1 + 0x1p-12));
    });
  }
  task.cells.inputs[first >> CELL_BITS] += uint32_t(count);
  for (int who = 0; who < WHO; ++who)
    if (run.values(0, who)) count_monotonicity_breaks(run, who, totals);
  return true;
}

}  // namespace
