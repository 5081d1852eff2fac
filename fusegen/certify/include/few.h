#pragma once
// A run of inputs added to the totals of a CPU.
#include "judged.h"

namespace {

// Judges a few inputs one after the other.
void few(const Task& task, int64_t begin, SweepTotals* totals) {
  const Found found = judged(task, begin, [&](uint32_t bits) {
    if (totals->open < task.room) task.open[totals->open] = bits;
    ++totals->open;
  });
  const int bucket = int((task.start + uint32_t(begin)) >> 23);
  for (int k = 0; k < 2; ++k) {
    for (int who = 0; who < WHO; ++who) {
      totals->worst[k][who][bucket] = larger(totals->worst[k][who][bucket], found.worst[k][who]);
      totals->misrounded[k][who] += found.misrounded[k][who];
      totals->overflows[k][who] += found.overflows[k][who];
    }
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
