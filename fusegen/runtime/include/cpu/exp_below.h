#pragma once
// The exponential of what is at most 0, as an element less the largest of its row, on the CPU: that of any number.
#include "cpu/exponential.h"

namespace fusegen {
namespace {

template <typename M>
HOST_DEVICE M exp_below(M x) {
  return exp(x);
}

}  // namespace
}  // namespace fusegen
