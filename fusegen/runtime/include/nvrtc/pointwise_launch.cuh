#pragma once
// The work of a kernel in the program that NVRTC compiles, in the namespace of cuda/pointwise.cuh. Launches are
// Python's: a function that launches a kernel for nvcc is run by each thread here, and computes what the thread has
// to.

// The row for the largest tensors on a chip: as on the next older chip where it has none.
template <class Row>
constexpr Row largest(const Row* row, int chip) {
  const Row* found = row;
  for (const Row* next = row + 1; next->threads && (next->chip <= chip || next->chip == row->chip); ++next)
    found = next;
  return *found;
}
template <class F, typename T>
constexpr auto LARGEST = largest(launches<F, T>(), FUSEGEN_CHIP);
template <class Row>
constexpr int prefetched(const Row& row) {
  if constexpr (std::is_same_v<Row, PrefetchLaunch>) return row.prefetch_blocks;
  else return 0;
}

// Computes the elements of a thread in M; nothing where the thread fills a table.
template <class F, typename T, typename M>
__device__ __forceinline__ cudaError_t launch(const CallOf<F>& call) {
  constexpr auto by = LARGEST<F, T>;
  constexpr int VECTORS = FUSEGEN_DENSE ? by.vectors : 0;
  if (call.stream != nullptr) return cudaSuccess;
  const auto p = params<ParamsOf<F, M>>(call);
  if constexpr (F::TWO_PHASES && VECTORS > 0) both_phases<F, T, M, VECTORS>(call, prefetched(by), p);
  else compute_block<F, T, M, VECTORS>(call, call.aligned, prefetched(by), p);
  return cudaSuccess;
}

// Sums are added up by PyTorch, of gradients that are computed as other results are.
template <class F, typename T, typename M>
cudaError_t reduce_with(const CallOf<F>& call, void*);

template <typename M>
struct FormulaLaunch {
  template <class F, typename T>
  static __device__ __forceinline__ cudaError_t launch(const CallOf<F>& call) {
    return fusegen::launch<F, T, M>(call);
  }
};
