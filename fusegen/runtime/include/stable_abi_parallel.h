#pragma once
// The threads of a kernel for the CPU that is compiled apart from its binding, which is stable_abi.h.
#include <torch/csrc/stable/c/shim.h>

namespace fusegen {
namespace {

// Splits begin to end over PyTorch's own threads.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context) {
  torch_parallel_for(begin, end, grain, task, context);
}

}  // namespace
}  // namespace fusegen
