#pragma once
// Rows on the CPU with results of two shapes.
#include "cpu/rows.h"
#include "row_results.h"

namespace fusegen {
namespace {

// Chosen in place of that of other phases.
template <class PHASE, class F, typename T, class KERNEL, int COUNT>
std::enable_if_t<std::is_base_of_v<OncePerRow, PHASE>> run_phase(const RowOf<WithRowValues<KERNEL, COUNT>, T>& row,
                                                                 typename F::Values& p, double*) {
  if constexpr (LOADS_ROW<PHASE, F>) load_row<PHASE, F>(row, p);
  else each_row_result<PHASE, F>(p, [&](int k, double value) { *row.data[k] = cast_to_storage<T>(value); });
}

}  // namespace
}  // namespace fusegen
