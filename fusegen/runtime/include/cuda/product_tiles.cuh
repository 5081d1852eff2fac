#pragma once
// The tiles of a product, their order, and the shared memory into which the copy engine brings their steps.
#include "cuda/product_steps.cuh"

namespace fusegen {
namespace {

constexpr int SWEEP_COLUMNS = 2048;  // of tiles whose left factors the cache holds for one another
constexpr int BARRIER_BYTES = 256, ALIGNMENT = 1024, MOST_SHARED = 227 << 10;

// The layout of a block's shared memory: stages of both factors as they are copied, what TF32 splits, barriers.
template <class By>
struct Layout {
  static constexpr int STAGE = LEFT_BYTES + By::COLUMNS * BOX_BYTES;
  static constexpr int OTHERS = By::SCRATCH + BARRIER_BYTES + ALIGNMENT;
  static constexpr int FIT = (MOST_SHARED - OTHERS) / STAGE, STAGES = FIT < 8 ? FIT : 8;
  static constexpr int BYTES = STAGES * STAGE + OTHERS;

  uint8_t* base;
  __device__ __forceinline__ explicit Layout(uint8_t* shared)
      : base(shared + (ALIGNMENT - place_of(shared) % ALIGNMENT) % ALIGNMENT) {}
  __device__ __forceinline__ uint8_t* left(int stage) const { return base + stage * STAGE; }
  __device__ __forceinline__ uint8_t* right(int stage) const { return left(stage) + LEFT_BYTES; }
  __device__ __forceinline__ uint8_t* scratch(int place) const { return left(STAGES) + place * (By::SCRATCH / 2); }
  __device__ __forceinline__ CopyBarrier& copied(int stage) const {
    return reinterpret_cast<CopyBarrier*>(left(STAGES) + By::SCRATCH)[stage];
  }
  __device__ __forceinline__ CopyBarrier& multiplied(int stage) const { return copied(STAGES + stage); }
  __device__ __forceinline__ void start() const {
    for (int stage = 0; stage < STAGES; ++stage)
      start_barrier(copied(stage), 1), start_barrier(multiplied(stage), MULTIPLIERS / 32);
    show_barriers();
  }
};
// The stage of a step, and the parity of the phase in which it is full.
template <int COUNT>
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == COUNT) stage = 0, parity ^= 1;
  }
};

// A tile of `out`, and the steps of it that a block adds: all, or those of a part.
struct Share {
  int row, column, first, last;
};

// The tiles of `out`, in sweeps of some columns, so that blocks that run together read the same rows.
template <class By>
struct Tiles {
  const Product& of;
  int rows, columns;
  __device__ __forceinline__ explicit Tiles(const Product& of)
      : of(of),
        rows(int((of.rows + LEFT_ROWS - 1) / LEFT_ROWS)),
        columns(int((of.columns + By::COLUMNS - 1) / By::COLUMNS)) {}
  __device__ __forceinline__ int2 at(int k) const {
    constexpr int WIDE = SWEEP_COLUMNS / By::COLUMNS;
    const int sweep = k / (WIDE * rows), in = k - sweep * WIDE * rows, wide = min(WIDE, columns - sweep * WIDE);
    return make_int2(in / wide, sweep * WIDE + in % wide);
  }
  // True if some column of a tile is one's own.
  __device__ __forceinline__ bool has_work(int column_tile) const {
    const int* const others = static_cast<const int*>(of.columns_known) + 1;
    const int64_t first = int64_t(column_tile) * By::COLUMNS;
    int sum = 0;
    for (int64_t group = first / GROUP; group < groups(of) && group * GROUP < first + By::COLUMNS; ++group)
      sum += __ldg(others + group);
    return By::has_work(sum, int(min(int64_t(By::COLUMNS), of.columns - first)));
  }
  __device__ __forceinline__ int shares() const { return rows * columns * of.parts; }
  __device__ __forceinline__ Share share(int k) const {
    const int2 tile = at(k / of.parts);
    const int each = LEVEL * int((levels_of(of) + of.parts - 1) / of.parts), first = k % of.parts * each;
    return {tile.x, tile.y, first, min(first + each, int((of.terms + STEP - 1) / STEP))};
  }
  // Calls task(share) for each share of a block.
  template <class Task>
  __device__ __forceinline__ void each(const Task& task) const {
    for (int k = blockIdx.x; k < shares(); k += gridDim.x) {
      const Share own = share(k);
      if (has_work(own.column)) task(own);
    }
  }
};

// Has the copy engine bring all steps of a block's tiles.
template <class By>
__device__ __forceinline__ void copy_steps(const Tiles<By>& tiles, const Layout<By>& layout, const CUtensorMap& left,
                                           const CUtensorMap& right) {
  Turn<Layout<By>::STAGES> turn;
  tiles.each([&](const Share& of) {
    for (int step = of.first; step < of.last; ++step, turn.next()) {
      wait_for(layout.multiplied(turn.stage), turn.parity ^ 1);
      CopyBarrier& told = layout.copied(turn.stage);
      arrive_before(told, Layout<By>::STAGE);
      uint8_t* const to = layout.left(turn.stage);
      if constexpr (By::TERMS_OF_LEFT == Terms::TOGETHER) copy_box(to, left, told, step * STEP, of.row * LEFT_ROWS);
      else
        for (int box = 0; box < LEFT_ROWS / BOX_ROWS; ++box)
          copy_box(to + box * STEP * BOX_BYTES, left, told, of.row * LEFT_ROWS + box * BOX_ROWS, step * STEP);
      copy_box(layout.right(turn.stage), right, told, step * By::BOX_COLUMNS, of.column * By::COLUMNS);
    }
  });
}

}  // namespace
}  // namespace fusegen
