#pragma once
// The largest element of a row and the sum of e^(element - largest), in one loop. A thread has its own largest element,
// and the sum of the terms in a unit of its own, a power of two near it: a term is 2^(element log2(e) - k), k whole,
// which does not round the element. The largest one's, which is 1, is left out until the end, so that a logarithm of
// the sum near 0 keeps its digits.
#include "cuda/exp_below.cuh"
#include "cuda/row_joins.cuh"

namespace fusegen {
namespace {

// The phases LARGEST and SUM, of which the second one reads what VALUE, a value of the row, has from the first one.
template <class LARGEST, class SUM, auto VALUE>
struct LargestAndSum : SUM {
  using Top = LARGEST;
  using Terms = SUM;
  static constexpr int READ = first_of(SUM::IN);  // the input
  static constexpr int RESULTS = 2;  // the largest element, and the sum of the others
  template <class FUNCTION>
  static HOST_DEVICE void each(FUNCTION&& function) {
    function(0, Largest());
    function(1, Added());
  }
  template <class VALUES>
  static HOST_DEVICE void row(const double* r, VALUES& p) {
    LARGEST::row(r, p);
    const double shift = r[0] - p.*VALUE, below = shift == 0 ? 1 : exp(shift);
    const double sum = fabs(r[0]) < INFINITY ? (1 + r[1]) * below : below;
    SUM::row(&sum, p);
  }
  template <class VALUES>
  static HOST_DEVICE void take(VALUES& p, const VALUES& from) {
    LARGEST::take(p, from);
    SUM::take(p, from);
  }
};

// Such phases are joined in a way of their own, though the second one is a sum: `SHARED_OUT` finds this overload by its
// argument, which is of this namespace.
template <class LARGEST, class SUM, auto VALUE>
constexpr bool adds(const LargestAndSum<LARGEST, SUM, VALUE>*) {
  return false;
}

constexpr double LOG2_OF_E = 1.4426950408889634, LOG_OF_2 = 0.6931471805599453;
constexpr float LOG2_OF_E_HI = 1.442695f, LOG2_OF_E_LO = 1.9259629e-8f;
// of 2^f
// From -0.5 to 0.5, to 2^-27: python -m benchmarks.coefficients exp2_small
static __constant__ const float EXP2_SMALL[] = {1.0f,           0.69314724f,    0.24022655f,    0.055502724f,
                                                0.009617064f, 0.0013418186f, 0.00015820314f};
// From -0.5 to 0.5, to 2^-34: python -m benchmarks.coefficients exp2_wide
static __constant__ const double WIDE_EXP2[] = {0.9999999999595618,    0.6931471805568324,
                                                0.24022651213498092,   0.055504109063258665,
                                                0.009618025613318034,  0.0013333478473685416,
                                                0.00015469729214118296, 1.5303700711365693e-05};

// e^x to a relative error of 2^-32, of an x up to 100
__device__ __forceinline__ double power_below(double x) { return plain_double::exp_below(PlainDouble(x)).v; }

// A float above 0, without the conversion, which an SM does for 16 at a time; of 0 some 2^-127.
__device__ __forceinline__ double widened(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  return bit_cast<double>(uint64_t((bits >> 3) + (896u << 20)) << 32 | bits << 29);
}

// Elements from which on a power of two is no unit, as k would round; and rows that have too few terms for roundings of
// floats to cancel.
constexpr float FAR = 0x1p19f;
constexpr int FEW = 256;

// A thread's largest element, and the sum of e^(element - unit); elements and results have so many BYTES. All are below
// `limit`, and where |limit| is below `near` the unit is a power of two, and terms of elements of 16 bits are floats.
// Those of float32 are doubles: the gradient reads the sum, and all its elements err as much.
template <int BYTES, int RESULT_BYTES, int WIDTH>
struct LargestAndTerms {
  static constexpr float ROOM = 20;  // above the unit: sums of e^20 are far from overflow

  explicit __device__ LargestAndTerms(int64_t n) : near(RESULT_BYTES == 4 && n <= FEW ? 0 : FAR) {}

  // Adds elements, or -infinity in place of some. A NaN is in the largest one.
  __device__ __forceinline__ void add(const float (&x)[WIDTH]) {
    float top = x[0];
#pragma unroll
    for (int e = 1; e < WIDTH; ++e) top = Largest::join(top, x[e]);
    largest = Largest::join(largest, top);
    if (top > limit) move_unit(top);
    if (fabsf(limit) < near)
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) sum += term(x[e]);
    else
      for (int e = 0; e < WIDTH; ++e) sum += power_below(double(x[e]) - unit);
  }
  // The largest element, and the sum of e^(element - largest) of the others.
  __device__ __forceinline__ void take(double (&to)[2]) const {
    const double own = fabsf(limit) < near ? term(largest) : power_below(double(largest) - unit);
    to[0] = largest;
    to[1] = largest == -INFINITY ? 0 : (sum - own) * power_below(unit - double(largest));
  }

  __device__ __forceinline__ void move_unit(float top) {
    const double k = rint(double(top) * LOG2_OF_E), next = fabsf(top + ROOM) < near ? k * LOG_OF_2 : double(top);
    sum = limit == -INFINITY ? 0 : sum * power_below(unit - next);
    unit = next, whole = float(k), limit = top + ROOM;
  }
  __device__ __forceinline__ double term(float x) const {
    if constexpr (BYTES == 4) return wide_power(x);
    else return widened(power(x));
  }

  // x, or in place of what is far below the unit that of which the power is 2^-124
  __device__ __forceinline__ float at_least_least(float x) const {
    return Largest::join(x, (whole - 124) * float(LOG_OF_2));
  }
  // 2^(x log2(e) - whole), at least 2^-124 of results in float32
  __device__ __forceinline__ float power(float x) const {
    if constexpr (RESULT_BYTES == 2) return fast_float::ex2(fmaf(x, LOG2_OF_E_LO, fmaf(x, LOG2_OF_E_HI, -whole)));
    constexpr float TO_INTEGER = 0x1.8p23f;
    x = at_least_least(x);
    const float magic = TO_INTEGER - whole, shifted = fmaf(x, LOG2_OF_E_HI, magic), n = shifted - magic;
    const float f = fmaf(x, LOG2_OF_E_LO, fmaf(x, LOG2_OF_E_HI, -n));
    return polynomial(EXP2_SMALL, f) * bit_cast<float>((bit_cast<uint32_t>(shifted) << 23) + 0x3f800000);
  }
  // The same to a relative error of 2^-34
  __device__ __forceinline__ double wide_power(float x) const {
    constexpr double TO_INTEGER = 0x1.8p52;
    const double wide = at_least_least(x), magic = TO_INTEGER - double(whole);
    const double shifted = fma(wide, LOG2_OF_E, magic),
                 p = polynomial(WIDE_EXP2, fma(wide, LOG2_OF_E, magic - shifted));
    return bit_cast<double>(bit_cast<uint64_t>(p) + (bit_cast<uint64_t>(shifted) << 52));
  }

  const float near;
  float largest = -INFINITY, limit = -INFINITY, whole = 0;
  double sum = 0, unit = 0;
};

template <class PHASE, typename T, typename RESULT, class TEAM, class ROW, class UNITS>
__device__ __forceinline__ void find_terms(const TEAM& team, const ROW& row, const UNITS& units, double (&to)[2]) {
  constexpr int WIDTH = TEAM::WIDTH;
  const auto& places = team.places;
  LargestAndTerms<sizeof(T), sizeof(RESULT), WIDTH> own(places.n);
  team.template each_unit<PHASE>(row, units, [&](const auto& unit, auto u) {
    float x[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e)
      x[e] = places.IS_WHOLE || places.has(u, e) ? float(load(unit.at[PHASE::READ][e])) : -INFINITY;
    if (!places.IS_WHOLE || places.has(u, 0)) own.add(x);
  });
  own.take(to);
}
template <class PHASE, typename T, class TEAM, class ROW, class UNITS>
__device__ __forceinline__ void find_largest_and_others(const TEAM& team, const ROW& row, const UNITS& units,
                                                        double (&to)[2]) {
  find_terms<PHASE, T, T>(team, row, units, to);
}

// The first lane with the largest element of all leaves that out.
template <class PHASE>
__device__ __forceinline__ void join_largest_and_others(double (&value)[2], int lanes) {
  double top = value[0];
#pragma unroll
  for (int d = WARP / 2; d > 0; d /= 2)
    if (d < lanes) top = Largest::join(top, __shfl_xor_sync(~0u, top, d));
  const int lane = threadIdx.x % WARP;
  const unsigned before = __ballot_sync(~0u, value[0] == top) & ((1u << lane) - 1) & (~0u << (lane & -lanes));
  const double own = value[0] == top && before == 0 ? 0 : 1;
  value[1] = value[0] == -INFINITY ? 0 : (value[1] + own) * power_below(value[0] - top);
  value[0] = top;
#pragma unroll
  for (int d = WARP / 2; d > 0; d /= 2)
    if (d < lanes) value[1] += __shfl_xor_sync(~0u, value[1], d);
}

// Runs two phases as one loop, or one after the other where floats have too few digits.
template <class PHASE, class SHAPE, class F, typename T, class TEAM, class ROW, class UNITS, class VALUES>
__device__ __forceinline__ void run_largest_and_sum(TEAM& team, const ROW& row, const UNITS& units, VALUES& p,
                                                    int& turn) {
  if constexpr (sizeof(T) == 8) {
    team.template run_loop<typename PHASE::Top>(row, units, p, turn);
    team.template run_loop<typename PHASE::Terms>(row, units, p, turn);
  } else {
    double of_row[2];
    find_largest_and_others<PHASE, T>(team, row, units, of_row);
    join_team<PHASE, SHAPE, F>(of_row, p, team.room, team.places.threads, turn++);
  }
}

}  // namespace
}  // namespace fusegen
