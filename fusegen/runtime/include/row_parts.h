#pragma once
// Kernels of the parts of whole tensors: of a row each, whose mean is stored in double, whatever its elements are.
#include "row_phases.h"

namespace fusegen {
namespace {

// A kernel of IN inputs and P scalars, of which SUM adds what it computes of elements and MEAN gives a row's result.
template <int IN, int P, class VALUES, class SUM, class MEAN>
struct Parts : Rows<IN, 1, P, VALUES, SUM, MEAN> {
  static constexpr bool ONCE_A_ROW = true;
};

// The mean of a part.
template <int IN, class MEAN, typename T, class VALUES>
HOST_DEVICE double mean_of(const VALUES& p) {
  double none[IN] = {}, mean[1];
  MEAN::template element<T>(none, mean, p);
  return mean[0];
}

}  // namespace
}  // namespace fusegen
