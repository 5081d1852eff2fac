#pragma once
// The base of a kernel of tensors of several shapes.
#include "call.h"
#include "cuda/launch.cuh"

namespace fusegen {
namespace {

// The rows for tensors that are not all dense in one layout, where a kernel names none: those of launch.toml.
constexpr Launch BROADCAST_LAUNCHES[] = {{80, ANY, 128, 2}, {}};

// As `Elementwise`, with loops of their own for tensors that are not dense in one layout.
template <int IN, int OUT, template <typename> class PARAMS = NoParams, int P = 0>
struct Broadcasting : Elementwise<IN, OUT, PARAMS, P> {
  static constexpr bool BROADCASTS = true;
  static constexpr const Launch *BROADCAST16 = BROADCAST_LAUNCHES, *BROADCAST32 = BROADCAST_LAUNCHES,
                                *BROADCAST64 = BROADCAST_LAUNCHES;
};

}  // namespace
}  // namespace fusegen
