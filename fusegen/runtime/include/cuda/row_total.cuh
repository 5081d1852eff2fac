#pragma once
// The reduction of the values of rows on CUDA: by one block, or by several whose totals another one adds.
#include "cuda/rows.cuh"
#include "row_total.h"

namespace fusegen {
namespace {

constexpr int TOTAL_THREADS = 512;

inline int64_t blocks_of_total(int64_t rows) {
  return rows <= MOST_OF_A_BLOCK ? 1 : std::min((rows - 1) / (MOST_OF_A_BLOCK / 4) + 1, MOST_TOTALS);
}

// The total of what the threads of a block have, which thread 0 gets.
__device__ __forceinline__ Total total_of_block(const Total& own) {
  __shared__ double sums[TOTAL_THREADS], divisors[TOTAL_THREADS];
  const int thread = threadIdx.x;
  sums[thread] = own.sum, divisors[thread] = own.divisor;
  __syncthreads();
  for (int half = TOTAL_THREADS / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half], divisors[thread] += divisors[thread + half];
    __syncthreads();
  }
  return {sums[0], divisors[0]};
}

// A block has as many neighbours of the rows as the others, of which each thread adds every 512th.
template <class F, typename T>
__global__ void total_kernel(const __grid_constant__ CallOf<F> call, const Reduction of, int64_t rows) {
  const int64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  const Tensors<F::INPUTS + F::OUTPUTS>& tensors = call;
  Total own;
  for (int64_t row = begin + threadIdx.x; row < end; row += TOTAL_THREADS) add_row<T, F::INPUTS>(tensors, of, row, own);
  const Total total = total_of_block(own);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) store_result(*static_cast<T*>(of.result), quotient_of(total, of));
  else of.partial[2 * blockIdx.x] = total.sum, of.partial[2 * blockIdx.x + 1] = total.divisor;
}

// Adds the totals of some blocks.
template <typename T>
__global__ void join_kernel(const Reduction of, int blocks) {
  Total own;
  if (threadIdx.x < blocks) own = {of.partial[2 * threadIdx.x], of.partial[2 * threadIdx.x + 1]};
  const Total total = total_of_block(own);
  if (threadIdx.x == 0) store_result(*static_cast<T*>(of.result), quotient_of(total, of));
}

template <class F, int... DTYPES>
const char* reduce_rows(const CallOf<F>& call, const Reduction& of, Dtypes<DTYPES...>) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const int64_t rows = rows_of(call);
  const auto blocks = unsigned(blocks_of_total(rows));
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    using T = decltype(element);
    const auto kernel = total_kernel<F, T>;
    const auto join = join_kernel<T>;
    kernel<<<blocks, TOTAL_THREADS, 0, stream>>>(call, of, rows);
    if (blocks > 1) join<<<1, TOTAL_THREADS, 0, stream>>>(of, int(blocks));
    error = cudaGetLastError();
    return true;
  };
  if (error == cudaSuccess) (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace
}  // namespace fusegen

// Defines the function that the binding calls behind the forward kernel.
#ifdef WITHOUT_FORWARD
#define FUSEGEN_TOTAL(NAME)
#else
#define FUSEGEN_TOTAL(NAME)                                                                                  \
  extern "C" const char* NAME##_forward_total(const fusegen::CallOf<fusegen::Forward>& call,                 \
                                              const fusegen::Reduction& of) {                                \
    return fusegen::reduce_rows<fusegen::Forward>(call, of, fusegen::Forward::Elements());                   \
  }
#endif
