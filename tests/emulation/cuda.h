// Matrices as the copy engine reads them, described by the driver's function, on the CPU.

#pragma once

#include <cstdint>

typedef uint64_t cuuint64_t;
typedef uint32_t cuuint32_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6, CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B = 3 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };

struct CUtensorMap {
  const char* data;
  int64_t columns, rows, pitch;
  int bytes, box_columns, box_rows;
};

// As the driver has it: rows begin at multiples of 16 bytes, and a row of a box has 128 bytes.
inline CUresult cuTensorMapEncodeTiled(CUtensorMap* made, CUtensorMapDataType type, cuuint32_t, void* data,
                                       const cuuint64_t* size, const cuuint64_t* pitch, const cuuint32_t* box,
                                       const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const int bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ? 2 : 4;
  if (reinterpret_cast<uintptr_t>(data) % 16 || pitch[0] % 16 || box[0] * bytes != 128 || box[1] > 256)
    return CUDA_ERROR_INVALID_VALUE;
  *made = {static_cast<const char*>(data), int64_t(size[0]), int64_t(size[1]), int64_t(pitch[0]), bytes,
           int(box[0]), int(box[1])};
  return CUDA_SUCCESS;
}
