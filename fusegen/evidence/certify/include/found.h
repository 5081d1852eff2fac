#pragma once
// The verdicts of a run of neighbouring inputs, and floats as their bits.
#include "interval.h"
#include "totals.h"

namespace {

constexpr int RUN = 16;

// The verdicts of one run of neighbouring inputs.
struct Found {
  uint64_t worst[2][WHO], misrounded[2][WHO], overflows[2][WHO];
  uint64_t bits_differ[2], worse_than_eager[2], monotonicity_breaks[WHO];
  uint64_t mismatches, first_mismatch, worst_mismatch;
  uint32_t inputs, signs[2];  // decided inputs, and the signs of their exact results
  double lowest[2], highest[2], lowest_given[2], highest_given[2];
};

HOST_DEVICE uint32_t bits_of(float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  return bits;
}
HOST_DEVICE float float_of(uint32_t bits) {
  float v;
  memcpy(&v, &bits, 4);
  return v;
}
// An error as cells have it.
HOST_DEVICE float size_of(double error) { return float(least(error, 3e38)); }
HOST_DEVICE uint64_t packed(double error, uint32_t input) { return uint64_t(bits_of(size_of(error))) << 32 | input; }
HOST_DEVICE bool has_level(double error) { return size_of(error) > float(COUNTED); }
// The level of an error that has one: the exponent of the next smaller float, from that of COUNTED on.
HOST_DEVICE int level_of(double error) {
  const int level = int(bits_of(size_of(error)) - 1 >> 23) - 129;
  return level < LEVELS - 1 ? level : LEVELS - 1;
}
HOST_DEVICE uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
// Patterns in the order of the numbers they stand for.
HOST_DEVICE uint32_t ordered(uint32_t bits) { return bits >> 31 ? ~bits : bits | 0x80000000u; }

}  // namespace
