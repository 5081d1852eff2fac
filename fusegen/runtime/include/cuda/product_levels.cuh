#pragma once
// The sums of a product whose terms are divided among blocks: each writes the sums of its levels, and another kernel
// adds them in the order in which one block adds all, and computes the results.
#include "cuda/product_results.cuh"

namespace fusegen {
namespace {

constexpr int ADDING_THREADS = 256;

// In place of what computes results from their sums.
struct Levels {};

// The sums of `out` that a level has, column by column.
__device__ __forceinline__ float* level_of(const Product& of, int64_t number) {
  return of.levels + number * of.rows * of.columns;
}

template <class By>
struct SumsOfShare<By, Levels> : LevelSums<By::COLUMNS> {
  template <class Place>
  __device__ __forceinline__ void close_level(const Place& place, int number) {
    const auto results = place();
    float* const to = level_of(results.of, number);
#pragma unroll
    for (int k = 0; k < this->level.COUNT; ++k) {
      int known = 0;
      if (results.owns(k, known)) to[results.column_of(k) * results.of.rows + results.row_of(k)] = this->level.at[k];
      this->level.at[k] = 0;
    }
  }
  template <class Place>
  __device__ __forceinline__ void end(const Place&) const {}
};

// Adds the levels of each result. One that is not finite is computed again, as in `write_results`.
template <class Behind>
__global__ void __launch_bounds__(ADDING_THREADS)
    add_levels(const __grid_constant__ Product of, const __grid_constant__ Behind behind) {
  const int64_t index = int64_t(blockIdx.x) * ADDING_THREADS + threadIdx.x, column = index / of.rows;
  const int64_t row = index - column * of.rows;
  const bool inside = column < of.columns;
  float sum = 0;
  if (inside) {
    const int levels = int(levels_of(of));
#pragma unroll 4
    for (int number = 0; number < levels; ++number) sum += __ldg(level_of(of, number) + index);
    const int known = __ldg(static_cast<const int*>(of.columns_known) + 1 + groups(of) + column);
    if (known != NOT_BY_HALVES) sum = times_power(sum, -known);
    if (fabsf(sum) < INFINITY) write_result(of, behind, row, column, sum);
  }
  for (unsigned again = __ballot_sync(~0u, int(!(fabsf(sum) < INFINITY))); again != 0; again &= again - 1) {
    const int lane = threadIdx.x % 32, from = __ffs(int(again)) - 1;
    const int64_t own = __shfl_sync(~0u, row, from);
    const float whole = sum_again(of, own, __shfl_sync(~0u, column, from), lane);
    if (lane == from) write_result(of, behind, row, column, whole);
  }
}

}  // namespace
}  // namespace fusegen
