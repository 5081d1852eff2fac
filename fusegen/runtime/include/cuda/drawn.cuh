#pragma once
// Dropouts whose masks the kernel draws itself. A module's text with FUSEGEN_DRAWN defined has these kernels, not those
// that read masks. They take a tensor of a mask's shape and strides in its place, whose memory they leave alone, and
// the place of the mask among PyTorch's random numbers: DRAW_SCALARS more scalars for each mask.
#ifdef FUSEGEN_DRAWN
#include "cuda/access.cuh"
#include "cuda/reduce.cuh"

namespace fusegen {
namespace {

constexpr int DRAW_SCALARS = 7;

// Four random numbers of 32 bits: block (counter, thread) of the stream of a key.
// Source: Salmon et al. 2011, SC11, Philox4x32-10.
using FourNumbers = Vector<uint32_t>;
__device__ __forceinline__ FourNumbers philox(uint32_t key, uint32_t other_key, uint64_t counter, uint32_t thread) {
  uint32_t a = uint32_t(counter), b = uint32_t(counter >> 32), c = thread, d = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t(a) * 0xD2511F53u, second = uint64_t(c) * 0xCD9E8D57u;
    a = uint32_t(second >> 32) ^ b ^ key, b = uint32_t(second);
    c = uint32_t(first >> 32) ^ d ^ other_key, d = uint32_t(first);
    key += 0x9E3779B9u, other_key += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

// A mask: element i belongs to vector i >> bits, and vector v to thread v % threads of PyTorch's kernel, which draws
// four numbers at a time for as many elements. An element is kept if its number is below the threshold.
struct Draw {
  uint32_t key, other_key, threshold, bits;
  uint64_t counter;
  Divisor threads;

  __device__ __forceinline__ FourNumbers numbers(uint32_t element) const {
    const uint32_t vector = element >> bits, turn = quotient(vector, threads);
    const uint32_t block = (turn << (bits - 2)) + ((element & ((1u << bits) - 1)) >> 2);
    return philox(key, other_key, counter + block, vector - turn * threads.size);
  }
  __device__ __forceinline__ bool is_kept(uint32_t i) const {
    const FourNumbers found = numbers(i);
    const uint32_t low = i & 1 ? found.at[1] : found.at[0], high = i & 1 ? found.at[3] : found.at[2];
    return (i & 2 ? high : low) < threshold;
  }
  template <typename T>
  __device__ __forceinline__ T element(int64_t i) const {
    T kept;
    store(kept, is_kept(uint32_t(i)) ? 1.0f : 0.0f);
    return kept;
  }
  // elements at several places; the code of one is there once
  template <typename T, class PLACES>
  __device__ __forceinline__ Vector<T> gathered(const PLACES& at) const {
    uint32_t kept = 0;
#pragma unroll 1
    for (int e = 0; e < int(16 / sizeof(T)); ++e) kept |= uint32_t(is_kept(uint32_t(at(e)))) << e;
    Vector<T> v;
#pragma unroll
    for (int e = 0; e < int(16 / sizeof(T)); ++e) store(v.at[e], kept >> e & 1 ? 1.0f : 0.0f);
    return v;
  }
  // elements from i on, a multiple of a vector's
  template <typename T>
  __device__ __forceinline__ Vector<T> vector(int64_t i) const {
    Vector<T> v;
#pragma unroll
    for (int four = 0; four < int(16 / sizeof(T)); four += 4) {
      const FourNumbers found = numbers(uint32_t(i) + four);
#pragma unroll
      for (int e = 0; e < 4; ++e) store(v.at[four + e], found.at[e] < threshold ? 1.0f : 0.0f);
    }
    return v;
  }
};

Draw draw_of(const double* scalars) {
  const auto word = [&](int k) { return uint32_t(scalars[k]); };
  const uint64_t counter = uint64_t(word(3)) << 32 | word(2);
  return {word(0), word(1), word(4), word(6), counter, divisor(word(5))};
}

// The scalars of a kernel and its masks, which come behind them.
template <class OWN, int P, int MASKS>
struct DrawnParams : OWN {
  Draw draw[MASKS];
  template <int ALL>
  static DrawnParams from(const double (&given)[ALL]) {
    static_assert(ALL == P + MASKS * DRAW_SCALARS);
    double first[P];
    for (int k = 0; k < P; ++k) first[k] = given[k];
    DrawnParams made{OWN::from(first), {}};
    for (int m = 0; m < MASKS; ++m) made.draw[m] = draw_of(given + P + m * DRAW_SCALARS);
    return made;
  }
};

// A kernel whose last MASKS inputs are drawn; float64 is none of its types, whose numbers lie elsewhere.
template <class F, int MASKS, unsigned PASSED_BITS = 0>
struct Drawn : F {
  static constexpr int DRAWN = MASKS, SCALARS = F::SCALARS + MASKS * DRAW_SCALARS;
  static constexpr unsigned PASSED = PASSED_BITS;
  using Elements = Dtypes<FLOAT32, FLOAT16, BFLOAT16>;
  template <typename M>
  using Params = DrawnParams<ParamsOf<F, M>, F::SCALARS, MASKS>;
};

}  // namespace
}  // namespace fusegen

#ifdef WITHOUT_FORWARD
#define FUSEGEN_DRAWN_FORWARD(NAME)
#else
#define FUSEGEN_DRAWN_FORWARD(NAME) FUSEGEN_LAUNCHER(NAME##_forward, DrawnForward)
#endif
#ifdef WITHOUT_BACKWARD
#define FUSEGEN_DRAWN_BACKWARD(NAME)
#else
#define FUSEGEN_DRAWN_BACKWARD(NAME)                                                                             \
  FUSEGEN_LAUNCHER(NAME##_backward, DrawnBackward)                                                               \
  extern "C" int64_t NAME##_backward_workspace(const fusegen::CallOf<fusegen::DrawnBackward>& call) {            \
    return fusegen::workspace_bytes<fusegen::DrawnBackward>(call);                                               \
  }                                                                                                              \
  extern "C" const char* NAME##_backward_reduce(const fusegen::CallOf<fusegen::DrawnBackward>& call, void* to) { \
    return fusegen::run_reducing<fusegen::DrawnBackward>(call, to);                                              \
  }
#endif
#undef FUSEGEN_BROADCASTING_KERNELS
#define FUSEGEN_BROADCASTING_KERNELS(NAME)
// PASSED: the gradients that are the incoming one, a bit each
#define FUSEGEN_DRAWN_KERNELS(NAME, MASKS, PASSED)       \
  namespace fusegen {                                    \
  namespace {                                            \
  using DrawnForward = Drawn<Forward, MASKS>;            \
  using DrawnBackward = Drawn<Backward, MASKS, PASSED>;  \
  }                                                      \
  }                                                      \
  FUSEGEN_DRAWN_FORWARD(NAME)                            \
  FUSEGEN_DRAWN_BACKWARD(NAME)
#else
#define FUSEGEN_DRAWN_KERNELS(NAME, MASKS, PASSED)
#endif
