#pragma once
// A run of inputs added to the tally of a CPU.
#include "judged.h"

namespace {

// Judges a few inputs one after the other.
void few(const Task& task, int64_t begin, Tally* tally) {
  const Found found = judged(task, begin, [&](uint32_t bits) {
    if (tally->open < task.room) task.open[tally->open] = bits;
    ++tally->open;
  });
  const int bucket = int((task.start + uint32_t(begin)) >> 23);
  for (int k = 0; k < 2; ++k) {
    for (int who = 0; who < WHO; ++who) {
      tally->worst[k][who][bucket] = larger(tally->worst[k][who][bucket], found.worst[k][who]);
      tally->misrounded[k][who] += found.misrounded[k][who];
      tally->overflows[k][who] += found.overflows[k][who];
    }
    tally->differing[k] += found.differing[k];
    tally->further[k] += found.further[k];
    tally->lowest[k] = most(tally->lowest[k], -found.lowest[k]);
    tally->highest[k] = most(tally->highest[k], found.highest[k]);
    tally->lowest_given[k] = most(tally->lowest_given[k], -found.lowest_given[k]);
    tally->highest_given[k] = most(tally->highest_given[k], found.highest_given[k]);
  }
  for (int who = 0; who < WHO; ++who) tally->falls[who] += found.falls[who];
  tally->alien += found.alien;
  if (found.alien && found.first_alien < tally->first_alien) tally->first_alien = found.first_alien;
  tally->worst_alien = larger(tally->worst_alien, found.worst_alien);
}

}  // namespace
