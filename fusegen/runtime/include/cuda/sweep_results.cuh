#pragma once
// The results of a vector in a sweep. Of a kernel of two phases, the first gives them all, unrounded, as sums take
// them; of those that are stored, the second computes the few whose rounding the first leaves undecided.
#include "cuda/sweep.cuh"
#include "cuda/two_phases.cuh"

namespace fusegen {
namespace {

// Where a thread is: the offset of a vector in each tensor, the index of its first element along the innermost
// dimension, and how many vectors are left. Offsets are of 32 bits where no tensor reaches further, and cost less then.
template <int N, typename OFFSET>
struct Walker {
  OFFSET at[N], column;
  int left;
};

// The 16 bytes of a vector. Where paths meet, they are in four registers, and elements of 16 bits would be in eight.
using Bytes = Vector<uint32_t>;

// Output k of the elements of a vector, rounded.
template <typename T, typename M, int OUT>
__device__ __forceinline__ Bytes packed(const M (&out)[16 / sizeof(T)][OUT], int k) {
  if constexpr (sizeof(T) == 2) {
    Bytes pairs;
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs.at[i] = pack(T(), float(out[2 * i][k]), float(out[2 * i + 1][k]));
    return pairs;
  } else {
    Vector<T> v;
#pragma unroll
    for (int e = 0; e < int(16 / sizeof(T)); ++e) store_rounded(v.at[e], out[e][k]);
    return bit_cast<Bytes>(v);
  }
}

// The first results of a kernel of two phases, which is a template over them.
template <class F>
struct First {
  using Kernel = F;
};
template <template <class> class TWO_PHASED, class F>
struct First<TWO_PHASED<F>> {
  using Kernel = F;
};

// The elements of an output of 16 bits whose rounding is undecided, a bit each; `result` is one of the two results.
template <class F, typename T, typename M, int OUT>
__device__ __forceinline__ uint32_t undecided(const M (&out)[8][OUT], int k, Bytes& result) {
  Bytes differ;  // pairs of elements, as one conversion gives them
  uint32_t any = 0, found = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float a = float(out[2 * i][k]), b = float(out[2 * i + 1][k]);
    result.at[i] = pack(T(), a * F::ABOVE, b * F::ABOVE);
    differ.at[i] = result.at[i] ^ pack(T(), a * F::BELOW, b * F::BELOW);
    any |= differ.at[i];
  }
  if (any == 0) return 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    found |= (uint32_t((differ.at[i] & 0xffff) != 0) | uint32_t(differ.at[i] > 0xffff) << 1) << 2 * i;
  return found;
}

// The results of a vector, unrounded in `out`; the elements that are undecided, a bit each.
template <class F, typename T, typename M, int N>
__device__ __forceinline__ uint32_t compute_vector(Bytes (&bytes)[N], M (&out)[16 / sizeof(T)][F::OUTPUTS],
                                                   unsigned stores, const ParamsOf<F, M>& p) {
  using Kernel = typename First<F>::Kernel;
  Vector<T> v[F::INPUTS];
  uint32_t open = 0;
#pragma unroll
  for (int k = 0; k < F::INPUTS; ++k) v[k] = bit_cast<Vector<T>>(bytes[k]);
#pragma unroll
  for (int e = 0; e < int(16 / sizeof(T)); ++e) {
    M in[F::INPUTS];
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k) in[k] = load(v[k].at[e]);
    Kernel::template element<T>(in, out[e], p);
  }
#pragma unroll
  for (int k = 0; k < F::OUTPUTS; ++k) {
    if ((stores >> k & 1) == 0) continue;
    if constexpr (F::TWO_PHASES) open |= undecided<F, T>(out, k, bytes[F::INPUTS + k]);
    else bytes[F::INPUTS + k] = packed<T>(out, k);
  }
  return open;
}

// Computes what a first phase has left, of vectors that lie one jump apart.
template <class F, typename T, typename M, int N, typename OFFSET>
__device__ __noinline__ void compute_undecided(const CallOf<F>& call, const Sweep<N>& sweep, Walker<N, OFFSET> here,
                                               uint32_t left, const ParamsOf<F, M>& p) {
  constexpr int WIDTH = 16 / sizeof(T), IN = F::INPUTS;
#pragma unroll 1
  for (; left != 0; left &= left - 1) {
    const int bit = __ffs(left) - 1, j = bit / WIDTH, e = bit % WIDTH;
    T* element[N];
#pragma unroll
    for (int k = 0; k < N; ++k)
      element[k] = static_cast<T*>(call.data[k]) + here.at[k] + j * sweep.jump[k] + e * call.stride[k][call.rank - 1];
    M in[IN], out[F::OUTPUTS];
#pragma unroll
    for (int k = 0; k < IN; ++k) in[k] = load(*element[k]);
    if (!F::template try_fast<T>(in, out, p)) F::template fallback<T>(in, out, p);
#pragma unroll
    for (int k = 0; k < F::OUTPUTS; ++k)
      if (sweep.stores >> k & 1) store_rounded(*element[IN + k], out[k]);
  }
}

}  // namespace
}  // namespace fusegen
