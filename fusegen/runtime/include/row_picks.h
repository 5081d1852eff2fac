#pragma once
// Rows of which an index picks an element: its number, and a phase that reads it alone.
#include "row_phases.h"

namespace fusegen {
namespace {

// A phase that is no loop: its results are those of the element that a row's index picks, or 0 if there is none.
template <class VALUES, unsigned INPUTS, int COUNT>
struct Picks {
  static constexpr unsigned IN = 0, PICKED = INPUTS;
  static constexpr int RESULTS = COUNT;
  static constexpr bool STORES = false, PICKS = true, CANCELS = false, WATCHES = false, EXACT = false;
  static constexpr bool ROUNDS = false, BOUNDED = false;
  template <typename>
  using Params = VALUES;
};

// The element that a row of a call picks, of which an index has a double; -1 where it picks none.
template <class F, int N>
HOST_DEVICE int64_t picked_of_row(const Tensors<N>& call, int64_t row) {
  int64_t picked = -1;
  UNROLL
  for (int k = 0; k < F::INPUTS; ++k)
    if (F::INDICES >> k & 1) picked = int64_t(static_cast<const double*>(call.data[k])[begin_of_row(call, k, row)]);
  return picked;
}

// Runs a phase that reads the element that a row picks, which is element(k) in input k.
template <class PHASE, class F, class ROW, class ELEMENT>
HOST_DEVICE void run_picked(const ROW& row, typename F::Values& p, ELEMENT&& element) {
  double in[F::INPUTS] = {}, out[PHASE::RESULTS] = {};
  if (row.picked >= 0) {
    UNROLL
    for (int k = 0; k < F::INPUTS; ++k) {
      if (!(PHASE::PICKED >> k & 1)) continue;
      in[k] = F::INDICES >> k & 1 ? 1.0 : double(load(element(k)));
    }
    PHASE::template element<decltype(element(0))>(in, out, p);
  }
  PHASE::row(out, p);
}

}  // namespace
}  // namespace fusegen
