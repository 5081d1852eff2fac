#pragma once
// The fit of the pieces of each octave, on the device.
#include <type_traits>
#include "octaves.h"

namespace fusegen {
namespace {
namespace piecewise_octaves {

// An octave has 128 pieces, or 256, 512 or 2,048 if too many of these do not fit, and those 8 and more away as many:
// what lies close together stays near. A piece that does not fit, at a kink say, is divided into 4, 16 or 64 parts, as
// few as all fit: NaN stands for it, then the bits of where its first part is and of what tells them apart. A part is
// of how far |x| is from a place of its own: its middle or, to 2.5 ulp, a zero that is in it or near it.
constexpr int LEVELS = 4, MOST_DIGITS = 11, FINEST_DIGITS = 13, CLASSES = 8;
__device__ constexpr int digits_of(int level) { return level < LEVELS - 1 ? 7 + level : MOST_DIGITS; }
constexpr int MOST_PIECES = 1 << MOST_DIGITS,    // of an octave
    PIECES = (OCTAVES + 2) * MOST_PIECES;        // also one before LEAST, and one from FAR on
constexpr int MAX_SUBPIECES = 1 << 16;           // the first has no value
constexpr int DROPS = 22;                        // of half of all an octave
constexpr double COARSE_MAX_ULP = 1.25;          // of all but the finest subpieces
struct alignas(32) Subpiece {
  Cubic of;
  float from;
};
template <class F>
__device__ Cubic cubics[2 * PIECES];
template <class F>
__device__ Subpiece parts[MAX_SUBPIECES];
// Of positive numbers, and of others: by the last three digits of an exponent a byte, the digits that half a piece
// drops.
template <class F>
__device__ uint4 bits_per_piece;
// While they are fitted: what does not fit, and into 2^how much a piece is divided.
template <class F>
__device__ bool rejected[LEVELS - 1][2 * PIECES];
template <class F>
__device__ int8_t divided[2 * PIECES];

template <class F>
__device__ ParamsOf<F, double> kept;  // the scalars that it is fitted with
template <class F>
__global__ void __launch_bounds__(128) keep(const ParamsOf<F, double> p) {
  if (threadIdx.x == 0) kept<F> = p;
}
template <class F>
__device__ __forceinline__ ParamsOf<F, double> fitted_with() {
  if constexpr (std::is_empty_v<ParamsOf<F, double>>) return {};
  else return kept<F>;
}

__device__ __forceinline__ Place place(float x, uint4 bits_per_piece) {
  const int bits = bit_cast<int>(x), size = bits & 0x7fffffff;
  const int within = min(max(size, bit_cast<int>(LEAST) - 1), bit_cast<int>(FAR)), exponent = within >> 23;
  const bool below = bits < 0;
  const uint32_t by = __byte_perm(below ? bits_per_piece.z : bits_per_piece.x,
                                  below ? bits_per_piece.w : bits_per_piece.y, exponent & 7);
  const uint32_t halves = __funnelshift_r(within & 0x7fffff, 0, by);  // by its last five digits
  const int middle = (within & 0x7f800000) | __funnelshift_l(0, halves | 1, by), octave = exponent - LEAST_EXPONENT + 1;
  const float from = size < bit_cast<int>(LEAST) ? 0 : bit_cast<float>(middle);
  return {(below ? PIECES : 0) + octave * MOST_PIECES + int(halves >> 1), bit_cast<float>(size) - from};
}
// The value of a subpiece for an x whose piece has none, or NaN.
template <class F>
__device__ __forceinline__ float value_in_subpiece(float x, uint4 bits_per_piece) {
  const Cubic& piece = cubics<F>[place(x, bits_per_piece).piece];
  if (piece.c[0] == piece.c[0]) return NAN;
  const int k = (bit_cast<int>(x) >> bit_cast<int>(piece.c[2])) & bit_cast<int>(piece.c[3]);
  const Subpiece& part = parts<F>[bit_cast<int>(piece.c[1]) + k];
  return value(part.of, fabsf(x) - part.from);
}

// The float of a side next to where the sign changes between two of one sign, or NaN.
template <class F>
__device__ float zero(int side, float from, float to) {
  int low = bit_cast<int>(from), high = bit_cast<int>(to);
  const bool below = exact<F>(side * double(from)) < 0;
  if ((exact<F>(side * double(to)) < 0) == below) return NAN;
#pragma unroll 1
  while (high - low > 1) {
    const int half = low + (high - low) / 2;
    ((exact<F>(side * double(bit_cast<float>(half))) < 0) == below ? low : high) = half;
  }
  const float a = bit_cast<float>(low), b = bit_cast<float>(high);
  return fabs(exact<F>(side * double(a))) < fabs(exact<F>(side * double(b))) ? a : b;
}

// Subpiece k of 2^digits in an octave: around its middle, or around a zero in it or near it, or NaN.
template <class F>
HOST_DEVICE_NOINLINE Subpiece fitted_subpiece(int side, int octave, int digits, int k) {
  constexpr float NEAR = 4, MAX_ULP_AROUND_ZERO = 2.5;
  const Between sizes = between(octave, digits, k);
  const Cubic p = fitted<F>(side, sizes, digits < FINEST_DIGITS ? COARSE_MAX_ULP : MAX_ULP);
  if (p.c[0] == p.c[0]) return {p, (sizes.low + sizes.high) / 2};
  const float width = sizes.high - sizes.low, from = zero<F>(side, sizes.low - NEAR * width, sizes.high + NEAR * width);
  if (from != from) return {p, 0};
  return {tried<F>(around<F>(side, from, sizes.low, sizes.high), side, from, MAX_ULP_AROUND_ZERO, sizes), from};
}

// A thread's piece: the k-th of an octave, on one side.
struct Own {
  int piece, side, octave, k;
};
__device__ __forceinline__ Own own() {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  return {i, i < PIECES ? 1 : -1, i % PIECES / MOST_PIECES - 1, i % MOST_PIECES};
}

// A thread tries a piece of every level that has so many.
template <class F>
__global__ void __launch_bounds__(128) try_levels(const ParamsOf<F, double>) {
  const Own at = own();
  if (at.piece >= 2 * PIECES || at.octave < 0 || at.octave == OCTAVES) return;
#pragma unroll 1
  for (int level = 0; level < LEVELS - 1; ++level) {
    if (at.k >> digits_of(level) != 0) continue;
    const Cubic p = fitted<F>(at.side, between(at.octave, digits_of(level), at.k), COARSE_MAX_ULP);
    rejected<F>[level][at.piece] = p.c[0] != p.c[0];
  }
}

// A thread takes for some octaves the first level of which in each at most one piece in 64 does not fit, or the last.
template <class F>
__global__ void __launch_bounds__(128) choose_levels(const ParamsOf<F, double>) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x), side = i / CLASSES;
  if (i >= 2 * CLASSES) return;
  int level = 0;
#pragma unroll 1
  for (int octave = 0; octave < OCTAVES; ++octave) {
    if ((LEAST_EXPONENT + octave - i) % CLASSES != 0) continue;
    for (; level < LEVELS - 1; ++level) {
      int count = 0;
#pragma unroll 1
      for (int k = 0; k >> digits_of(level) == 0; ++k)
        count += rejected<F>[level][side * PIECES + (octave + 1) * MOST_PIECES + k];
      if (count <= 1 << (digits_of(level) - 6)) break;
    }
  }
  reinterpret_cast<uint8_t*>(&bits_per_piece<F>)[i] = uint8_t(DROPS - digits_of(level));
}
template <class F>
__device__ __forceinline__ int digits_in(int side, int octave) {
  return DROPS - reinterpret_cast<const uint8_t*>(
                     &bits_per_piece<F>)[(side < 0 ? CLASSES : 0) + (LEAST_EXPONENT + octave) % CLASSES];
}

// A thread fits a piece, or else finds into how many parts it is to be divided. What is written is the same each time,
// so that a graph may fill again what another stream reads.
template <class F>
__global__ void __launch_bounds__(128) fit(const ParamsOf<F, double>) {
  const Own at = own();
  if (at.piece >= 2 * PIECES) return;
  int digits = digits_in<F>(at.side, at.octave), more = 0;
  Cubic p{{NAN}};
  if (at.octave < 0) {
    if (at.k == (1 << digits) - 1) p = fitted<F>(at.side, Small());
  } else if (at.octave == OCTAVES) {
    if (at.k == 0) p = fitted<F>(at.side, Large(), FAR + FAR / (2 << digits));
  } else if (at.k >> digits == 0) {
    p = fitted<F>(at.side, between(at.octave, digits, at.k), COARSE_MAX_ULP);
    bool fits = p.c[0] == p.c[0];
    while (!fits && (more += 2) < FINEST_DIGITS - digits) {
      fits = true;
#pragma unroll 1
      for (int j = 0; fits && j >> more == 0; ++j) {
        const Cubic part = fitted_subpiece<F>(at.side, at.octave, digits + more, (at.k << more) + j).of;
        fits = part.c[0] == part.c[0];
      }
    }
  }
  divided<F>[at.piece] = int8_t(more);
  if (more == 0) cubics<F>[at.piece] = p.c[0] == p.c[0] ? p : Cubic{{NAN, 0, 0, 0}};
}

// A thread divides a piece, if there is room left.
template <class F>
__global__ void __launch_bounds__(128) subdivide(const ParamsOf<F, double>) {
  const Own at = own();
  if (at.piece == 0) parts<F>[0] = {{{NAN, 0, 0, 0}}, 0};
  if (at.piece >= 2 * PIECES) return;
  const int more = divided<F>[at.piece], many = 1 << more;
  if (more == 0) return;
  int first = 1;
  for (int i = 0; i < at.piece; ++i) first += divided<F>[i] == 0 ? 0 : 1 << divided<F>[i];
  const bool room = first + many <= MAX_SUBPIECES;
  const int digits = digits_in<F>(at.side, at.octave) + more;
#pragma unroll 1
  for (int j = 0; room && j < many; ++j)
    parts<F>[first + j] = fitted_subpiece<F>(at.side, at.octave, digits, at.k * many + j);
  const Cubic where{{NAN, bit_cast<float>(first), bit_cast<float>(23 - digits), bit_cast<float>(many - 1)}};
  cubics<F>[at.piece] = room ? where : Cubic{{NAN, 0, 0, 0}};
}

}  // namespace piecewise_octaves
}  // namespace
}  // namespace fusegen
