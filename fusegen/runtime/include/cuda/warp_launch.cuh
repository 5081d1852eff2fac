#pragma once
// The launches of a product by warps.
#include "cuda/product_gpu.cuh"
#include "cuda/warp_product.cuh"

namespace fusegen {
namespace {

template <class By, class Behind>
const char* launch_by_warps(const Product& of, const Behind& behind, const Gpu& gpu) {
  constexpr int BYTES = CopiesAhead<typename By::Tile>::BYTES;
  const auto kernel = product_by_warps<By, Behind>;
  static Told told;
  const auto error = allow(kernel, BYTES, BYTES, gpu.device, told);
  if (error != cudaSuccess) return error_text(error);
  const int blocks = int(std::min<int64_t>(tiles_of(of) * of.parts, gpu.multiprocessors));
  kernel<<<blocks, WARPS_THREADS, BYTES, gpu.stream>>>(of, behind);
  return error_text(cudaGetLastError());
}

// The launches, for a left factor whose terms lie together or apart.
template <Terms TERMS>
struct ByWarps {
  template <class Behind>
  static const char* launch(const Product& of, const Behind& behind, const Gpu& gpu) {
    const char* const error = launch_by_warps<WarpHalves<TERMS>>(of, behind, gpu);
    return error == nullptr ? launch_by_warps<WarpTf32<TERMS>>(of, behind, gpu) : error;
  }
};

}  // namespace
}  // namespace fusegen
