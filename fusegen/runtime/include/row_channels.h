#pragma once
// Tensors by channels, of which neighbours in a row share a value: in place of the distance of elements a call has the
// number of these neighbours, negative. Sums over the rows, of features or by channels.
#include "basics.h"
#include "call.h"
#include "on_both.h"

namespace fusegen {
namespace {

// The neighbours in a row that share a value of tensor k.
template <int N>
ON_BOTH int64_t share_of_values(const Tensors<N>& call, int k) {
  const int64_t step = call.stride[k][call.rank - 1];
  return step < 0 ? -step : 1;
}

// True if an output is a sum over the rows, or over neighbours that share a value.
template <int N>
bool is_sum_of_rows(const Tensors<N>& call, int k) {
  for (int d = 0; d < call.rank; ++d)
    if (call.stride[k][d] <= 0) return true;
  return false;
}

constexpr int first_of(unsigned bits) { return bits == 0 || bits & 1 ? 0 : 1 + first_of(bits >> 1); }

// The numbers of each sum over the rows: one for each element of a row, or for each channel.
template <class F, int N>
ON_BOTH int64_t columns_of(const Tensors<N>& call) {
  int64_t columns = call.size[call.rank - 1];
  if constexpr (F::BY_CHANNEL && F::FEATURES != 0) {
    constexpr int k = F::INPUTS + first_of(F::FEATURES);
    columns /= share_of_values(call, k);
    for (int d = 0; d < call.rank - 1; ++d) columns *= call.stride[k][d] == 0 ? 1 : call.size[d];
  }
  return columns;
}

// True if the channels of a sum are a run of memory, in the order of the rows.
template <class F, int N>
bool has_channels_in_order(const Tensors<N>& call, int k) {
  int64_t run = call.size[call.rank - 1] / share_of_values(call, k);
  bool ends = false;
  for (int d = call.rank - 2; d >= 0; --d) {
    ends = ends || call.stride[k][d] == 0;
    if (call.stride[k][d] != (ends ? 0 : run)) return false;
    run *= call.size[d];
  }
  const int first = F::INPUTS + first_of(F::FEATURES);
  return call.stride[k][call.rank - 1] == call.stride[first][call.rank - 1];
}

// A sentence if a call has other sums over the rows than the kernel: of all of its features, and of nothing else.
template <class F>
const char* refuse_sums(const Tensors<F::INPUTS + F::OUTPUTS>& call) {
  for (int k = 0; k < F::OUTPUTS; ++k) {
    const bool sums = F::FEATURES >> k & 1;
    if (is_sum_of_rows(call, F::INPUTS + k) != sums)
      return "a gradient is a sum over the rows, and another one is not; expand the tensor that has one row";
    if (F::BY_CHANNEL && sums && !has_channels_in_order<F>(call, F::INPUTS + k))
      return "a gradient is a sum over some of the channels; expand its tensor";
  }
  return nullptr;
}

}  // namespace
}  // namespace fusegen
