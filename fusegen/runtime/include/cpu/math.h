#pragma once
// The math library of the CPU; other functions stand in headers of their own, vectorisable.
#include "basics.h"

namespace fusegen {
namespace {

using std::exp2;
using std::log2;
using std::pow;
using std::sqrt;

// R, where the generic function serves X: on the CPU always.
template <typename X, typename R>
using GenericFor = R;

}  // namespace
}  // namespace fusegen
