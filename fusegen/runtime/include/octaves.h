#pragma once
// Float results that are cubic polynomials of |x|, for either sign, where a formula in float loses too many digits.
// They are fitted in double on first use, around the middles of pieces of each octave from 2^-28 to 64; one is of what
// is smaller, and a line of what is larger. A piece that errs by more than 1.75 ulp holds NaN, as at a kink or next to
// a zero. What no polynomial gives double computes, and NaN and infinities.
#include "basics.h"
#include "call.h"

namespace fusegen {
namespace {
namespace piecewise_octaves {

struct alignas(16) Cubic {
  float c[4];
};

constexpr int OCTAVES = 34, OCTAVES_TO_1 = 28, LEAST_EXPONENT = 127 - OCTAVES_TO_1;
constexpr float LEAST = 0x1p-28f, FAR = 64;

// Which piece a number is of, and how far |x| is from what its polynomial is taken of.
struct Place {
  int piece;
  float t;
};
HOST_DEVICE float value(float a, float b, float c, float d, float t) { return fma(fma(fma(d, t, c), t, b), t, a); }
HOST_DEVICE float value(const Cubic& p, float t) { return value(p.c[0], p.c[1], p.c[2], p.c[3], t); }

// The scalars that it is fitted with.
template <class F>
HOST_DEVICE ParamsOf<F, double> fitted_with();

// The fitted function, or the slope that an incoming gradient is multiplied with.
template <class F>
HOST_DEVICE_NOINLINE double exact(double x) {
  double in[F::INPUTS], out[1];
  in[0] = 1;
  in[F::INPUTS - 1] = x;
  F::template element<float>(in, out, fitted_with<F>());
  return out[0];
}

// The polynomial of how far |x| is from `from`, for what lies between two others. Its first value is that there, so
// that a zero there stays one; the rest is a quadratic, by least squares in the zeros of a Chebyshev polynomial, of the
// quotients (f(t) - f(0)) / t.
template <class F>
HOST_DEVICE_NOINLINE Cubic around(int side, double from, double low, double high) {
  const double half = (high - low) / 2, middle = (high + low) / 2 - from, first = exact<F>(side * from);
  double mean = 0, slope = 0, bend = 0;
  for (int k = 0; k < 4; ++k) {
    const double size = k == 0 || k == 3 ? 0.92387953251128674 : 0.38268343236508977, node = k < 2 ? -size : size;
    const double at = middle + half * node, quotient = (exact<F>(side * (from + at)) - first) / at;
    mean += quotient / 4;
    slope += quotient * (node / 2);
    bend += quotient * (node * node - 0.5);
  }
  const double b = slope / half, c = 2 * bend / (half * half);  // of t - middle, and of its square
  return {{float(first), float(mean - bend - b * middle + c * middle * middle), float(b - 2 * c * middle), float(c)}};
}

// The function at 0; if that is 0, with the sign of what is next to it.
template <class F>
HOST_DEVICE double at_zero(int side) {
  const double y = exact<F>(side * 0.0), near = exact<F>(side * 0x1p-100);
  return y == 0 && near != 0 ? std::copysign(y, near) : y;
}

// The polynomial of an |x| up to LEAST, where the function is like a number or some power of |x|: that term, and the
// next one. The others have the sign that a zero at 0 is to have.
template <class F>
HOST_DEVICE_NOINLINE Cubic next_to_zero(int side) {
  constexpr double H = LEAST;
  constexpr double NEAR = 0x1p-40;
  const double first = at_zero<F>(side), at_h = exact<F>(side * H);
  const float none = std::copysign(0.0f, float(first));
  Cubic p{{float(first), none, none, none}};
  // of |x|^n, and its factor at NEAR and at H
  int n = 0;
  double near = first == 0 ? exact<F>(side * NEAR) : first, far = at_h;
  for (double grows = at_h / exact<F>(side * H / 2); first == 0 && grows > 1.5 && n < 4; grows /= 2, ++n) {
    near /= NEAR;
    far /= H;
  }
  if (n < 4) p.c[n] = float(near);
  if (n < 3) p.c[n + 1] = float((far - near) / H);
  return p;
}

// The line of an |x| from FAR on, of how far it is from `from`.
template <class F>
HOST_DEVICE_NOINLINE Cubic line(int side, double from) {
  constexpr double FARTHEST = 0x1p100;
  const double first = exact<F>(side * double(FAR)), slope = (exact<F>(side * FARTHEST) - first) / (FARTHEST - FAR);
  return {{float(first + slope * (from - FAR)), float(slope), 0, 0}};
}

// A polynomial that is 0 throughout, with its sign: next to 0 and far out t is positive, else it may be negative.
HOST_DEVICE Cubic with_sign(const Cubic& p, bool positive) {
  const float y = p.c[0], near = std::copysign(0x1p-149f, y);
  if (y != 0 || p.c[1] != 0 || p.c[2] != 0 || p.c[3] != 0) return p;
  return positive ? Cubic{{y, y, y, y}} : Cubic{{y, y, near, 0}};
}

// True if the error of a polynomial is at most max_ulp ulp, zeros with their signs.
HOST_DEVICE bool fits(const Cubic& p, float t, double exact, double max_ulp) {
  const float y = value(p, t), power_of_two = bit_cast<float>(bit_cast<int>(float(exact)) & 0x7f800000);
  const double most = max_ulp * 0x1p-23 * std::fmax(0x1p-126, double(power_of_two));
  return std::fabs(y - exact) <= most && (y != 0 || std::signbit(y) == std::signbit(exact));
}

// A polynomial of how far |x| is from `from`, or NaN if it does not fit at so many sizes of x.
template <class F, class Sizes>
HOST_DEVICE_NOINLINE Cubic tried(const Cubic& p, int side, float from, double max_ulp, const Sizes& size) {
  for (int i = 0; i < Sizes::COUNT; ++i) {
    const float at = size(i);
    const double real = at == 0 ? at_zero<F>(side) : exact<F>(side * double(at));
    if (!fits(p, at - from, real, max_ulp)) return {{NAN, NAN, NAN, NAN}};
  }
  return p;
}

// The sizes: of what is next to 0, of what is far out, and of what is between two others, closer to these, where most
// cancels.
struct Small {
  static constexpr int COUNT = 31;
  HOST_DEVICE float operator()(int i) const {
    const float root = exp2i<float>(-2 * (i - 1));
    return i == 0 ? 0 : LEAST * root * root;
  }
};
struct Large {
  static constexpr int COUNT = 31;
  HOST_DEVICE float operator()(int i) const {
    const float root = exp2i<float>(2 * i);
    return FAR * root * root;
  }
};
struct Between {
  static constexpr int COUNT = 31;
  float low, high;
  HOST_DEVICE float operator()(int i) const {
    const float s = 2.0f * i / (COUNT - 1) - 1, middle = (low + high) / 2, half = (high - low) / 2;
    return middle + half * (s * (1.5f - 0.5f * (s * s)));
  }
};

// Piece k of the 2^digits pieces of an octave.
HOST_DEVICE Between between(int octave, int digits, int k) {
  const int first = ((LEAST_EXPONENT + octave) << 23) + (k << (23 - digits));
  return {bit_cast<float>(first), bit_cast<float>(first + (1 << (23 - digits)))};
}

// The polynomials of these, or NaN. Where the sign changes there is none: next to a zero no digit may be lost.
constexpr double MAX_ULP = 1.75;
template <class F>
HOST_DEVICE_NOINLINE Cubic fitted(int side, const Between& sizes, double max_ulp = MAX_ULP) {
  const float middle = (sizes.low + sizes.high) / 2;
  Cubic p = around<F>(side, middle, sizes.low, sizes.high);
  if (p.c[0] == 0 && exact<F>(side * double(middle)) != 0) p = {{p.c[0], 0, 0, 0}};  // so small that it is 0 all along
  if ((exact<F>(side * double(sizes.low)) < 0) != (exact<F>(side * double(sizes.high)) < 0)) p.c[0] = NAN;
  return tried<F>(with_sign(p, false), side, middle, max_ulp, sizes);
}
template <class F>
HOST_DEVICE_NOINLINE Cubic fitted(int side, const Small& sizes) {
  return tried<F>(with_sign(next_to_zero<F>(side), true), side, 0, MAX_ULP, sizes);
}
template <class F>
HOST_DEVICE_NOINLINE Cubic fitted(int side, const Large& sizes, float from = 0) {
  return tried<F>(with_sign(line<F>(side, from), from == 0), side, from, MAX_ULP, sizes);
}

}  // namespace piecewise_octaves
}  // namespace
}  // namespace fusegen
