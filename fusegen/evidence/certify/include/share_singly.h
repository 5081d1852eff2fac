#pragma once
// The distribution of inputs of a function of several over threads: one by one.
#include "few.h"

namespace {

void share(const Task& task, int64_t begin, int64_t count, SweepTotals* totals) {
  for (int64_t at = begin; at < begin + count; at += RUN) few(task, at, totals);
}

}  // namespace
