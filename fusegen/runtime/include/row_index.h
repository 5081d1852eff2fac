#pragma once
// The index of rows as losses of PyTorch take it: an int64 for each row, which is IGNORED where it picks no element.
#include "row_picks.h"

namespace fusegen {
namespace {

constexpr int64_t IGNORED = -100;

// The element that a number of an index picks: -1 where that is none, and -2, which CUDA asserts not to be there, of
// every other number below 0.
HOST_DEVICE int64_t picked_by(int64_t index) { return index >= 0 ? index : index == IGNORED ? -1 : -2; }

// The element that a row of a call picks.
template <class F, int N>
HOST_DEVICE int64_t picked_by_index(const Tensors<N>& call, int64_t row) {
  int64_t picked = -1;
  UNROLL
  for (int k = 0; k < F::INPUTS; ++k)
    if (F::INDICES >> k & 1)
      picked = picked_by(static_cast<const int64_t*>(call.data[k])[begin_of_row(call, k, row)]);
  return picked;
}

}  // namespace
}  // namespace fusegen

// Has a kernel F read such an index, in place of one in double.
#define FUSEGEN_INDEX(F)                                                                               \
  template <>                                                                                          \
  HOST_DEVICE int64_t picked_of_row<F>(const Tensors<F::INPUTS + F::OUTPUTS>& call, int64_t row) {     \
    return picked_by_index<F>(call, row);                                                              \
  }
