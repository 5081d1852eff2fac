#pragma once
// Products of matrices by one warp, of 16 rows, some columns and a right factor in swizzled shared memory. Source:
// mma.m16n8k16, mma.m16n8k8 and ldmatrix as the PTX ISA describes them. Chips before sm_80 have none of it: code for
// them computes nothing, and is not launched.
#include "cuda/swizzled_products.cuh"

namespace fusegen {
namespace {

constexpr int WARP_COLUMNS = 32;                  // of a product
constexpr int COLUMN_GROUPS = WARP_COLUMNS / 8;  // whose right terms a thread has together

using SumsOfWarp = SumsOfThread<WARP_COLUMNS>;
// Terms of eight columns that a thread holds, of column lane / 4: 16 in halves, or 8 in TF32.
struct RightTerms {
  uint32_t at[2];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define FUSEGEN_WARP_ASM(...) asm(__VA_ARGS__)
#else
#define FUSEGEN_WARP_ASM(...) ((void)0)
#endif
#define FUSEGEN_MMA(SHAPE, s, a, b)                                                                              \
  FUSEGEN_WARP_ASM("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                   : "+f"((s)[0]), "+f"((s)[1]), "+f"((s)[2]), "+f"((s)[3])                                      \
                   : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))

// Adds the product of 16 terms in halves.
__device__ __forceinline__ void add_halves(SumsOfWarp& sums, const LeftTerms& left,
                                           const RightTerms (&right)[COLUMN_GROUPS]) {
#pragma unroll
  for (int group = 0; group < COLUMN_GROUPS; ++group)
    FUSEGEN_MMA("m16n8k16.row.col.f32.f16.f16.f32", sums.at + 4 * group, left.at, right[group].at);
}
// Adds the product of 8 terms in TF32.
__device__ __forceinline__ void add_tf32(SumsOfWarp& sums, const LeftTerms& left,
                                         const RightTerms (&right)[COLUMN_GROUPS]) {
#pragma unroll
  for (int group = 0; group < COLUMN_GROUPS; ++group)
    FUSEGEN_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", sums.at + 4 * group, left.at, right[group].at);
}

// Begins to copy 16 bytes to shared memory, or those that are there, and zeros in place of the others.
__device__ __forceinline__ void copy_quad(void* to, const float* from) {
  FUSEGEN_WARP_ASM("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place_of(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_quad(void* to, const float* from, int bytes) {
  FUSEGEN_WARP_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place_of(to)), "l"(from), "r"(bytes)
                   : "memory");
}

// Loads four matrices of eight rows of 16 bytes, of which a lane has four bytes each: of row lane / 4. Lane k tells
// where row k % 8 of matrix k / 8 is.
__device__ __forceinline__ uint4 load_matrices(const uint8_t* row) {
  uint4 made = make_uint4(0, 0, 0, 0);
  FUSEGEN_WARP_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(made.x), "=r"(made.y), "=r"(made.z), "=r"(made.w)
                   : "r"(place_of(row))
                   : "memory");
  return made;
}

}  // namespace
}  // namespace fusegen
