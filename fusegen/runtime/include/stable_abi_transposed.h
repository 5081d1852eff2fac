#pragma once
// The binding of kernels that write into a given tensor: the copy from NCHW to channels_last, and masks of dropouts.
#include "stable_abi.h"

// Registers only the form that writes into given tensors.
#define FUSEGEN_REGISTER_INTO(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                             \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                             \
  static const bool NAME##_registered = [] {                                                                     \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                       \
    TorchLibraryHandle library;                                                                                  \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                  \
    aoti_torch_library_impl(library, #NAME "_out", fusegen::boxed<IN, OUT, PARAMS, Types, NAME##_launch, true>); \
    return true;                                                                                                 \
  }();
