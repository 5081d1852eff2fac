#pragma once
// The launches of a product: the split of the right factor, the product by halves, and that by TF32, which leaves at
// once where halves multiply all columns. Warpgroups multiply on sm_90, warps by themselves on other chips from sm_80
// on. Where the terms are divided, a last kernel adds the sums of the parts.
#include "cuda/warp_launch.cuh"
#include "cuda/warpgroup_launch.cuh"

namespace fusegen {
namespace {

// The parts into which the terms are divided, so that blocks fill a GPU; the bits of a result are the same for all.
inline int parts_of(const Product& of, int multiprocessors) {
  if (of.levels == nullptr) return 1;
  const int64_t levels = levels_of(of), most = std::max<int64_t>(multiprocessors / tiles_of(of), 1);
  const int64_t each = (levels + most - 1) / most;
  return int((levels + each - 1) / each);
}

template <class Chip, class Behind>
const char* launch_on(const Product& of, const Behind& behind, const Gpu& gpu) {
  if (of.parts == 1) return Chip::launch(of, behind, gpu);
  const char* const error = Chip::launch(of, Levels(), gpu);
  if (error != nullptr) return error;
  const unsigned blocks = unsigned((of.rows * of.columns + ADDING_THREADS - 1) / ADDING_THREADS);
  const auto kernel = add_levels<Behind>;
  kernel<<<blocks, ADDING_THREADS, 0, gpu.stream>>>(of, behind);
  return error_text(cudaGetLastError());
}

// Launches all of it, with what computes a result from a sum.
template <Terms TERMS, class Behind>
const char* launch_all(Product of, const Behind& behind, int device, void* stream) {
  const OnDevice on(device);
  if (on.error != cudaSuccess) return error_text(on.error);
  Gpu gpu = {device, 1, static_cast<cudaStream_t>(stream)};
  cudaDeviceGetAttribute(&gpu.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  of.parts = parts_of(of, gpu.multiprocessors);
  cudaMemsetAsync(of.columns_known, 0, (1 + groups(of)) * 4, gpu.stream);
  split_kernel<<<unsigned(of.columns), SPLIT_THREADS, 0, gpu.stream>>>(of);
  if (const char* const error = error_text(cudaGetLastError())) return error;
#ifdef FUSEGEN_SM90A
  if (chip_of(device) == 90) return launch_on<ByWarpgroups<TERMS>>(of, behind, gpu);
#endif
  return launch_on<ByWarps<TERMS>>(of, behind, gpu);
}

}  // namespace
}  // namespace fusegen

// Defines the launch of a product whose left factor has its terms together or apart.
#define FUSEGEN_PRODUCT(NAME, TERMS)                                                           \
  extern "C" const char* NAME##_launch(const fusegen::Product& of, int device, void* stream) { \
    constexpr auto TERMS_OF_LEFT = fusegen::Terms::TERMS;                                      \
    return fusegen::launch_all<TERMS_OF_LEFT>(of, fusegen::Itself(), device, stream);          \
  }
