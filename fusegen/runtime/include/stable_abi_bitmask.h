#pragma once
// The binding of kernels with a bitmask: the forward kernel stores a bit an element, which decides its gradient.
#include "stable_abi.h"

namespace fusegen {
namespace {

#ifdef ON_CUDA
constexpr bool HAS_BITMASKS = true;
#else
constexpr bool HAS_BITMASKS = false;
#endif

// A bitmask has a byte for each 16-byte vector of dense tensors on a GPU, and none where these do not come in whole
// ones.
template <class Operands>
int64_t bitmask_size(const Operands& of) {
  const int64_t bytes = of.call.numel * of.bytes;
  return HAS_BITMASKS && of.call.dense && of.call.aligned && bytes % 16 == 0 ? bytes / 16 : 0;
}

// Launches the kernel with a bitmask, or the other where the bitmask is not one of such tensors.
template <auto LAUNCH, auto BITMASK_LAUNCH, class Operands>
void launch_with(const Operands& of, const Tensor& mask) {
  if (of.call.numel == 0) return;
  const View bits = view_of(mask);
  const char* error = nullptr;
  const bool fits = bits.dim == 1 && bits.size[0] > 0 && bits.size[0] == bitmask_size(of);
  if constexpr (HAS_BITMASKS) error = fits ? BITMASK_LAUNCH(of.call, const_cast<void*>(bits.data)) : LAUNCH(of.call);
  else error = LAUNCH(of.call);
  check(error == nullptr, error);
}

template <int PARAMS, class DTYPES, auto LAUNCH, auto BITMASK_LAUNCH, bool GIVEN>
void forward_write_bitmask(StableIValue* stack, uint64_t, uint64_t) {
  Operands<1, 1, PARAMS, DTYPES, GIVEN> of(stack);
  const int64_t size = bitmask_size(of), stride = 1;
  Tensor mask = new_tensor(1, &size, &stride, aoti_torch_dtype_uint8(), of.call.device);
  launch_with<LAUNCH, BITMASK_LAUNCH>(of, mask);
  if (!GIVEN) put(stack++, of.tensor[1]);
  put(stack, mask);
}

// Copies the incoming gradient, unless it lies as the tensor beside it does.
[[maybe_unused]] void lay_alike(StableIValue* stack) {
  Tensor grad(reinterpret_cast<AtenTensorHandle>(stack[0])), tensor(reinterpret_cast<AtenTensorHandle>(stack[1]));
  const View from = view_of(grad), to = view_of(tensor);
  const bool aligned = reinterpret_cast<uintptr_t>(from.data) % 16 == 0;
  if (from.dim != to.dim || !std::equal(to.stride, to.stride + to.dim, from.stride) || !aligned) {
    int32_t dtype, device;
    aoti_torch_get_dtype(tensor.get(), &dtype);
    aoti_torch_get_device_index(tensor.get(), &device);
    Tensor copy = new_tensor(to.dim, to.size, to.stride, dtype, device);
    check(aoti_torch_copy_(copy.get(), grad.get(), 0) == 0, "the incoming gradient cannot be copied");
    grad = std::move(copy);
  }
  put(stack, grad);
  put(stack + 1, tensor);
}

// ALONE where the tensor has been written over, so that the bitmask is all there is.
template <int PARAMS, class DTYPES, auto LAUNCH, auto BITMASK_LAUNCH, bool ALONE>
void backward_read_bitmask(StableIValue* stack, uint64_t, uint64_t) {
  constexpr int INPUTS = 2;
  const Tensor mask(reinterpret_cast<AtenTensorHandle>(stack[INPUTS + PARAMS]));
  if (ALONE) lay_alike(stack);
  Operands<INPUTS, 1, PARAMS, DTYPES, false> of(stack);
  check(!ALONE || view_of(mask).size[0] == bitmask_size(of), "the mask is of another tensor");
  launch_with<LAUNCH, BITMASK_LAUNCH>(of, mask);
  put(stack, of.tensor[INPUTS]);
}

}  // namespace
}  // namespace fusegen

// Registers FUNCTION of a kernel with a bitmask under two names, for false and for true.
#define FUSEGEN_REGISTER_BITMASK(NAMESPACE, KEY, NAME, FUNCTION, INPUTS, PARAMS, NAMED, OTHER)             \
  extern "C" const char* NAME##_masked_launch(const fusegen::Call<INPUTS + 1, PARAMS>& call, void* mask);  \
  static const bool NAME##_masked_registered = [] {                                                        \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                 \
    TorchLibraryHandle library;                                                                            \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                            \
    aoti_torch_library_impl(library, NAMED,                                                                \
                            fusegen::FUNCTION<PARAMS, Types, NAME##_launch, NAME##_masked_launch, false>); \
    aoti_torch_library_impl(library, OTHER,                                                                \
                            fusegen::FUNCTION<PARAMS, Types, NAME##_launch, NAME##_masked_launch, true>);  \
    return true;                                                                                           \
  }();
#define FUSEGEN_REGISTER_BITMASK_FORWARD(NAMESPACE, KEY, NAME, PARAMS)                                                \
  FUSEGEN_REGISTER_BITMASK(NAMESPACE, KEY, NAME##_forward, forward_write_bitmask, 1, PARAMS, #NAME "_forward_masked", \
                           #NAME "_forward_masked_out")
#define FUSEGEN_REGISTER_BITMASK_BACKWARD(NAMESPACE, KEY, NAME, PARAMS)                       \
  FUSEGEN_REGISTER_BITMASK(NAMESPACE, KEY, NAME##_backward, backward_read_bitmask, 2, PARAMS, \
                           #NAME "_backward_masked", #NAME "_backward_by_mask")
