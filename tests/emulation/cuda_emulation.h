// CUDA on the CPU, one thread after the other: enough of it to run a generated module's own text. The threads of a
// block that has shared memory take turns, since they wait for one another.
//
// A kernel launched as kernel<<<blocks, threads, shared, stream>>>(arguments) has been rewritten as
// emulate(kernel, blocks, threads, shared, stream, arguments), extern __shared__ T name[]; as
// T* name = shared<T>(); and the instruction that prefetches as fetched(from, bytes);

#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "block.h"

#define __global__
#define __device__
#define __constant__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict

typedef struct CUstream_st* cudaStream_t;
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101
};

// What a test sets, and what it reads afterwards.
struct Emulation {
  int64_t first_block = 0;          // blocks before it are not run: the far end of a huge tensor
  int device = 0;                   // the current device, of two
  int launch_error = 0;             // what the launch will report
  int launched_on = -1;             // the device that was current at the launch
  void* launched_stream = nullptr;  // the stream of the launch
  int64_t launches = 0, blocks = 0;
  int chip = 90;                    // what the devices are
  int threads = 0;                  // of a block of the launch
  int shared = 0;                   // bytes that a block may have
  int capturing = 0;                // whether streams are being captured
  int64_t waits = 0;                // how often a stream was waited for
  int64_t fetches = 0;              // how often something was prefetched
  const char *fetched_from = nullptr, *fetched_to = nullptr;  // between which addresses
  int64_t told = 0;                 // how often a kernel's shared memory was set
  int multiprocessors = 2;
};
extern "C" {
Emulation emulation;
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = emulation.device;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device > 1) return cudaErrorInvalidDevice;
  emulation.device = device;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  if (which == cudaDevAttrComputeCapabilityMajor) *value = emulation.chip / 10;
  if (which == cudaDevAttrComputeCapabilityMinor) *value = emulation.chip % 10;
  if (which == cudaDevAttrMaxSharedMemoryPerBlockOptin) *value = emulation.shared;
  if (which == cudaDevAttrMultiProcessorCount) *value = emulation.multiprocessors;
  return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatus(emulation.capturing);
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
  emulation.waits += 1;
  return emulation.capturing ? cudaErrorInvalidValue : cudaSuccess;
}
// The shared memory that a block may take, by kernel and device, where it is more than UNTOLD.
inline std::map<std::pair<const void*, int>, size_t> allowed;
constexpr size_t UNTOLD = 48 << 10;
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute, int bytes) {
  if (bytes > emulation.shared) return cudaErrorInvalidValue;
  emulation.told += 1;
  allowed[{reinterpret_cast<const void*>(kernel), emulation.device}] = bytes;
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return cudaError_t(std::exchange(emulation.launch_error, 0)); }
inline const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) return "out of memory";
  return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "invalid argument";
}

inline void fetched(const void* from, uint32_t bytes) {
  const auto first = static_cast<const char*>(from), last = first + bytes;
  if (emulation.fetches++ == 0) emulation.fetched_from = first;
  emulation.fetched_to = last;
  if (reinterpret_cast<uintptr_t>(first) % 16 || bytes % 16) __builtin_trap();  // as the chip has it
}

// A block's shared memory.
inline std::vector<char> shared_bytes;
template <typename T>
T* shared() {
  return reinterpret_cast<T*>(shared_bytes.data());
}

template <typename... Parameters, typename... Arguments>
void emulate(void (*kernel)(Parameters...), int64_t blocks, unsigned threads, size_t bytes, cudaStream_t stream,
             const Arguments&... arguments) {
  if (bytes > UNTOLD && bytes > allowed[{reinterpret_cast<const void*>(kernel), emulation.device}]) {
    emulation.launch_error = cudaErrorInvalidValue;
    return;
  }
  emulation.launches += 1;
  emulation.blocks = blocks;
  emulation.threads = int(threads);
  emulation.launched_on = emulation.device;
  emulation.launched_stream = stream;
  gridDim.x = unsigned(blocks);
  blockDim.x = threads;
  auto run = [&] { kernel(arguments...); };
  for (int64_t block = emulation.first_block; block < blocks; ++block) {
    blockIdx.x = unsigned(block);
    if (bytes) {
      shared_bytes.assign(bytes, char(0xff));  // NaN of every type
      run_block(threads, run);
    } else {
      for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) run();
    }
  }
}

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
struct uint4 {
  unsigned x, y, z, w;
};

// Of two words the bytes that the last three digits of each hexadecimal digit of `which` tell.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
  const uint64_t both = uint64_t(high) << 32 | low;
  unsigned all = 0;
  for (int k = 0; k < 4; ++k) all |= unsigned(both >> 8 * (which >> 4 * k & 7) & 0xff) << 8 * k;
  return all;
}
// The lower half of two words, shifted right, and the higher one, shifted left.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return unsigned((uint64_t(high) << 32 | low) >> (by & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return unsigned((uint64_t(high) << 32 | low) << (by & 31) >> 32);
}

// The place of the lowest bit that is set, from 1.
inline int __ffs(unsigned bits) { return __builtin_ffs(int(bits)); }

// The sine and cosine of pi x.
inline double sinpi(double x) {
  const double turned = std::remainder(x, 2.0), near = std::copysign(1.0, turned) - turned;
  return std::sin((std::fabs(turned) <= 0.5 ? turned : near) * 3.14159265358979324);
}
inline double cospi(double x) { return sinpi(0.5 - std::fabs(std::remainder(x, 2.0))); }
inline float sinpif(float x) { return float(sinpi(double(x))); }
inline float cospif(float x) { return float(cospi(double(x))); }

template <typename To, typename From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 v) { return bits_as<float>(uint32_t(v.bits) << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  const uint32_t bits = bits_as<uint32_t>(v);
  if (v != v) return {0x7fff};
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

inline float __half2float(__half v) {
  const uint32_t exponent = v.bits >> 10 & 31, fraction = v.bits & 0x3ff;
  float magnitude = ldexpf(float(exponent ? fraction + 1024 : fraction), int(exponent ? exponent : 1) - 25);
  if (exponent == 31) magnitude = fraction ? NAN : INFINITY;
  return v.bits >> 15 ? -magnitude : magnitude;
}
inline __half __float2half_rn(float v) {
  const uint16_t sign = uint16_t(bits_as<uint32_t>(v) >> 16 & 0x8000);
  if (v != v) return {0x7fff};
  const float magnitude = fabsf(v);
  if (magnitude >= 65520.0f) return {uint16_t(sign | 0x7c00)};
  int exponent = 0;
  frexpf(magnitude, &exponent);  // magnitude lies in [2^(exponent - 1), 2^exponent)
  if (magnitude == 0 || exponent < -13) exponent = -13;  // subnormals: as in the smallest normals
  const float places = nearbyintf(ldexpf(magnitude, 11 - exponent));  // ties to even
  return {uint16_t(sign | uint16_t((exponent + 13) * 1024 + int(places)))};
}

// Two at once.
struct __half2 {
  __half x, y;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline __half2 __floats2half2_rn(float a, float b) { return {__float2half_rn(a), __float2half_rn(b)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
