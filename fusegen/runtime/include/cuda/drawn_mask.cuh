#pragma once
// The mask of a dropout, 0 or 1 for each element, from the place that it has among PyTorch's random numbers.
#include "cuda/access.cuh"
#include "cuda/launch.cuh"

namespace fusegen {
namespace {

constexpr int MASK_SCALARS = 7, MASK_THREADS = 256;

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

// Element i of a mask belongs to vector i >> bits, and vector v to thread v % threads of PyTorch's kernel, which draws
// four numbers at a time for as many elements. An element is kept if its number is below the threshold.
struct Draw {
  uint32_t key, other_key, threshold, bits;
  uint64_t counter;
  Divisor threads;

  // those of the elements from a multiple of 4 on
  __device__ __forceinline__ FourNumbers numbers(uint32_t element) const {
    const uint32_t vector = element >> bits, turn = quotient(vector, threads);
    const uint32_t block = (turn << (bits - 2)) + ((element & ((1u << bits) - 1)) >> 2);
    return philox(key, other_key, counter + block, vector - turn * threads.size);
  }
};

Draw draw_of(const double (&scalars)[MASK_SCALARS]) {
  const auto word = [&](int k) { return uint32_t(scalars[k]); };
  const uint64_t counter = uint64_t(word(3)) << 32 | word(2);
  return {word(0), word(1), word(4), word(6), counter, divisor(word(5))};
}

// Writes elements in the order of their memory, a multiple of 4 below 2^31: a thread writes 16 bytes.
template <typename T>
__global__ void __launch_bounds__(MASK_THREADS) draw_kernel(T* mask, uint32_t numel, Draw draw) {
  constexpr uint32_t WIDTH = 16 / sizeof(T);
  const uint32_t begin = (blockIdx.x * MASK_THREADS + threadIdx.x) * WIDTH;
  if (begin >= numel) return;
  Vector<T> v;
#pragma unroll
  for (uint32_t four = 0; four < WIDTH; four += 4) {
    const FourNumbers found = draw.numbers(begin + four);
#pragma unroll
    for (int e = 0; e < 4; ++e) store(v.at[four + e], found.at[e] < draw.threshold ? 1.0f : 0.0f);
  }
  if (begin + WIDTH <= numel) *reinterpret_cast<Vector<T>*>(mask + begin) = v;
  else  // four elements of 16 bits
    for (int e = 0; e < 4; ++e) mask[begin + e] = v.at[e];
}

template <int DTYPE, class C>
cudaError_t fill_of_type(const C& call) {
  using T = typename ElementOf<DTYPE>::type;
  constexpr int64_t BLOCK = MASK_THREADS * 16 / sizeof(T);
  const auto blocks = unsigned((call.numel + BLOCK - 1) / BLOCK);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto kernel = draw_kernel<T>;
  T* const mask = static_cast<T*>(call.data[1]);
  kernel<<<blocks, MASK_THREADS, 0, stream>>>(mask, uint32_t(call.numel), draw_of(call.param));
  return cudaGetLastError();
}

// Writes over a mask, which is the input and the output of a call.
const char* fill(const Call<2, MASK_SCALARS>& call) {
  if (!call.dense || !call.aligned || call.numel % 4 != 0 || call.numel > INT32_MAX)
    return "a mask has gaps, or another number of elements than are drawn";
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  if (error == cudaSuccess)
    error = call.dtype == FLOAT32   ? fill_of_type<FLOAT32>(call)
            : call.dtype == FLOAT16 ? fill_of_type<FLOAT16>(call)
                                    : fill_of_type<BFLOAT16>(call);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace
}  // namespace fusegen

#define FUSEGEN_DRAWN_MASK(NAME)                                                              \
  extern "C" const char* NAME##_launch(const fusegen::Call<2, fusegen::MASK_SCALARS>& call) { \
    return fusegen::fill(call);                                                               \
  }
