#pragma once
// A run of inputs added to the totals of a CPU.
#include "judged.h"

namespace {

// Judges a few inputs one after the other.
void few(const Task& task, int64_t begin, SweepTotals* totals) {
  const int cell = int((task.start + uint32_t(begin)) >> CELL_BITS);
  const auto open = [&](uint32_t bits) {
    if (totals->open < task.room) task.open[totals->open] = bits;
    ++totals->open;
  };
  const auto above = [&](int k, int who, int level) { ++above_of(task.cells, k, who, cell)[level]; };
  const Found found = judged(task, begin, open, above);
  task.cells.inputs[cell] += found.inputs;
  for (int k = 0; k < 2; ++k) {
    for (int who = 0; who < WHO; ++who) {
      uint64_t& worst = *worst_of(task.cells, k, who, cell);
      worst = larger(worst, found.worst[k][who]);
      totals->misrounded[k][who] += found.misrounded[k][who];
      totals->overflows[k][who] += found.overflows[k][who];
    }
    task.cells.signs[k * CELLS + cell] |= found.signs[k];
    totals->bits_differ[k] += found.bits_differ[k];
    totals->worse_than_eager[k] += found.worse_than_eager[k];
    totals->lowest[k] = most(totals->lowest[k], -found.lowest[k]);
    totals->highest[k] = most(totals->highest[k], found.highest[k]);
    totals->lowest_given[k] = most(totals->lowest_given[k], -found.lowest_given[k]);
    totals->highest_given[k] = most(totals->highest_given[k], found.highest_given[k]);
  }
  for (int who = 0; who < WHO; ++who) totals->monotonicity_breaks[who] += found.monotonicity_breaks[who];
  totals->mismatches += found.mismatches;
  if (found.mismatches && found.first_mismatch < totals->first_mismatch) totals->first_mismatch = found.first_mismatch;
  totals->worst_mismatch = larger(totals->worst_mismatch, found.worst_mismatch);
}

}  // namespace
