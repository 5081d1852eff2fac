#pragma once
// The reduction on CUDA of values of rows in float32 beside elements of 16 bits, whose call has the dtype of values.
#include "cuda/row_total.cuh"

// Defines the function that the binding calls behind the forward kernel.
#ifdef WITHOUT_FORWARD
#define FUSEGEN_WIDE_TOTAL(NAME)
#else
#define FUSEGEN_WIDE_TOTAL(NAME)                                                                              \
  extern "C" const char* NAME##_forward_total(const fusegen::CallOf<fusegen::Forward>& call,                  \
                                              const fusegen::Reduction& of) {                                 \
    return fusegen::reduce_rows<fusegen::Forward>(call, of, fusegen::Dtypes<fusegen::FLOAT32, fusegen::FLOAT64>()); \
  }
#endif
