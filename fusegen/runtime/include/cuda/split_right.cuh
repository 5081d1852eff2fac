#pragma once
// The right factor of a product in halves, and the test of what halves can hold.
//
// A column of `out` has one power of two, so that a term far below the column's largest loses digits: from 2^17 below
// on, by 2^-39 of the largest. That matters only where the left factor is large just there. So halves multiply a
// column if its largest product with the left factor is not small beside the bound of all of them,
//     max |x_k| c_k >= 2^-10 max(max |x_k| s, max c_k |x|_2),
// where c_k is the largest magnitude of term k in the left factor and s its largest 2-norm of a row; if at most a
// quarter of the numbers that are not zero are below 2^-18 of the largest; and if their sum is at least 16 of the
// largest: a few of them may meet numbers of the left factor that are small beside their neighbours. TF32, of
// float32's range, multiplies the rest.
#include "cuda/halves.cuh"
#include "linear.h"

namespace fusegen {
namespace {

constexpr int SPLIT_THREADS = 256, SPLIT_WARPS = SPLIT_THREADS / 32;
constexpr int PART = 8;         // terms that a thread splits at once
constexpr int HELD_PARTS = 4;   // of a thread, in registers: of up to 8192 terms
constexpr int NOT_BY_HALVES = INT32_MIN;
constexpr float LEAST_SHARE = 0x1p-10f, SMALL = 0x1p-18f, MOST_SMALL = 0.25f, LEAST_SUM = 16;

// Facts of the terms of a column, scaled, for the test.
struct ColumnFacts {
  float largest_product, largest_left, sum, squares, small, nonzero;
};
__device__ __forceinline__ void add_term(ColumnFacts& facts, float x, float left) {
  const float size = fabsf(x);
  facts.largest_product = fmaxf(facts.largest_product, size * left);
  facts.largest_left = fmaxf(facts.largest_left, left);
  facts.sum += size;
  facts.squares = fmaf(size, size, facts.squares);
  facts.small += size > 0 && size < SMALL * 0x1p14f;
  facts.nonzero += size > 0;
}
__device__ __forceinline__ bool fits_halves(const ColumnFacts& of, float largest, float norm) {
  const float bound = fmaxf(largest * norm, of.largest_left * sqrtf(of.squares));
  if (!(norm > 0)) return false;  // NaN, or squares below float's range
  return of.largest_product >= LEAST_SHARE * bound && of.small <= MOST_SMALL * of.nonzero &&
         of.sum >= LEAST_SUM * largest;
}

struct Largest {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Added {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
// A number of all threads of a block joined, in an order that does not depend on when they arrive.
template <class Join>
__device__ __forceinline__ float joined(float x, Join join) {
  __shared__ float of_warp[SPLIT_WARPS];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = join(x, __shfl_xor_sync(~0u, x, lanes));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  x = of_warp[0];
#pragma unroll
  for (int warp = 1; warp < SPLIT_WARPS; ++warp) x = join(x, of_warp[warp]);
  return x;
}

struct Eight {
  float at[PART];
};
// Terms from k on, 0 behind the last one; `aligned` in memory if all of them are there.
__device__ __forceinline__ Eight eight_of(const float* from, int64_t k, int64_t terms, bool aligned) {
  Eight x;
  if (aligned && k + PART <= terms) {
    const float4 a = *reinterpret_cast<const float4*>(from + k), b = *reinterpret_cast<const float4*>(from + k + 4);
    return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  }
#pragma unroll
  for (int i = 0; i < PART; ++i) x.at[i] = k + i < terms ? from[k + i] : 0.0f;
  return x;
}

// The terms of a column that a thread has, eight of each 2048: the first in registers, the rest read again.
struct ColumnTerms {
  const float* from;
  int64_t terms;
  bool aligned;
  Eight held[HELD_PARTS];

  __device__ __forceinline__ int64_t place(int part) const {
    return (int64_t(part) * SPLIT_THREADS + threadIdx.x) * PART;
  }
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (int part = 0; part < HELD_PARTS; ++part) held[part] = eight_of(from, place(part), terms, aligned);
  }
  // Calls task(first term, eight terms) for each eight, up to the end of the last step.
  template <class Task>
  __device__ __forceinline__ void each(Task task) const {
    const int64_t end = padded(terms);
#pragma unroll
    for (int part = 0; part < HELD_PARTS; ++part)
      if (place(part) < end) task(place(part), held[part]);
    for (int part = HELD_PARTS; place(part) < end; ++part)
      task(place(part), eight_of(from, place(part), terms, aligned));
  }
};

// Splits the terms of a column, a block each: for each step 32 firsts and their 32 rests.
__global__ void __launch_bounds__(SPLIT_THREADS) split_kernel(const Product of) {
  const int64_t column = blockIdx.x;
  const float* const from = of.right + column * of.right_pitch;
  ColumnTerms terms = {from, of.terms, reinterpret_cast<uintptr_t>(from) % 16 == 0, {}};
  terms.hold();
  float largest = 0;
  terms.each([&](int64_t, const Eight& x) {
#pragma unroll
    for (int i = 0; i < PART; ++i) largest = fmaxf(largest, fabsf(x.at[i]));
  });
  largest = joined(largest, Largest());
  const int exponent = exponent_for(largest);
  const float scale = power_of_two(exponent);
  ColumnFacts facts{};
  uint4* const to = static_cast<uint4*>(of.halves) + column * (padded(of.terms) / 4);
  const bool left_aligned = reinterpret_cast<uintptr_t>(of.largest) % 16 == 0;
  terms.each([&](int64_t k, const Eight& x) {
    const Eight left = eight_of(of.largest, k, of.terms, left_aligned);
    uint32_t big[PART / 2], small[PART / 2];
#pragma unroll
    for (int i = 0; i < PART; i += 2) {
      const float a = x.at[i] * scale, b = x.at[i + 1] * scale;
      add_term(facts, a, left.at[i]), add_term(facts, b, left.at[i + 1]);
      const HalfPairs pairs = in_halves(a, b);
      big[i / 2] = pairs.big, small[i / 2] = pairs.small;
    }
    uint4* const at = to + k / STEP * 8 + k % STEP / PART;
    at[0] = make_uint4(big[0], big[1], big[2], big[3]);
    at[4] = make_uint4(small[0], small[1], small[2], small[3]);
  });
  facts = {joined(facts.largest_product, Largest()), joined(facts.largest_left, Largest()),
           joined(facts.sum, Added()), joined(facts.squares, Added()), joined(facts.small, Added()),
           joined(facts.nonzero, Added())};
  if (threadIdx.x != 0) return;
  int* const known = static_cast<int*>(of.columns_known);
  const bool fits = fits_halves(facts, largest * scale, *of.norm);
  known[1 + groups(of) + column] = fits ? exponent : NOT_BY_HALVES;
  if (!fits) atomicAdd(known, 1), atomicAdd(known + 1 + column / GROUP, 1);
}

}  // namespace
}  // namespace fusegen
