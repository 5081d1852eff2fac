#pragma once
// The plan of a sum: in which order the rows of a call are computed, and how a row is shared out.
#include "cuda/add_partials.cuh"

namespace fusegen {
namespace {

constexpr int SLOTS = 8;  // vectors of each tensor that a thread of a row's team computes at most

// One sweep over a call: along rows of the innermost dimension.
template <int N>
struct RowSweep {
  Access access[N];
  bool flat;              // rows begin within a vector
  bool across;            // neighbouring threads take neighbouring rows, whose elements lie side by side
  unsigned sums, stores;  // the outputs that are added up, and those that are written, a bit each
  int team;               // threads of a part of a row
  int64_t rows, slots, part, parts;  // vectors of a row at most, and of a part of it; parts of a row
  void* partial[N];
};

// The plan of a sweep for elements T.
template <typename T, int N>
RowSweep<N> plan_rows(const Tensors<N>& call, unsigned sums, unsigned stores, bool across) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  RowSweep<N> sweep{};
  sweep.across = across;
  const int64_t size = call.size[call.rank - 1];
  sweep.sums = sums, sweep.stores = stores, sweep.rows = size ? call.numel / size : 0;
  for (int k = 0; k < N; ++k) {
    sweep.access[k] = access_of<T>(call, k);
    sweep.flat = sweep.flat || (sweep.access[k] == Access::FLAT && size % WIDTH != 0);
  }
  sweep.slots = (size + (sweep.flat ? WIDTH - 1 : 0) + WIDTH - 1) / WIDTH;
  sweep.team = across ? 1 : team_of(sweep.slots);
  sweep.parts = std::max<int64_t>(1, (sweep.slots + sweep.team * SLOTS - 1) / (sweep.team * SLOTS));
  sweep.part = (sweep.slots + sweep.parts - 1) / sweep.parts;
  return sweep;
}

// The partial sums of output k after a sweep.
template <int N>
Partials partials_of(const Tensors<N>& call, const RowSweep<N>& sweep, int k) {
  Partials found;
  found.add(sweep.parts, sweep.across ? sweep.rows : 1);
  int64_t step = sweep.across ? 1 : sweep.parts;
  for (int d = call.rank - 2; d >= 0; step *= call.size[d--]) {
    if (call.stride[k][d] == 0) found.add(call.size[d], step);
    else found.keep(call.size[d], step, call.stride[k][d]);
  }
  if (call.numel == 0) found.terms = 0;
  return found;
}

// The longest dimension that all of some outputs add up, or -1.
template <int N>
int added_by_all(const Tensors<N>& call, int inputs, unsigned outputs) {
  int found = -1;
  for (int d = 0; d < call.rank; ++d) {
    bool all = found < 0 || call.size[d] > call.size[found];
    for (int k = inputs; k < N; ++k) all = all && ((outputs >> (k - inputs) & 1) == 0 || call.stride[k][d] == 0);
    if (all) found = d;
  }
  return found;
}

// A call whose innermost dimension is another.
template <class C>
C turned(const C& call, int inner) {
  C other = call;
  std::rotate(other.size + inner, other.size + inner + 1, other.size + call.rank);
  for (auto& stride : other.stride) std::rotate(stride + inner, stride + inner + 1, stride + call.rank);
  return other;
}

// The sweeps of a call, each handed to `take` with its call. One is enough where all sums add up the innermost
// dimension, or all another one; else the outputs that are written and the sums along the innermost have the last one,
// and each other sum one of its own.
template <class F, typename T, class TAKE>
cudaError_t each_sweep(const CallOf<F>& call, const TAKE& take) {
  unsigned sums = 0, stores = 0, others = 0;
  for (int k = 0; k < F::OUTPUTS; ++k) {
    const bool inner = call.stride[F::INPUTS + k][call.rank - 1] == 0;
    (is_sum(call, F::INPUTS + k) ? inner ? sums : others : stores) |= 1u << k;
  }
  const Tensors<F::INPUTS + F::OUTPUTS>& tensors = call;
  const int all = added_by_all(tensors, F::INPUTS, sums | others);
  if (others != 0 && all >= 0) {
    const CallOf<F> other = turned(call, all);
    return take(other, plan_rows<T>(other, sums | others, stores, true));
  }
  cudaError_t error = cudaSuccess;
  for (int k = 0; k < F::OUTPUTS && error == cudaSuccess; ++k) {
    if ((others >> k & 1) == 0) continue;
    const CallOf<F> other = turned(call, added_by_all(tensors, F::INPUTS, 1u << k));
    error = take(other, plan_rows<T>(other, 1u << k, 0, true));
  }
  if ((sums | stores) && error == cudaSuccess) error = take(call, plan_rows<T>(call, sums, stores, false));
  return error;
}

}  // namespace
}  // namespace fusegen
