#pragma once
// The GPU of a product's launches, and what they report.
#include "cuda/block_memory.cuh"

namespace fusegen {
namespace {

inline const char* error_text(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// A GPU, the stream of a launch, and how many blocks run at once.
struct Gpu {
  int device, multiprocessors;
  cudaStream_t stream;
};

}  // namespace
}  // namespace fusegen
