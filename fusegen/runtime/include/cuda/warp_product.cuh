#pragma once
// A product of matrices in float32 by tensor cores, as split_product.cuh has it, by warps that multiply by themselves
// (mma.sync): the same splits, the same order of sums. All threads of a block copy the steps of a tile ahead; each of
// its eight warps multiplies 32 rows and 32 columns.
#include "cuda/product_levels.cuh"
#include "cuda/warp_steps.cuh"
#include "cuda/warp_tiles.cuh"

namespace fusegen {
namespace {

constexpr int ROWS_OF_WARP = 32, COLUMNS_OF_WARPS = GROUP / WARP_COLUMNS;  // warps side by side

// Multiplies and adds all steps of a block's shares of tiles, of two times 16 rows.
template <class By, class Behind>
__device__ __forceinline__ void multiply_by_warps(const Tiles<typename By::Tile>& tiles, uint8_t* stages,
                                                  const Behind& behind) {
  constexpr int HALVES = ROWS_OF_WARP / 16;
  const int warp = threadIdx.x / 32, first_column = warp % COLUMNS_OF_WARPS * WARP_COLUMNS;
  const int first_row = warp / COLUMNS_OF_WARPS * ROWS_OF_WARP;
  CopiesAhead<typename By::Tile> copies(tiles, stages);
  int stage = 0;
  tiles.each([&](const Share& of) {
    SumsOfShare<By, Behind> all[HALVES];
    const auto results = [&](int half) {
      const int64_t at_row = int64_t(of.row) * LEFT_ROWS + first_row + half * 16;
      return Results<By, Behind>(tiles.of, behind, at_row, int64_t(of.column) * GROUP + first_column);
    };
#pragma unroll 1
    for (int step = of.first; step < of.last; ++step, stage = copies.after(stage)) {
      copies.await();
      copies.copy_next();
      const typename By::Right right(copies.right(stage), first_column);
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        const By by(copies.left(stage), first_row + half * 16);
        SumsOfWarp sums{};
        by.multiply(sums, right);
        all[half].add(sums, by);
      }
      if (step % LEVEL < LEVEL - 1 && step < of.last - 1) continue;
#pragma unroll
      for (int half = 0; half < HALVES; ++half) all[half].close_level([&] { return results(half); }, step / LEVEL);
    }
#pragma unroll
    for (int half = 0; half < HALVES; ++half) all[half].end([&] { return results(half); });
  });
}

template <class By, class Behind>
__global__ void __launch_bounds__(WARPS_THREADS, 1)
    product_by_warps(const __grid_constant__ Product of, const __grid_constant__ Behind behind) {
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = typename By::Tile;
  extern __shared__ uint8_t stages[];
  if (!Tile::has_work(__ldg(static_cast<const int*>(of.columns_known)), int(of.columns))) return;
  multiply_by_warps<By>(Tiles<Tile>(of), stages, behind);
#endif
}

}  // namespace
}  // namespace fusegen
