#pragma once
// Kernels with a pooling on the CPU: the planes over PyTorch's threads. A row of windows takes their elements at one
// place of the window after the other, so that the loop over the windows vectorises.
#include <algorithm>
#include <vector>
#include "launcher.h"
#include "cpu/elements.h"
#include "cpu/math.h"
#include "window_parts.h"

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

// What a thread needs for a plane.
template <class F, typename T>
struct Scratch {
  std::vector<double> front, adjoint, incoming;
  std::vector<PooledType<F, T>> pooled;
  std::vector<int64_t> place;  // of the largest or smallest element
};

// A function of each row of windows that have elements at one place of the window, with the index of the first window
// of the row, and that of the element in the plane.
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
        function(d, h, taps);
      }
    }
  }
}

// Pools a row of windows; `keep` has the elements of the plane where they are no elements of a tensor, and `place`, if
// it is there, takes the places of the elements that are pooled.
template <class F, typename T>
void pool_row(const Plane<F, T>& of, const double* keep, int64_t depth, int64_t height, PooledType<F, T>* pooled,
              int64_t* place) {
  using A = PooledType<F, T>;
  using FOLD = typename F::Fold;
  std::fill(pooled, pooled + of.out[2], A(FOLD::IDENTITY));
  if (place != nullptr) std::fill(place, place + of.out[2], -1);
  each_tap<F>(of.size, of.out, depth, height, [&](int64_t d, int64_t h, const Taps& taps) {
    const int64_t row = (d * of.size[1] + h) * of.size[2] + taps.at, n = taps.end - taps.begin;
    A* const to = pooled + taps.begin;
    const auto join = [&](const auto* from, int64_t step) {
      if (place != nullptr) {
        for (int64_t j = 0; j < n; ++j)
          if (const A v = load(from[j * step]); place[taps.begin + j] < 0 || replaces<FOLD>(to[j], v)) {
            to[j] = v;
            place[taps.begin + j] = row + j * F::STRIDE::width;
          }
        return;
      }
      for (int64_t j = 0; j < n; ++j) to[j] = FOLD::join(to[j], A(load(from[j * step])));
    };
    if constexpr (F::EXACT) {
      constexpr int k = F::FIRST + F::EXACT_TENSOR;
      join(&of.at(k, {d, h, taps.at}), of.stride[k][2] * F::STRIDE::width);
    } else join(keep + row, F::STRIDE::width);
  });
}

// Computes what is pooled of each element of a plane.
template <class F, typename T>
const double* fronts(const Plane<F, T>& of, const double* p, std::vector<double>& kept) {
  if constexpr (F::EXACT) return nullptr;
  else {
    kept.resize(size_t(of.size[0] * of.size[1] * of.size[2]));
    double* to = kept.data();
    for (int64_t d = 0; d < of.size[0]; ++d)
      for (int64_t h = 0; h < of.size[1]; ++h)
        for (int64_t w = 0; w < of.size[2]; ++w) *to++ = of.element({d, h, w}, p);
    return kept.data();
  }
}

template <class F, typename T>
void pool_plane(const CallOf<F>& call, int64_t plane, Scratch<F, T>& scratch) {
  const Plane<F, T> of(call, plane);
  const double* const p = scalars<F>(call);
  const double* const keep = fronts(of, p, scratch.front);
  scratch.pooled.resize(size_t(of.out[2]));
  for (int64_t d = 0; d < of.out[0]; ++d)
    for (int64_t h = 0; h < of.out[1]; ++h) {
      pool_row(of, keep, d, h, scratch.pooled.data(), nullptr);
      for (int64_t w = 0; w < of.out[2]; ++w) {
        double t[F::TENSORS];
        of.load_tensors(t, {d, h, w}, false);
        const double y = F::behind(double(scratch.pooled[w]), t, p, divisor<F>({d, h, w}, of.size));
        of.at(F::INPUTS, {d, h, w}) = cast_to_storage<T>(y);
      }
    }
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
  const double* const keep = pools ? fronts(of, p, scratch.front) : nullptr;
  scratch.pooled.assign(size_t(of.out[2]), 0);
  scratch.place.resize(size_t(of.out[2]));
  scratch.incoming.resize(size_t(of.out[2]));
  scratch.adjoint.assign(size_t(of.size[0] * of.size[1] * of.size[2]), 0.0);
  double* const adjoint = scratch.adjoint.data();
  const double* const incoming = scratch.incoming.data();
  double t[F::TENSORS], made[1 + F::TENSORS];
  for (int64_t d = 0; d < of.out[0]; ++d)
    for (int64_t h = 0; h < of.out[1]; ++h) {
      if (pools) pool_row(of, keep, d, h, scratch.pooled.data(), F::IS_SUM ? nullptr : scratch.place.data());
      for (int64_t w = 0; w < of.out[2]; ++w) {
        const Place at{d, h, w};
        of.load_tensors(t, at, false);
        F::behind_gradient(load(of.at(0, at)), double(scratch.pooled[w]), t, p, divisor<F>(at, of.size), made);
        scratch.incoming[w] = made[0];
        store_gradients(of, at, made + 1, false);
        if (!F::IS_SUM && scratch.place[w] >= 0) adjoint[scratch.place[w]] += made[0];
      }
      if constexpr (F::IS_SUM)
        each_tap<F>(of.size, of.out, d, h, [&](int64_t i, int64_t j, const Taps& taps) {
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
  const int64_t grain = std::max(GRAIN / std::max(call.numel / std::max(planes, int64_t(1)), int64_t(1)), int64_t(1));
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
