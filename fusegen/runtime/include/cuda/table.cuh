#pragma once
// 16-bit kernels whose results are read from a table, since computing them right would take longer than moving them: a
// function of one element has 65,536 of them. They are computed in double on first use: the function's are rounded
// once; a slope, which the incoming gradient is multiplied with, is kept as a float.
#include "launcher.h"
#include <cuda_pipeline_primitives.h>
#include "cuda/lazy_init.cuh"
#include "cuda/pointwise.cuh"

namespace fusegen {
namespace {

// Where results are read from shared memory, functions of float16: from how many elements on, and the threads of an
// SM's one block; fewer where SMs have the time to get far apart, which memory serves less fast.
constexpr int64_t TABLE_FROM = int64_t(1) << 18, TABLE_LARGE = int64_t(1) << 26;
constexpr int TABLE_THREADS = 1024, TABLE_LARGE_THREADS = 768;

template <class F>
using Entry = std::conditional_t<F::INPUTS == 1, uint16_t, uint32_t>;
constexpr int ENTRIES = 65536;
constexpr uint32_t ZERO_GRADIENT = 0xffffffff;  // whatever the incoming gradient is, the result is 0

template <class F, typename T>
__device__ alignas(16) Entry<F> table_of[ENTRIES];

template <class F, typename T>
__global__ void fill_table(const ParamsOf<F, double> p) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  double in[F::INPUTS], out[1];
  in[F::INPUTS - 1] = load(bit_cast<T>(uint16_t(i)));
  if constexpr (F::INPUTS == 1) {
    T y;
    F::template element<T>(in, out, p);
    store(y, round_to_odd(out[0]));
    table_of<F, T>[i] = bit_cast<uint16_t>(y);
  } else {
    in[0] = INFINITY;
    F::template element<T>(in, out, p);
    const bool none = out[0] == 0;
    in[0] = 1;
    F::template element<T>(in, out, p);
    table_of<F, T>[i] = none ? ZERO_GRADIENT : out[0] == out[0] ? bit_cast<uint32_t>(round_to_odd(out[0])) : 0x7fc00000;
  }
}

// The result of an element from its entry: the entry, or its product with the incoming gradient.
template <typename T>
__device__ __forceinline__ uint16_t from_table(const uint16_t*, uint16_t y) {
  return y;
}
template <typename T>
__device__ __forceinline__ uint16_t from_table(const uint16_t* in, uint32_t slope) {
  T y;
  store(y, slope == ZERO_GRADIENT ? 0 : load(bit_cast<T>(in[0])) * bit_cast<float>(slope));
  return bit_cast<uint16_t>(y);
}

template <class F, typename T>
struct Tabulated : F {
  template <typename, typename M>
  static __device__ __forceinline__ void element(const M* in, M* out, const ParamsOf<F, M>&) {
    out[0] = from_table<T>(in, table_of<F, T>[in[F::INPUTS - 1]]);
  }
};

// A function of float16 uses more entries than an L1 cache serves fast enough. For large dense tensors each SM has one
// block, which reads the table from shared memory. The entries get there past the registers, as do the vectors of a
// thread: two are on their way while it looks up one.
constexpr int IN_FLIGHT = 2;
template <class F>
__global__ void __launch_bounds__(TABLE_THREADS) table_in_shared_memory(const __grid_constant__ CallOf<F> call) {
  constexpr int WIDTH = 8;
  extern __shared__ uint16_t table[];
  using Pairs = Vector<uint32_t>;  // of elements
  const auto x = static_cast<const Pairs*>(call.data[0]);
  const auto y = static_cast<Pairs*>(call.data[1]);
  Pairs* const arriving = reinterpret_cast<Pairs*>(table + ENTRIES) + threadIdx.x;
  const int threads = int(blockDim.x);
  const int64_t whole = call.numel / WIDTH, turn = int64_t(threads) * gridDim.x;
  const auto fetch = [&](int64_t i, int slot) {
    if (i < whole) __pipeline_memcpy_async(arriving + slot * threads, x + i, sizeof(Pairs));
    __pipeline_commit();
  };
#pragma unroll
  for (int k = int(threadIdx.x) * WIDTH; k < ENTRIES; k += threads * WIDTH)
    __pipeline_memcpy_async(table + k, table_of<F, __half> + k, sizeof(Pairs));
  __pipeline_commit();
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
#pragma unroll
  for (int k = 0; k < IN_FLIGHT; ++k) fetch(i + k * turn, k);
  __pipeline_wait_prior(IN_FLIGHT);
  __syncthreads();
#pragma unroll 1
  for (int slot = 0; i < whole; i += turn, slot = (slot + 1) % IN_FLIGHT) {
    __pipeline_wait_prior(IN_FLIGHT - 1);
    Pairs v = arriving[slot * threads];
    fetch(i + IN_FLIGHT * turn, slot);
#pragma unroll
    for (uint32_t& pair : v.at) pair = table[pair & 0xffff] | uint32_t(table[pair >> 16]) << 16;
    y[i] = v;
  }
  const int64_t rest = whole * WIDTH + threadIdx.x;  // of the last vector
  if (blockIdx.x == 0 && rest < call.numel)
    static_cast<uint16_t*>(call.data[1])[rest] = table[static_cast<const uint16_t*>(call.data[0])[rest]];
}

#include "cuda/table_launch.cuh"

}  // namespace

// The method: a table of all results.
struct Table {
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    return launch_table<F, T>(call);
  }
};

}  // namespace fusegen
