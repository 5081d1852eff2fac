#pragma once
// The binding of kernels of rows with an index, over PyTorch's stable ABI. FUSEGEN_DIVISOR is the input that the index
// picks the weights of a mean of, or 0.
#include "stable_abi_rows.h"
#ifndef ON_CUDA
#include "cpu/elements.h"
#endif
#include "row_total.h"
#ifndef ON_CUDA
#include "cpu/total_of_rows.h"
#endif

namespace fusegen {
namespace {

#ifndef ON_CUDA
// A tensor in front of an index, whose last dimensions have a row's elements: weights of channels have not.
#ifdef FUSEGEN_BY_CHANNEL
constexpr int WITH_ROWS = FUSEGEN_INDICES - FUSEGEN_TENSORS;
#else
constexpr int WITH_ROWS = -1;
#endif

// The place in memory of an element, by its number in the order of the dimensions.
inline int64_t place_of(const View& view, int64_t number) {
  int64_t at = 0;
  for (int64_t d = view.dim - 1; d >= 0; number /= view.size[d--]) at += number % view.size[d] * view.stride[d];
  return at;
}

// Checks that an index on the CPU picks elements of a row or none, since what is traced has no other check.
inline void check_range(const View& index, const View& in_front) {
  const int64_t dims = FUSEGEN_OVER < 0 ? -int64_t(FUSEGEN_OVER) : index.dim - FUSEGEN_OVER;
  int64_t elements = 1, rows = 1;
  bool is_dense = true;
  for (int64_t d = std::max<int64_t>(in_front.dim - dims, 0); d < in_front.dim; ++d) elements *= in_front.size[d];
  for (int64_t d = index.dim - 1; d >= 0; rows *= index.size[d--])
    is_dense = is_dense && (index.size[d] == 1 || index.stride[d] == rows);
  const auto* const picked = static_cast<const int64_t*>(index.data);
  bool is_in_range = true;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t own = picked[is_dense ? row : place_of(index, row)];
    is_in_range = is_in_range && (own == IGNORED || (own >= 0 && own < elements));
  }
  check(is_in_range, "an index is out of the range of a row's elements");
}
#endif

// In place of the function for an index in double, which takes less of a call: overload resolution finds this one.
template <int N, int P>
void describe_indices(const Call<N, P>& call, const Tensor* tensor, int count) {
  for (int k = 0; k < count; ++k) {
    int32_t dtype, type, index;
    aoti_torch_get_dtype(tensor[k].get(), &dtype);
    aoti_torch_get_device_type(tensor[k].get(), &type);
    aoti_torch_get_device_index(tensor[k].get(), &index);
    check(type == device_type() && index == call.device, "expected an index on the device of the other tensors");
    check(dtype == aoti_torch_dtype_int64(), "expected an index in int64");
#ifndef ON_CUDA
    check_range(view_of(tensor[k]), view_of(tensor[WITH_ROWS]));
#endif
  }
}

#ifdef FUSEGEN_DIVISOR
// The values of rows and their reduction as the dispatcher calls them: behind the scalars a divisor, below 0 where the
// index decides it, and the results are the reduction and the divisor.
template <int N, int PARAMS, class TOTAL>
void put_reduced(StableIValue* stack, const Call<N, PARAMS>& call, double known, TOTAL total) {
  Reduction to{};
  to.known = known;
  const int64_t room = 2 * MOST_TOTALS, step = 1;
  Tensor result = new_tensor(0, &room, &step, call.dtype, call.device);
  Tensor divisor = new_tensor(0, &room, &step, aoti_torch_dtype_float64(), call.device);
  to.result = const_cast<void*>(view_of(result).data);
  to.divisor = static_cast<double*>(const_cast<void*>(view_of(divisor).data));
  to.weights = FUSEGEN_DIVISOR;
  Tensor partial;
#ifdef ON_CUDA
  if (rows_of(call) > MOST_OF_A_BLOCK) {
    partial = new_tensor(1, &room, &step, aoti_torch_dtype_float64(), call.device);
    to.partial = static_cast<double*>(const_cast<void*>(view_of(partial).data));
  }
#endif
  const char* error = total(call, to);
  check(error == nullptr, error);
  put(stack, result);
  put(stack + 1, divisor);
}
template <int IN, int PARAMS, class DTYPES, Launcher<IN, 1, PARAMS> LAUNCH,
          const char* (*TOTAL)(const Call<IN + 1, PARAMS>&, const Reduction&)>
void boxed_reduced(StableIValue* stack, uint64_t, uint64_t) {
  double known;
  std::memcpy(&known, stack + IN + PARAMS, sizeof(known));
  RowOperands<IN, 1, PARAMS, DTYPES, false, Reduced::OUTPUT> of(stack);
  const char* error = LAUNCH(of.call);
  check(error == nullptr, error);
  put_reduced(stack, of.call, known, TOTAL);
}
#endif

}  // namespace
}  // namespace fusegen

#ifdef ON_CUDA
#define FUSEGEN_DECLARE_TOTAL(NAME, IN, PARAMS) \
  extern "C" const char* NAME##_total(const fusegen::Call<IN + 1, PARAMS>& call, const fusegen::Reduction& of);
#else
#define FUSEGEN_DECLARE_TOTAL(NAME, IN, PARAMS)                                                            \
  static const char* NAME##_total(const fusegen::Call<IN + 1, PARAMS>& call, const fusegen::Reduction& of) { \
    fusegen::reduce_any_rows<IN, IN + 1>(call, of, fusegen::FUSEGEN_DTYPES());                               \
    return nullptr;                                                                                        \
  }
#endif

// Registers a kernel of values of rows with their reduction, behind FUSEGEN_REGISTER_ROWS of it.
#define FUSEGEN_REGISTER_REDUCED(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                           \
  FUSEGEN_DECLARE_TOTAL(NAME, IN, PARAMS)                                                                         \
  static const bool NAME##_reduced_registered = [] {                                                              \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                        \
    TorchLibraryHandle library;                                                                                   \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                   \
    aoti_torch_library_impl(library, #NAME "_reduced",                                                            \
                            fusegen::boxed_reduced<IN, PARAMS, Types, NAME##_launch, NAME##_total>);              \
    return true;                                                                                                  \
  }();
