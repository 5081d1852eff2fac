#pragma once
// The distribution of a unary function's inputs over threads: neighbours are judged together where that decides them.
#include "few.h"
#include "together.h"

namespace {

// Judges inputs, as many together as can be.
void share(const Task& task, int64_t begin, int64_t count, SweepTotals* totals) {
  if (count <= RUN) return few(task, begin, totals);
  if (count <= MANY && together(task, begin, count, totals)) return;
  const int64_t part = count > MANY ? MANY : count / 4;
  for (int64_t at = begin; at < begin + count; at += part) share(task, at, part, totals);
}

}  // namespace
