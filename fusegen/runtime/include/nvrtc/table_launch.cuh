#pragma once
// Results from a table in the program that NVRTC compiles, in the namespace of cuda/table.cuh: the table stays in
// global memory, where caches serve it.
template <class F, typename T>
__device__ __forceinline__ cudaError_t launch_table(const CallOf<F>& call) {
  static std::atomic<uint64_t> devices;
  filled<F>(call, fill_table<F, T>, ENTRIES, devices);
  return launch<Tabulated<F, T>, uint16_t, uint16_t>(call);
}
