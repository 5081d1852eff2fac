#pragma once
// The windows of a block on CUDA. A thread takes a column of elements through the windows of a strip, which lie below
// each other: it loads each element of the column once, and keeps what the column gives to each window in shared
// memory, where windows join their columns.
#include "cuda/elements.cuh"
#include "cuda/math.cuh"
#include "cuda/window_boxes.cuh"

namespace fusegen {
namespace {

// The elements about a place of a plane, of all tensors of a call.
template <class F, typename T>
struct Near {
  HOST_DEVICE Near(const CallOf<F>& call, int64_t plane, const Place& from) : of(call, plane), planes(call.stride) {
    for (int k = 0; k < of.N; ++k)
      of.data[k] += from.depth * of.stride[k][0] + from.height * of.stride[k][1] + from.width * of.stride[k][2];
  }
  HOST_DEVICE T* at(int k, int plane, const Inside& i) const {
    return of.data[k] + plane * planes[k][0] + i.depth * of.stride[k][0] + i.height * of.stride[k][1] +
           i.width * of.stride[k][2];
  }
  // Loads the elements of the tensors in front of the pooling, or of those behind it.
  HOST_DEVICE void load_tensors(double (&t)[F::TENSORS], int plane, const Inside& i, bool front) const {
    for (int k = 0; k < F::TENSORS; ++k)
      if (is_front<F>(k) == front) t[k] = load(*at(F::FIRST + k, plane, i));
  }
  Plane<F, T> of;
  const int64_t (*planes)[MAX_RANK];
};

// A pooled value, and the number in its window of the element that it is, or -1.
template <class F, typename T>
struct Found {
  PooledType<F, T> value;
  int tap;
};

// The columns of a block. Each gives a value to its windows, and, if TAKES, where in a window the element is, or -1.
template <class F, typename T, bool TAKES>
struct Columns {
  using A = PooledType<F, T>;
  static constexpr bool HAS_TAPS = TAKES && !F::IS_SUM;
  static constexpr int64_t BYTES = sizeof(A) + (HAS_TAPS ? sizeof(int) : 0);
  static constexpr int WINDOWS = STRIP<F>, STRIDE = int(F::STRIDE::height), KERNEL = int(F::KERNEL::height);
  static constexpr int STEP = WINDOWS == 1 ? int(F::DILATION::height) : 1;  // between rows that a column reads
  static constexpr int ROWS = (WINDOWS - 1) * STRIDE + KERNEL, AT_ONCE = ROWS < 8 ? ROWS : 8;

  A* value;
  int* tap;
  int width;

  HOST_DEVICE Columns(double* memory, const Boxes& boxes)
      : value(reinterpret_cast<A*>(memory)), width(boxes.columns.size[2]) {
    tap = reinterpret_cast<int*>(value + int(boxes.columns.count()) * boxes.planes * WINDOWS);
  }

  // The rows of a column from one on.
  struct Rows {
    const T* next[F::TENSORS];
    decltype(load(T())) t[AT_ONCE][F::TENSORS];
    bool has[AT_ONCE];

    HOST_DEVICE void load_rows(const Near<F, T>& near, const Limits& limits, int height, int left) {
#pragma unroll
      for (int r = 0; r < AT_ONCE; ++r) {
        has[r] = r < left && limits.has(1, height + r * STEP);
        for (int k = 0; k < F::TENSORS; ++k)
          if (is_front<F>(k)) {
            if (has[r]) t[r][k] = load(*next[k]);
            next[k] += STEP * near.of.stride[F::FIRST + k][1];
          }
      }
    }
    HOST_DEVICE A pooled(int r, const double* p) const {
      if constexpr (F::EXACT) return t[r][F::EXACT_TENSOR];
      else {
        double own[F::TENSORS];
        for (int k = 0; k < F::TENSORS; ++k)
          if (is_front<F>(k)) own[k] = t[r][k];
        return A(F::front(own, p));
      }
    }
  };

  // A column's share of the windows of a strip.
  struct Column {
    A value[WINDOWS];
    int tap[WINDOWS];
    HOST_DEVICE void take(int k, A v, int at) {
      if constexpr (!HAS_TAPS) value[k] = F::Fold::join(value[k], v);
      else if (tap[k] < 0 || replaces<typename F::Fold>(value[k], v)) value[k] = v, tap[k] = at;
    }
  };

  // Reduces a column: of the elements near the first window, at a place where a strip begins.
  HOST_DEVICE void reduce(const Near<F, T>& near, const Limits& limits, int plane, const Inside& at, int number,
                          const double* p) const {
    Column made;
    for (int k = 0; k < WINDOWS; ++k) made.value[k] = A(F::Fold::IDENTITY), made.tap[k] = -1;
    const Inside begin{at.depth * int(F::STRIDE::depth), at.height * WINDOWS * STRIDE, at.width};
    for (int kd = 0; kd < int(F::KERNEL::depth) && limits.has(2, begin.width); ++kd) {
      const int depth = begin.depth + kd * int(F::DILATION::depth);
      if (!limits.has(0, depth)) continue;
      Rows rows;
      for (int k = 0; k < F::TENSORS; ++k)
        if (is_front<F>(k)) rows.next[k] = near.at(F::FIRST + k, plane, {depth, begin.height, begin.width});
#pragma unroll(WINDOWS == 1 ? 1 : (ROWS + AT_ONCE - 1) / AT_ONCE)
      for (int first = 0; first < ROWS; first += AT_ONCE) {
        rows.load_rows(near, limits, begin.height + first * STEP, ROWS - first);
#pragma unroll
        for (int r = 0; r < AT_ONCE; ++r) {
          if (!rows.has[r]) continue;
          const A v = rows.pooled(r, p);
#pragma unroll
          for (int k = 0; k < WINDOWS; ++k) {
            const int row = first + r - k * STRIDE;
            if (row >= 0 && row < KERNEL) made.take(k, v, (kd * KERNEL + row) * int(F::KERNEL::width));
          }
        }
      }
    }
    const int to = (number - at.width) * WINDOWS + at.width;
    for (int k = 0; k < WINDOWS; ++k) {
      value[to + k * width] = made.value[k];
      if constexpr (HAS_TAPS) tap[to + k * width] = made.tap[k];
    }
  }

  // Joins the columns of a window: of a row of windows among all, the one that begins at a column.
  HOST_DEVICE Found<F, T> window(int row, int column) const {
    Found<F, T> made{A(F::Fold::IDENTITY), -1};
    const int first = row * width + column;
#pragma unroll(F::KERNEL::width <= 16 ? int(F::KERNEL::width) : 4)
    for (int kw = 0; kw < int(F::KERNEL::width); ++kw) {
      const int at = first + kw * int(F::DILATION::width);
      if constexpr (!HAS_TAPS) made.value = F::Fold::join(made.value, value[at]);
      else if (tap[at] >= 0) {
        const Found<F, T> other{value[at], tap[at] + kw};
        if (made.tap < 0 || is_before<typename F::Fold>(made.value, made.tap, other.value, other.tap)) made = other;
      }
    }
    return made;
  }
};

// Calls a function with each window of a block that there is: its plane, place and number, and, if they are POOLED,
// what is pooled of it. The first window is at a place of a plane.
template <bool POOLED, bool TAKES, class F, typename T, class FUNCTION>
HOST_DEVICE void each_window(const CallOf<F>& call, const Boxes& boxes, int64_t first_plane, const Place& first,
                             double* memory, const FUNCTION& function) {
  const double* const p = scalars<F>(call);
  const Columns<F, T, TAKES> columns(memory, boxes);
  const Limits results(call.size + call.rank, first);
  const int planes = boxes.planes_from(first_plane);
  if constexpr (POOLED) {
    const Near<F, T> elements(call, first_plane, begin_of<F>(first));
    const Limits limits(call.size + call.rank - 3, begin_of<F>(first));
    each_place(boxes.columns, planes, [&](int plane, const Inside& at, int number) {
      if (results.has({at.depth, at.height * STRIP<F>, 0})) columns.reduce(elements, limits, plane, at, number, p);
    });
    __syncthreads();
  }
  each_place(boxes.windows, planes, [&](int plane, const Inside& at, int number) {
    if (!results.has(at)) return;
    Found<F, T> found{0, 0};
    if constexpr (POOLED) {
      const int row = quotient_by(number, boxes.windows.inverses[2]);
      found = columns.window(row, at.width * int(F::STRIDE::width));
    }
    function(plane, at, number, found);
  });
}

}  // namespace
}  // namespace fusegen
