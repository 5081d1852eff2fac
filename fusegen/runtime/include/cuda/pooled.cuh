#pragma once
// The value of a window on CUDA, and the element that it is: of a tensor's elements, or of those that a block keeps in
// shared memory.
#include "cuda/elements.cuh"
#include "cuda/math.cuh"
#include "cuda/window_boxes.cuh"

namespace fusegen {
namespace {

// A pooled value, and the place in its window, or of an adaptive one in its plane, of the element that it is, or -1.
template <class F, typename T>
struct Pooled {
  PooledType<F, T> value;
  int64_t tap;
};

// Adds the element at a place of a window to what is pooled.
template <class F, typename T>
HOST_DEVICE void take(Pooled<F, T>& made, PooledType<F, T> v, int64_t tap) {
  using FOLD = typename F::Fold;
  if constexpr (F::IS_SUM) made.value = FOLD::join(made.value, v);
  else if (made.tap < 0 || replaces<FOLD>(made.value, v)) made = {v, tap};
}

// The gradient of a pooled value, and, behind it, those of the tensors behind the pooling.
template <class F, typename T>
HOST_DEVICE void window_gradients(const Plane<F, T>& of, const Place& at, double pooled, const double* p,
                                  double (&made)[1 + F::TENSORS]) {
  double t[F::TENSORS];
  of.load_tensors(t, at, false);
  F::behind_gradient(load(of.at(0, at)), pooled, t, p, divisor<F>(at, of.size), made);
}

// Joins two parts of an adaptive window.
template <class F, typename T>
HOST_DEVICE void join(Pooled<F, T>& made, const Pooled<F, T>& other) {
  using FOLD = typename F::Fold;
  if constexpr (F::IS_SUM) made.value = FOLD::join(made.value, other.value);
  else if (is_before<FOLD>(made.value, made.tap, other.value, other.tap)) made = other;
}

// Pools a window of a tensor.
template <class F, typename T>
HOST_DEVICE Pooled<F, T> pool(const Plane<F, T>& of, const Place& window, const double* p) {
  Pooled<F, T> made{PooledType<F, T>(F::Fold::IDENTITY), -1};
  for (int64_t kd = 0; kd < F::KERNEL::depth; ++kd) {
    const int64_t d = dimension<F>(0).begin(window.depth) + kd * F::DILATION::depth;
    if (d < 0 || d >= of.size[0]) continue;
    for (int64_t kh = 0; kh < F::KERNEL::height; ++kh) {
      const int64_t h = dimension<F>(1).begin(window.height) + kh * F::DILATION::height;
      if (h < 0 || h >= of.size[1]) continue;
      for (int64_t kw = 0; kw < F::KERNEL::width; ++kw) {
        const int64_t w = dimension<F>(2).begin(window.width) + kw * F::DILATION::width;
        if (w < 0 || w >= of.size[2]) continue;
        take(made, of.element({d, h, w}, p), (kd * F::KERNEL::height + kh) * F::KERNEL::width + kw);
      }
    }
  }
  return made;
}

// A row of a plane from some place on.
template <class F, typename T>
struct RowOfPlane {
  HOST_DEVICE RowOfPlane(const Plane<F, T>& of, const Place& from) {
    for (int k = 0; k < of.N; ++k) {
      step[k] = of.stride[k][2];
      data[k] = of.data[k] + from.depth * of.stride[k][0] + from.height * of.stride[k][1] + from.width * step[k];
    }
  }
  HOST_DEVICE T& at(int k, int w) const { return data[k][w * step[k]]; }
  HOST_DEVICE void load_tensors(double (&t)[F::TENSORS], int w, bool front) const {
    for (int k = 0; k < F::TENSORS; ++k)
      if (is_front<F>(k) == front) t[k] = load(at(F::FIRST + k, w));
  }
  HOST_DEVICE PooledType<F, T> element(int w, const double* p) const {
    if constexpr (F::EXACT) return load(at(F::FIRST + F::EXACT_TENSOR, w));
    else {
      double t[F::TENSORS];
      load_tensors(t, w, true);
      return F::front(t, p);
    }
  }
  T* data[Plane<F, T>::N];
  int64_t step[Plane<F, T>::N];
};

// The elements of a block's windows, of each plane, the identity of the fold where a plane has none.
template <class F, typename T>
struct Staged {
  using A = PooledType<F, T>;
  A* memory;
  const Area& area;

  // Loads them, of planes from one on, and from a place on that lies in the padding or in a plane.
  HOST_DEVICE void load(const CallOf<F>& call, const Boxes& boxes, int64_t first_plane, const Place& from) const {
    const double* const p = scalars<F>(call);
    const int64_t* const size = call.size + call.rank - 3;
    each_row(area, boxes.planes, [&](int plane, const Inside& row, int number) {
      const bool has = first_plane + plane < boxes.all;
      const Part part = has ? part_of_row(area, from, row, size) : Part{0, 0};
      const RowOfPlane<F, T> of(Plane<F, T>(call, has ? first_plane + plane : 0), from + row);
      each_of_row(area, 0, area.size[2], [&](int w) {
        memory[number + w] = w >= part.begin && w < part.end ? of.element(w, p) : A(F::Fold::IDENTITY);
      });
    });
  }

  // Pools a window, of which the first element lies at a place; TAKES if its place is asked for.
  template <bool TAKES>
  HOST_DEVICE Pooled<F, T> pool(int plane, const Inside& at) const {
    Pooled<F, T> made{A(F::Fold::IDENTITY), TAKES ? -1 : 0};
    const int height = area.size[1], width = area.size[2];
    const A* const first = memory + ((plane * area.size[0] + at.depth) * height + at.height) * width + at.width;
    for (int kd = 0; kd < int(F::KERNEL::depth); ++kd)
      for (int kh = 0; kh < int(F::KERNEL::height); ++kh) {
        const A* const row = first + (kd * int(F::DILATION::depth) * height + kh * int(F::DILATION::height)) * width;
        for (int kw = 0; kw < int(F::KERNEL::width); ++kw) {
          const A v = row[kw * int(F::DILATION::width)];
          const int tap = (kd * int(F::KERNEL::height) + kh) * int(F::KERNEL::width) + kw;
          if constexpr (F::IS_SUM) made.value = F::Fold::join(made.value, v);
          else if (replaces<typename F::Fold>(made.value, v)) made = {v, tap};
        }
      }
    return made;
  }
};

// Pools a window of a block's.
template <bool TAKES, class F, typename T>
HOST_DEVICE Pooled<F, T> pool_any(const Staged<F, T>& staged, bool is_staged, const Plane<F, T>& of, int plane,
                                  const Inside& in_block, const Place& window, const double* p) {
  if (is_staged) {
    const Inside at{in_block.depth * int(F::STRIDE::depth), in_block.height * int(F::STRIDE::height),
                    in_block.width * int(F::STRIDE::width)};
    const Pooled<F, T> made = staged.template pool<TAKES>(plane, at);
    if (!TAKES || F::IS_SUM || made.tap >= 0) return made;
  }
  return pool(of, window, p);  // and where every element is the identity, of which the first is taken
}

}  // namespace
}  // namespace fusegen
