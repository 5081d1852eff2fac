#pragma once
// The binding of a product of matrices that is one kernel with what comes behind it.
#include "stable_abi_product.h"

namespace fusegen {
namespace {

// As the dispatcher calls it: the tensors of a product, the operands of a kernel of IN inputs besides its first, its
// scalars, and the result. Tells whether it ran: not where its memory could not be had.
template <int IN, int PARAMS, const char* (*LAUNCH)(const Call<IN + 1, PARAMS>&, const Product&)>
void multiplied_boxed(StableIValue* stack, uint64_t, uint64_t) {
  constexpr int FACTORS = 5, COUNT = FACTORS + IN, LAST = COUNT - 1;
  Call<IN + 1, PARAMS> call{};
  Tensor tensor[COUNT];
  View view[COUNT];
  for (int k = 0; k < COUNT; ++k) tensor[k].reset(reinterpret_cast<AtenTensorHandle>(stack[k < LAST ? k : k + PARAMS]));
  if constexpr (PARAMS > 0) std::memcpy(call.param, stack + LAST, sizeof(call.param));
  describe(call, tensor, COUNT, Dtypes<FLOAT32>());
  for (int k = 0; k < COUNT; ++k) view[k] = view_of(tensor[k]);
  const View& out = view[LAST];
  const Product of = product_of({view[0], view[1], view[2], view[3], view[4], out});
  for (int k = 1; k < IN; ++k) {
    const View& operand = view[FACTORS + k - 1];
    const bool fits = operand.dim == 2 && operand.size[0] == out.size[0] && operand.size[1] == out.size[1];
    check(fits, "expected operands of the shape of the result");
    call.data[k] = const_cast<void*>(operand.data);
    std::copy(operand.stride, operand.stride + 2, call.stride[k]);
  }
  stack[0] = StableIValue(run_in_room(of, call.device, [&](const Product& whole) { return LAUNCH(call, whole); }));
}

}  // namespace
}  // namespace fusegen

// Registers a product with a kernel of IN inputs and PARAMS scalars behind it.
#define FUSEGEN_REGISTER_MULTIPLIED(NAMESPACE, KEY, NAME, IN, PARAMS)                                      \
  extern "C" const char* NAME##_multiplied_launch(const fusegen::Call<IN + 1, PARAMS>& call,               \
                                                  const fusegen::Product& of);                             \
  static const bool NAME##_multiplied_registered = [] {                                                    \
    TorchLibraryHandle library;                                                                            \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                            \
    aoti_torch_library_impl(library, #NAME "_multiplied",                                                  \
                            fusegen::multiplied_boxed<IN, PARAMS, NAME##_multiplied_launch>);              \
    return true;                                                                                           \
  }();
