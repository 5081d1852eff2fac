#pragma once
// The cells of a sweep: a sign, a binade and the first 6 bits of the fraction of the input.
#include "host_device.h"

namespace {

constexpr int CELL_BITS = 17, CELLS = 1 << (32 - CELL_BITS);  // 131,072 neighbouring inputs each
constexpr int LEVELS = 23;  // an error above 4 * 2^j and not above 8 * 2^j has level j; the last has no end
constexpr double COUNTED = 4;  // an error up to this one has no level
enum Sign : uint32_t { POSITIVE = 1, NEGATIVE = 2 };

}  // namespace

extern "C" {

// The errors in each cell; arrays of the value, then the derivative, and of each ours, then eager's.
struct Cells {
  uint64_t* worst;   // largest error in ulp, as the bits of a float, above the input's bits
  uint32_t* above;   // numbers of errors by level
  uint32_t* signs;   // the signs that exact results have; by value and derivative
  uint32_t* inputs;  // the number of decided inputs
};
}

namespace {

HOST_DEVICE int column(int k, int who) { return k * 2 + who; }
HOST_DEVICE uint64_t* worst_of(const Cells& cells, int k, int who, int cell) {
  return cells.worst + int64_t(column(k, who)) * CELLS + cell;
}
HOST_DEVICE uint32_t* above_of(const Cells& cells, int k, int who, int cell) {
  return cells.above + (int64_t(column(k, who)) * CELLS + cell) * LEVELS;
}

}  // namespace
