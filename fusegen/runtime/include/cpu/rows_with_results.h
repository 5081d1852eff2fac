#pragma once
// Rows on the CPU with results of two shapes.
#include "cpu/rows.h"
#include "row_results.h"

namespace fusegen {
namespace {

// Chosen in place of that of other phases, of a kernel that has row results.
template <class PHASE, class F, typename T, class KERNEL, int COUNT>
std::enable_if_t<STORES_ROW<PHASE, F>> run_phase(const RowOf<WithRowResults<KERNEL, COUNT>, T>& row,
                                                 typename F::Values& p, double*) {
  each_row_result<PHASE, F>(p, [&](int k, double value) { *row.data[k] = cast_to_storage<T>(value); });
}

}  // namespace
}  // namespace fusegen
