#pragma once
// Loops over tensors that are not all dense in one layout, in tiles: an input that is not in the order of the outputs
// is copied into a tile of its own, so that the formula's loop is the vectorised one of dense tensors.
#include <algorithm>
#include "cpu/loops.h"

namespace fusegen {
namespace {

constexpr int64_t SPREAD = 1024;    // elements of a tile at most
constexpr int64_t LONG_ROW = 256;   // from which on a tile has elements of one row only
constexpr int64_t NOTHING = INT64_MIN;

// True if tensor k lies in memory in the order of the elements, without gaps.
template <int N>
bool is_flat(const Tensors<N>& call, int k) {
  int64_t run = 1;
  for (int d = call.rank - 1; d >= 0; run *= call.size[d--])
    if (call.stride[k][d] != run) return false;
  return true;
}

// Where a row of the innermost dimension begins in a tensor of such strides, in elements.
template <int N>
class Row {
 public:
  Row(const Tensors<N>& call, const int64_t* stride, int64_t row) : call(call), stride(stride) {
    for (int d = call.rank - 2; d >= 0; row /= call.size[d--]) {
      index[d] = row % call.size[d];
      begin += index[d] * stride[d];
    }
  }
  void advance() {
    for (int d = call.rank - 2; d >= 0; --d) {
      begin += stride[d];
      if (++index[d] < call.size[d]) return;
      begin -= index[d] * stride[d];
      index[d] = 0;
    }
  }
  int64_t begin = 0;

 private:
  const Tensors<N>& call;
  const int64_t* const stride;
  int64_t index[MAX_RANK];
};

// An input of a call, tile by tile.
template <typename T, int N>
class TiledInput {
 public:
  void bind(const Tensors<N>& of, int input) {
    call = &of;
    k = input;
    step = of.stride[k][of.rank - 1];
    flat = is_flat(of, k);
    repeats = std::all_of(of.stride[k], of.stride[k] + of.rank - 1, [](int64_t other) { return other == 0; });
  }
  // n elements from element i on, side by side.
  T* tile(int64_t i, int64_t n) {
    T* const data = static_cast<T*>(call->data[k]);
    if (flat) return data + i;
    const int64_t size = call->size[call->rank - 1], index = i % size;
    Row<N> row(*call, call->stride[k], i / size);
    if (index + n > size || (step != 0 && step != 1)) {
      if (!repeats || index != first || n > gathered) gather(data, row, index, n);
      first = index;
      gathered = n;
      return copy;
    }
    gathered = 0;
    if (step == 1) return data + row.begin + index;
    if (constant != row.begin) std::fill(copy, copy + SPREAD, data[row.begin]);
    constant = row.begin;
    return copy;
  }

 private:
  // Copies n elements, from one row's index on and from the rows that follow.
  void gather(const T* data, Row<N>& row, int64_t index, int64_t n) {
    const int64_t size = call->size[call->rank - 1];
    constant = NOTHING;
    for (int64_t done = 0, count; done < n; done += count, index = 0, row.advance()) {
      count = std::min(n - done, size - index);
      const T* const from = data + row.begin + index * step;
      T* const to = copy + done;
      if (step == 0) std::fill(to, to + count, *from);
      else
        for (int64_t e = 0; e < count; ++e) to[e] = from[e * step];
    }
  }

  const Tensors<N>* call;
  int k;
  int64_t step, constant = NOTHING;     // constant: the place of the element that all of the copy is
  int64_t first = NOTHING, gathered = 0;  // where in a row the copy begins, and how many elements it has
  bool flat, repeats;                     // repeats: whether every row is the same
  T copy[SPREAD];
};

// The elements of a tile that begins at element i; of short rows whole ones, so that the next tile begins at the
// same place in a row.
template <int N>
int64_t tile_length(const Tensors<N>& call, int64_t i, int64_t end) {
  const int64_t size = call.size[call.rank - 1], rows = SPREAD - SPREAD % size;
  return std::min(size < LONG_ROW ? rows : std::min(SPREAD, size - i % size), end - i);
}

// n elements that lie side by side in every tensor.
template <class F, typename T, int N>
void run_row(const CallOf<F>& call, T* const (&data)[N], int64_t n) {
  using METHOD = MethodOf<F, T>;
  using M = typename METHOD::type;
  int64_t step[N];
  std::fill(step, step + N, 1);
  const ParamsOf<F, M> p = params<ParamsOf<F, M>>(call);
  if constexpr (METHOD::template IN_TILES<T>) in_tiles<METHOD, F>(call, data, step, true, n, p);
  else strided_loop<F, true, T, M>(data, step, n, p);
}

// Elements begin to end of a call whose outputs are flat.
template <class F, typename T>
bool run_broadcast(const CallOf<F>& call, int64_t begin, int64_t end) {
  constexpr int N = F::INPUTS + F::OUTPUTS;
  const Tensors<N>& tensors = call;
  for (int k = F::INPUTS; k < N; ++k)
    if (!is_flat(tensors, k)) return false;
  TiledInput<T, N> in[F::INPUTS];
  for (int k = 0; k < F::INPUTS; ++k) in[k].bind(tensors, k);
  T* data[N];
  for (int64_t i = begin, n; i < end; i += n) {
    n = tile_length(tensors, i, end);
    for (int k = 0; k < F::INPUTS; ++k) data[k] = in[k].tile(i, n);
    for (int k = F::INPUTS; k < N; ++k) data[k] = static_cast<T*>(call.data[k]) + i;
    run_row<F>(call, data, n);
  }
  return true;
}

}  // namespace
}  // namespace fusegen
