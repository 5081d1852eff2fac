#pragma once
// The functions that the binding calls. WITHOUT_FORWARD and WITHOUT_BACKWARD leave one of the two out.
#include "call.h"

#define FUSEGEN_LAUNCHER(NAME, F)                                                 \
  extern "C" const char* NAME##_launch(const fusegen::CallOf<fusegen::F>& call) { \
    return fusegen::run<fusegen::F>(call);                                        \
  }
#ifdef WITHOUT_FORWARD
#define FUSEGEN_FORWARD(NAME)
#else
#define FUSEGEN_FORWARD(NAME) FUSEGEN_LAUNCHER(NAME##_forward, Forward)
#endif
#ifdef WITHOUT_BACKWARD
#define FUSEGEN_BACKWARD(NAME)
#else
#define FUSEGEN_BACKWARD(NAME) FUSEGEN_LAUNCHER(NAME##_backward, Backward)
#endif
#define FUSEGEN_KERNELS(NAME) \
  FUSEGEN_FORWARD(NAME)       \
  FUSEGEN_BACKWARD(NAME)

// The same of several tensors, with the gradients of those that are broadcast, for which there is a workspace.
#ifdef WITHOUT_BACKWARD
#define FUSEGEN_REDUCING(NAME)
#else
#define FUSEGEN_REDUCING(NAME)                                                                              \
  extern "C" int64_t NAME##_backward_workspace(const fusegen::CallOf<fusegen::Backward>& call) {            \
    return fusegen::workspace_bytes<fusegen::Backward>(call);                                               \
  }                                                                                                         \
  extern "C" const char* NAME##_backward_reduce(const fusegen::CallOf<fusegen::Backward>& call, void* to) { \
    return fusegen::run_reducing<fusegen::Backward>(call, to);                                              \
  }
#endif
#define FUSEGEN_BROADCASTING_KERNELS(NAME) \
  FUSEGEN_KERNELS(NAME)                    \
  FUSEGEN_REDUCING(NAME)
