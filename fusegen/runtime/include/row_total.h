#pragma once
// The reduction of the values of rows that have an index: their sum, divided by a number, by that of the rows that are
// not ignored, or by the weights that these pick. All is in double, in an order that the number of rows decides.
#include "row_index.h"

namespace fusegen {
namespace {

// On CUDA one block adds up to so many rows; of more, several blocks have at least a quarter of these each.
constexpr int64_t MOST_OF_A_BLOCK = 16384, MOST_TOTALS = 256;

struct Reduction {
  void* result;      // of the dtype of the values
  double* divisor;   // what the sum is divided by
  double* partial;   // room for a sum and a divisor of each block, where there are several
  double known;      // the divisor where no index decides it; else below 0
  int weights;       // the input that the index picks weights of; 0 where rows count as 1
};

struct Total {
  double sum = 0, divisor = 0;
  HOST_DEVICE void add(const Total& other) { sum += other.sum, divisor += other.divisor; }
};

// A row of a call of IN inputs, the last of which is the index, behind which the values of T are.
template <typename T, int IN, int N>
HOST_DEVICE void add_row(const Tensors<N>& call, const Reduction& of, int64_t row, Total& to) {
  to.sum += double(load(static_cast<const T*>(call.data[IN])[row]));
  if (of.known >= 0) return;
  const int64_t picked =
      picked_by(static_cast<const int64_t*>(call.data[IN - 1])[begin_of_row(call, IN - 1, row)]);
  if (picked < 0) return;
  if (of.weights == 0) {
    to.divisor += 1;
    return;
  }
  const int64_t at = begin_of_row(call, of.weights, row) + picked * call.stride[of.weights][call.rank - 1];
  to.divisor += double(load(static_cast<const T*>(call.data[of.weights])[at]));
}

HOST_DEVICE double quotient_of(const Total& of, const Reduction& to) {
  *to.divisor = to.known >= 0 ? to.known : of.divisor;
  return of.sum / *to.divisor;
}

}  // namespace
}  // namespace fusegen
