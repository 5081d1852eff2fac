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
  // Memory of the caller: `right` in halves, and what is known of its columns; where the terms may be divided, the sums
  // of each level, else nullptr.
  void *halves, *columns_known;
  float* levels;
  int parts;  // of the terms, which blocks take: the launch sets it
};

namespace {

constexpr int STEP = 32;        // terms whose products the tensor cores add
constexpr int LEVEL = 16;       // steps that the first level of sums adds
constexpr int GROUP = 64;       // columns of `out` that are counted together
constexpr int LEFT_ROWS = 128;  // of a tile

// Floats of a row of `right` in halves, two for a number.
ON_BOTH int64_t padded(int64_t terms) { return (terms + STEP - 1) / STEP * STEP; }

// Bytes of `halves`, and of `columns_known`: how many columns of all and of each group are not computed by halves, and
// the power of two of each.
ON_BOTH int64_t bytes_of_halves(const Product& of) { return of.columns * padded(of.terms) * 4; }
ON_BOTH int64_t groups(const Product& of) { return (of.columns + GROUP - 1) / GROUP; }
ON_BOTH int64_t bytes_known(const Product& of) { return (1 + groups(of) + of.columns) * 4; }

// Levels of a result's sum. Several blocks add some of them each where a GPU would have too few tiles of 64 columns;
// memory then has each level, and another kernel adds them in order: a result has the same bits, however many parts
// there are. As tiles are few, the levels take less memory than the factors.
constexpr int MOST_TILES = 64, LEAST_LEVELS = 3;  // of a product that is divided
ON_BOTH int64_t levels_of(const Product& of) { return (of.terms + STEP * LEVEL - 1) / (STEP * LEVEL); }
ON_BOTH int64_t tiles_of(const Product& of) { return (of.rows + LEFT_ROWS - 1) / LEFT_ROWS * groups(of); }
ON_BOTH int64_t bytes_of_levels(const Product& of) {
  const bool divided = tiles_of(of) <= MOST_TILES && levels_of(of) >= LEAST_LEVELS;
  return divided ? levels_of(of) * of.rows * of.columns * 4 : 0;
}

}  // namespace
}  // namespace fusegen
