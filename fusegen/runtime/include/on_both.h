#pragma once
// A function that host code calls, too. One that is HOST_DEVICE is the device's alone on CUDA: called by host code, it
// ends the process.
#ifdef __CUDACC__
#define ON_BOTH __host__ __device__ inline
#else
#define ON_BOTH inline
#endif
