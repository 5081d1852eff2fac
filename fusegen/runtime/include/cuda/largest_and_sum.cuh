#pragma once
// Two phases of a row as one loop, on CUDA, where results are values of the row: so it is read once.
#include "row_phases.h"

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
    const double below = r[0] == p.*VALUE ? 1 : exp(r[0] - p.*VALUE);
    const double sum = fabs(r[0]) < INFINITY ? (1 + r[1]) * below : below;
    SUM::row(&sum, p);
  }
  template <class VALUES>
  static HOST_DEVICE void take(VALUES& p, const VALUES& from) {
    LARGEST::take(p, from);
    SUM::take(p, from);
  }
};

template <class PHASE, class = void>
constexpr bool IS_LARGEST_AND_SUM = false;
template <class PHASE>
constexpr bool IS_LARGEST_AND_SUM<PHASE, std::void_t<typename PHASE::Top>> = true;

// The inputs, as bits, that such phases of a kernel read.
template <int IN, int OUT, int P, class VALUES, class... PHASES>
constexpr unsigned read_once(const Rows<IN, OUT, P, VALUES, PHASES...>*) {
  return (0u | ... | (IS_LARGEST_AND_SUM<PHASES> ? PHASES::IN : 0u));
}
template <class F>
constexpr unsigned READ_ONCE = read_once(static_cast<const F*>(nullptr));

// What a team's thread has of a row's elements, as T: the largest, and the sum of the others' e^(element - largest).
template <class PHASE, typename T, class TEAM, class ROW, class UNITS>
__device__ __forceinline__ void find_largest_and_others(const TEAM& team, const ROW& row, const UNITS& units,
                                                        double (&to)[2]);

// Joins what neighbouring lanes have.
template <class PHASE>
__device__ __forceinline__ void join_largest_and_others(double (&value)[2], int lanes);

}  // namespace
}  // namespace fusegen
