#pragma once
// The elements that a thread of a row's team has, on CUDA: their places in the row, loads and results.
#include "cuda/launch.cuh"
#include "cuda/vector.cuh"
#include "launcher.h"
#include "row_phases.h"

namespace fusegen {
namespace {

// The elements of a thread that lie side by side where rows are in whole vectors.
template <typename T>
constexpr int WIDTH_OF = 16 / int(sizeof(T));

// The places of a thread's elements in a row: side by side in vectors where rows are WHOLE ones, else one for each
// thread in turn. A place is an int where a team holds the row.
template <int THREADS, int WIDTH, bool WHOLE, typename I>
struct Places {
  static constexpr bool IS_WHOLE = WHOLE;
  I n;
  int lane;
  __device__ __forceinline__ I first(I unit) const {
    return WHOLE ? (unit * THREADS + lane) * WIDTH : unit * THREADS * WIDTH + lane;
  }
  __device__ __forceinline__ I at(I unit, int e) const { return first(unit) + (WHOLE ? e : e * THREADS); }
  __device__ __forceinline__ bool has(I unit, int e) const { return WHOLE ? first(unit) < n : at(unit, e) < n; }
};

// Elements of each input of a thread.
template <class F, typename T>
struct Unit {
  T at[F::INPUTS][WIDTH_OF<T>];
};

// Hides from the compiler that elements are those of another phase, whose results it would keep in registers.
template <unsigned INPUTS, class F, typename T>
__device__ __forceinline__ void forget(Unit<F, T>& unit) {
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) {
    if (!(INPUTS >> k & 1)) continue;
    uint32_t words[4];
    memcpy(words, unit.at[k], sizeof(words));
#pragma unroll
    for (uint32_t& word : words) asm volatile("" : "+r"(word));
    memcpy(unit.at[k], words, sizeof(words));
  }
}

// A row of a call: where its tensors begin. The elements of a row lie side by side, where it has WHOLE vectors in such.
template <class F, typename T>
struct RowOf {
  static constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = WIDTH_OF<T>;
  __device__ __forceinline__ RowOf(const CallOf<F>& call, int64_t row) {
    const Tensors<N>& tensors = call;
#pragma unroll
    for (int k = 0; k < N; ++k) data[k] = static_cast<T*>(call.data[k]) + begin_of_row(tensors, k, row);
  }
  template <unsigned INPUTS, class PLACES, typename I>
  __device__ __forceinline__ void load(Unit<F, T>& to, const PLACES& places, I unit) const {
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k) {
      if (!(INPUTS >> k & 1)) continue;
      if (F::OF_ROW >> k & 1) {
        for (T& value : to.at[k]) value = *data[k];
      } else if (PLACES::IS_WHOLE) {
        if (!places.has(unit, 0)) continue;
        const Vector<T> v = *reinterpret_cast<const Vector<T>*>(data[k] + places.first(unit));
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to.at[k][e] = v.at[e];
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          if (places.has(unit, e)) to.at[k][e] = data[k][places.at(unit, e)];
      }
    }
  }
  T* data[N];
};

// A result, rounded once.
template <typename T, typename M>
__device__ __forceinline__ void store_result(T& y, M v) {
  using W = decltype(fusegen::load(T()));
  if constexpr (sizeof(T) == 2 && sizeof(M) == 8) store(y, W(round_to_odd(double(v))));
  else store(y, W(v));
}

// The type in which the results of some elements are joined.
template <typename T>
using Joined = std::conditional_t<sizeof(T) == 2, float, double>;

// The results of a phase for an element.
template <class PHASE, class F, typename T>
__device__ __forceinline__ void element_of(const Unit<F, T>& unit, int e, MathOf<PHASE, F, T> (&out)[PHASE::RESULTS],
                                           const typename F::Values& p) {
  using M = MathOf<PHASE, F, T>;
  M in[F::INPUTS];
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) in[k] = PHASE::IN >> k & 1 ? M(load(unit.at[k][e])) : M(0);
  PHASE::template element<T>(in, out, p);
}

}  // namespace
}  // namespace fusegen
