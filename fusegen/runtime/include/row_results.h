#pragma once
// Kernels of rows with results of two shapes: of each element, and of each row. The tensors that values of rows are
// written to count as inputs of which a row has one value: they stand behind the inputs, in front of the outputs.
#include "row_phases.h"

namespace fusegen {
namespace {

// A kernel with phases of values of rows, and COUNT such tensors.
template <class KERNEL, int COUNT>
struct WithRowValues : KERNEL {};

template <class F>
constexpr int ROW_RESULTS = 0;
template <class KERNEL, int COUNT>
constexpr int ROW_RESULTS<WithRowValues<KERNEL, COUNT>> = COUNT;

// A phase that is no loop.
struct OncePerRow {
  static constexpr unsigned IN = 0;
  static constexpr int RESULTS = 0;
  static constexpr bool STORES = false, PICKS = true, CANCELS = false, WATCHES = false, EXACT = false;
  static constexpr bool ROUNDS = false, BOUNDED = false;
};

// One that stores values of a row, which `results` of a derived type gives.
template <class VALUES>
struct StoresRow : OncePerRow {};
template <class PHASE, class F>
constexpr bool STORES_ROW = std::is_base_of_v<StoresRow<typename F::Values>, PHASE>;

// One that reads the inputs, the first ones, of which a row has one value.
template <class VALUES>
struct LoadsRow : OncePerRow {};
template <class PHASE, class F>
constexpr bool LOADS_ROW = std::is_base_of_v<LoadsRow<typename F::Values>, PHASE>;

// The statements that set results out of values p of a row.
#define FUSEGEN_ROW_RESULTS(...)                                   \
  template <class VALUES>                                          \
  static HOST_DEVICE void results(const VALUES& p, double* out) {  \
    __VA_ARGS__;                                                   \
  }

// Calls a function with the place among the tensors, and the value, of each result of a row.
template <class PHASE, class F, class FUNCTION>
HOST_DEVICE void each_row_result(const typename F::Values& p, const FUNCTION& function) {
  constexpr int COUNT = ROW_RESULTS<F>;
  double out[COUNT];
  PHASE::results(p, out);
  UNROLL
  for (int k = 0; k < COUNT; ++k) function(F::INPUTS - COUNT + k, out[k]);
}

// Runs a phase that reads inputs of which a row has one value.
template <class PHASE, class F, class ROW>
HOST_DEVICE void load_row(const ROW& row, typename F::Values& p) {
  constexpr int COUNT = count_of(F::OF_ROW);
  double in[COUNT];
  UNROLL
  for (int k = 0; k < COUNT; ++k) in[k] = double(load(*row.data[k]));
  PHASE::row(in, p);
}

}  // namespace
}  // namespace fusegen
