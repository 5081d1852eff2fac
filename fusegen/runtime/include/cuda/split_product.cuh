#pragma once
// A product of matrices in float32 by tensor cores of 16 bits or TF32, at an error below that of a sum in float32.
//
// Each number is the sum of two that the tensor cores read, and a product is three of theirs: both firsts, and each
// first with the other's rest. The left factor is split in registers, and so nowhere in memory; the right one before,
// into halves (split_right.cuh), or in shared memory, into TF32. The tensor cores round their sums towards 0: they
// add 32 terms, the small products first, and these sums are added in two levels in float32. All sums have one order,
// whatever the number of columns, the tile and the place of a result in it.
//
// A block has three warpgroups. A thread of the last one has the copy engine bring the steps of a tile, which each of
// the first two multiplies for 64 rows. These begin their products in turn: while one multiplies, the other adds and
// splits.
#include "cuda/product_levels.cuh"

namespace fusegen {
namespace {

constexpr int PRODUCT_THREADS = MULTIPLIERS + WARPGROUP;
constexpr int COPY_REGISTERS = 40, PRODUCT_REGISTERS = 232;  // of a thread: as many as there are

// Multiplies and adds all steps of a block's shares of tiles, 64 rows of each.
template <class By, class Behind>
__device__ __forceinline__ void multiply_steps(const Tiles<By>& tiles, const Layout<By>& layout, int group,
                                               const Behind& behind) {
  constexpr int FIRST_TURN = 1;  // the barrier of the first warpgroup; that of the other is the next one
  Turn<Layout<By>::STAGES> turn;
  const int first_row = group * GROUP_ROWS + threadIdx.x % WARPGROUP / 32 * 16;
  int place = 0;  // of two for what TF32 splits, in turn across tiles
  if (group == 1) arrive_at(FIRST_TURN);
  tiles.each([&](const Share& of) {
    SumsOfShare<By, Behind> all;
    const auto results = [&] {
      const int64_t at_row = int64_t(of.row) * LEFT_ROWS + first_row, at_column = int64_t(of.column) * By::COLUMNS;
      return Results<By, Behind>(tiles.of, behind, at_row, at_column);
    };
#pragma unroll 1
    for (int step = of.first; step < of.last; ++step, turn.next(), place ^= 1) {
      wait_for(layout.copied(turn.stage), turn.parity);
      const By by(layout.left(turn.stage), layout.right(turn.stage), first_row, layout.scratch(place));
      SumsOfThread<By::COLUMNS> sums;
      wait_at(FIRST_TURN + group);
      begin_products();
      by.multiply(sums);
      commit_products();
      arrive_at(FIRST_TURN + 1 - group);
      await_products(sums);
      if (threadIdx.x % 32 == 0) arrive(layout.multiplied(turn.stage));
      all.add(sums, by);
      if (step % LEVEL == LEVEL - 1 || step == of.last - 1) all.close_level(results, step / LEVEL);
    }
    all.end(results);
  });
  if (group == 0) wait_at(FIRST_TURN);
}

template <class By, class Behind>
__global__ void __launch_bounds__(PRODUCT_THREADS, 1)
    product_kernel(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
                   const __grid_constant__ Product of, const __grid_constant__ Behind behind) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t stages[];
  if (!By::has_work(__ldg(static_cast<const int*>(of.columns_known)), int(of.columns))) return;
  const Layout<By> layout(stages);
  const Tiles<By> tiles(of);
  const int group = __shfl_sync(~0u, int(threadIdx.x) / WARPGROUP, 0);
  if (threadIdx.x == 0) layout.start();
  __syncthreads();
  if (group == 2) {
    leave_registers<COPY_REGISTERS>();
    if (threadIdx.x == MULTIPLIERS) copy_steps(tiles, layout, left, right);
  } else {
    take_registers<PRODUCT_REGISTERS>();
    multiply_steps(tiles, layout, group, behind);
  }
#endif
}

}  // namespace
}  // namespace fusegen
