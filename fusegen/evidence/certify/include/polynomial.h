#pragma once
// Polynomials for the inputs of one binade.
#include "interval.h"
#include "totals.h"

namespace {

constexpr int64_t MANY = 4096, LANES = 8;

// A polynomial, and what it may be off by no further than `reach` from its middle.
struct Polynomial {
  double c[4], off;

  Polynomial(const Real& c0, const Real& c1, const Real& c2, const Real& c3, double reach) : off(0) {
    const Real* given[4] = {&c0, &c1, &c2, &c3};
    double power = 1.001, size = 0;  // a little more, for rounding here and in its values
    for (int k = 0; k < 4; ++k, power *= reach) {
      const double half = 0.5 * (given[k]->hi - given[k]->lo);
      c[k] = given[k]->lo + half;
      off += half * power;
      size += fabs(c[k]) * power;
    }
    if (c[1] != 0 || c[2] != 0 || c[3] != 0 || off != 0) off += size * 0x1p-48 + TINY;  // not of an exact number
  }
  double operator()(double h) const { return fma(fma(fma(c[3], h, c[2]), h, c[1]), h, c[0]); }
};

// Inputs of one binade: where they begin, how many, and the polynomials of value and slope around their middle.
struct Run {
  const Task& task;
  int64_t begin, count;
  double middle, step;
  Polynomial p[2];
  bool rises, sinks;  // the function, throughout; both where it is constant
  double real[2][MANY];

  double input(int64_t i) const { return double(int32_t(i) - int32_t(count / 2)) * step; }  // from the middle
  const float* values(int k, int who) const {
    const float* all = who ? task.eager[k] : task.given[k];
    return all ? all + begin : nullptr;
  }
};

}  // namespace
