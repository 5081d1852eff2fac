#pragma once
// The sums of a product's tile, and its results.
#include "cuda/product_tiles.cuh"

namespace fusegen {
namespace {

// The sums of a level that a thread has.
template <int COLUMNS>
struct LevelSums {
  SumsOfThread<COLUMNS> level{};
  // Adds the sums of a step, each of its row's scale.
  template <class By>
  __device__ __forceinline__ void add(const SumsOfThread<COLUMNS>& sums, const By& by) {
#pragma unroll
    for (int k = 0; k < sums.COUNT; ++k) level.at[k] = fmaf(sums.at[k], by.back(row_of_sum(k)), level.at[k]);
  }
};

// The sum of a result, computed in float32 by a warp.
__device__ __forceinline__ float sum_again(const Product& of, int64_t row, int64_t column, int lane) {
  const bool apart = of.terms_of_left == Terms::APART;
  const float* const left = of.left + row * (apart ? 1 : of.left_pitch);
  const float* const right = of.right + column * of.right_pitch;
  const int64_t step = apart ? of.left_pitch : 1;
  float sum = 0;
  for (int64_t k = lane; k < of.terms; k += 32) sum = fmaf(__ldg(left + k * step), __ldg(right + k), sum);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  return sum;
}

// The result of a sum: the sum itself.
struct Itself {
  static constexpr int TOGETHER = 64;  // results of a thread that are computed side by side
  __device__ __forceinline__ float operator()(float sum, int64_t, int64_t) const { return sum; }
};

// Writes what follows makes of a sum and the bias of its row.
template <class Behind>
__device__ __forceinline__ void write_result(const Product& of, const Behind& behind, int64_t row, int64_t column,
                                             float sum) {
  const float added = of.bias ? sum + __ldg(of.bias + row) : sum;
  of.out[column * of.rows + row] = behind(added, row, column);
}

// The places of a thread's results in `out`, and what computes them from their sums.
template <class By, class Behind>
struct Results {
  const Product& of;
  const Behind& behind;
  int64_t row, column;
  __device__ __forceinline__ Results(const Product& of, const Behind& behind, int64_t first_row, int64_t first_column)
      : of(of),
        behind(behind),
        row(first_row + LeftBox<By::TERMS_OF_LEFT>::own_row()),
        column(first_column + threadIdx.x % 4 * 2) {}
  __device__ __forceinline__ int64_t row_of(int k) const { return row + row_of_sum(k) * 8; }
  __device__ __forceinline__ int64_t column_of(int k) const { return column + column_of_sum(k); }
  // True if a result is one's own, in a column of `out`; then what is known of the column.
  __device__ __forceinline__ bool owns(int k, int& known) const {
    if (row_of(k) >= of.rows || column_of(k) >= of.columns) return false;
    known = __ldg(static_cast<const int*>(of.columns_known) + 1 + groups(of) + column_of(k));
    return By::owns(known);
  }
  __device__ __forceinline__ void write(int k, float sum) const {
    write_result(of, behind, row_of(k), column_of(k), sum);
  }
};

// Writes the results of a tile, some side by side: a long function of all of them would be a long text, and one that is
// called ends the overlap of products. One whose sum is not finite is what float32 makes of it: a warp computes it
// again.
template <class By, class Behind>
__device__ __forceinline__ void write_results(const Results<By, Behind>& results, SumsOfThread<By::COLUMNS> sums) {
  constexpr int COUNT = SumsOfThread<By::COLUMNS>::COUNT;
  constexpr int SIDE_BY_SIDE = COUNT < Behind::TOGETHER ? COUNT : Behind::TOGETHER;
  uint64_t others = 0;
#pragma unroll 1
  for (int first = 0; first < COUNT; first += SIDE_BY_SIDE) {
#pragma unroll
    for (int j = 0; j < SIDE_BY_SIDE; ++j) {
      int known = 0;
      if (!results.owns(first + j, known)) continue;
      const float sum = times_power(sums.at[j], -By::exponent(known));
      if (fabsf(sum) < INFINITY) results.write(first + j, sum);
      else others |= uint64_t(1) << (first + j);
    }
#pragma unroll
    for (int j = 0; j + SIDE_BY_SIDE < COUNT; ++j) sums.at[j] = sums.at[j + SIDE_BY_SIDE];
  }
  if (!__any_sync(~0u, others != 0)) return;
#pragma unroll 1
  for (int k = 0; k < COUNT; ++k)
    for (unsigned again = __ballot_sync(~0u, int(others >> k & 1)); again != 0; again &= again - 1) {
      const int lane = threadIdx.x % 32, from = __ffs(int(again)) - 1;
      const int64_t row = __shfl_sync(~0u, results.row_of(k), from);
      const float sum = sum_again(results.of, row, __shfl_sync(~0u, results.column_of(k), from), lane);
      if (lane == from) results.write(k, sum);
    }
}

// The sums of a share that a thread has, in two levels, and what is made of them. `place()` are its `Results`.
template <class By, class Behind>
struct SumsOfShare : LevelSums<By::COLUMNS> {
  SumsOfThread<By::COLUMNS> total{};
  template <class Place>
  __device__ __forceinline__ void close_level(const Place&, int) {
#pragma unroll
    for (int k = 0; k < total.COUNT; ++k) total.at[k] += this->level.at[k], this->level.at[k] = 0;
  }
  template <class Place>
  __device__ __forceinline__ void end(const Place& place) const {
    write_results(place(), total);
  }
};

}  // namespace
}  // namespace fusegen
