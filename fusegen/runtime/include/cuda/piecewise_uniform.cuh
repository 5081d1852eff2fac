#pragma once
// Float kernels whose results are cubic polynomials, since computing them as the formula says would take longer than
// moving them. The function, or the slope that an incoming gradient is multiplied with, is fitted in double on first
// use: around each centre of |x|, on either side of 0, and as a line in place of the last of them. A piece that errs by
// more than 1.75 ulp holds NaN: at a zero or a kink, and where a result is subnormal. Next to a zero there is another
// polynomial, of how far |x| is from it, to 2.5 ulp. What neither gives, NaN and infinities among it, is computed as
// the formula says.
#include "cuda/lazy_init.cuh"
#include "cuda/pointwise.cuh"

namespace fusegen {
namespace {

// The centres on one side of 0, a step apart from 0 to the last of them, and those on either side.
struct HalfGrid {
  float step;
  int last;
};
struct UniformGrid {
  HalfGrid above, below;
};
namespace piecewise_uniform {

template <class F>
constexpr int UNIFORM_PIECES = F::GRID.above.last + 1 + F::GRID.below.last + 1;

// c[0] + c[1] t + c[2] t^2 + c[3] t^3; where there is a zero, NaN and the |x| of it.
struct alignas(16) Cubic {
  float c[4];
};
template <class F>
__device__ Cubic pieces[UNIFORM_PIECES<F>];
template <class F>
__device__ Cubic around_zero[UNIFORM_PIECES<F>];

// Which piece a number is of, and what its polynomial is taken of: how far |x| is from the piece's centre, or |x|.
struct Place {
  int piece;
  float t;
};
template <class F>
__device__ __forceinline__ Place place(float x) {
  constexpr HalfGrid ABOVE = F::GRID.above, BELOW = F::GRID.below;
  constexpr float UP = ABOVE.step * 0x1p23f,
                  DOWN = BELOW.step * 0x1p23f;  // a step is an ulp there
  const bool below = bit_cast<int>(x) < 0;
  const float size = fabsf(x), shift = below ? DOWN : UP,
              last = below ? BELOW.last * BELOW.step : ABOVE.last * ABOVE.step;
  const float whole = fminf(size, last) + shift, centre = whole - shift;
  const int first = below ? ABOVE.last + 1 - bit_cast<int>(DOWN) : -bit_cast<int>(UP);
  return {bit_cast<int>(whole) + first, centre < last ? size - centre : size};
}
__device__ __forceinline__ float value(const Cubic& p, float t) {
  return fmaf(fmaf(fmaf(p.c[3], t, p.c[2]), t, p.c[1]), t, p.c[0]);
}
template <class F>
__device__ __forceinline__ float result(const float* in, float y) {
  return F::INPUTS == 1 ? y : fmaf(in[0], y, 0);
}

// The fitted function.
template <class F>
__device__ __noinline__ double exact(double x) {
  double in[F::INPUTS], out[1];
  in[0] = 1;
  in[F::INPUTS - 1] = x;
  F::template element<float>(in, out, ParamsOf<F, double>());
  return out[0];
}

// The polynomial of how far |x| is from `from`, for what lies between two others. Its first value is that there, so
// that a zero there stays one; the rest is a quadratic, by least squares in the zeros of a Chebyshev polynomial, of the
// quotients (f(t) - f(0)) / t.
template <class F>
__device__ __noinline__ Cubic cubic(int side, float from, float low, float high) {
  const float half = (high - low) / 2, middle = (high + low) / 2 - from;
  const double first = exact<F>(side * from);
  double mean = 0, slope = 0, bend = 0;
#pragma unroll 1
  for (int k = 0; k < 4; ++k) {
    const double node = cospi((k + 0.5) / 4), at = middle + half * node;
    const double quotient = (exact<F>(side * (from + at)) - first) / at;
    mean += quotient / 4;
    slope += quotient * (node / 2);
    bend += quotient * (node * node - 0.5);
  }
  const float per_half = 1 / half;                                        // a power of two
  const double b = slope * per_half, c = 2 * bend * per_half * per_half;  // of t - middle, and of its square
  return {float(first), float(mean - bend - b * middle + c * middle * middle), float(b - 2 * c * middle), float(c)};
}

// True if the error of a polynomial is at most max_ulp ulp.
__device__ __forceinline__ bool fits(const Cubic& piece, float t, double exact, double max_ulp) {
  const float y = value(piece, t);
  const float power_of_two = bit_cast<float>(bit_cast<int>(float(exact)) & 0x7f800000);  // of the same exponent
  const double most = max_ulp * fmax(double(power_of_two), 0x1p-126) * 0x1p-23;
  return fabs(y - exact) <= most && (y != 0 || (bit_cast<int>(y) < 0) == (bit_cast<int64_t>(exact) < 0));
}

// True if it does so all over a piece. What is tried is closer to the ends, at one of which its terms cancel most, and
// next to `from`.
template <class F>
__device__ __noinline__ bool holds(const Cubic& piece, int side, float from, float low, float high, double max_ulp) {
  constexpr int NEAR = 4, SAMPLES = 65;
#pragma unroll 1
  for (int k = -NEAR; k < SAMPLES; ++k) {
    const float next = bit_cast<float>(bit_cast<int>(from) + k + NEAR / 2), root = sinpif(k / (2.0f * (SAMPLES - 1)));
    const float size = fmaxf(fminf(k < 0 ? next : low + (high - low) * (root * root), high), low);
    if (!fits(piece, size - from, exact<F>(side * size), max_ulp)) return false;
  }
  return true;
}

// The float of a side next to where the sign changes between two of one sign, or NaN.
template <class F>
__device__ float zero(int side, float from, float to) {
  int low = bit_cast<int>(from), high = bit_cast<int>(to);
  const bool below = exact<F>(side * from) < 0;
  if ((exact<F>(side * to) < 0) == below) return NAN;
#pragma unroll 1
  while (high - low > 1) {
    const int half = low + (high - low) / 2;
    ((exact<F>(side * bit_cast<float>(half)) < 0) == below ? low : high) = half;
  }
  const float a = bit_cast<float>(low), b = bit_cast<float>(high);
  return fabs(exact<F>(side * a)) < fabs(exact<F>(side * b)) ? a : b;
}

// A fit around a zero in a piece or near it, where the piece errs since its terms cancel.
template <class F>
__device__ __noinline__ void fit_around_zero(int i, int side, float step, float low, float high) {
  const float near = zero<F>(side, fmaxf(low - 4 * step, 0), high + 4 * step);
  pieces<F>[i] = {{NAN, near}};
  if (near != near) return;
  Cubic& other = around_zero<F>[i];
  other = cubic<F>(side, near, low, high);
  if (!holds<F>(other, side, near, low, high, 2.5)) other = {{NAN}};
}

// The line of all that lies beyond `low`, as the function is far out, where most floats are.
template <class F>
__device__ __noinline__ Cubic line(int side, float low) {
  constexpr float TIMES = 32, FAR = 0x1p10f, LAST = 0x1p126f;
  const double slope = (exact<F>(side * LAST) - exact<F>(side * LAST / 2)) / (LAST / 2);
  const Cubic found{{float(exact<F>(side * FAR) - slope * FAR), float(slope), 0, 0}};
#pragma unroll 1
  for (; low < LAST; low *= TIMES)
    if (!holds<F>(found, side, 0, low, fminf(TIMES * low, LAST), 1.75)) return {{NAN, NAN}};
  return found;
}

// A thread fits a piece and checks it against the function.
template <class F>
__global__ void __launch_bounds__(128, 1) fit(const ParamsOf<F, double>) {
  constexpr HalfGrid ABOVE = F::GRID.above, BELOW = F::GRID.below;
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x), below = i - ABOVE.last - 1;
  if (i >= UNIFORM_PIECES<F>) return;
  const HalfGrid all = below < 0 ? ABOVE : BELOW;
  const int side = below < 0 ? 1 : -1, step = below < 0 ? i : below;
  const float from = step * all.step, low = fmaxf(from - all.step / 2, 0), high = from + all.step / 2;
  around_zero<F>[i] = {{NAN}};
  pieces<F>[i] = step == all.last ? line<F>(side, low) : cubic<F>(side, from, low, high);
  if (step < all.last && !holds<F>(pieces<F>[i], side, from, low, high, 1.75))
    fit_around_zero<F>(i, side, all.step, low, high);
}

template <class F>
struct UniformKernel : F {
  using F::INPUTS;
  static constexpr bool TWO_PHASES = INPUTS == 2;
  // True if a piece gives the result.
  template <typename>
  static __device__ __forceinline__ bool try_fast(const float* in, float* out, const ParamsOf<F, float>&) {
    const Place at = place<F>(in[INPUTS - 1]);
    out[0] = result<F>(in, value(pieces<F>[at.piece], at.t));
    return out[0] == out[0];
  }
  // True if the polynomial around a zero does.
  static __device__ __forceinline__ bool try_around_zero(const float* in, float* out) {
    const float x = in[INPUTS - 1];
    const int piece = place<F>(x).piece;
    out[0] = result<F>(in, value(around_zero<F>[piece], fabsf(x) - pieces<F>[piece].c[1]));
    return out[0] == out[0];
  }
  template <typename T, int N>
  static __device__ __forceinline__ uint32_t undecided(Vector<T> (&v)[N], const ParamsOf<F, float>& p) {
    float in[4][INPUTS], y[4];
    uint32_t open = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int k = 0; k < INPUTS; ++k) in[e][k] = load(v[k].at[e]);
      open |= uint32_t(!try_fast<T>(in[e], &y[e], p)) << e;
    }
    if (open != 0) {
#pragma unroll
      for (int e = 0; e < 4; ++e) open ^= uint32_t(y[e] != y[e] && try_around_zero(in[e], &y[e])) << e;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) store(v[INPUTS].at[e], y[e]);
    return open;
  }
  template <typename T>
  static __device__ __forceinline__ void fallback(const float* in, float* out, const ParamsOf<F, float>& p) {
    if (!try_around_zero(in, out)) F::template element<T>(in, out, p);
  }
  template <typename T, typename M>
  static __device__ __forceinline__ void element(const M* in, M* out, const ParamsOf<F, M>& p) {
    fast_or_fallback<UniformKernel, T, M>(in, out, p);
  }
};

}  // namespace piecewise_uniform

}  // namespace

// The method: the pieces of F::GRID.
struct PiecewiseUniform {
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    using namespace piecewise_uniform;
    static std::atomic<uint64_t> devices{0};
    const cudaError_t error = filled<F>(call, fit<F>, UNIFORM_PIECES<F>, devices);
    return error == cudaSuccess ? fusegen::launch<UniformKernel<F>, float, float>(call) : error;
  }
};

}  // namespace fusegen
