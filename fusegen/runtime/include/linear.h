#pragma once
// A product of matrices in float32, as a linear layer and its gradients have it.
#include <cstdint>
#ifdef __CUDACC__
#define ON_BOTH __host__ __device__ inline
#else
#define ON_BOTH inline
#endif

namespace fusegen {

// Of each row of `left` the numbers that are multiplied, its terms, lie side by side, or one row of memory apart.
enum class Terms { TOGETHER, APART };

// out[n, m] = sum over k of right[n, k] * left[m, k] + bias[m]. Terms of `right` lie side by side, as the columns of
// `out` do.
struct Product {
  const float *left, *right, *bias;  // no bias: nullptr
  float* out;
  int64_t left_pitch, right_pitch;   // floats from a row of memory to the next one
  int64_t rows, columns, terms;      // m, n, k
  // Of `left`: the largest magnitude of each term, and the largest 2-norm of a row, by which `right` is judged.
  const float *largest, *norm;
  Terms terms_of_left;
  // Memory of the caller: `right` in halves, and what is known of its columns.
  void *halves, *columns_known;
};

namespace {

constexpr int STEP = 32;    // terms whose products the tensor cores add
constexpr int GROUP = 64;   // columns of `out` that are counted together

// Floats of a row of `right` in halves, two for a number.
ON_BOTH int64_t padded(int64_t terms) { return (terms + STEP - 1) / STEP * STEP; }

// Bytes of `halves`, and of `columns_known`: how many columns of all and of each group are not computed by halves, and
// the power of two of each.
ON_BOTH int64_t bytes_of_halves(const Product& of) { return of.columns * padded(of.terms) * 4; }
ON_BOTH int64_t groups(const Product& of) { return (of.columns + GROUP - 1) / GROUP; }
ON_BOTH int64_t bytes_known(const Product& of) { return (1 + groups(of) + of.columns) * 4; }

}  // namespace
}  // namespace fusegen
