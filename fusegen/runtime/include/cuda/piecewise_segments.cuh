#pragma once
// Float kernels of several tensors in which piecewise cubics give the functions of one value. A curve is such a
// function; it is fitted in double on first use: around each centre of a grid, and as a line from the outermost ones
// on. A piece that errs by more than MOST_ULP holds NaN. Next to a zero there is another polynomial, around the zero.
// Results that neither gives, NaN and infinities are computed by the formula.
#include "cuda/piecewise_uniform.cuh"
#include "double_word.h"
#include <tuple>

namespace fusegen {
namespace {

// Centres are the multiples of a step from low to high times.
struct SegmentGrid {
  float step;
  int low, high;
};
// The curves of a kernel.
template <class... CURVES>
struct CurvesOf {
  using All = std::tuple<CURVES...>;
};
namespace piecewise_segments {

using piecewise_uniform::cubic;
using piecewise_uniform::Cubic;
using piecewise_uniform::exact;

// By how much polynomials may err: pieces, which round once, and those around zeros, whose slope has no residual. The
// estimates of curves/errors.py charge as much.
constexpr double MOST_ULP = 1.25, MOST_ULP_AROUND_ZERO = 2.5;

template <class C>
constexpr int CURVE_PIECES = C::GRID.high - C::GRID.low + 1;

// c[0] + c[1] t + c[2] t^2 + c[3] t^3 of how far x is from the centre. The low 12 bits of c[3] are the first 12 of what
// c[0] leaves, so that a value rounds once. Where there is a zero, NaN and the zero.
template <class C>
__device__ Cubic curve_pieces[CURVE_PIECES<C>];
template <class C>
__device__ Cubic around_zero[CURVE_PIECES<C>];

__device__ __forceinline__ float curve_value(const Cubic& p, float t) {
  const float rest = bit_cast<float>(bit_cast<uint32_t>(p.c[3]) << 20);
  return p.c[0] + fmaf(fmaf(fmaf(p.c[3], t, p.c[2]), t, p.c[1]), t, rest);
}

// The distance of a single-word or double-word value from a number; and true if no piece gives its curve: NaN, or 0,
// whose sign a low word of 0 loses.
__device__ __forceinline__ float word(float x) { return x; }
__device__ __forceinline__ float word(const DoubleWord<float>& x) { return x.hi; }
__device__ __forceinline__ float distance(float x, float from) { return x - from; }
__device__ __forceinline__ float distance(const DoubleWord<float>& x, float from) { return (x.hi - from) + x.lo; }
__device__ __forceinline__ bool is_uncovered(float, float y) { return y != y; }
__device__ __forceinline__ bool is_uncovered(const DoubleWord<float>&, float y) { return !(fabsf(y) > 0); }

struct CurvePlace {
  int piece;
  float centre;
};
template <class C>
__device__ __forceinline__ CurvePlace curve_place(float x) {
  constexpr SegmentGrid GRID = C::GRID;
  constexpr float SHIFT = GRID.step * 0x1.8p23f;  // a step is an ulp there
  const float shifted = fminf(fmaxf(x, GRID.low * GRID.step), GRID.high * GRID.step) + SHIFT;
  return {bit_cast<int>(shifted) - (bit_cast<int>(SHIFT) + GRID.low), shifted - SHIFT};
}

// A polynomial whose first value is in double, for a t of the opposite sign if side is -1.
__device__ __forceinline__ Cubic packed(const Cubic& p, double first, int side) {
  const float base = float(first);
  const float rest = first == 0 ? (p.c[1] == 0 ? 0 : -0.0f) : float(first - base);
  const uint32_t low = (bit_cast<uint32_t>(rest) + 0x80000) >> 20;
  const uint32_t high = bit_cast<uint32_t>(side * p.c[3]) & 0xfffff000;
  return {{first == 0 && p.c[1] != 0 ? -0.0f : base, side * p.c[1], p.c[2], bit_cast<float>(high | low)}};
}

// True if the error of a polynomial around `from` is at most most_ulp between two numbers of one sign. The samples
// are closer to the ends, and next to `from`: for the piece of 0 subnormal.
template <class C>
__device__ __noinline__ bool curve_holds(const Cubic& piece, float from, float low, float high, double most_ulp) {
  constexpr int SAMPLES = 65, NEAR = 4;
  const float least = fminf(low, high), most = fmaxf(low, high), size = fabsf(from);
#pragma unroll 1
  for (int k = -NEAR; k < SAMPLES; ++k) {
    const float root = sinpif(k / (2.0f * (SAMPLES - 1)));
    float tried = low + (high - low) * (root * root);
    if (k < 0) {
      const int bits = size == 0 ? (1 << 8 * (k + NEAR)) >> 8 : bit_cast<int>(size) + k + NEAR / 2;
      tried = copysignf(bit_cast<float>(bits), low + high);
    }
    const float x = fmaxf(fminf(tried, most), least);
    const float y = curve_value(piece, x - from);
    const double real = exact<C>(x);
    const float power = bit_cast<float>(bit_cast<int>(float(real)) & 0x7f800000);
    if (!(fabs(y - real) <= most_ulp * fmax(double(power), 0x1p-126) * 0x1p-23)) return false;
    if (y == 0 && (bit_cast<int>(y) < 0) != (bit_cast<int64_t>(real) < 0)) return false;
  }
  return true;
}

// The line from a centre outwards, as the curve is far out.
template <class C>
__device__ __noinline__ Cubic curve_line(float from, float low, int side) {
  constexpr float TIMES = 32, FAR = 0x1p10f, LAST = 0x1p126f;
  const double slope = (exact<C>(side * LAST) - exact<C>(side * LAST / 2)) / (side * LAST / 2);
  const double first = exact<C>(side * FAR) + (from - double(side * FAR)) * slope;
  const Cubic found{{float(first), float(slope), 0, 0}};
#pragma unroll 1
  for (; low < LAST; low *= TIMES) {
    if (!curve_holds<C>(found, from, side * low, side * fminf(TIMES * low, LAST), MOST_ULP)) return {{NAN, NAN}};
  }
  return found;
}

// A thread fits a piece, tests it, and only then stores it: kernels may read it while a graph fits it again.
template <class C>
__global__ void __launch_bounds__(128, 1) fit_curve(const ParamsOf<C, double>) {
  constexpr SegmentGrid GRID = C::GRID;
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x), k = GRID.low + i, side = k < 0 ? -1 : 1;
  if (i >= CURVE_PIECES<C>) return;
  const float step = GRID.step, from = k * step, size = fabsf(from), low = k == 0 ? -step / 2 : size - step / 2;
  const float high = size + step / 2;
  const bool ends = k == GRID.low || k == GRID.high;
  Cubic piece = ends ? curve_line<C>(from, low, side)
                     : packed(cubic<C>(side, size, low, high), exact<C>(from), side);
  Cubic other{{NAN}};
  const bool holds = k == 0 ? curve_holds<C>(piece, 0, low, 0, MOST_ULP) && curve_holds<C>(piece, 0, 0, high, MOST_ULP)
                            : ends || curve_holds<C>(piece, from, side * low, side * high, MOST_ULP);
  if (!holds) {
    const float zero = piecewise_uniform::zero<C>(side, fmaxf(low - 4 * step, 0), high + 4 * step);
    piece = {{NAN, side * zero}};
    if (zero == zero && k != 0) other = packed(cubic<C>(side, zero, low, high), exact<C>(side * zero), side);
    if (!curve_holds<C>(other, side * zero, side * low, side * high, MOST_ULP_AROUND_ZERO)) other = {{NAN}};
  }
  curve_pieces<C>[i] = piece;
  around_zero<C>[i] = other;
}

// The curves of one element; `uncovered` after a value that no piece gives. NEXT_TO_ZERO tries both polynomials.
template <class CURVES, bool NEXT_TO_ZERO>
struct Lookup {
  using All = typename CURVES::All;
  bool uncovered = false;
  template <class C, class X>
  __device__ __forceinline__ float at(const X& x) {
    const CurvePlace here = curve_place<C>(word(x));
    const Cubic& piece = curve_pieces<C>[here.piece];
    float y = curve_value(piece, distance(x, here.centre));
    if constexpr (NEXT_TO_ZERO)
      if (y != y) y = curve_value(around_zero<C>[here.piece], distance(x, piece.c[1]));
    uncovered = uncovered || is_uncovered(x, y);
    return y;
  }
};

// O computes what no piece gives.
template <class F, typename O>
struct SegmentsKernel : F {
  using F::INPUTS, F::OUTPUTS;
  template <bool NEXT_TO_ZERO>
  static __device__ __forceinline__ bool given(const float* in, float* out) {
    Lookup<typename F::Curves, NEXT_TO_ZERO> curves;
    F::by_curves(in, out, curves);
    bool uncovered = curves.uncovered;
#pragma unroll
    for (int k = 0; k < OUTPUTS; ++k) uncovered = uncovered || !(fabsf(out[k]) < INFINITY);
    return !uncovered;
  }
  template <typename>
  static __device__ __forceinline__ bool try_fast(const float* in, float* out, const ParamsOf<F, float>&) {
    return given<false>(in, out);
  }
  template <typename T>
  static __device__ __forceinline__ void fallback(const float* in, float* out, const ParamsOf<F, float>&) {
    if (given<true>(in, out)) return;
    O x[INPUTS], y[OUTPUTS];
#pragma unroll
    for (int k = 0; k < INPUTS; ++k) x[k] = in[k];
    F::template element<T>(x, y, ParamsOf<F, O>());
#pragma unroll
    for (int k = 0; k < OUTPUTS; ++k) out[k] = float(y[k]);
  }
  template <typename T, typename M>
  static __device__ __forceinline__ void element(const M* in, M* out, const ParamsOf<F, M>& p) {
    fast_or_fallback<SegmentsKernel, T, M>(in, out, p);
  }
};

// Fits a curve on a device, unless that was done.
template <class C>
cudaError_t fit_once(int device, void* stream) {
  static std::atomic<uint64_t> devices{0};
  CallOf<C> call{};
  call.device = device, call.stream = stream;
  return filled<C>(call, fit_curve<C>, CURVE_PIECES<C>, devices);
}
template <class... CURVES>
cudaError_t fit_all(int device, void* stream, std::tuple<CURVES...>*) {
  cudaError_t error = cudaSuccess;
  (void)(((error = fit_once<CURVES>(device, stream)) == cudaSuccess) && ...);
  return error;
}

}  // namespace piecewise_segments

// Curve K of a kernel, of a single-word or double-word value.
template <int K, class LOOKUP, class X>
__device__ __forceinline__ float curve(LOOKUP& curves, const X& x) {
  return curves.template at<std::tuple_element_t<K, typename LOOKUP::All>>(x);
}

// A curve: its grid, and its value at u, in double.
#define FUSEGEN_CURVE(NAME, STEP, LOW, HIGH, ...)            \
  struct NAME : Elementwise<1, 1> {                          \
    static constexpr SegmentGrid GRID = {STEP, LOW, HIGH};   \
    FUSEGEN_ELEMENT(const M u = in[0]; out[0] = __VA_ARGS__) \
  };

// The curves of a kernel, and the body of `by_curves`, which computes out[0], ... from in[0], ... and the curves.
#define FUSEGEN_BY_CURVES(BODY, ...)                                               \
  using Curves = CurvesOf<__VA_ARGS__>;                                            \
  template <class CURVES>                                                          \
  static HOST_DEVICE void by_curves(const float* in, float* out, CURVES& curves) { \
    BODY;                                                                          \
  }

}  // namespace

// The method: the curves of F::Curves, and the formula in O where they do not give a result.
template <typename O>
struct PiecewiseSegments {
  template <class F>
  static cudaError_t fitted(const CallOf<F>& call) {
    return piecewise_segments::fit_all(call.device, call.stream, static_cast<typename F::Curves::All*>(nullptr));
  }
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    const cudaError_t error = fitted<F>(call);
    return error == cudaSuccess ? fusegen::launch<piecewise_segments::SegmentsKernel<F, O>, T, float>(call) : error;
  }
  template <class F, typename T>
  static cudaError_t reduce(const CallOf<F>& call, void* workspace) {
    const cudaError_t error = fitted<F>(call);
    return error == cudaSuccess ? reduce_with<piecewise_segments::SegmentsKernel<F, O>, T, float>(call, workspace)
                                : error;
  }
};

}  // namespace fusegen
