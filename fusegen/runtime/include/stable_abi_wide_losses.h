#pragma once
// The binding of losses of classes whose values of rows, and the reduction of these, are in float32 where elements have
// 16 bits.
#include "stable_abi_wide_values.h"
#include "stable_abi_indices.h"

#ifdef FUSEGEN_DIVISOR
namespace fusegen {
namespace {

// The weights that an index picks in float32, as the reduction reads them beside such values: a number of each class,
// or of each element.
template <int N>
Tensor widen_weights(Tensors<N>& call, const Tensor& of, const WideDtype& wide) {
  Dims laid;
  const View view = view_of(of), like = sum_like(view, laid);
  Tensor made = new_tensor(like.dim, like.size, like.stride, wide.value, call.device);
  check(aoti_torch_copy_(made.get(), of.get(), 0) == 0, "weights cannot be converted");
  call.data[FUSEGEN_DIVISOR] = const_cast<void*>(view_of(made).data);
  auto& stride = call.stride[FUSEGEN_DIVISOR];
  int64_t whole = 1, elements = 1;
  for (int d = 0; d < call.rank; ++d) whole *= call.size[d];
  for (int64_t d = 0; d < like.dim; ++d) elements *= like.size[d];
  for (int64_t d = call.rank - 1, run = 1; d >= 0; run *= call.size[d--])
    stride[d] = d == call.rank - 1 || elements == whole ? run : 0;
  return made;
}

// As put_reduced and boxed_reduced of stable_abi_indices.h, of values in another dtype than that of the elements.
template <class OPERANDS, class TOTAL>
void put_wide_reduced(StableIValue* stack, OPERANDS& with, double known, TOTAL total) {
  auto& call = with.of->call;
  const WideDtype wide(call.dtype);
  Tensor weights;
  if (FUSEGEN_DIVISOR && known < 0 && wide.step > 1)
    weights = widen_weights(call, with.of->tensor[FUSEGEN_DIVISOR], wide);
  call.dtype = wide.value;
  put_reduced(stack, call, known, total);
}
template <int IN, int PARAMS, class DTYPES, Launcher<IN, 1, PARAMS> LAUNCH,
          const char* (*TOTAL)(const Call<IN + 1, PARAMS>&, const Reduction&)>
void boxed_wide_reduced(StableIValue* stack, uint64_t, uint64_t) {
  double known;
  std::memcpy(&known, stack + IN + PARAMS, sizeof(known));
  WideOperands<IN, 1, PARAMS, DTYPES, false> with(stack);
  const char* error = LAUNCH(with.of->call);
  check(error == nullptr, error);
  put_wide_reduced(stack, with, known, TOTAL);
}

}  // namespace
}  // namespace fusegen

#ifdef ON_CUDA
#define FUSEGEN_DECLARE_WIDE_TOTAL FUSEGEN_DECLARE_TOTAL
#else
#define FUSEGEN_DECLARE_WIDE_TOTAL(NAME, IN, PARAMS)                                                             \
  static const char* NAME##_total(const fusegen::Call<IN + 1, PARAMS>& call, const fusegen::Reduction& of) {     \
    fusegen::reduce_any_rows<IN, IN + 1>(call, of, fusegen::Dtypes<fusegen::FLOAT32, fusegen::FLOAT64>());       \
    return nullptr;                                                                                              \
  }
#endif

// Registers a kernel of values of rows with their reduction, behind FUSEGEN_REGISTER_WIDE_VALUES of it.
#define FUSEGEN_REGISTER_WIDE_REDUCED(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                      \
  FUSEGEN_DECLARE_WIDE_TOTAL(NAME, IN, PARAMS)                                                                    \
  static const bool NAME##_reduced_registered = [] {                                                              \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                        \
    TorchLibraryHandle library;                                                                                   \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                   \
    aoti_torch_library_impl(library, #NAME "_reduced",                                                            \
                            fusegen::boxed_wide_reduced<IN, PARAMS, Types, NAME##_launch, NAME##_total>);         \
    return true;                                                                                                  \
  }();
#endif
