#pragma once
// The steps of a block's tiles as its threads copy them, ahead of those that multiply, into the places in shared memory
// that the copy engine gives them (bulk_copy.cuh).
#include <cuda_pipeline_primitives.h>

#include "cuda/product_tiles.cuh"
#include "cuda/warp_products.cuh"

namespace fusegen {
namespace {

constexpr int WARPS_THREADS = 256;                         // of a block: each warp has 32 rows and 32 columns
constexpr int QUADS = BOX_BYTES / 16;                      // of a row of a box, of which a thread copies one
constexpr int ROWS_AT_ONCE = WARPS_THREADS / QUADS;        // that all threads copy
constexpr int BYTES_AT_ONCE = ROWS_AT_ONCE * BOX_BYTES;

__device__ __forceinline__ int own_row_of_box() { return threadIdx.x / QUADS; }
__device__ __forceinline__ int own_quad() { return threadIdx.x % QUADS; }
// Bytes of a quad, of whose floats so many are there.
__device__ __forceinline__ int bytes_of_quad(int floats) { return min(max(floats, 0), QUAD) * 4; }

// The copies of a thread from a matrix whose rows in memory are those of a box: of each 32 one.
template <int ROWS>
struct RowsCopy {
  const float* from;
  int64_t pitch;
  int rows, terms;  // from the tile's first row on, and all

  __device__ __forceinline__ void start(const float* data, int64_t pitch, int64_t first, int64_t rows, int64_t terms) {
    from = data + (first + own_row_of_box()) * pitch + own_quad() * QUAD;
    this->pitch = pitch * ROWS_AT_ONCE, this->rows = int(rows - first), this->terms = int(terms);
  }
  __device__ __forceinline__ void copy(uint8_t* to, int step) const {
    const float* at = from + int64_t(step) * STEP;
    const int left = terms - step * STEP;
    if (rows >= ROWS && left >= STEP) {
#pragma unroll
      for (int row = 0; row < ROWS; row += ROWS_AT_ONCE, at += pitch, to += BYTES_AT_ONCE) copy_quad(to, at);
      return;
    }
    const int bytes = bytes_of_quad(left - own_quad() * QUAD);
#pragma unroll
    for (int row = 0; row < ROWS; row += ROWS_AT_ONCE, at += pitch, to += BYTES_AT_ONCE)
      copy_quad(to, at, row + own_row_of_box() < rows ? bytes : 0);
  }
};
// From one whose rows in memory are terms, of which a box has 32 rows.
template <int ROWS>
struct TermsCopy {
  const float* from;
  int64_t pitch;
  int rows, terms;

  __device__ __forceinline__ void start(const float* data, int64_t pitch, int64_t first, int64_t rows, int64_t terms) {
    from = data + own_row_of_box() * pitch + first + own_quad() * QUAD;
    this->pitch = pitch * STEP, this->rows = int(rows - first), this->terms = int(terms);
  }
  __device__ __forceinline__ void copy(uint8_t* to, int step) const {
    const float* const at = from + step * pitch;
    const int left = terms - step * STEP;
    if (rows >= ROWS && left >= STEP) {
#pragma unroll
      for (int row = 0; row < ROWS; row += BOX_ROWS, to += BYTES_AT_ONCE) copy_quad(to, at + row);
      return;
    }
#pragma unroll
    for (int row = 0; row < ROWS; row += BOX_ROWS, to += BYTES_AT_ONCE)
      copy_quad(to, at + row, own_row_of_box() < left ? bytes_of_quad(rows - row - own_quad() * QUAD) : 0);
  }
};

// The steps of a block's shares, one after the other, and the stages into which they are copied.
template <class Tile>
struct CopiesAhead {
  static constexpr int STAGE = LEFT_BYTES + Tile::COLUMNS * BOX_BYTES, STAGES = 4, BYTES = STAGES * STAGE;
  const Tiles<Tile>& tiles;
  uint8_t* const base;
  int number, step = 0, last = 0, stage = 0;
  std::conditional_t<Tile::TERMS_OF_LEFT == Terms::TOGETHER, RowsCopy<LEFT_ROWS>, TermsCopy<LEFT_ROWS>> left_copy;
  RowsCopy<Tile::COLUMNS> right_copy;

  __device__ __forceinline__ CopiesAhead(const Tiles<Tile>& tiles, uint8_t* base)
      : tiles(tiles), base(base), number(int(blockIdx.x) - int(gridDim.x)) {
    find();
    for (int k = 1; k < STAGES; ++k) copy_next();
  }
  __device__ __forceinline__ const uint8_t* left(int stage) const { return base + stage * STAGE; }
  __device__ __forceinline__ const uint8_t* right(int stage) const { return left(stage) + LEFT_BYTES; }
  // Begins to copy the next step, if there is one. Of those before it, STAGES - 1 may not have been read.
  __device__ __forceinline__ void copy_next() {
    if (step < last) {
      uint8_t* const to = base + stage * STAGE + swizzled_part(own_row_of_box(), own_quad());
      left_copy.copy(to, step);
      right_copy.copy(to + LEFT_BYTES, step);
      stage = after(stage);
      if (++step == last) find();
    }
    __pipeline_commit();
  }
  // Waits for the step before which STAGES - 1 have begun, and for all threads to have read those before it.
  __device__ __forceinline__ void await() const {
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
  }
  static __device__ __forceinline__ int after(int stage) { return stage + 1 == STAGES ? 0 : stage + 1; }

 private:
  __device__ __forceinline__ void find() {
    do number += int(gridDim.x);
    while (number < tiles.shares() && !tiles.has_work(tiles.share(number).column));
    if (number >= tiles.shares()) return;
    const Product& of = tiles.of;
    const Share share = tiles.share(number);
    step = share.first, last = share.last;
    left_copy.start(of.left, of.left_pitch, int64_t(share.row) * LEFT_ROWS, of.rows, of.terms);
    const int64_t first = int64_t(share.column) * Tile::COLUMNS, wide = padded(of.terms);
    if constexpr (Tile::SCRATCH > 0) right_copy.start(of.right, of.right_pitch, first, of.columns, of.terms);
    else right_copy.start(static_cast<const float*>(of.halves), wide, first, of.columns, wide);
  }
};

}  // namespace
}  // namespace fusegen
