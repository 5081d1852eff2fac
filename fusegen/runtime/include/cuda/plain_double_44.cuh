#pragma once
// The functions of PlainDouble to a relative error of 2^-44. Polynomials interpolate in the zeros of
// Chebyshev's.
#include "basics.h"

namespace fusegen {
namespace {
namespace plain_double {

// of e^r = 1 + r + r^2 p(r)
// From -0.3466 to 0.3466, to 2^-49: python -m benchmarks.coefficients exp_44
static __constant__ const double EXP[] = {0.5,
                                          0.16666666666648303,
                                          0.041666666666651364,
                                          0.008333333353717156,
                                          0.0013888888905871347,
                                          0.0001984120875699232,
                                          2.4801536409064087e-05,
                                          2.7625102005388108e-06,
                                          2.761379555451986e-07};

// of log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2)
// From 0.0 to 0.02944, to 2^-50: python -m benchmarks.coefficients log_44
static __constant__ const double LOG[] = {0.6666666666666208,  0.40000000011206505, 0.2857142413832416,
                                          0.22222862280108716, 0.18140193802865992, 0.16621817152858928};

// of (x + 4.75) e^(x^2 / 2) Φ(-x) = p((x - 4.75) / (x + 4.75))
// From -1.0 to 0.7816, to 2^-49: python -m benchmarks.coefficients tail_44
static __constant__ const double TAIL[] = {
    0.7664162921392182,      -0.6535893313078383,    0.4720633490036184,      -0.2841845199266155,
    0.13812537702346808,     -0.05061383114566911,   0.011440642332316455,    0.00010629557017481299,
    -0.0011377238747660625,  0.0002948265995619858,  6.508149053445101e-05,   -4.829946131763125e-05,
    -1.6787201048278942e-06, 6.883222423484718e-06,  -2.3889959699289114e-07, -1.0094460963922872e-06,
    3.894688967273901e-08,   1.3641705637941895e-07, 8.729357084355529e-10,   -1.020716764315927e-08};

// x - n ln 2
HOST_DEVICE double reduce(double x, double n) {
  return ::fma(n, -0x1.ef35793c76730p-45, ::fma(n, -0x1.62e42fefa3800p-1, x));
}
// From a reciprocal r of 20 bits, with e = 1 - x r, to a better one: cubes its error.
HOST_DEVICE double refine(double r, double e) { return ::fma(r, ::fma(e, e, e), r); }

}  // namespace plain_double
}  // namespace
}  // namespace fusegen

#include "cuda/plain_double.cuh"
