#pragma once
// Kernels with a pooling: what is computed of each element in front of it, and of each window. The last three
// dimensions of a call are those of a window, of size 1 where it has fewer; behind `rank`, `size` has those of the
// result. The dimensions before are planes.
#include "row_phases.h"

namespace fusegen {
namespace {

// A number for each dimension of a window.
template <int64_t D, int64_t H, int64_t W>
struct Sizes {
  static constexpr int64_t depth = D, height = H, width = W;
};
struct Place {
  int64_t depth, height, width;
};

// The two passes of a pooling of N tensors and P scalars by FOLD. A derived type has the windows KERNEL, STRIDE,
// PADDING and DILATION, unless it is ADAPTIVE, and FRONT, the tensors that are read in front of the pooling, as bits,
// and the functions
//   front(t, p)                                       of an element
//   behind(pooled, t, p, length)                      of a window
//   front_gradient(grad, t, p, out)                   the gradients of the tensors in front, of a pooled element's
//   behind_gradient(grad, pooled, t, p, length, out)  that of the pooled value, then those of the tensors behind
// t has the elements of all tensors, of which those in front or those behind are read, and p the scalars.
template <int N, int P, class FOLD>
struct Pooling {
  static constexpr int TENSORS = N, SCALARS = P;
  static constexpr bool IS_SUM = FOLD::ROUNDS;
  static constexpr bool ADAPTIVE = false;      // whether the sizes of the result decide the windows
  static constexpr bool EXACT = false;         // whether elements are pooled as they are
  static constexpr bool READS_POOLED = false;  // whether the gradient behind reads the pooled value
  static constexpr bool AVERAGES = false, COUNTS_PADDING = true;
  static constexpr int64_t DIVISOR = 0;  // of an average, instead of the number of elements
  using Fold = FOLD;
  using Elements = AllDtypes;
};
template <class OF>
struct ForwardPooling : OF {
  static constexpr int INPUTS = OF::TENSORS, OUTPUTS = 1, FIRST = 0;
};
template <class OF>
struct BackwardPooling : OF {  // the incoming gradient, the tensors, and their gradients
  static constexpr int INPUTS = 1 + OF::TENSORS, OUTPUTS = OF::TENSORS, FIRST = 1;
};

// The functions of a type: the value of an expression, or statements that set out[0], ...
#define FUSEGEN_FRONT(...) \
  static HOST_DEVICE double front(const double* t, const double* p) { return __VA_ARGS__; }
#define FUSEGEN_BEHIND(...)                                                                             \
  static HOST_DEVICE double behind(double pooled, const double* t, const double* p, double length) {    \
    return __VA_ARGS__;                                                                                 \
  }
#define FUSEGEN_FRONT_GRADIENT(...)                                                                     \
  static HOST_DEVICE void front_gradient(double grad, const double* t, const double* p, double* out) {  \
    __VA_ARGS__;                                                                                        \
  }
#define FUSEGEN_BEHIND_GRADIENT(...)                                                                           \
  static HOST_DEVICE void behind_gradient(double grad, double pooled, const double* t, const double* p,        \
                                          double length, double* out) {                                        \
    __VA_ARGS__;                                                                                               \
  }

template <class F>
HOST_DEVICE constexpr bool is_front(int tensor) {
  return F::FRONT >> tensor & 1;
}

// True if an element of a window replaces another one: NaN is the largest and the smallest, the first of equal elements
// is kept, and the last NaN. The order in which elements are compared does not matter.
template <class FOLD, typename A>
HOST_DEVICE bool is_before(A a, int64_t place, A b, int64_t other) {
  const bool is_larger = std::is_same_v<FOLD, Largest> ? b > a : b < a;
  return is_larger | ((b == a) & (other < place)) | ((b != b) & ((a == a) | (other > place)));
}

// The type in which elements are pooled: sums in double, and elements that are compared as they are.
template <class F, typename T>
using PooledType = std::conditional_t<F::EXACT && !F::IS_SUM, decltype(load(T())), double>;

// True if the second of two is the largest, or the smallest: the first one of equals is kept, and NaN is both.
template <class FOLD, typename A>
HOST_DEVICE bool replaces(A a, A b) {
  if constexpr (std::is_same_v<FOLD, Largest>) return (b > a) | (b != b);
  else return (b < a) | (b != b);
}

// The elements of a window that an average counts along a dimension, of which it is window o.
template <class F>
HOST_DEVICE int64_t counted(int64_t o, int64_t kernel, int64_t stride, int64_t padding, int64_t size) {
  const int64_t begin = o * stride - padding, end = begin + kernel, last = size + (F::COUNTS_PADDING ? padding : 0);
  return (end < last ? end : last) - (F::COUNTS_PADDING || begin > 0 ? begin : 0);
}

// A quotient of numbers that are not negative, of 32 bits where they are small.
HOST_DEVICE int64_t quotient(int64_t a, int64_t b) {
  return (a | b) >> 32 ? a / b : int64_t(uint32_t(a) / uint32_t(b));
}

// The elements of a window of an adaptive pooling along a dimension, of which it is window o, or, of the sizes in the
// other order, the windows of an element.
struct Range {
  int64_t begin, end;
  HOST_DEVICE Range(int64_t o, int64_t size, int64_t out)
      : begin(quotient(o * size, out)), end(quotient((o + 1) * size - 1, out) + 1) {}
  HOST_DEVICE int64_t count() const { return end - begin; }
};

// The divisor of the average of a window; behind the sizes of a plane are those of the result.
template <class F>
HOST_DEVICE double divisor(const Place& o, const int64_t* size) {
  if constexpr (!F::AVERAGES) return 1;
  else if constexpr (F::ADAPTIVE)
    return double(Range(o.depth, size[0], size[3]).count() * Range(o.height, size[1], size[4]).count() *
                  Range(o.width, size[2], size[5]).count());
  else if constexpr (F::DIVISOR > 0) return double(F::DIVISOR);
  else
    return double(counted<F>(o.depth, F::KERNEL::depth, F::STRIDE::depth, F::PADDING::depth, size[0]) *
                  counted<F>(o.height, F::KERNEL::height, F::STRIDE::height, F::PADDING::height, size[1]) *
                  counted<F>(o.width, F::KERNEL::width, F::STRIDE::width, F::PADDING::width, size[2]));
}

// Where the planes of a call's tensors begin, and their strides in a plane.
template <class F, typename T>
struct Plane {
  static constexpr int N = F::INPUTS + F::OUTPUTS;

  HOST_DEVICE Plane(const Tensors<N>& call, int64_t plane) : size(call.size + call.rank - 3), out(size + 3) {
    for (int k = 0; k < N; ++k) data[k] = static_cast<T*>(call.data[k]), stride[k] = call.stride[k] + call.rank - 3;
    if (call.rank == 4) {  // without a division
      for (int k = 0; k < N; ++k) data[k] += plane * call.stride[k][0];
      return;
    }
    for (int d = call.rank - 4; d >= 0; plane /= call.size[d--])
      for (int k = 0; k < N; ++k) data[k] += plane % call.size[d] * call.stride[k][d];
  }
  // The element of tensor k at a place.
  HOST_DEVICE T& at(int k, const Place& i) const {
    return data[k][i.depth * stride[k][0] + i.height * stride[k][1] + i.width * stride[k][2]];
  }
  // Loads the elements of the tensors in front of the pooling, or of those behind it.
  HOST_DEVICE void load_tensors(double (&t)[F::TENSORS], const Place& i, bool front) const {
    for (int k = 0; k < F::TENSORS; ++k)
      if (is_front<F>(k) == front) t[k] = load(at(F::FIRST + k, i));
  }
  // The value that is pooled of an element.
  HOST_DEVICE PooledType<F, T> element(const Place& i, const double* p) const {
    if constexpr (F::EXACT) return load(at(F::FIRST + F::EXACT_TENSOR, i));
    else {
      double t[F::TENSORS];
      load_tensors(t, i, true);
      return F::front(t, p);
    }
  }

  T* data[N];
  const int64_t* stride[N];
  const int64_t *size, *out;
};

template <class F>
HOST_DEVICE const double* scalars(const CallOf<F>& call) {
  if constexpr (F::SCALARS > 0) return call.param;
  else return nullptr;
}

}  // namespace
}  // namespace fusegen
