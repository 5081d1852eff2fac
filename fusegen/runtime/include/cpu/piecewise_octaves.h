#pragma once
// Results that are cubic polynomials on the pieces of each octave, fitted in double on first use.
#include "cpu/verified.h"
#include "octaves.h"

namespace fusegen {
namespace {
namespace piecewise_octaves {

// There are 128 pieces an octave up to 1, and 2,048 beyond.
constexpr int DIGITS = 7, DIGITS_FROM_1 = 11, TO_1 = 1 + (OCTAVES_TO_1 << DIGITS);
constexpr int BEYOND = TO_1 + ((OCTAVES - OCTAVES_TO_1) << DIGITS_FROM_1), PIECES = BEYOND + 1;
template <class F>
float coefficients[4][2 * PIECES];  // apart, so that vectors of them are gathered

template <class F>
inline ParamsOf<F, double> fitted_with() {
  return {};
}

inline Place place(float x) {
  constexpr int DROPPED = 23 - DIGITS,
                DROPPED_FROM_1 = 23 - DIGITS_FROM_1;  // bits of a float that its piece has none of
  constexpr int FIRST = (LEAST_EXPONENT << DIGITS) - 1, FIRST_FROM_1 = (127 << DIGITS_FROM_1) - TO_1;
  const int bits = bit_cast<int>(x), size_bits = bits & 0x7fffffff, side = bits < 0 ? PIECES : 0;
  const float size = bit_cast<float>(size_bits);
  const bool to_1 = size < 1, inside = size >= LEAST && size < FAR;
  const int dropped = to_1 ? DROPPED : DROPPED_FROM_1, digits = size_bits >> dropped;
  const int middle = inside ? (digits << dropped) + (1 << (dropped - 1)) : 0;
  const int piece = inside ? digits - (to_1 ? FIRST : FIRST_FROM_1) : to_1 ? 0 : BEYOND;
  return {side + piece, size - bit_cast<float>(middle)};
}

template <class F>
inline Cubic fitted(int side, int piece) {
  const int digits = piece < TO_1 ? DIGITS : DIGITS_FROM_1, from = piece < TO_1 ? piece - 1 : piece - TO_1;
  const int octave = (from >> digits) + (piece < TO_1 ? 0 : OCTAVES_TO_1), k = from & ((1 << digits) - 1);
  return piece == 0        ? fitted<F>(side, Small())
         : piece == BEYOND ? fitted<F>(side, Large())
                           : fitted<F>(side, between(octave, digits, k));
}

template <class F>
bool all_fitted() {
  const auto task = [](int64_t begin, int64_t end, void*) {
    for (int64_t i = begin; i < end; ++i) {
      const Cubic p = fitted<F>(i < PIECES ? 1 : -1, int(i % PIECES));
      for (int k = 0; k < 4; ++k) coefficients<F>[k][i] = p.c[k];
    }
  };
  parallel_for(0, 2 * PIECES, 64, task, nullptr);
  return true;
}

// The output of n elements in a tile, NaN where no piece gives it and where a slope is too large for a float.
template <class F, int N>
inline void by_cubics(float (&m)[N][TILE], int64_t n) {
  const auto& c = coefficients<F>;
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    const Place at = place(m[F::INPUTS - 1][j]);
    const float y = value(c[0][at.piece], c[1][at.piece], c[2][at.piece], c[3][at.piece], at.t);
    m[F::INPUTS][j] = F::INPUTS == 1 ? y : m[0][j] * (std::fabs(y) < INFINITY ? y : NAN);
  }
}

}  // namespace piecewise_octaves
}  // namespace

// The method: the pieces of each octave; double where none fits, and for 16 bits where the rounding is undecided.
struct PiecewiseOctaves {
  using type = float;
  template <typename T>
  static constexpr bool IN_TILES = true;
  template <class F>
  static bool prepare() {
    static const bool fitted = piecewise_octaves::all_fitted<F>();
    return fitted;
  }
  template <class F, typename T, int N>
  static void compute(float (&m)[N][TILE], int64_t n, T* const (&data)[N], const CallOf<F>& call,
                      const ParamsOf<F, float>&) {
    piecewise_octaves::by_cubics<F>(m, n);
    round_verified<F>(m, n, data, call, [](float y) {
      if constexpr (sizeof(T) == 2) return y != y || rounding_undecided<T>(y);
      else return y != y;
    });
  }
};

}  // namespace fusegen
