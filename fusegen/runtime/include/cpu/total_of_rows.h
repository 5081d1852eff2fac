#pragma once
// The reduction of the values of rows on the CPU, by one thread.
#include "cpu/elements.h"
#include "row_total.h"

namespace fusegen {
namespace {

constexpr int SUMS = 8;           // that are added side by side
constexpr int64_t CHUNK = 1024;   // rows that are added to each other before they are to the others

template <typename T, int IN, int N>
void reduce_rows(const Tensors<N>& call, const Reduction& of) {
  const int64_t rows = rows_of(call);
  Total total;
  for (int64_t begin = 0; begin < rows; begin += CHUNK) {
    Total own[SUMS];
    const int64_t end = std::min(rows, begin + CHUNK);
    for (int64_t row = begin; row < end; ++row) add_row<T, IN>(call, of, row, own[(row - begin) % SUMS]);
    for (int half = SUMS / 2; half > 0; half /= 2)
      for (int k = 0; k < half; ++k) own[k].add(own[k + half]);
    total.add(own[0]);
  }
  *static_cast<T*>(of.result) = cast_to_storage<T>(quotient_of(total, of));
}

// The same of any dtype.
template <int IN, int N, int... DTYPES>
void reduce_any_rows(const Tensors<N>& call, const Reduction& of, Dtypes<DTYPES...>) {
  const auto reduced = [&](int dtype, auto element) {
    if (call.dtype == dtype) reduce_rows<decltype(element), IN>(call, of);
    return call.dtype == dtype;
  };
  (void)(reduced(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
}

}  // namespace
}  // namespace fusegen
