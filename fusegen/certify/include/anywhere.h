#pragma once
// Functions of host and device, and the standard headers of all others.

#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __CUDACC__
#define ANYWHERE __host__ __device__ __forceinline__
#else
#define ANYWHERE inline __attribute__((always_inline))
#endif
