#pragma once
// The launches of a product: the split of the right factor, the product by halves, and that by TF32, which leaves at
// once where halves multiply all columns.
#include "cuda/block_memory.cuh"
#include "cuda/split_product.cuh"

namespace fusegen {
namespace {

inline const char* error_of_launch() {
  const auto error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

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

// A GPU, the stream of a launch, and how many blocks run at once.
struct Gpu {
  int device, multiprocessors;
  cudaStream_t stream;
};

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
  if (error != cudaSuccess) return cudaGetErrorString(error);
  const int64_t tiles = (of.rows + LEFT_ROWS - 1) / LEFT_ROWS * ((of.columns + By::COLUMNS - 1) / By::COLUMNS);
  const int blocks = int(std::min<int64_t>(tiles, gpu.multiprocessors));
  kernel<<<blocks, PRODUCT_THREADS, Layout<By>::BYTES, gpu.stream>>>(left, right, of, behind);
  return error_of_launch();
}

// Fills the tiles of 128 columns all multiprocessors? Else they have 64.
inline bool fills(const Product& of, int multiprocessors) {
  return (of.rows + LEFT_ROWS - 1) / LEFT_ROWS * ((of.columns + 127) / 128) >= multiprocessors;
}

// Launches all of it, with what computes a result from a sum.
template <Terms TERMS, class Behind>
const char* launch_all(const Product& of, const Behind& behind, int device, void* stream) {
  const OnDevice on(device);
  if (on.error != cudaSuccess) return cudaGetErrorString(on.error);
  if (encoder() == nullptr) return "this driver has no cuTensorMapEncodeTiled";
  Gpu gpu = {device, 1, static_cast<cudaStream_t>(stream)};
  cudaDeviceGetAttribute(&gpu.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaMemsetAsync(of.columns_known, 0, (1 + groups(of)) * 4, gpu.stream);
  split_kernel<<<unsigned(of.columns), SPLIT_THREADS, 0, gpu.stream>>>(of);
  const char* error = error_of_launch();
  if (error == nullptr)
    error = fills(of, gpu.multiprocessors) ? launch_product<ByHalves<128, TERMS>>(of, behind, gpu)
                                           : launch_product<ByHalves<64, TERMS>>(of, behind, gpu);
  return error == nullptr ? launch_product<ByTf32<TERMS>>(of, behind, gpu) : error;
}

}  // namespace
}  // namespace fusegen

// Defines the launch of a product whose left factor has its terms together or apart.
#define FUSEGEN_PRODUCT(NAME, TERMS)                                                           \
  extern "C" const char* NAME##_launch(const fusegen::Product& of, int device, void* stream) { \
    constexpr auto TERMS_OF_LEFT = fusegen::Terms::TERMS;                                      \
    return fusegen::launch_all<TERMS_OF_LEFT>(of, fusegen::Itself(), device, stream);          \
  }
