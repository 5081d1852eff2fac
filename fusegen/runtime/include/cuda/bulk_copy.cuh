#pragma once
// Copies of boxes of a matrix into shared memory by the copy engine (TMA), and the barriers that tell of them.
// Source: mbarrier and cp.async.bulk.tensor as the PTX ISA describes them. A box has rows of 128 bytes; of each eight
// rows the 16-byte parts are swizzled: part p of row r lies in place p ^ (r % 8).
#include <cuda.h>

#include "cuda/warpgroups.cuh"

namespace fusegen {
namespace {

constexpr int BOX_BYTES = 128;  // of a row of a box

__device__ __forceinline__ uint32_t place_of(const void* shared) { return uint32_t(__cvta_generic_to_shared(shared)); }

// A barrier in shared memory, whose phases end when all have arrived and all bytes have been copied.
struct CopyBarrier {
  uint64_t state;
};
__device__ __forceinline__ void start_barrier(CopyBarrier& of, int arrivals) {
  FUSEGEN_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place_of(&of)), "r"(arrivals));
}
// Has the copy engine see barriers that were started.
__device__ __forceinline__ void show_barriers() {
  FUSEGEN_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(CopyBarrier& of) {
  FUSEGEN_ASM("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(place_of(&of)) : "memory");
}
__device__ __forceinline__ void arrive_before(CopyBarrier& of, int bytes) {
  FUSEGEN_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place_of(&of)), "r"(bytes) : "memory");
}
// Waits for the end of a phase, of even or odd number.
__device__ __forceinline__ void wait_for(CopyBarrier& of, uint32_t parity) {
  FUSEGEN_ASM(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra.uni again; }" ::"r"(place_of(&of)),
      "r"(parity)
      : "memory");
}
// Begins the copy of a box from a column and a row of a matrix on.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& of, CopyBarrier& told, int column, int row) {
  FUSEGEN_ASM(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(place_of(to)),
      "l"(&of), "r"(place_of(&told)), "r"(column), "r"(row)
      : "memory");
}

}  // namespace
}  // namespace fusegen
