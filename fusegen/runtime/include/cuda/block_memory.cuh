#pragma once
// The shared memory that the blocks of a kernel may take.
#include <atomic>
#include "cuda/launch.cuh"

namespace fusegen {
namespace {

// The shared memory that each device has been told to give the blocks of a kernel.
using Told = std::atomic<int>[64];

// Tells a device, unless it knows, that blocks of a kernel may take all shared memory that there is for one: not what
// this call takes, as another thread may be about to launch the kernel with more.
template <typename Kernel>
cudaError_t allow(Kernel kernel, int bytes, int most, int device, Told& told) {
  if (device < 64 && bytes <= told[device].load()) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  if (error == cudaSuccess && device < 64) told[device] = most;
  return error;
}

}  // namespace
}  // namespace fusegen
