#pragma once
// A window of which neighbouring threads pool a part each, on CUDA: its elements, those of an element's windows, and
// the value of a part.
#include "cuda/elements.cuh"
#include "cuda/math.cuh"
#include "cuda/window_boxes.cuh"

namespace fusegen {
namespace {

// The elements of window o along a dimension D, one at each step.
template <class F, int D>
struct Elements {
  int64_t begin, count, step = 1;
  HOST_DEVICE Elements(int64_t o, int64_t size, int64_t out) {
    if constexpr (F::ADAPTIVE) {
      const Range of(o, size, out);
      begin = of.begin, count = of.count();
    } else {
      constexpr Dimension OF = dimension<F>(D);
      const int64_t first = OF.begin(o), before = first < 0 ? (OF.dilation - 1 - first) / OF.dilation : 0;
      const int64_t left = size <= first ? 0 : (size - 1 - first) / OF.dilation + 1;
      begin = first + before * OF.dilation, step = OF.dilation;
      count = (left < OF.kernel ? left : OF.kernel) - before;
    }
  }
};

// The windows that may have an element i along a dimension D.
template <class F, int D>
struct Windows {
  int64_t begin, end;
  HOST_DEVICE Windows(int64_t i, int64_t size, int64_t out) {
    if constexpr (F::ADAPTIVE) {
      const Range of(i, out, size);
      begin = of.begin, end = of.end;
    } else {
      constexpr Dimension OF = dimension<F>(D);
      const int64_t last = (i + OF.padding) / OF.stride + 1;
      begin = OF.first(i + OF.padding), end = last < out ? last : out;
    }
  }
};

// The most windows that reach into some elements along a dimension, and about how many elements a window has there.
template <class F>
int64_t windows_along(int d, int64_t own, int64_t size, int64_t out) {
  if constexpr (F::ADAPTIVE) return std::min((own * out - 1) / size + 2, out);
  else return std::min(dimension<F>(d).windows(own), out);
}
template <class F>
double elements_along(int d, int64_t size, int64_t out) {
  if constexpr (F::ADAPTIVE) return double((size + out - 1) / out);
  else return double(dimension<F>(d).kernel);
}

// A pooled value, and the place in its plane of the element that it is.
template <class F, typename T>
struct Pooled {
  PooledType<F, T> value;
  int64_t tap;
};

// Joins two parts of a window.
template <class F, typename T>
HOST_DEVICE void join(Pooled<F, T>& made, const Pooled<F, T>& other) {
  using FOLD = typename F::Fold;
  if constexpr (F::IS_SUM) made.value = FOLD::join(made.value, other.value);
  else if (is_before<FOLD>(made.value, made.tap, other.value, other.tap)) made = other;
}

// The gradient of a pooled value, and, behind it, those of the tensors behind the pooling.
template <class F, typename T>
HOST_DEVICE void window_gradients(const Plane<F, T>& of, const Place& at, double pooled, const double* p,
                                  double (&made)[1 + F::TENSORS]) {
  double t[F::TENSORS];
  of.load_tensors(t, at, false);
  F::behind_gradient(load(of.at(0, at)), pooled, t, p, divisor<F>(at, of.size), made);
}

}  // namespace
}  // namespace fusegen
