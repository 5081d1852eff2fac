#pragma once
// sin(pi x) and cos(pi x) by CUDA's math library, which subtracts turns exactly.
#include <type_traits>
#include "basics.h"

namespace fusegen {
namespace {

HOST_DEVICE float sinpi(float x) { return ::sinpif(x); }
HOST_DEVICE double sinpi(double x) { return ::sinpi(x); }
HOST_DEVICE float cospi(float x) { return ::cospif(x); }
HOST_DEVICE double cospi(double x) { return ::cospi(x); }

// FastFloat and PlainDouble, which hold one number.
template <typename X>
HOST_DEVICE std::enable_if_t<sizeof(X) <= sizeof(double), X> sinpi(X x) {
  return sinpi(x.v);
}
template <typename X>
HOST_DEVICE std::enable_if_t<sizeof(X) <= sizeof(double), X> cospi(X x) {
  return cospi(x.v);
}

}  // namespace
}  // namespace fusegen
