#pragma once
// The sweep on a CPU, which a `share_` header before this one shares out, and the intervals at points.
#include "judged.h"

extern "C" int sweep(const Task* task, SweepTotals* totals, void*) {
  share(*task, 0, task->count, totals);
  return 0;
}

// lo and hi of every output, for points given input after input.
extern "C" void enclose(const double* points, int64_t count, double* reals) {
  for (int64_t i = 0; i < count; ++i) {
    double x[INPUTS];
    for (int k = 0; k < INPUTS; ++k) x[k] = points[k * count + i];
    const Dual y = enclosed(x);
    for (int k = 0; k < OUTPUTS; ++k) memcpy(reals + (k * count + i) * 2, &output(y, k), sizeof(Real));
  }
}
