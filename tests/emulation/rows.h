// Rows on the CPU: lanes of a warp that show one another values, and launches of clusters of one block.

#pragma once

#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "cuda_emulation.h"

#define __shared__ static

struct double2 {
  double x, y;
};
inline unsigned __brev(unsigned bits) {
  unsigned all = 0;
  for (int k = 0; k < 32; ++k) all |= (bits >> k & 1) << (31 - k);
  return all;
}
inline float __uint_as_float(unsigned bits) { return bits_as<float>(bits); }

inline ShownInWarp<double> shown;
template <typename V>
V __shfl_sync(unsigned, V value, int from) {
  return V(shown.show(double(value))[from]);
}
template <typename V>
V __shfl_xor_sync(unsigned, V value, int distance) {
  return V(shown.show(double(value))[lane_of_warp() ^ distance]);
}

inline unsigned __ballot_sync(unsigned, int holds) {
  const auto& of_lanes = shown.show(holds);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= unsigned(of_lanes[lane] != 0) << lane;
  return bits;
}

constexpr auto cudaFuncAttributeNonPortableClusterSizeAllowed = cudaFuncAttribute(14);
enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension = 4 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    dim3 clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  if (config->numAttrs > 0) return cudaErrorInvalidValue;
  const size_t bytes = config->dynamicSmemBytes ? config->dynamicSmemBytes : 16;  // so that threads wait for others
  emulate(kernel, config->gridDim.x, config->blockDim.x, bytes, config->stream, arguments...);
  return cudaSuccess;
}

inline cudaError_t cudaMallocAsync(void** to, size_t bytes, cudaStream_t) {
  *to = std::malloc(bytes);
  if (*to != nullptr) std::memset(*to, -1, bytes);  // NaN, so that what no block has written is seen
  else emulation.launch_error = cudaErrorMemoryAllocation;  // until cudaGetLastError takes it
  return *to != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  std::free(memory);
  return cudaSuccess;
}

// Launches of blocks whose threads wait for one another, whatever the shared memory that they ask for.
template <typename... Parameters, typename... Arguments>
void emulate_together(void (*kernel)(Parameters...), int64_t blocks, unsigned threads, size_t bytes, cudaStream_t stream,
                      const Arguments&... arguments) {
  emulate(kernel, blocks, threads, bytes + 16, stream, arguments...);
}
template <typename... Parameters, typename... Arguments>
void emulate_together(void (*kernel)(Parameters...), dim3 grid, unsigned threads, size_t bytes, cudaStream_t stream,
                      const Arguments&... arguments) {
  if (grid.z > 1) emulation.launch_error = cudaErrorInvalidValue;
  gridDim.y = grid.y;
  for (blockIdx.y = 0; blockIdx.y < grid.y && grid.z == 1; ++blockIdx.y)
    emulate(kernel, grid.x, threads, bytes + 16, stream, arguments...);
  blockIdx.y = 0;
}
