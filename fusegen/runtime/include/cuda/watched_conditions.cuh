#pragma once
// Conditions of elements that are computed in float and watched: of what float has exactly, as an index and the sign of
// a value of the row. A selection has the size of the terms of what it selects.
#include "cuda/rows.cuh"

namespace fusegen {
namespace {

#define FUSEGEN_CONDITION(OP)                                                    \
  template <typename T, typename B>                                              \
  HOST_DEVICE bool operator OP(WatchedFloat<T, B> a, WatchedFloat<T, B> b) {     \
    return a.v OP b.v;                                                           \
  }
FUSEGEN_CONDITION(<)
FUSEGEN_CONDITION(<=)
FUSEGEN_CONDITION(>)
FUSEGEN_CONDITION(>=)
FUSEGEN_CONDITION(==)
FUSEGEN_CONDITION(!=)
#undef FUSEGEN_CONDITION

}  // namespace
}  // namespace fusegen
