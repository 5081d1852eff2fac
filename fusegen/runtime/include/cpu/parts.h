#pragma once
// Kernels of the parts of whole tensors on the CPU: as of rows, whose results are double.
#include "cpu/rows.h"
#include "row_parts.h"

namespace fusegen {
namespace {

// In place of that of rows.
template <class F, typename T, int IN, int P, class VALUES, class SUM, class MEAN>
void run_row(const CallOf<F>& call, int64_t row, double*, const Parts<IN, P, VALUES, SUM, MEAN>&) {
  const Tensors<IN + 1>& tensors = call;
  const RowOf<F, T> of(tensors, row);
  VALUES p = F::values(call, double(of.n));
  run_phase<SUM, F, T>(of, p, nullptr);
  static_cast<double*>(call.data[IN])[of.begin[IN]] = mean_of<IN, MEAN, T>(p);
}

}  // namespace
}  // namespace fusegen
