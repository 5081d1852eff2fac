#pragma once
// Units of a thread of a row that are computed again, in double.
#include "cuda/row_joins.cuh"
#include "cuda/saved_values.cuh"

namespace fusegen {
namespace {

// True if a kernel computes these behind a loop: where registers keep a row, or elements are read but once.
template <class F, class SHAPE>
constexpr bool DEFERS = SHAPE::kept == Kept::REGISTERS || (SHAPE::kept == Kept::NOWHERE && ONLY_STORES<F>);

// The units of a thread that float does not suffice for, which are computed again behind the loop over all units: as
// bits where registers keep a row, else all from the first to the last of these, where elements are read but once.
template <int UNITS, typename I>
struct Undecided {
  unsigned bits = 0;
  __device__ __forceinline__ void add(I u) { bits |= 1u << u; }
  template <class FUNCTION>
  __device__ __forceinline__ void each(const FUNCTION& function) const {
    if (bits)
#pragma unroll 1
      for (int u = 0; u < UNITS; ++u)
        if (bits >> u & 1) function(I(u));
  }
};
template <typename I>
struct Undecided<0, I> {
  I first = -1, last = -1;
  __device__ __forceinline__ void add(I u) {
    if (first < 0) first = u;
    last = u;
  }
  template <class FUNCTION>
  __device__ __forceinline__ void each(const FUNCTION& function) const {
    if (first >= 0)
#pragma unroll 1
      for (I u = first; u <= last; ++u) function(u);
  }
};

}  // namespace
}  // namespace fusegen
