#pragma once
// The base of a kernel of tensors of several shapes.
#include "call.h"

namespace fusegen {
namespace {

// As `Elementwise`, with loops of their own for tensors that are not dense in one layout.
template <int IN, int OUT, template <typename> class PARAMS = NoParams, int P = 0>
struct Broadcasting : Elementwise<IN, OUT, PARAMS, P> {
  static constexpr bool BROADCASTS = true;
};

}  // namespace
}  // namespace fusegen
