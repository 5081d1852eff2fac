#pragma once
// Products by warpgroups of a left factor in registers and a right one in shared memory, in rows of 128 swizzled
// bytes (bulk_copy.cuh). Source: wgmma as the PTX ISA describes it.
#include "cuda/bulk_copy.cuh"

namespace fusegen {
namespace {

// The sums of a thread, of two rows, lane / 4 and lane / 4 + 8 of its warp's 16: of each pair of columns, 8 apart,
// from column 2 (lane % 4) on, both columns of the first row, then of the other.
template <int COLUMNS>
struct SumsOfThread {
  static constexpr int COUNT = COLUMNS / 2;
  float at[COUNT];
};
// The number of a sum's row, 0 or 1, and its column in the tile, but for 2 (lane % 4).
__device__ __forceinline__ constexpr int row_of_sum(int k) { return k / 2 % 2; }
__device__ __forceinline__ constexpr int column_of_sum(int k) { return k / 4 * 8 + k % 2; }

// Terms of the two rows of a left factor that a thread holds: 16 in halves, or 8 in TF32.
struct LeftTerms {
  uint32_t at[4];
};

// Where a 16-byte part of a row lies.
__device__ __forceinline__ constexpr int swizzled_part(int row, int part) {
  return row * BOX_BYTES + (part ^ row % 8) * 16;
}
// The descriptor of a right factor, of which eight rows are 1024 bytes.
__device__ __forceinline__ uint64_t swizzled(uint32_t place) {
  constexpr uint64_t EIGHT_ROWS = 1024 / 16, SWIZZLE_128 = 1;
  return uint64_t(place & 0x3ffff) >> 4 | uint64_t(1) << 16 | EIGHT_ROWS << 32 | SWIZZLE_128 << 62;
}

#define FUSEGEN_FOUR(s, k) "+f"(s[k]), "+f"(s[k + 1]), "+f"(s[k + 2]), "+f"(s[k + 3])
#define FUSEGEN_16(s, k) FUSEGEN_FOUR(s, k), FUSEGEN_FOUR(s, k + 4), FUSEGEN_FOUR(s, k + 8), FUSEGEN_FOUR(s, k + 12)
#define FUSEGEN_32(s, k) FUSEGEN_16(s, k), FUSEGEN_16(s, k + 16)
#define FUSEGEN_NUMBERS_32                                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "   \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FUSEGEN_NUMBERS_64                                                                                 \
  FUSEGEN_NUMBERS_32                                                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FUSEGEN_WGMMA(SHAPE, NUMBERS, LEFT, RIGHT, ONTO, TAIL)   \
  "{ .reg .pred onto; setp.ne.b32 onto, " ONTO ", 0;\n"          \
  "wgmma.mma_async.sync.aligned." SHAPE " {" NUMBERS "}, {" LEFT "}, " RIGHT ", onto, 1, 1" TAIL "; }"
#define FUSEGEN_FACTORS(left, right, ONTO) \
  "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "l"(swizzled(right)), "n"(int(ONTO))

// Begins to add the product of 64 rows and some columns of 16 terms in halves. Between `begin_products` and
// `await_products` nothing may touch the sums or the left terms.
template <Onto ONTO>
__device__ __forceinline__ void multiply_halves(SumsOfThread<128>& sums, const LeftTerms& left, uint32_t right) {
  FUSEGEN_ASM(FUSEGEN_WGMMA("m64n128k16.f32.f16.f16", FUSEGEN_NUMBERS_64, "%64, %65, %66, %67", "%68", "%69", ", 0")
              : FUSEGEN_32(sums.at, 0), FUSEGEN_32(sums.at, 32)
              : FUSEGEN_FACTORS(left, right, ONTO));
}
template <Onto ONTO>
__device__ __forceinline__ void multiply_halves(SumsOfThread<64>& sums, const LeftTerms& left, uint32_t right) {
  FUSEGEN_ASM(FUSEGEN_WGMMA("m64n64k16.f32.f16.f16", FUSEGEN_NUMBERS_32, "%32, %33, %34, %35", "%36", "%37", ", 0")
              : FUSEGEN_32(sums.at, 0)
              : FUSEGEN_FACTORS(left, right, ONTO));
}
// The same of 8 terms in TF32.
template <Onto ONTO>
__device__ __forceinline__ void multiply_tf32(SumsOfThread<64>& sums, const LeftTerms& left, uint32_t right) {
  FUSEGEN_ASM(FUSEGEN_WGMMA("m64n64k8.f32.tf32.tf32", FUSEGEN_NUMBERS_32, "%32, %33, %34, %35", "%36", "%37", "")
              : FUSEGEN_32(sums.at, 0)
              : FUSEGEN_FACTORS(left, right, ONTO));
}
// Closes the products that were begun.
__device__ __forceinline__ void commit_products() { FUSEGEN_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all products that were closed. The sums are operands, so that the compiler reads them only behind this.
__device__ __forceinline__ void await_products(SumsOfThread<128>& sums) {
  FUSEGEN_ASM("wgmma.wait_group.sync.aligned 0;" : FUSEGEN_32(sums.at, 0), FUSEGEN_32(sums.at, 32)::"memory");
}
__device__ __forceinline__ void await_products(SumsOfThread<64>& sums) {
  FUSEGEN_ASM("wgmma.wait_group.sync.aligned 0;" : FUSEGEN_32(sums.at, 0)::"memory");
}

}  // namespace
}  // namespace fusegen
