#pragma once
// Adaptive poolings on the CPU: a row of windows first joins the rows of the plane that it reads into one, which
// vectorises, then the elements of each window in that.
#include <algorithm>
#include <vector>
#include "cpu/elements.h"
#include "window_parts.h"

namespace fusegen {
namespace {

// True if the elements of a tensor are pooled where they are: those of 16 bits are converted once before.
template <class F, typename T>
constexpr bool IN_PLACE = F::EXACT && sizeof(T) > 2;

// The rows of a plane, joined: the values of its columns, and where they are from.
template <class F, typename T>
struct Columns {
  std::vector<PooledType<F, T>> value;
  std::vector<int64_t> place;
};

// Joins elements side by side: many of them in an order that vectorises, which their number decides.
template <class FOLD, typename A>
A joined(const A* from, int64_t n) {
  constexpr int64_t LANES = 16;
  A made = A(FOLD::IDENTITY);
  if (n >= 4 * LANES) {
    A lane[LANES];
    std::fill(lane, lane + LANES, made);
    for (; n >= LANES; from += LANES, n -= LANES)
      for (int64_t j = 0; j < LANES; ++j) lane[j] = FOLD::join(lane[j], from[j]);
    for (const A each : lane) made = FOLD::join(made, each);
  }
  for (int64_t j = 0; j < n; ++j) made = FOLD::join(made, from[j]);
  return made;
}

// Calls a function with where each row of the plane begins that a row of windows reads, counted in elements.
template <class F, typename T, class FUNCTION>
void each_row_of(const Plane<F, T>& of, int64_t depth, int64_t height, const FUNCTION& function) {
  const Range depths(depth, of.size[0], of.out[0]), heights(height, of.size[1], of.out[1]);
  for (int64_t d = depths.begin; d < depths.end; ++d)
    for (int64_t h = heights.begin; h < heights.end; ++h) function(d, h, (d * of.size[1] + h) * of.size[2]);
}

// Pools a row of windows; `keep` has the elements of the plane where they are no elements of a tensor. Where TAKES,
// `taken` gets the places in the plane of the elements that are pooled.
template <bool TAKES, class F, typename T>
void pool_adaptive_row(const Plane<F, T>& of, const PooledType<F, T>* keep, int64_t depth, int64_t height,
                       Columns<F, T>& columns, PooledType<F, T>* pooled, [[maybe_unused]] int64_t* taken) {
  using A = PooledType<F, T>;
  using FOLD = typename F::Fold;
  const int64_t width = of.size[2];
  columns.value.assign(size_t(width), A(FOLD::IDENTITY));
  if constexpr (TAKES) columns.place.assign(size_t(width), INT64_MAX);
  A* const value = columns.value.data();
  [[maybe_unused]] int64_t* const place = columns.place.data();
  each_row_of(of, depth, height, [&](int64_t d, int64_t h, int64_t first) {
    const auto join = [&](const auto* from, int64_t step) {
      for (int64_t w = 0; w < width; ++w) {
        const A v = load(from[w * step]);
        if constexpr (TAKES) {
          const bool better = is_before<FOLD>(value[w], place[w], v, first + w);
          value[w] = better ? v : value[w];
          place[w] = better ? first + w : place[w];
        } else value[w] = FOLD::join(value[w], v);
      }
    };
    if constexpr (IN_PLACE<F, T>) {
      constexpr int k = F::FIRST + F::EXACT_TENSOR;
      const int64_t step = of.stride[k][2];
      if (step == 1) join(&of.at(k, {d, h, 0}), 1);
      else join(&of.at(k, {d, h, 0}), step);
    } else join(keep + first, 1);
  });
  for (int64_t w = 0; w < of.out[2]; ++w) {
    const Range own(w, width, of.out[2]);
    if constexpr (TAKES) {
      pooled[w] = A(FOLD::IDENTITY), taken[w] = INT64_MAX;
      for (int64_t i = own.begin; i < own.end; ++i)
        if (is_before<FOLD>(pooled[w], taken[w], value[i], place[i])) pooled[w] = value[i], taken[w] = place[i];
    } else pooled[w] = joined<FOLD>(value + own.begin, own.count());
  }
}

// Adds what a row of windows passes on to the elements of their sums.
template <class F, typename T>
void spread_adaptive_row(const Plane<F, T>& of, int64_t depth, int64_t height, const double* incoming,
                         Columns<F, T>& columns, double* adjoint) {
  const int64_t width = of.size[2];
  columns.value.assign(size_t(width), 0);
  auto* const value = columns.value.data();
  for (int64_t w = 0; w < of.out[2]; ++w) {
    const Range own(w, width, of.out[2]);
    for (int64_t i = own.begin; i < own.end; ++i) value[i] += incoming[w];
  }
  each_row_of(of, depth, height, [&](int64_t, int64_t, int64_t first) {
    for (int64_t w = 0; w < width; ++w) adjoint[first + w] += value[w];
  });
}

}  // namespace
}  // namespace fusegen
