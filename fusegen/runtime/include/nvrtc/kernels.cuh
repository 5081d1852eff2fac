#pragma once
// The kernels of the program that NVRTC compiles, behind the text of a module: one for dense tensors or for others, of
// one function and one element type, whose name has its launch configuration, and the kernel that fills tables.
#undef __global__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__ __attribute__((global))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__ __attribute__((grid_constant))

namespace fusegen {
namespace {
using Element = ElementOf<FUSEGEN_DTYPE>::type;
constexpr auto CONFIGURATION = LARGEST<FUSEGEN_KERNEL, Element>;

template <class F, typename T>
__device__ __forceinline__ void run_thread(const CallOf<F>& call) {
  MethodOf<F, T>::template launch<F, T>(call);
}
}  // namespace
}  // namespace fusegen

// THREADS of a block; VECTORS of a thread, 0 where tensors are not dense.
template <int THREADS, int VECTORS>
__global__ void __launch_bounds__(fusegen::MOST_THREADS)
    compute(const __grid_constant__ fusegen::CallOf<fusegen::FUSEGEN_KERNEL> call) {
  __builtin_assume(call.stream == nullptr);
  fusegen::run_thread<fusegen::FUSEGEN_KERNEL, fusegen::Element>(call);
}
#if FUSEGEN_DENSE
template __global__ void compute<fusegen::CONFIGURATION.threads, fusegen::CONFIGURATION.vectors>(
    const __grid_constant__ fusegen::CallOf<fusegen::FUSEGEN_KERNEL>);
#else
template __global__ void compute<128, 0>(const __grid_constant__ fusegen::CallOf<fusegen::FUSEGEN_KERNEL>);
#endif

#ifdef FUSEGEN_FILLS
// Fills the table of one turn; past the last turn there is none.
extern "C" __global__ void __launch_bounds__(128) fill(int turn) {
  const bool last = turn == fusegen::MOST_TURNS - 1;
  fusegen::CallOf<fusegen::FUSEGEN_KERNEL> call{};
  call.stream = &turn;
  fusegen::run_thread<fusegen::FUSEGEN_KERNEL, fusegen::Element>(call);
  if (last && turn < -1) __trap();
}
#endif
