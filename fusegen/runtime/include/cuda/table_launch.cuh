#pragma once
// The launch of kernels that read their results from a table, in the namespace of cuda/table.cuh.
template <class F, typename T>
cudaError_t launch_table(const CallOf<F>& call) {
  static std::atomic<uint64_t> devices{0};
  cudaError_t error = filled<F>(call, fill_table<F, T>, ENTRIES, devices);
  if (error != cudaSuccess) return error;
  if constexpr (F::INPUTS == 1 && std::is_same_v<T, __half>) {
    const int threads = call.numel < TABLE_LARGE ? TABLE_THREADS : TABLE_LARGE_THREADS;
    const int bytes = ENTRIES * int(sizeof(Entry<F>)) + IN_FLIGHT * threads * 16;
    const bool dense = call.dense && in_vectors<uint16_t>(call) && call.numel >= TABLE_FROM;
    int most = 0, blocks = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, call.device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, call.device);
    if (dense && most >= bytes) {
      const auto kernel = table_in_shared_memory<F>;
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
      if (error != cudaSuccess) return error;
      kernel<<<blocks, threads, bytes, static_cast<cudaStream_t>(call.stream)>>>(call);
      return cudaGetLastError();
    }
  }
  return launch<Tabulated<F, T>, uint16_t, uint16_t>(call);
}
