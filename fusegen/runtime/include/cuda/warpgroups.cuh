#pragma once
// Products of matrices by warpgroups, four warps each, from factors in shared memory; and what warpgroups wait for one
// another with. Source: wgmma, barrier and setmaxnreg as the PTX ISA describes them. Only code for sm_90a has these
// products and registers: other code computes nothing, and is not launched.
#include "cuda/matrix_multiply.cuh"

namespace fusegen {
namespace {

constexpr int WARPGROUP = 128;                         // threads
constexpr int GROUP_ROWS = 64, GROUP_COLUMNS = 128;    // of a product
constexpr int QUAD = 4;                                // terms of a row that lie side by side, 16 bytes
constexpr int GROUP_PAIRS = GROUP_COLUMNS / 8;         // of columns, of which a thread has the sums

// A factor of 8 terms in shared memory, in quads: the first four terms of its rows, one row behind the other, and how
// far from these the last four lie.
struct GroupFactor {
  uint32_t at, halves;
};

// The sums of a thread: of each pair of columns, from column 2 (lane % 4) on and 8 columns apart, two rows of its
// warp's 16, lane / 4 and lane / 4 + 8, and in these both columns.
struct GroupSums {
  float at[GROUP_PAIRS][2][2];
};

// The place of something in shared memory, in quads.
__device__ __forceinline__ uint32_t quad_of(const void* shared) {
  return uint32_t(__cvta_generic_to_shared(shared)) / 16;
}

// The matrix descriptor of a factor, without a swizzle: 8 rows of four terms are 128 contiguous bytes.
__device__ __forceinline__ uint64_t described(const GroupFactor& of) {
  constexpr uint64_t EIGHT_ROWS = 8;
  return of.at | uint64_t(of.halves) << 16 | EIGHT_ROWS << 32;
}

enum class Onto { ZERO, SUMS };  // to which products are added

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define FUSEGEN_ASM(...) asm volatile(__VA_ARGS__)
#else
#define FUSEGEN_ASM(...) ((void)0)
#endif
#define FUSEGEN_SUMS(PAIR) "+f"(PAIR[0][0]), "+f"(PAIR[0][1]), "+f"(PAIR[1][0]), "+f"(PAIR[1][1])

#define FUSEGEN_ALL_SUMS(s)                                                                                      \
  FUSEGEN_SUMS(s[0]), FUSEGEN_SUMS(s[1]), FUSEGEN_SUMS(s[2]), FUSEGEN_SUMS(s[3]), FUSEGEN_SUMS(s[4]),            \
      FUSEGEN_SUMS(s[5]), FUSEGEN_SUMS(s[6]), FUSEGEN_SUMS(s[7]), FUSEGEN_SUMS(s[8]), FUSEGEN_SUMS(s[9]),        \
      FUSEGEN_SUMS(s[10]), FUSEGEN_SUMS(s[11]), FUSEGEN_SUMS(s[12]), FUSEGEN_SUMS(s[13]), FUSEGEN_SUMS(s[14]),   \
      FUSEGEN_SUMS(s[15])

// Begins to add the product of two factors, rows of weights and columns of the input. Between `begin_products` and
// `end_products` nothing may touch the sums.
template <Onto ONTO>
__device__ __forceinline__ void multiply_group(GroupSums& sums, const GroupFactor& rows, const GroupFactor& columns) {
  FUSEGEN_ASM(
      "{ .reg .pred onto; setp.ne.b32 onto, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, onto, 1, 1; }"
      : FUSEGEN_ALL_SUMS(sums.at)
      : "l"(described(rows)), "l"(described(columns)), "n"(int(ONTO)));
}
__device__ __forceinline__ void begin_products() {
  FUSEGEN_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}
// Waits for the products. The sums are operands, so that the compiler reads them only behind this.
__device__ __forceinline__ void end_products(GroupSums& sums) {
  FUSEGEN_ASM("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
              : FUSEGEN_ALL_SUMS(sums.at)::"memory");
}
// Has products see what a thread wrote to shared memory before.
__device__ __forceinline__ void show_to_products() {
  FUSEGEN_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

// Sets the registers of each thread of a warpgroup, to fewer or to more than it has.
template <int COUNT>
__device__ __forceinline__ void leave_registers() {
  FUSEGEN_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  FUSEGEN_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Barriers of two warpgroups, by number from 1 on, of which one waits for the other to arrive.
__device__ __forceinline__ void wait_at(int barrier) {
  FUSEGEN_ASM("barrier.cta.sync %0, %1;" ::"r"(barrier), "n"(2 * WARPGROUP) : "memory");
}
__device__ __forceinline__ void arrive_at(int barrier) {
  FUSEGEN_ASM("barrier.cta.arrive %0, %1;" ::"r"(barrier), "n"(2 * WARPGROUP) : "memory");
}

// Writes one or two numbers where a condition holds. A branch would keep what comes before it from being computed for
// several pixels at a time.
__device__ __forceinline__ void write_if(bool holds, float* to, float a) {
  FUSEGEN_ASM("{ .reg .pred holds; setp.ne.b32 holds, %0, 0; @holds st.global.f32 [%1], %2; }" ::"r"(int(holds)),
                "l"(to), "f"(a));
}
__device__ __forceinline__ void write_if(bool holds, float* to, float a, float b) {
  FUSEGEN_ASM("{ .reg .pred holds; setp.ne.b32 holds, %0, 0; @holds st.global.v2.f32 [%1], {%2, %3}; }" ::"r"(
                    int(holds)),
                "l"(to), "f"(a), "f"(b));
}

}  // namespace
}  // namespace fusegen
