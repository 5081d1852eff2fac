#pragma once
// Memory that a kernel fills on first use, in the program that NVRTC compiles. Python runs the kernel `fill` once for
// each step, which the call's stream points to, before any other kernel.
#include "launcher.h"
#include <atomic>
#define FUSEGEN_FILLS

namespace fusegen {
namespace {

constexpr int MOST_FILLING = 1 << 17, MOST_TURNS = 64;  // of `fill`: threads, and launches

// In `fill`, runs what fills a table if its turn has come; the others have nothing to do.
template <class F, typename Kernel>
__device__ __forceinline__ cudaError_t filled(const CallOf<F>& call, Kernel fill, int threads, std::atomic<uint64_t>&) {
  int* const turn = static_cast<int*>(call.stream);
  if (turn == nullptr || (*turn)-- != 0) return cudaSuccess;
  if (threads > MOST_FILLING) __trap();
  if (int(blockIdx.x) < (threads + 127) / 128) fill(params<ParamsOf<F, double>>(call));
  return cudaSuccess;
}

}  // namespace

// THEN where the scalars are F::DEFAULTS, else OTHERWISE; tables are filled for the former.
template <class THEN, class OTHERWISE>
struct AtDefaults {
  template <class F, typename T>
  static __device__ __forceinline__ cudaError_t launch(const CallOf<F>& call) {
    bool same = true;
    for (int k = 0; k < F::SCALARS; ++k) same = same && call.param[k] == F::DEFAULTS[k];
    if (call.stream == nullptr && same) return THEN::template launch<F, T>(call);
    if (call.stream == nullptr) return OTHERWISE::template launch<F, T>(call);
    CallOf<F> usual = call;
    for (int k = 0; k < F::SCALARS; ++k) usual.param[k] = F::DEFAULTS[k];
    THEN::template launch<F, T>(usual);
    return OTHERWISE::template launch<F, T>(usual);
  }
};

}  // namespace fusegen
