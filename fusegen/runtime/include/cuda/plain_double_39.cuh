#pragma once
// The functions of PlainDouble to a relative error of 2^-39, for kernels that magnify errors little. Polynomials
// interpolate in the zeros of Chebyshev's.
#include "basics.h"

namespace fusegen {
namespace {
namespace plain_double {

// of e^r = 1 + r + r^2 p(r)
// From -0.3466 to 0.3466, to 2^-43: python -m benchmarks.coefficients exp_39
static __constant__ const double EXP[] = {0.4999999999995511,     0.16666666666662586,   0.04166666678626573,
                                          0.00833333334420298,    0.0013888839110572009, 0.00019841224599656011,
                                          2.4867870179687727e-05, 2.7617564785876086e-06};

// of log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2)
// From 0.0 to 0.02944, to 2^-43: python -m benchmarks.coefficients log_39
static __constant__ const double LOG[] = {0.6666666666737509, 0.3999999879733759, 0.2857175453591449,
                                          0.22191400830308503, 0.19362653714202008};

// of (x + 4.75) e^(x^2 / 2) Φ(-x) = p((x - 4.75) / (x + 4.75))
// From -1.0 to 0.7816, to 2^-40: python -m benchmarks.coefficients tail_39
static __constant__ const double TAIL[] = {
    0.7664162921389953,     -0.6535893313173619,   0.47206334904638686,    -0.28418451941945705,
    0.13812537576858144,    -0.05061383916614308,  0.011440655722910066,   0.00010635354948119456,
    -0.001137791442517908,  0.0002946007706367437, 6.525970275474306e-05,  -4.7794370636050514e-05,
    -1.926942322898321e-06, 6.234515068612647e-06, -7.181999822654732e-08, -5.623876537356095e-07};

// x - n ln 2
HOST_DEVICE double reduce(double x, double n) { return ::fma(n, -0.69314718055994531, x); }
// From a reciprocal r of 20 bits, with e = 1 - x r, to a better one: squares its error.
HOST_DEVICE double refine(double r, double e) { return ::fma(r, e, r); }

}  // namespace plain_double
}  // namespace
}  // namespace fusegen

#include "cuda/plain_double.cuh"
