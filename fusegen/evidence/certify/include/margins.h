#pragma once
// By how much intervals are widened, and where doubles end.
#include "host_device.h"

namespace {

// Math libraries err by at most 5 ulp (CUDA C++ Programming Guide, appendix on accuracy;
// GNU C Library manual, Errors in Math Functions): 16 are allowed for.
constexpr double PAD = 0x1p-48, ROUNDING = 0x1p-52, TINY = 1e-320, INF = INFINITY;
constexpr double LARGEST = 1.7976931348623157e308;

}  // namespace
