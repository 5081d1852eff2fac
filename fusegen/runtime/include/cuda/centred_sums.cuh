#pragma once
// Sums over a row, and sums of products with differences to a mean that follows from these, in one loop, on CUDA: the
// loop takes differences to the first element of the row, the shift, and what follows once a row moves them to the
// mean. Of a row of n elements the shift is at most sqrt(n) deviations from the mean, since it is one of them, so that
// a sum in double loses log2(n) of its 53 bits at most: enough for float32. Rows that registers hold have two loops,
// which need fewer of them, and so have elements of 16 bits, whose loops are in float.
#include "cuda/held_units.cuh"

namespace fusegen {
namespace {

// Values of a row, and what such a loop reads and leaves: whether the second sums are infinite or NaN, so that a loop
// of their own has to say which.
template <class VALUES>
struct Shifted : VALUES {
  double shift, length;
  bool again;
};
template <class VALUES>
HOST_DEVICE bool are_in_range(const Shifted<VALUES>& p) {
  return are_in_range(static_cast<const VALUES&>(p));
}

// The phases SUMS and CENTRED. Result X of the first one is the sum of x, and CENTRE the value of the row that it
// gives; result j of the second one is the sum of x - CENTRE times result FACTORS[j] of the first one, of squares if
// that is X.
template <class SUMS, class CENTRED, auto CENTRE, int X, int... FACTORS>
struct CentredSums : SUMS {
  using Sums = SUMS;
  using Centred = CENTRED;
  static constexpr unsigned IN = SUMS::IN | CENTRED::IN;
  static constexpr int OWN = SUMS::RESULTS, RESULTS = OWN + CENTRED::RESULTS, PLACE = X;
  static constexpr bool EXACT = false, BOUNDED = false;
  template <class FUNCTION>
  static HOST_DEVICE void each(FUNCTION&& function) {
    UNROLL
    for (int k = 0; k < RESULTS; ++k) function(k, Added());
  }
  template <typename T, typename M, class P>
  static HOST_DEVICE void element(const M* in, M* out, const P& p) {
    typename SUMS::template Params<M> shifted = p;
    shifted.*CENTRE = p.shift;
    SUMS::template element<T>(in, out, p);
    CENTRED::template element<T>(in, out + OWN, shifted);
    out[X] = out[X] - OfRow<M>(p.shift);
  }
  template <class P>
  static HOST_DEVICE void row(const double* r, P& p) {
    double sums[OWN], centred[CENTRED::RESULTS];
    for (int k = 0; k < OWN; ++k) sums[k] = r[k];
    sums[X] += p.length * p.shift;
    SUMS::row(sums, p);
    const double d = p.*CENTRE - p.shift;
    int j = 0;
    const auto move = [&](int factor) {  // a square to the mean is that to the shift less d times the sum of both
      const double sum = r[OWN + j];
      if (factor == X) centred[j++] = not_negative(sum - d * (2 * r[X] - p.length * d));
      else centred[j++] = sum - d * r[factor];
    };
    (move(FACTORS), ...);
    p.again = false;
    for (int k = 0; k < RESULTS; ++k) p.again = p.again || !(fabs(r[k]) < INFINITY);
    CENTRED::row(centred, p);
  }
  static HOST_DEVICE double not_negative(double v) { return v < 0 ? 0 : v; }
  template <class P>
  static HOST_DEVICE void take(P& p, const P& from) {
    SUMS::take(p, from);
    CENTRED::take(p, from);
    p.again = from.again;
  }
};

template <class PHASE, class = void>
constexpr bool IS_CENTRED = false;
template <class PHASE>
constexpr bool IS_CENTRED<PHASE, std::void_t<typename PHASE::Centred>> = true;

// True if both phases are one loop where rows of T are kept.
template <class PHASE, typename T, class SHAPE>
constexpr bool IS_ONE_LOOP = IS_CENTRED<PHASE> && sizeof(T) == 4 && !SHAPE::apart &&
                             (SHAPE::kept == Kept::SHARED || SHAPE::kept == Kept::NOWHERE);

// Takes the first element of a row, if it has one, as the shift of its sums, if it is finite.
template <class PHASE, class TEAM, class ROW, class VALUES>
__device__ __forceinline__ void set_shift(const TEAM& team, const ROW& row, VALUES& p) {
  p.shift = p.length = 0;
  if (team.places.n == 0) return;
  auto begin = team.places;
  begin.lane = 0;
  typename TEAM::Loaded unit;
  row.template load<PHASE::Sums::IN>(unit, begin, decltype(begin.n)(0));
  typename TEAM::template M<PHASE> out[PHASE::OWN];
  element_of<typename PHASE::Sums>(unit, 0, out, p);
  const double first = as_double(out[PHASE::PLACE]);
  p.shift = fabs(first) < INFINITY ? first : 0;
  p.length = double(begin.n);
}

// Runs both phases as one loop, and the second one again where that has not found its sums; or one after the other.
template <class PHASE, class SHAPE, typename T, class TEAM, class ROW, class UNITS, class VALUES>
__device__ __forceinline__ void run_centred(TEAM& team, const ROW& row, const UNITS& units, VALUES& p, int& turn) {
  constexpr bool IS_ONE = IS_ONE_LOOP<PHASE, T, SHAPE>;
  if constexpr (IS_ONE) set_shift<PHASE>(team, row, p);
  team.template run_loop<std::conditional_t<IS_ONE, PHASE, typename PHASE::Sums>>(row, units, p, turn);
  if (!IS_ONE || p.again) team.template run_loop<typename PHASE::Centred>(row, units, p, turn);
}

}  // namespace
}  // namespace fusegen
