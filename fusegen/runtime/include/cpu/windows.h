#pragma once
// Kernels with a pooling on the CPU: the planes over PyTorch's threads. A row of windows takes their elements at one
// place of the window after the other, so that the loop over the windows vectorises.
#include <algorithm>
#include <vector>
#include "launcher.h"
#include "cpu/adaptive_windows.h"
#include "cpu/math.h"

namespace fusegen {
namespace {

// Splits begin to end over PyTorch's own threads; the binding defines it.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context);

constexpr int64_t GRAIN = 32768;

// The windows from `begin` to `end` along a dimension that have an element at distance k from their first one, and
// where that lies in the first of these.
struct Taps {
  Taps(int64_t k, int64_t stride, int64_t padding, int64_t size, int64_t windows) {
    const int64_t first = k - padding;  // in window 0
    begin = first < 0 ? std::min((stride - 1 - first) / stride, windows) : 0;
    end = first < size ? std::min((size - 1 - first) / stride + 1, windows) : begin;
    at = first + begin * stride;
  }
  int64_t begin, end, at;
};

// The elements of a window of a fixed size.
template <class F>
constexpr int64_t elements() {
  if constexpr (F::ADAPTIVE) return INT64_MAX;
  else return F::KERNEL::depth * F::KERNEL::height * F::KERNEL::width;
}

// The place of an element in its window, counted from 0, or, of adaptive ones, in its plane; of the width of what is
// pooled, so that both are selected together, where that has all places.
template <class F, typename T>
using TapOf = std::conditional_t<sizeof(PooledType<F, T>) == 8 || (elements<F>() > INT32_MAX), int64_t, int32_t>;

// The memory that a thread needs for a plane: `taken` are the places of the largest or smallest elements.
template <class F, typename T>
struct Scratch {
  std::vector<double> adjoint, incoming;
  std::vector<PooledType<F, T>> front, pooled;
  std::vector<TapOf<F, T>> taken;
  Columns<F, T> columns;
};

// Calls a function with each place of a window at which a row of windows has elements: its number, where these lie, and
// which windows have them.
template <class F, class FUNCTION>
void each_tap(const int64_t* size, const int64_t* out, int64_t depth, int64_t height, const FUNCTION& function) {
  for (int64_t kd = 0; kd < F::KERNEL::depth; ++kd) {
    const int64_t d = depth * F::STRIDE::depth - F::PADDING::depth + kd * F::DILATION::depth;
    if (d < 0 || d >= size[0]) continue;
    for (int64_t kh = 0; kh < F::KERNEL::height; ++kh) {
      const int64_t h = height * F::STRIDE::height - F::PADDING::height + kh * F::DILATION::height;
      if (h < 0 || h >= size[1]) continue;
      for (int64_t kw = 0; kw < F::KERNEL::width; ++kw) {
        const Taps taps(kw * F::DILATION::width, F::STRIDE::width, F::PADDING::width, size[2], out[2]);
        function((kd * F::KERNEL::height + kh) * F::KERNEL::width + kw, d, h, taps);
      }
    }
  }
}

// Pools a row of windows; `keep` has the elements of the plane where they are no elements of a tensor. Where TAKES,
// `taken` gets the places of the elements that are pooled, and -1 of a window that has none.
template <bool TAKES, class F, typename T>
void pool_row(const Plane<F, T>& of, const PooledType<F, T>* keep, int64_t depth, int64_t height,
              PooledType<F, T>* pooled, TapOf<F, T>* taken) {
  using A = PooledType<F, T>;
  using FOLD = typename F::Fold;
  std::fill(pooled, pooled + of.out[2], A(FOLD::IDENTITY));
  if constexpr (TAKES) std::fill(taken, taken + of.out[2], TapOf<F, T>(-1));
  each_tap<F>(of.size, of.out, depth, height, [&](int64_t tap, int64_t d, int64_t h, const Taps& taps) {
    const int64_t n = taps.end - taps.begin;
    A* const to = pooled + taps.begin;
    [[maybe_unused]] TapOf<F, T>* const own = taken + taps.begin;
    const auto join = [&](const auto* from, int64_t step) {
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) {
        const A v = load(from[j * step]);
        if constexpr (TAKES) {
          const bool better = (own[j] < 0) | replaces<FOLD>(to[j], v);
          to[j] = better ? v : to[j];
          own[j] = better ? TapOf<F, T>(tap) : own[j];
        } else to[j] = FOLD::join(to[j], v);
      }
    };
    if constexpr (IN_PLACE<F, T>) {
      constexpr int k = F::FIRST + F::EXACT_TENSOR;
      join(&of.at(k, {d, h, taps.at}), of.stride[k][2] * F::STRIDE::width);
    } else join(keep + (d * of.size[1] + h) * of.size[2] + taps.at, F::STRIDE::width);
  });
}

// Pools a row of windows into the memory of a thread.
template <bool TAKES, class F, typename T>
void pool_any_row(const Plane<F, T>& of, const PooledType<F, T>* keep, int64_t d, int64_t h, Scratch<F, T>& to) {
  if constexpr (F::ADAPTIVE)
    pool_adaptive_row<TAKES>(of, keep, d, h, to.columns, to.pooled.data(), to.taken.data());
  else pool_row<TAKES>(of, keep, d, h, to.pooled.data(), to.taken.data());
}

// Computes what is pooled of each element of a plane.
template <class F, typename T>
const PooledType<F, T>* fronts(const Plane<F, T>& of, const double* p, Scratch<F, T>& scratch) {
  if constexpr (IN_PLACE<F, T>) return nullptr;
  else {
    scratch.front.resize(size_t(of.size[0] * of.size[1] * of.size[2]));
    PooledType<F, T>* to = scratch.front.data();
    for (int64_t d = 0; d < of.size[0]; ++d)
      for (int64_t h = 0; h < of.size[1]; ++h, to += of.size[2]) {
        if constexpr (F::EXACT)
          if (constexpr int k = F::FIRST + F::EXACT_TENSOR; of.stride[k][2] == 1) {
            widen(&of.at(k, {d, h, 0}), to, of.size[2]);
            continue;
          }
        for (int64_t w = 0; w < of.size[2]; ++w) to[w] = of.element({d, h, w}, p);
      }
    return scratch.front.data();
  }
}

template <class F, typename T>
void pool_plane(const CallOf<F>& call, int64_t plane, Scratch<F, T>& scratch) {
  const Plane<F, T> of(call, plane);
  const double* const p = scalars<F>(call);
  const PooledType<F, T>* const keep = fronts(of, p, scratch);
  scratch.pooled.resize(size_t(of.out[2]));
  for (int64_t d = 0; d < of.out[0]; ++d)
    for (int64_t h = 0; h < of.out[1]; ++h) {
      pool_any_row<false>(of, keep, d, h, scratch);
      for (int64_t w = 0; w < of.out[2]; ++w) {
        double t[F::TENSORS];
        of.load_tensors(t, {d, h, w}, false);
        const double y = F::behind(double(scratch.pooled[w]), t, p, divisor<F>({d, h, w}, of.size));
        of.at(F::INPUTS, {d, h, w}) = cast_to_storage<T>(y);
      }
    }
}

// The place in the plane of an element of a window of a fixed size.
template <class F>
int64_t place_in_plane(int64_t tap, const Place& window, const int64_t* size) {
  using KERNEL = typename F::KERNEL;
  const int64_t kd = tap / (KERNEL::height * KERNEL::width), kh = tap / KERNEL::width % KERNEL::height;
  const int64_t d = window.depth * F::STRIDE::depth - F::PADDING::depth + kd * F::DILATION::depth;
  const int64_t h = window.height * F::STRIDE::height - F::PADDING::height + kh * F::DILATION::height;
  const int64_t w = window.width * F::STRIDE::width - F::PADDING::width + tap % KERNEL::width * F::DILATION::width;
  return (d * size[1] + h) * size[2] + w;
}

template <class F>
int64_t place_of(int64_t tap, const Place& window, const int64_t* size) {
  if constexpr (F::ADAPTIVE) return tap;
  else return place_in_plane<F>(tap, window, size);
}

// Stores gradients of the tensors in front of the pooling, or of those behind it.
template <class F, typename T>
void store_gradients(const Plane<F, T>& of, const Place& at, const double* made, bool front) {
  for (int k = 0; k < F::TENSORS; ++k)
    if (is_front<F>(k) == front) of.at(F::INPUTS + k, at) = cast_to_storage<T>(*made++);
}

template <class F, typename T>
void differentiate_plane(const CallOf<F>& call, int64_t plane, Scratch<F, T>& scratch) {
  const Plane<F, T> of(call, plane);
  const double* const p = scalars<F>(call);
  const bool pools = !F::IS_SUM || F::READS_POOLED;
  const PooledType<F, T>* const keep = pools ? fronts(of, p, scratch) : nullptr;
  scratch.pooled.assign(size_t(of.out[2]), 0);
  scratch.taken.resize(size_t(of.out[2]));
  scratch.incoming.resize(size_t(of.out[2]));
  scratch.adjoint.assign(size_t(of.size[0] * of.size[1] * of.size[2]), 0.0);
  double* const adjoint = scratch.adjoint.data();
  const double* const incoming = scratch.incoming.data();
  double t[F::TENSORS], made[1 + F::TENSORS];
  for (int64_t d = 0; d < of.out[0]; ++d)
    for (int64_t h = 0; h < of.out[1]; ++h) {
      if (pools) pool_any_row<!F::IS_SUM>(of, keep, d, h, scratch);
      for (int64_t w = 0; w < of.out[2]; ++w) {
        const Place at{d, h, w};
        of.load_tensors(t, at, false);
        F::behind_gradient(load(of.at(0, at)), double(scratch.pooled[w]), t, p, divisor<F>(at, of.size), made);
        scratch.incoming[w] = made[0];
        store_gradients(of, at, made + 1, false);
        if (!F::IS_SUM && scratch.taken[w] >= 0) adjoint[place_of<F>(scratch.taken[w], at, of.size)] += made[0];
      }
      if constexpr (F::IS_SUM && F::ADAPTIVE) spread_adaptive_row(of, d, h, incoming, scratch.columns, adjoint);
      else if constexpr (F::IS_SUM)
        each_tap<F>(of.size, of.out, d, h, [&](int64_t, int64_t i, int64_t j, const Taps& taps) {
          double* const to = adjoint + (i * of.size[1] + j) * of.size[2] + taps.at;
          for (int64_t k = 0; k < taps.end - taps.begin; ++k) to[k * F::STRIDE::width] += incoming[taps.begin + k];
        });
    }
  for (int64_t d = 0; d < of.size[0]; ++d)
    for (int64_t h = 0; h < of.size[1]; ++h)
      for (int64_t w = 0; w < of.size[2]; ++w) {
        of.load_tensors(t, {d, h, w}, true);
        F::front_gradient(adjoint[(d * of.size[1] + h) * of.size[2] + w], t, p, made);
        store_gradients(of, {d, h, w}, made, true);
      }
}

template <class F>
int64_t planes_of(const CallOf<F>& call) {
  int64_t planes = 1;
  for (int d = 0; d < call.rank - 3; ++d) planes *= call.size[d];
  return planes;
}

template <class F, typename T>
void run_planes(const CallOf<F>& call) {
  const auto some = [](int64_t begin, int64_t end, void* context) {
    const CallOf<F>& call = *static_cast<const CallOf<F>*>(context);
    Scratch<F, T> scratch;
    for (int64_t plane = begin; plane < end; ++plane)
      if constexpr (F::FIRST == 0) pool_plane<F, T>(call, plane, scratch);
      else differentiate_plane<F, T>(call, plane, scratch);
  };
  const int64_t planes = planes_of<F>(call);
  const int64_t* const counted = F::ADAPTIVE ? call.size + call.rank - 3 : call.size + MAX_RANK - 3;
  const int64_t work = counted[0] * counted[1] * counted[2] * (F::ADAPTIVE ? 1 : std::min(elements<F>(), GRAIN));
  const int64_t grain = std::max(GRAIN / std::max(work, int64_t(1)), int64_t(1));
  parallel_for(0, planes, grain, some, const_cast<CallOf<F>*>(&call));
}

template <class F, int... DTYPES>
void run_any(const CallOf<F>& call, Dtypes<DTYPES...>) {
  const auto run_as = [&](int dtype, auto element) {
    if (call.dtype == dtype) run_planes<F, decltype(element)>(call);
    return call.dtype == dtype;
  };
  (void)(run_as(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
}

// The call of a kernel; it returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  run_any<F>(call, typename F::Elements());
  return nullptr;
}

}  // namespace
}  // namespace fusegen
