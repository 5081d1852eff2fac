#pragma once
// The binding of kernels of the parts of whole tensors over PyTorch's stable ABI: results are in float64.
#include "stable_abi_rows.h"

namespace fusegen {
namespace {

// A kernel of parts as the dispatcher calls it; into a GIVEN tensor the results are copied.
template <int IN, int PARAMS, class DTYPES, Launcher<IN, 1, PARAMS> LAUNCH, bool GIVEN>
void boxed_parts(StableIValue* stack, uint64_t, uint64_t) {
  RowOperands<IN, 1, PARAMS, DTYPES, false, Reduced::OUTPUT> of(stack);
  const View view = view_of(of.tensor[IN]);
  Tensor means = new_tensor(view.dim, view.size, view.stride, aoti_torch_dtype_float64(), of.call.device);
  of.call.data[IN] = const_cast<void*>(view_of(means).data);
  const char* error = LAUNCH(of.call);
  check(error == nullptr, error);
  if constexpr (GIVEN) {
    const Tensor out(reinterpret_cast<AtenTensorHandle>(stack[IN + PARAMS]));
    check(aoti_torch_copy_(out.get(), means.get(), 0) == 0, "out cannot be written");
  } else put(stack, means);
}

}  // namespace
}  // namespace fusegen

// Registers a kernel of parts, as FUSEGEN_REGISTER does another one.
#define FUSEGEN_REGISTER_PARTS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                          \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                           \
  static const bool NAME##_registered = [] {                                                                   \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                     \
    TorchLibraryHandle library;                                                                                \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                \
    aoti_torch_library_impl(library, #NAME, fusegen::boxed_parts<IN, PARAMS, Types, NAME##_launch, false>);    \
    aoti_torch_library_impl(library, #NAME "_out", fusegen::boxed_parts<IN, PARAMS, Types, NAME##_launch, true>); \
    return true;                                                                                               \
  }();
