#pragma once
// Rows on the CPU with values in float32 beside elements of 16 bits.
#include "cpu/rows.h"
#include "row_wide_values.h"

namespace fusegen {
namespace {

// The phases that read or write values of rows.
template <class PHASE, class F>
constexpr bool IS_OF_VALUES = std::is_base_of_v<OncePerRow, PHASE> || (PHASE::STORES && F::ONCE_A_ROW);

// Chosen in place of that of other phases.
template <class PHASE, class F, typename T, class KERNEL, int COUNT>
std::enable_if_t<IS_OF_VALUES<PHASE, KERNEL>> run_phase(const RowOf<WithWideValues<KERNEL, COUNT>, T>& row,
                                                        typename F::Values& p, double*) {
  if constexpr (LOADS_ROW<PHASE, F>) {
    double in[count_of(F::OF_ROW)];
    for (int k = 0; k < count_of(F::OF_ROW); ++k) in[k] = double(value_at(row.data[k]));
    PHASE::row(in, p);
  } else if constexpr (STORES_ROW<PHASE, F>) {
    each_row_result<PHASE, F>(p, [&](int k, double value) { value_at(row.data[k]) = WideOf<T>(value); });
  } else {
    MathOf<PHASE, F, T> out[PHASE::RESULTS][TILE];
    compute_tile<PHASE, F, T>(row, 0, 1, out, p);
    for (int k = 0; k < F::OUTPUTS; ++k) value_at(row.data[F::INPUTS + k]) = WideOf<T>(out[k][0]);
  }
}

}  // namespace
}  // namespace fusegen
