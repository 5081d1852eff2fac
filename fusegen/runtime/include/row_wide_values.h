#pragma once
// Values of rows in float32 beside elements of 16 bits. Their tensors have strides in units of 16 bits, so that a row
// finds its place in them as in the others, and pointers to such elements, which stand for the values there.
#include "row_results.h"

namespace fusegen {
namespace {

// A kernel with such values: COUNT tensors of results behind its inputs, or none where all results are values of rows.
template <class KERNEL, int COUNT>
struct WithWideValues : KERNEL {};
template <class KERNEL, int COUNT>
constexpr int ROW_RESULTS<WithWideValues<KERNEL, COUNT>> = COUNT;

// The type of values of rows beside elements of T.
template <typename T>
using WideOf = std::conditional_t<sizeof(T) == 2, float, T>;

// The value of a row where its tensor has an element of T.
template <typename T>
HOST_DEVICE WideOf<T>& value_at(T* at) {
  return *reinterpret_cast<WideOf<T>*>(at);
}

}  // namespace
}  // namespace fusegen
