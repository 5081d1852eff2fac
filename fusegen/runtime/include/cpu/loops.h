#pragma once
// Loops over the elements of a call, split over PyTorch's own threads.
#include "launcher.h"
#include <algorithm>
#include <type_traits>
#include "cpu/elements.h"
#include "cpu/math.h"

namespace fusegen {
namespace {

// Walks over the tensors, one row of the innermost dimension after the other.
template <typename T, int N>
struct StridedIterator {
  StridedIterator(const Tensors<N>& call, int64_t i) : call(call) {
    for (int d = call.rank - 1; d >= 0; i /= call.size[d--]) index[d] = i % call.size[d];
    for (int k = 0; k < N; ++k) {
      data[k] = static_cast<T*>(call.data[k]);
      for (int d = 0; d < call.rank; ++d) data[k] += index[d] * call.stride[k][d];
    }
  }
  // The elements left in this row.
  int64_t left() const { return call.size[call.rank - 1] - index[call.rank - 1]; }
  // The stride of this row, in elements.
  int64_t step(int k) const { return call.stride[k][call.rank - 1]; }
  // Goes on by so many elements of this row, and from its end to the next.
  void advance(int64_t count) {
    for (int d = call.rank - 1; d >= 0; --d, count = 1) {
      index[d] += count;
      for (int k = 0; k < N; ++k) data[k] += count * call.stride[k][d];
      if (index[d] < call.size[d]) return;
      for (int k = 0; k < N; ++k) data[k] -= index[d] * call.stride[k][d];
      index[d] = 0;
    }
  }
  const Tensors<N>& call;
  T* data[N];
  int64_t index[MAX_RANK];
};

// Splits begin to end over PyTorch's own threads; the binding defines it.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context);

constexpr int64_t TILE = 256, GRAIN = 32768;

// A loop in which every call is inlined, however large it is: a call would keep the loop from being vectorised.
#define INLINES_ALL __attribute__((flatten)) inline

// n elements whose inputs and outputs are M already, each in a row of a tile.
template <class F, typename T, typename M, int N>
INLINES_ALL void tiled_loop(M (&m)[N][TILE], int64_t n, const ParamsOf<F, M>& p) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    M in[F::INPUTS], out[F::OUTPUTS];
    for (int k = 0; k < F::INPUTS; ++k) in[k] = m[k][j];
    F::template element<T>(in, out, p);
    for (int k = 0; k < F::OUTPUTS; ++k) m[F::INPUTS + k][j] = out[k];
  }
}

// n elements that lie apart by the given steps, all one where ROW; an output may be an input.
template <class F, bool ROW, typename T, typename M, int N>
INLINES_ALL void strided_loop(T* const (&data)[N], const int64_t (&step)[N], int64_t n, const ParamsOf<F, M>& p) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    M in[F::INPUTS], out[F::OUTPUTS];
    for (int k = 0; k < F::INPUTS; ++k) in[k] = load(data[k][ROW ? j : j * step[k]]);
    F::template element<T>(in, out, p);
    for (int k = 0; k < F::OUTPUTS; ++k)
      data[F::INPUTS + k][ROW ? j : j * step[F::INPUTS + k]] = cast_to_storage<T>(out[k]);
  }
}

// n elements in tiles, so that both the conversion and METHOD vectorise: METHOD::compute takes a tile of inputs and
// writes elements of the outputs.
template <class METHOD, class F, typename T, int N>
inline void in_tiles(const CallOf<F>& call, T* const (&from)[N], const int64_t (&step)[N], bool row, int64_t count,
                     const ParamsOf<F, typename METHOD::type>& p) {
  using M = typename METHOD::type;
  for (int64_t j = 0; j < count; j += TILE) {
    const int64_t n = std::min(TILE, count - j);
    T apart[N][TILE], *data[N];
    for (int k = 0; k < N; ++k) {
      data[k] = row ? from[k] + j : apart[k];
      for (int64_t e = 0; e < n && !row && k < F::INPUTS; ++e) apart[k][e] = from[k][(j + e) * step[k]];
    }
    M m[N][TILE];
    for (int k = 0; k < F::INPUTS; ++k) widen(data[k], m[k], n);
    METHOD::template compute<F, T>(m, n, data, call, p);
    for (int k = F::INPUTS; k < N && !row; ++k)
      for (int64_t e = 0; e < n; ++e) from[k][(j + e) * step[k]] = apart[k][e];
  }
}

// Runs elements begin to end on tensors of several shapes or layouts, if it can; cpu/broadcast.h defines it.
template <class F, typename T>
bool run_broadcast(const CallOf<F>& call, int64_t begin, int64_t end);

// Elements begin to end.
template <class F, typename T>
void run_range(const CallOf<F>& call, int64_t begin, int64_t end) {
  if constexpr (F::BROADCASTS) {
    if (!call.dense && run_broadcast<F, T>(call, begin, end)) return;
  }
  using METHOD = MethodOf<F, T>;
  using M = typename METHOD::type;
  constexpr int N = F::INPUTS + F::OUTPUTS;
  const ParamsOf<F, M> p = params<ParamsOf<F, M>>(call);
  StridedIterator<T, N> at(call, begin);
  int64_t step[N];
  bool row = true;
  for (int k = 0; k < N; ++k) row = (step[k] = at.step(k)) == 1 && row;
  for (int64_t i = begin, count; i < end; i += count, at.advance(count)) {
    count = std::min(at.left(), end - i);
    if constexpr (METHOD::template IN_TILES<T>) {
      in_tiles<METHOD, F>(call, at.data, step, row, count, p);
    } else {
      if (row) strided_loop<F, true, T, M>(at.data, step, count, p);
      else strided_loop<F, false, T, M>(at.data, step, count, p);
    }
  }
}

template <class F, int... DTYPES>
void run_any(const CallOf<F>& call, int64_t begin, int64_t end, Dtypes<DTYPES...>) {
  const auto ran = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    run_range<F, decltype(element)>(call, begin, end);
    return true;
  };
  (void)(ran(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
}

// The preparations of each width's method on first use.
template <class F>
bool prepare() {
  using Methods = typename F::Methods;
  return decltype(Methods::template method<c10::Half>())::template prepare<F>() &&
         decltype(Methods::template method<float>())::template prepare<F>();
}

// Splits the elements of F over PyTorch's own threads; returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  static const bool ready = prepare<F>();
  (void)ready;
  const auto task = [](int64_t begin, int64_t end, void* context) {
    run_any<F>(*static_cast<const CallOf<F>*>(context), begin, end, typename F::Elements());
  };
  parallel_for(0, call.numel, GRAIN, task, const_cast<CallOf<F>*>(&call));
  return nullptr;
}

}  // namespace

template <typename M>
struct Formula {
  using type = M;
  template <typename T>
  static constexpr bool IN_TILES = sizeof(T) == 2;
  template <class F>
  static bool prepare() {
    return true;
  }
  template <class F, typename T, int N>
  static void compute(M (&m)[N][TILE], int64_t n, T* const (&data)[N], const CallOf<F>&, const ParamsOf<F, M>& p) {
    tiled_loop<F, T, M>(m, n, p);
    for (int k = F::INPUTS; k < N; ++k) narrow(m[k], data[k], n);
  }
};

}  // namespace fusegen
