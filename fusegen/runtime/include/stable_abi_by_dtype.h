#pragma once
#ifdef FUSEGEN_BY_DTYPE  // else the library of the binding has the kernels, too
// The kernels of a binding as libraries of their own, one for each dtype, which is built and loaded when a tensor of it
// comes: the operator KERNEL_library, which is Python, gives their functions (runtime/by_dtype.py).
#include <atomic>
#include <torch/csrc/stable/c/shim.h>
#include "call.h"
#include "layout.h"
#include "names.h"

namespace fusegen {
namespace {

// Those that the library of a dtype has, by address; others are null.
struct Functions {
  void *launch, *workspace, *reduce;
};
constexpr int MOST_DTYPES = 16;  // numbers in c10::ScalarType of those of kernels lie below

const Functions& functions_of(std::atomic<const Functions*> (&known)[MOST_DTYPES], const char* kernel, int dtype) {
  const Functions* found = known[dtype].load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  const std::string name = std::string(names().space) + "::" + operator_name(kernel) + "_library";
  StableIValue stack[] = {StableIValue(dtype)};
  check(aoti_torch_call_dispatcher(name.c_str(), "", stack) == 0, "a kernel could not be loaded");
  const int64_t address = int64_t(stack[0]);  // or of what went wrong, negative
  check(address > 0, reinterpret_cast<const char*>(-address));
  found = reinterpret_cast<const Functions*>(address);
  known[dtype].store(found, std::memory_order_release);
  return *found;
}

}  // namespace
}  // namespace fusegen

// Defines the functions that a registration declares.
#define FUSEGEN_FIND_FUNCTIONS(NAME, CALL)                                                     \
  static std::atomic<const fusegen::Functions*> NAME##_known[fusegen::MOST_DTYPES];            \
  static const fusegen::Functions& NAME##_functions(const CALL& call) {                        \
    return fusegen::functions_of(NAME##_known, #NAME, call.dtype);                             \
  }                                                                                            \
  extern "C" int64_t NAME##_workspace(const CALL& call) {                                      \
    return reinterpret_cast<int64_t (*)(const CALL&)>(NAME##_functions(call).workspace)(call); \
  }
#define FUSEGEN_FIND_WITH(NAME, FOUND, FUNCTION, CALL)                                                          \
  extern "C" const char* FOUND(const CALL& call, void* to) {                                                    \
    return reinterpret_cast<const char* (*)(const CALL&, void*)>(NAME##_functions(call).FUNCTION)(call, to);    \
  }
#ifdef FUSEGEN_REGISTER_CHANNELS
#define FUSEGEN_FIND(NAME, IN, OUT, PARAMS)                              \
  namespace fusegen { using NAME##_call = Call<IN + OUT, PARAMS>; }      \
  FUSEGEN_FIND_FUNCTIONS(NAME, fusegen::NAME##_call)                     \
  FUSEGEN_FIND_WITH(NAME, NAME##_launch, launch, fusegen::NAME##_call)
#else
#define FUSEGEN_FIND(NAME, IN, OUT, PARAMS)                                                               \
  namespace fusegen { using NAME##_call = Call<IN + OUT, PARAMS>; }                                       \
  FUSEGEN_FIND_FUNCTIONS(NAME, fusegen::NAME##_call)                                                      \
  FUSEGEN_FIND_WITH(NAME, NAME##_reduce, reduce, fusegen::NAME##_call)                                    \
  extern "C" const char* NAME##_launch(const fusegen::NAME##_call& call) {                                \
    return reinterpret_cast<const char* (*)(const fusegen::NAME##_call&)>(NAME##_functions(call).launch)(call); \
  }
#endif
#endif
