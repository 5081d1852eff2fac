#pragma once
// The input of a sweep, and its totals.
#include "cells.h"

namespace {

constexpr int WHO = 2;  // ours and eager

}  // namespace

extern "C" {

// The totals of a sweep, of the value and of the derivative; WHO is ours, then eager.
struct SweepTotals {
  uint64_t misrounded[2][WHO], overflows[2][WHO];
  uint64_t bits_differ[2], worse_than_eager[2], monotonicity_breaks[WHO], mismatches;
  uint64_t first_mismatch, worst_mismatch;  // the order of the input; the gap's bits above the input's
  double lowest[2], highest[2], lowest_given[2], highest_given[2];
  uint64_t open;  // inputs that intervals do not decide
};

struct Task {
  const float *given[2], *eager[2];  // value and derivative; null where there is none
  int64_t count;
  uint32_t start;  // the bits of the first input
  uint32_t* open;
  uint64_t room;  // in open
  Cells cells;
};
}
