#pragma once
// The binding of kernels of rows over PyTorch's stable ABI. FUSEGEN_OVER is the first dimension of a row, and
// FUSEGEN_INDICES the number of inputs, the last ones, that pick an element of each row. With FUSEGEN_APART a row's
// elements may lie apart. Of the FUSEGEN_TENSORS of a module, those in the bits of FUSEGEN_BY_CHANNEL may have one
// value for several elements of a row. With FUSEGEN_FINDS the values of rows are places of elements, in int64.
// FUSEGEN_RESULTS is the number of results, each with an incoming gradient.
#ifndef FUSEGEN_RESULTS
#define FUSEGEN_RESULTS 1
#endif
#include "row_channels.h"
#include "row_layout.h"
#include "stable_abi.h"

namespace fusegen {
namespace {

// Which tensors are values of rows, without the dimensions of a row.
enum class Reduced { NONE, OUTPUT, INPUT };

// A tensor without gaps, of the elements of another one.
Tensor contiguous_copy(const Tensor& of, const View& view, int dtype, int device) {
  Dims laid;
  const View like = sum_like(view, laid);
  Tensor made = new_tensor(like.dim, like.size, like.stride, dtype, device);
  check(aoti_torch_copy_(made.get(), of.get(), 0) == 0, "a tensor cannot be copied");
  return made;
}

// Checks tensors that pick an element of each row.
template <int N>
void describe_indices(const Tensors<N>& call, const Tensor* tensor, int count) {
  for (int k = 0; k < count; ++k) {
    int32_t dtype, type, index;
    aoti_torch_get_dtype(tensor[k].get(), &dtype);
    aoti_torch_get_device_type(tensor[k].get(), &type);
    aoti_torch_get_device_index(tensor[k].get(), &index);
    check(type == device_type() && index == call.device, "expected an index on the device of the other tensors");
    check(dtype == aoti_torch_dtype_float64(), "expected an index in float64");
  }
}

// The tensors of a call, as bits, that may have one value for several elements of a row: behind incoming gradients, and
// their own gradients.
template <int IN>
constexpr unsigned by_channel() {
#ifdef FUSEGEN_BY_CHANNEL
  constexpr int GRADS = IN - FUSEGEN_TENSORS;
  return unsigned(FUSEGEN_BY_CHANNEL) << GRADS | (GRADS > 0 ? unsigned(FUSEGEN_BY_CHANNEL) << IN : 0);
#else
  return 0;
#endif
}

// The dtype of values of rows.
int dtype_of_values([[maybe_unused]] int dtype) {
#ifdef FUSEGEN_FINDS
  return aoti_torch_dtype_int64();
#else
  return dtype;
#endif
}

// The arguments of a kernel of rows: as `Operands`, with a row's elements as the last dimension.
template <int IN, int OUT, int PARAMS, class DTYPES, bool GIVEN, Reduced REDUCED>
struct RowOperands {
  static constexpr int N = IN + OUT, GIVEN_TENSORS = GIVEN ? N : IN, ALIKE = IN - FUSEGEN_INDICES;
  static constexpr int REDUCED_INPUTS = REDUCED == Reduced::INPUT ? FUSEGEN_RESULTS : 0;  // the first ones
  Call<N, PARAMS> call{};
  Tensor tensor[N], copied[N];
  Dims own[N], sizes[N], strides[N];

  explicit RowOperands(const StableIValue* stack) {
    View view[N];
    for (int k = 0; k < GIVEN_TENSORS; ++k)
      tensor[k].reset(reinterpret_cast<AtenTensorHandle>(stack[k < IN ? k : k + PARAMS]));
    if constexpr (PARAMS > 0) std::memcpy(call.param, stack + IN, sizeof(call.param));
    int64_t bytes = 0;
    if constexpr (GIVEN) {
      describe(call, tensor + IN, OUT, DTYPES());
      const int dtype = call.dtype;
      bytes = describe(call, tensor, ALIKE, DTYPES());
      check(dtype == call.dtype, FUSEGEN_EXPECTED);
    } else bytes = describe(call, tensor, ALIKE, DTYPES());
    describe_indices(call, tensor + ALIKE, FUSEGEN_INDICES);
    for (int k = 0; k < GIVEN_TENSORS; ++k) view[k] = view_of(tensor[k]);
    int64_t dim = 0;
    for (int k = REDUCED_INPUTS; k < IN; ++k) dim = std::max(dim, view[k].dim);
    const int64_t first = first_of_row(FUSEGEN_OVER, dim);
    for (int k = 0; k < REDUCED_INPUTS; ++k) view[k] = of_rows(view[k], dim, sizes[k], strides[k]);
    for (int k = IN; k < N && REDUCED == Reduced::OUTPUT && GIVEN; ++k) {
      check(view[k].dim == first, "out has another shape than the result");
      view[k] = of_rows(view[k], dim, sizes[k], strides[k]);
    }
    for (int k = 0; k < OUT && HAS_SUMS<IN, OUT> && !GIVEN; ++k) view[IN + k] = sum_like(own_input(view, k), own[k]);
    Call<N, PARAMS> whole = call;  // for the shape and the strides of the result
    const bool is_elements = REDUCED != Reduced::OUTPUT;
    const Shape shape = coalesce_dimensions<IN>(whole, view, GIVEN && is_elements, bytes);
    RowDims row{first, dim, false};
#ifdef FUSEGEN_APART
    row.apart = step_of(view[REDUCED_INPUTS], row, shape.size) != 1 && !has_sums<IN>(whole);
#endif
    const auto fits = [&](const View& view, int k) {
      const int64_t share = by_channel<IN>() >> k & 1 ? share_of(view, row, shape.size) : 1;
      if (share != 1 || (by_channel<IN>() >> k & 1 && k < IN)) return share > 0;
      const bool has_elements = k < IN ? k >= REDUCED_INPUTS : REDUCED != Reduced::OUTPUT;
      return is_fit(view, row, shape.size, bytes, has_elements);
    };
    for (int k = 0; k < GIVEN_TENSORS; ++k) {
      if ((ALIKE <= k && k < IN) || fits(view[k], k)) continue;
      copied[k] = contiguous_copy(tensor[k], view[k], call.dtype, call.device);
      view[k] = view_of(copied[k]);
    }
    for (int k = GIVEN_TENSORS; k < N; ++k) {
      const View made = is_elements ? new_output<IN>(whole, k, view[k], shape) : result(shape, first, own[k]);
      const View laid = is_elements && !fits(made, k) ? sum_like(made, strides[k]) : made;
      const int dtype = is_elements ? call.dtype : dtype_of_values(call.dtype);
      tensor[k] = new_tensor(laid.dim, laid.size, laid.stride, dtype, call.device);
      view[k] = view_of(tensor[k]);
      if (!is_elements) view[k] = of_rows(view[k], dim, sizes[k], strides[k]);
    }
    call.numel = whole.numel;
    lay_rows(call, view, row, shape.size, by_channel<IN>());
    bind_pointers(call, view);
  }

  // Writes what was computed beside a given tensor into it.
  void finish() {
    for (int k = IN; k < N; ++k)
      if (copied[k] != nullptr)
        check(aoti_torch_copy_(tensor[k].get(), copied[k].get(), 0) == 0, "out cannot be written");
  }

  // A new tensor of values of rows.
  static View result(const Shape& shape, int64_t first, Dims& laid) {
    const int64_t* const size = shape.size;
    return sum_like({nullptr, first, size, nullptr}, laid);
  }
};

// A kernel of rows as the dispatcher calls it.
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN, Reduced REDUCED>
void boxed_rows(StableIValue* stack, uint64_t, uint64_t) {
  RowOperands<IN, OUT, PARAMS, DTYPES, GIVEN, REDUCED> of(stack);
  const char* error = LAUNCH(of.call);
  check(error == nullptr, error);
  of.finish();
  for (int k = 0; k < OUT && !GIVEN; ++k) put(stack + k, of.tensor[IN + k]);
}

// Launches a kernel of rows whose outputs may be sums over the rows, which have a workspace.
template <int IN, int OUT, int PARAMS, Launcher<IN, OUT, PARAMS> LAUNCH,
          int64_t (*WORKSPACE)(const Call<IN + OUT, PARAMS>&),
          const char* (*REDUCE)(const Call<IN + OUT, PARAMS>&, void*)>
const char* launch_rows_with_sums(const Call<IN + OUT, PARAMS>& call) {
  bool any = false;
  for (int k = IN; k < IN + OUT; ++k) {
    any = any || is_sum_of_rows(call, k);
    for (int d = 0; !by_channel<IN>() && is_sum(call, k) && d < call.rank - 1; ++d)
      check(call.stride[k][d] == 0, "a gradient is a sum over some of the rows; expand its tensor");
  }
  if (!any) return LAUNCH(call);
  const int64_t bytes = WORKSPACE(call), step = 1;
  const Tensor workspace = new_tensor(1, &bytes, &step, aoti_torch_dtype_uint8(), call.device);
  return REDUCE(call, const_cast<void*>(view_of(workspace).data));
}

}  // namespace
}  // namespace fusegen

// Registers a kernel of rows, as FUSEGEN_REGISTER does another one. REDUCED says which tensors are values of rows.
#define FUSEGEN_REGISTER_ROWS_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, REDUCED, LAUNCH)                        \
  static const bool NAME##_registered = [] {                                                                    \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                      \
    constexpr auto launch = LAUNCH;                                                                             \
    constexpr auto reduced = fusegen::Reduced::REDUCED;                                                         \
    TorchLibraryHandle library;                                                                                 \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                 \
    aoti_torch_library_impl(library, #NAME,                                                                     \
                            fusegen::boxed_rows<IN, OUT, PARAMS, Types, launch, false, reduced>);               \
    aoti_torch_library_impl(library, #NAME "_out",                                                              \
                            fusegen::boxed_rows<IN, OUT, PARAMS, Types, launch, true, reduced>);                \
    return true;                                                                                                \
  }();
#define FUSEGEN_REGISTER_ROWS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, REDUCED)    \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call); \
  FUSEGEN_REGISTER_ROWS_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, REDUCED, NAME##_launch)
#define FUSEGEN_REGISTER_ROWS_WITH_SUMS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, REDUCED)                          \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                             \
  extern "C" int64_t NAME##_workspace(const fusegen::Call<IN + OUT, PARAMS>& call);                              \
  extern "C" const char* NAME##_reduce(const fusegen::Call<IN + OUT, PARAMS>& call, void* to);                   \
  FUSEGEN_REGISTER_ROWS_BY(                                                                                      \
      NAMESPACE, KEY, NAME, IN, OUT, PARAMS, REDUCED,                                                            \
      (fusegen::launch_rows_with_sums<IN, OUT, PARAMS, NAME##_launch, NAME##_workspace, NAME##_reduce>))
