#pragma once
// The test that polynomials decide a run.
#include "sums.h"
#include "enclosed.h"
#include "found.h"

namespace {

// True if polynomials decide every input and its rounding, and no result is infinite, NaN or another function's.
// Where a value is a power of two but for what it may be off by, its ulp is not decided, and its results have to
// be right.
inline bool decided(const Run& run) {
  for (int k = 0; k < 2; ++k) {
    const double *real = run.real[k], off = run.p[k].off;
    if (number_of(run.count, [=](int64_t i) {
          const double v = real[i];
          return !(2 * off * per_ulp(v) <= 0x1p-12) | !(fabs(v) + off < 0x1.fffffep127) |
                 (float(v - off) != float(v + off));
        }))
      return false;
    for (int who = 0; who < WHO; ++who) {
      const float* values = run.values(k, who);
      if (values && number_of(run.count, [=](int64_t i) {
            const double low = fabs(real[i]) - off, high = fabs(real[i]) + off;
            return ((bits_of(values[i]) & 0x7f800000u) == 0x7f800000u) |
                   ((values[i] != float(real[i])) & (per_ulp(low) != per_ulp(high)));
          }))
        return false;
      const bool one_way = run.rises || run.sinks;  // otherwise a step either way would have to be judged
      if (values && k == 0 && !one_way && number_of(run.count, [=](int64_t i) { return values[i] != values[0]; }))
        return false;
    }
  }
  const float* eager = run.values(0, 1);
  return !eager || !number_of(run.count, [&](int64_t i) {
    const double v = run.real[0][i], size = most(most(fabs(v), fabs(run.middle + run.input(i))), 0x1p-126);
    return fabs(double(eager[i]) - v) > 0x1p-12 * size;
  });
}

}  // namespace
