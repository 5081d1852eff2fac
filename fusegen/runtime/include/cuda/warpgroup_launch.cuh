#pragma once
// The launches of a product by warpgroups: that by halves, and that by TF32.
#include "cuda/product_gpu.cuh"
#include "cuda/split_product.cuh"

namespace fusegen {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function that describes a matrix to the copy engine; nullptr if there is none.
inline Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult state;
    const auto error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &state);
    return error == cudaSuccess ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return found;
}

// A matrix as the copy engine reads it, in boxes of 128 bytes of some rows.
struct Matrix {
  CUtensorMapDataType type;
  const void* data;
  int64_t columns, rows, pitch;  // in bytes
  int box_columns, box_rows;
};
inline bool describe_matrix(CUtensorMap& made, const Matrix& of) {
  const cuuint64_t size[] = {cuuint64_t(of.columns), cuuint64_t(of.rows)}, pitch[] = {cuuint64_t(of.pitch)};
  const cuuint32_t box[] = {cuuint32_t(of.box_columns), cuuint32_t(of.box_rows)}, step[] = {1, 1};
  return encoder()(&made, of.type, 2, const_cast<void*>(of.data), size, pitch, box, step,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
template <class By>
Matrix right_matrix(const Product& of) {
  if constexpr (By::SCRATCH > 0)
    return {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, of.right, of.terms, of.columns, of.right_pitch * 4, STEP, By::COLUMNS};
  const int64_t wide = 2 * padded(of.terms);
  return {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, of.halves, wide, of.columns, wide * 2, 2 * STEP, By::COLUMNS};
}

template <class By, class Behind>
const char* launch_product(const Product& of, const Behind& behind, const Gpu& gpu) {
  constexpr auto FLOAT = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const bool apart = By::TERMS_OF_LEFT == Terms::APART;
  const Matrix left_matrix = {FLOAT, of.left, apart ? of.rows : of.terms, apart ? of.terms : of.rows,
                              of.left_pitch * 4, STEP, apart ? STEP : LEFT_ROWS};
  CUtensorMap left, right;
  if (!describe_matrix(left, left_matrix) || !describe_matrix(right, right_matrix<By>(of)))
    return "the copy engine takes no such matrix";
  const auto kernel = product_kernel<By, Behind>;
  static Told told;
  const auto error = allow(kernel, Layout<By>::BYTES, Layout<By>::BYTES, gpu.device, told);
  if (error != cudaSuccess) return error_text(error);
  const int64_t tiles = (of.rows + LEFT_ROWS - 1) / LEFT_ROWS * ((of.columns + By::COLUMNS - 1) / By::COLUMNS);
  const int blocks = int(std::min<int64_t>(tiles * of.parts, gpu.multiprocessors));
  kernel<<<blocks, PRODUCT_THREADS, Layout<By>::BYTES, gpu.stream>>>(left, right, of, behind);
  return error_text(cudaGetLastError());
}

// Fills the tiles of 128 columns all multiprocessors? Else they have 64.
inline bool fills(const Product& of, int multiprocessors) {
  return (of.rows + LEFT_ROWS - 1) / LEFT_ROWS * ((of.columns + 127) / 128) >= multiprocessors;
}

// The launches, for a left factor whose terms lie together or apart.
template <Terms TERMS>
struct ByWarpgroups {
  template <class Behind>
  static const char* launch(const Product& of, const Behind& behind, const Gpu& gpu) {
    if (encoder() == nullptr) return "this driver has no cuTensorMapEncodeTiled";
    const char* error = by_halves(of, behind, gpu);
    return error == nullptr ? launch_product<ByTf32<TERMS>>(of, behind, gpu) : error;
  }

 private:
  template <class Behind>
  static const char* by_halves(const Product& of, const Behind& behind, const Gpu& gpu) {
    if constexpr (!std::is_same_v<Behind, Levels>)  // of which there are many tiles
      if (fills(of, gpu.multiprocessors)) return launch_product<ByHalves<128, TERMS>>(of, behind, gpu);
    return launch_product<ByHalves<64, TERMS>>(of, behind, gpu);
  }
};

}  // namespace
}  // namespace fusegen
