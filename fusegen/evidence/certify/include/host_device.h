#pragma once
// Functions of host and device, and the standard headers of all others.

#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HOST_DEVICE inline __attribute__((always_inline))
#endif
