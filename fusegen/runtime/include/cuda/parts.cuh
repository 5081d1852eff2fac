#pragma once
// Kernels of the parts of whole tensors on CUDA: as of rows, whose results are double and side by side.
#include "cuda/rows.cuh"
#include "row_parts.h"

namespace fusegen {
namespace {

// In place of that of rows.
template <class TEAM, int IN, int P, class VALUES, class SUM, class MEAN>
__device__ __forceinline__ void run_phases(TEAM& team, const typename TEAM::Row& row, const typename TEAM::Units& units,
                                           VALUES& p, const Parts<IN, P, VALUES, SUM, MEAN>*) {
  team.template run<SUM>(row, units, p);
  if (team.places.lane != 0 || !team.active) return;
  double* const means = reinterpret_cast<double*>(row.data[IN] - row.number);  // a row's place counts elements
  means[row.number] = mean_of<IN, MEAN, decltype(*row.data[IN])>(p);
}

}  // namespace
}  // namespace fusegen
