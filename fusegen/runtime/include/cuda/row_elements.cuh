#pragma once
// The elements that a thread of a row's team has, on CUDA: their places in the row, loads and results.
#include <cassert>
#include "cuda/launch.cuh"
#include "cuda/vector.cuh"
#include "cuda/watched_results.cuh"
#include "launcher.h"
#include "row_picks.h"
#include "row_places.h"
#include "row_results.h"

namespace fusegen {
namespace {

// The elements of a thread that lie side by side where rows are in whole vectors.
template <typename T>
constexpr int WIDTH_OF = 16 / int(sizeof(T));

// The places of a thread's elements in a row: side by side in vectors where rows are WHOLE ones, else one for each
// thread in turn. A place is an int where a team holds the row.
template <int WIDTH, bool WHOLE, typename I>
struct Places {
  static constexpr bool IS_WHOLE = WHOLE;
  I n;
  int lane, threads;  // the thread's number in the team, which has so many
  __device__ __forceinline__ I begin(I unit) const { return unit * threads * WIDTH; }
  __device__ __forceinline__ I first(I unit) const { return begin(unit) + (WHOLE ? lane * WIDTH : lane); }
  __device__ __forceinline__ I at(I unit, int e) const { return first(unit) + (WHOLE ? e : e * threads); }
  __device__ __forceinline__ bool has(I unit, int e) const { return WHOLE ? first(unit) < n : at(unit, e) < n; }
};

template <class F>
constexpr int OWN_INPUTS = F::INPUTS - ROW_RESULTS<F> - count_of(F::OF_FEATURES);  // that a row has for itself

// The places of a thread's elements in their row, where phases read them.
template <class F, typename T>
struct PlacesOfUnit {};
template <class KERNEL, typename T>
struct PlacesOfUnit<Placed<KERNEL>, T> {
  double place[WIDTH_OF<T>];
};

// Elements of each input of a thread, as K.
template <class F, typename T, typename K = T>
struct Unit : PlacesOfUnit<F, T> {
  K at[F::INPUTS][WIDTH_OF<T>];
};

// An element as it is kept, and those of a vector: of a pair of bfloat16 each half is the upper one of a float.
template <typename K, typename T>
__device__ __forceinline__ K as_kept(T v) {
  if constexpr (std::is_same_v<K, T>) return v;
  else return K(load(v));
}
template <typename K, typename T, int WIDTH>
__device__ __forceinline__ void keep(K (&to)[WIDTH], const Vector<T>& v) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && std::is_same_v<K, float>) {
    uint32_t pairs[WIDTH / 2];
    memcpy(pairs, &v, sizeof(pairs));
#pragma unroll
    for (int e = 0; e < WIDTH; ++e)
      to[e] = __uint_as_float(e % 2 ? pairs[e / 2] & 0xffff0000 : pairs[e / 2] << 16);
  } else {
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) to[e] = as_kept<K>(v.at[e]);
  }
}

// Where a row begins in each tensor, in elements: its number is divided once for all, in 32 bits if these hold it.
template <int N>
__device__ __forceinline__ void find_row(const Tensors<N>& call, int64_t row, int64_t (&at)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) at[k] = 0;
#pragma unroll 1
  for (int d = call.rank - 2; d > 0; --d) {
    const int64_t size = call.size[d];
    const bool is_short = (uint64_t(row) | uint64_t(size)) >> 32 == 0;
    const int64_t rest = is_short ? int64_t(uint32_t(row) / uint32_t(size)) : row / size;
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] += (row - rest * size) * call.stride[k][d];
    row = rest;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) at[k] += call.rank > 1 ? row * call.stride[k][0] : 0;
}

// A row of a call: where its tensors begin. The elements of a row lie side by side, where it has WHOLE vectors in such,
// or APART.
template <class F, typename T, bool APART = false>
struct RowOf {
  static constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = WIDTH_OF<T>;
  __device__ __forceinline__ RowOf(const CallOf<F>& call, int64_t row)
      : number(row), picked(picked_of_row<F>(call, row)) {
    const Tensors<N>& tensors = call;
    if constexpr (F::INDICES) assert(picked >= -1 && picked < call.size[call.rank - 1]);  // as PyTorch's losses
    int64_t begin[N];
    find_row(tensors, row, begin);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      data[k] = static_cast<T*>(call.data[k]) + begin[k];
      if constexpr (APART) step[k] = call.stride[k][call.rank - 1];
    }
    if constexpr (F::BY_CHANNEL) share = share_of_values(tensors, first_of(F::OF_FEATURES));
  }
  template <typename I>
  __device__ __forceinline__ T& at(int k, I place) const {
    if constexpr (APART) return data[k][place * step[k]];
    else return data[k][place];
  }
  // The elements of an operand by channels, of which several share a value.
  template <class PLACES, typename K, typename I>
  __device__ __forceinline__ void load_shared(K (&to)[WIDTH], const T* from, const PLACES& places, I unit) const {
    using U = std::make_unsigned_t<I>;
    const U many = U(share);
    if constexpr (PLACES::IS_WHOLE) {
      const I first = places.first(unit), last = places.n - WIDTH;
      const U begin = U(first < last ? first : last);
      U value = begin / many, next = (value + 1) * many - begin;  // the first element of another value
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        if (U(e) == next) ++value, next += many;
        to[e] = as_kept<K>(from[value]);
      }
    } else {
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        const I at = places.at(unit, e), last = places.n - 1;
        to[e] = as_kept<K>(from[U(at < last ? at : last) / many]);
      }
    }
  }
  // Moves the begin of a row to one of its channels.
  __device__ __forceinline__ void skip_channels(int64_t count) {
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k)
      if (!(F::OF_ROW >> k & 1)) data[k] += F::OF_FEATURES >> k & 1 ? count : count * share;
    picked -= count * share;
  }
  // In place of what the row has not, its last elements: a load without a condition does not wait for another one.
  template <unsigned INPUTS, class PLACES, typename K, typename I>
  __device__ __forceinline__ void load(Unit<F, T, K>& to, const PLACES& places, I unit) const {
    if constexpr (IS_PLACED<F>)
      for (int e = 0; e < WIDTH; ++e) to.place[e] = double(places.at(unit, e));
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k) {
      if (!(INPUTS >> k & 1)) continue;
      if (F::INDICES >> k & 1) {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
          const float share = places.at(unit, e) == picked ? 1.0f : 0.0f;
          if constexpr (std::is_same_v<K, T>) store(to.at[k][e], decltype(fusegen::load(T()))(share));
          else to.at[k][e] = K(share);
        }
      } else if (F::OF_ROW >> k & 1) {
        for (K& value : to.at[k]) value = as_kept<K>(*data[k]);
      } else if (F::BY_CHANNEL && F::OF_FEATURES >> k & 1) {
        load_shared(to.at[k], data[k], places, unit);
      } else if constexpr (PLACES::IS_WHOLE && !APART) {
        const I first = places.first(unit), last = places.n - WIDTH;
        const Vector<T> v = *reinterpret_cast<const Vector<T>*>(data[k] + (first < last ? first : last));
        keep(to.at[k], v);
      } else if constexpr (PLACES::IS_WHOLE) {
        const I first = places.first(unit), last = places.n - WIDTH;
        const T* const from = &at(k, first < last ? first : last);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to.at[k][e] = as_kept<K>(from[e * step[k]]);
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
          const I at = places.at(unit, e), last = places.n - 1;
          to.at[k][e] = as_kept<K>(this->at(k, at < last ? at : last));
        }
      }
    }
  }
  int64_t number, picked, share, step[APART ? N : 1];
  T* data[N];
};

// A result as its sum over the rows takes it: of 16 bits, as a float.
template <typename T>
using Rounded = std::conditional_t<sizeof(T) == 2, float, double>;

// A result, rounded once.
template <typename T, typename M>
__device__ __forceinline__ void store_result(T& y, M v) {
  using W = decltype(fusegen::load(T()));
  if constexpr (sizeof(T) == 2 && !IN_FLOAT<M>) store(y, W(round_to_odd(double(v))));
  else store(y, W(v));
}

// A result of a phase, of a type that float or double has.
template <typename M>
__device__ __forceinline__ double as_double(M v) {
  if constexpr (IN_FLOAT<M>) return double(float(v));
  else return double(v);
}

// The type in which a phase's results of some elements are joined: their own, where that does not round.
template <class PHASE, class FOLD, class F, typename T>
using Joined = std::conditional_t<PHASE::EXACT && !FOLD::ROUNDS, MathOf<PHASE, F, T>,
                                  std::conditional_t<sizeof(T) == 2, float, double>>;

// The results of a phase for an element, in M.
template <class PHASE, class F, typename T, typename K, typename M>
__device__ __forceinline__ void element_of(const Unit<F, T, K>& unit, int e, M (&out)[PHASE::RESULTS],
                                           const typename F::Values& p) {
  M in[F::INPUTS + IS_PLACED<F>];
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) in[k] = PHASE::IN >> k & 1 ? as_read(M(load(unit.at[k][e]))) : M(0.0f);
  if constexpr (IS_PLACED<F>) in[F::INPUTS] = M(unit.place[e]);
  PHASE::template element<T>(in, out, p);
}

// The results of a phase for the elements of a unit, in M: without a branch, so that results of two phases are found to
// be the same.
template <class PHASE, class F, typename T, typename K, typename M>
__device__ __forceinline__ void compute_unit(const Unit<F, T, K>& unit, M (&out)[WIDTH_OF<T>][PHASE::RESULTS],
                                             const typename F::Values& p) {
#pragma unroll
  for (int e = 0; e < WIDTH_OF<T>; ++e) element_of<PHASE>(unit, e, out[e], p);
}

// True for a type PickedApart, and how such a phase is run.
template <class PHASE>
constexpr bool IS_PICKED_APART = false;
template <class PHASE, class SHAPE, class F, typename T, class TEAM, class ROW, class UNITS, class VALUES>
__device__ __forceinline__ void store_apart(TEAM& team, const ROW& row, const UNITS& units, VALUES& p, int& turn);

}  // namespace
}  // namespace fusegen
