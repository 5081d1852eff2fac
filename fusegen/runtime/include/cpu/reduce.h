#pragma once
// Gradients of operands that are broadcast: sums, over the dimensions in which an output's stride is 0, of what the
// formula gives for each element. In two stages: the elements are cut into chunks, as many as their shape says, each of
// which adds up in double for itself; the chunks are added in order. So the sums do not depend on the threads.
#include "cpu/broadcasting.h"
#include "cpu/broadcast.h"

namespace fusegen {
namespace {

constexpr int64_t MOST_CHUNKS = 64;

// The sums of a call, side by side in each chunk's part of the workspace.
template <int IN, int N>
struct Sums {
  explicit Sums(const Tensors<N>& call) {
    int64_t longest = 1;
    for (int k = IN; k < N; ++k) {
      begin[k] = all;
      if (!is_sum(call, k)) continue;
      count[k] = 1;
      for (int d = call.rank - 1; d >= 0; --d) {
        const bool kept = call.stride[k][d] != 0;
        stride[k][d] = kept ? count[k] : 0;
        count[k] *= kept ? call.size[d] : 1;
      }
      all += count[k];
      longest = std::max(longest, count[k]);
    }
    chunks = std::clamp(call.numel / std::max(GRAIN, 4 * longest), int64_t(1), MOST_CHUNKS);
    chunk = (call.numel + chunks - 1) / chunks;
  }
  int64_t bytes() const { return chunks * all * int64_t(sizeof(double)); }
  int64_t all = 0, begin[N], count[N] = {}, stride[N][MAX_RANK], chunks, chunk;
};

// The sum of n elements: of sixteen sums in turn, pairwise.
template <typename T>
double sum_of(const T* values, int64_t n) {
  constexpr int LANES = 16;
  decltype(load(T())) lane[LANES] = {};
  int64_t j = 0;
  for (; j + LANES <= n; j += LANES)
    for (int e = 0; e < LANES; ++e) lane[e] += load(values[j + e]);
  for (int e = 0; j + e < n; ++e) lane[e] += load(values[j + e]);
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int e = 0; e < half; ++e) lane[e] += lane[e + half];
  return lane[0];
}

// An output of a call, tile by tile.
template <class F, typename T>
class TiledOutput {
 public:
  static constexpr int N = F::INPUTS + F::OUTPUTS;
  using Of = Sums<F::INPUTS, N>;
  void bind(const Tensors<N>& of, const Of& sums, int output, double* partial) {
    call = &of;
    k = output;
    sum = is_sum(of, k);
    flat = !sum && is_flat(of, k);
    stride = sum ? sums.stride[k] : of.stride[k];
    into = sum ? partial + sums.begin[k] : nullptr;
  }
  T* tile(int64_t i) { return flat ? static_cast<T*>(call->data[k]) + i : copy; }
  // Takes the n elements from element i on, which are in the tile.
  void take(int64_t i, int64_t n) {
    if (flat) return;
    const int64_t size = call->size[call->rank - 1], step = stride[call->rank - 1];
    Row<N> row(*call, stride, i / size);
    for (int64_t done = 0, count, index = i % size; done < n; done += count, index = 0, row.advance()) {
      count = std::min(n - done, size - index);
      const T* const from = copy + done;
      const int64_t at = row.begin + index * step;
      if (!sum)
        for (int64_t e = 0; e < count; ++e) static_cast<T*>(call->data[k])[at + e * step] = from[e];
      else if (step == 0) into[at] += sum_of(from, count);
      else if (step == 1)
        for (int64_t e = 0; e < count; ++e) into[at + e] += load(from[e]);
      else
        for (int64_t e = 0; e < count; ++e) into[at + e * step] += load(from[e]);
    }
  }

 private:
  const Tensors<N>* call;
  int k;
  bool sum, flat;
  const int64_t* stride;
  double* into;
  T copy[SPREAD];
};

// Elements begin to end, whose sums are added to `partial`.
template <class F, typename T>
void reduce_range(const CallOf<F>& call, const Sums<F::INPUTS, F::INPUTS + F::OUTPUTS>& sums, double* partial,
                  int64_t begin, int64_t end) {
  constexpr int N = F::INPUTS + F::OUTPUTS;
  const Tensors<N>& tensors = call;
  TiledInput<T, N> in[F::INPUTS];
  TiledOutput<F, T> out[F::OUTPUTS];
  for (int k = 0; k < F::INPUTS; ++k) in[k].bind(tensors, k);
  for (int k = 0; k < F::OUTPUTS; ++k) out[k].bind(tensors, sums, F::INPUTS + k, partial);
  T* data[N];
  for (int64_t i = begin, n; i < end; i += n) {
    n = tile_length(tensors, i, end);
    for (int k = 0; k < F::INPUTS; ++k) data[k] = in[k].tile(i, n);
    for (int k = 0; k < F::OUTPUTS; ++k) data[F::INPUTS + k] = out[k].tile(i);
    run_row<F>(call, data, n);
    for (int k = 0; k < F::OUTPUTS; ++k) out[k].take(i, n);
  }
}

// Writes an output's sums begin to end, each of all chunks in order.
template <typename T, int IN, int N>
void add_chunks(const Tensors<N>& call, const Sums<IN, N>& sums, int k, const double* partial) {
  for (int64_t j = 0; j < sums.count[k]; ++j) {
    double total = 0;
    for (int64_t c = 0; c < sums.chunks; ++c) total += partial[c * sums.all + sums.begin[k] + j];
    int64_t at = 0, rest = j;
    for (int d = call.rank - 1; d >= 0; --d) {
      if (call.stride[k][d] == 0) continue;
      at += rest % call.size[d] * call.stride[k][d];
      rest /= call.size[d];
    }
    static_cast<T*>(call.data[k])[at] = cast_to_storage<T>(total);
  }
}

// A call with its workspace, for the threads.
template <class F>
struct Reduction {
  const CallOf<F>& call;
  Sums<F::INPUTS, F::INPUTS + F::OUTPUTS> sums;
  double* workspace;
};
template <class F, typename T>
void reduce(Reduction<F>& of) {
  const auto chunk = [](int64_t begin, int64_t end, void* context) {
    const Reduction<F>& of = *static_cast<const Reduction<F>*>(context);
    for (int64_t c = begin; c < end; ++c) {
      double* const partial = of.workspace + c * of.sums.all;
      std::fill(partial, partial + of.sums.all, 0.0);
      const int64_t first = c * of.sums.chunk;
      reduce_range<F, T>(of.call, of.sums, partial, first, std::min(first + of.sums.chunk, of.call.numel));
    }
  };
  parallel_for(0, of.sums.chunks, 1, chunk, &of);
  const Tensors<F::INPUTS + F::OUTPUTS>& tensors = of.call;
  for (int k = F::INPUTS; k < F::INPUTS + F::OUTPUTS; ++k) add_chunks<T>(tensors, of.sums, k, of.workspace);
}
template <class F, int... DTYPES>
void reduce_any(Reduction<F>& of, Dtypes<DTYPES...>) {
  const auto reduce_as = [&](int dtype, auto element) {
    if (of.call.dtype == dtype) reduce<F, decltype(element)>(of);
    return of.call.dtype == dtype;
  };
  (void)(reduce_as(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
}

// The bytes of workspace that a call needs, and the call; it returns what went wrong, or nothing.
template <class F>
int64_t workspace_bytes(const CallOf<F>& call) {
  return Sums<F::INPUTS, F::INPUTS + F::OUTPUTS>(call).bytes();
}
template <class F>
const char* run_reducing(const CallOf<F>& call, void* workspace) {
  static const bool ready = prepare<F>();
  (void)ready;
  Reduction<F> of{call, Sums<F::INPUTS, F::INPUTS + F::OUTPUTS>(call), static_cast<double*>(workspace)};
  reduce_any<F>(of, typename F::Elements());
  return nullptr;
}

}  // namespace
}  // namespace fusegen
