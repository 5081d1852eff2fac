#pragma once
// The binding of kernels of rows whose values of rows are in float32 where elements have 16 bits. Other bindings take
// the tensors of these as ones of 16 bits in the same memory, with twice the strides.
#include <optional>
#include "stable_abi_rows.h"
#ifdef FUSEGEN_ORDER
#include "stable_abi_row_results.h"
#endif

namespace fusegen {
namespace {

int dtype_of(const Tensor& tensor) {
  int32_t dtype = 0;
  aoti_torch_get_dtype(tensor.get(), &dtype);
  return dtype;
}

// The dtype of values of rows, and how many elements have the bytes of one.
struct WideDtype {
  int element, value;
  int64_t step;
  explicit WideDtype(int element)
      : element(element),
        value(aoti_torch_dtype_element_size(element) == 2 ? aoti_torch_dtype_float32() : element),
        step(value == element ? 1 : 2) {}

  // The view of values as elements.
  View narrowed(const View& values, Dims& laid) const {
    int64_t* const stride = laid.resize(values.dim);
    for (int64_t d = 0; d < values.dim; ++d) stride[d] = values.stride[d] * step;
    return {values.data, values.dim, values.size, stride};
  }

  // A tensor of elements in the memory of given values, for a stack.
  StableIValue as_elements(const Tensor& values) const {
    check(dtype_of(values) == value, "expected values of rows in float32 beside 16 bits, else in the others' dtype");
    int32_t index;
    aoti_torch_get_device_index(values.get(), &index);
    Dims laid;
    const View view = narrowed(view_of(values), laid);
    AtenTensorHandle made = nullptr;
    check(aoti_torch_create_tensor_from_blob(const_cast<void*>(view.data), view.dim, view.size, view.stride, 0, element,
                                             device_type(), index, &made) == 0,
          "values of rows cannot be read");
    return reinterpret_cast<StableIValue>(made);
  }
};

// Tensors of a stack, which are ours to release until they are put back.
template <int COUNT>
struct Taken {
  Tensor tensor[COUNT];
  explicit Taken(const StableIValue* stack) {
    for (int k = 0; k < COUNT; ++k) tensor[k].reset(reinterpret_cast<AtenTensorHandle>(stack[k]));
  }
  void put_back(StableIValue* stack) {
    for (int k = 0; k < COUNT; ++k) put(stack + k, tensor[k]);
  }
};

#ifdef FUSEGEN_ORDER
// The tensors of values of rows of a forward kernel, contiguous; what is given is copied to.
template <bool GIVEN>
struct WideResults : RowResults<GIVEN> {
  template <int N, int P>
  void make(Call<N, P>& call, int at, const View& whole) {
    const WideDtype wide(call.dtype);
    const int64_t first = first_of_row(FUSEGEN_OVER, whole.dim);
    Dims laid;
    const View rows = sum_like({nullptr, first, whole.size, nullptr}, laid);
    for (int k = 0; k < OF_ROWS; ++k) {
      if constexpr (GIVEN) {
        check(dtype_of(this->given[k]) == wide.value, FUSEGEN_EXPECTED);
        check_output(view_of(this->given[k]), first, whole.size);
      }
      this->made[k] = new_tensor(first, rows.size, rows.stride, wide.value, call.device);
      call.data[at + k] = const_cast<void*>(view_of(this->made[k]).data);
      call.stride[at + k][call.rank - 1] = 0;
      int64_t run = wide.step;  // the dimensions of the rows are in their order, neighbours merged
      for (int d = call.rank - 2; d >= 0; run *= call.size[d--]) call.stride[at + k][d] = run;
    }
  }
};

// A forward kernel with results of two shapes, as the dispatcher calls it.
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN>
void boxed_wide_values(StableIValue* stack, uint64_t, uint64_t) {
  constexpr int ELEMENTS = OUT - OF_ROWS, FIRST = IN + PARAMS;
  StableIValue own[FIRST + ELEMENTS];
  std::copy(stack, stack + FIRST, own);
  WideResults<GIVEN> results;
  results.take(stack + FIRST, own + FIRST);
  RowOperands<IN, ELEMENTS, PARAMS, DTYPES, GIVEN, Reduced::NONE> of(own);
  auto call = with_room<OF_ROWS>(of.call, IN);
  results.make(call, IN, view_of(of.tensor[IN]));
  const char* error = LAUNCH(call);
  check(error == nullptr, error);
  of.finish();
  results.finish();
  for (int k = 0; k < OUT && !GIVEN; ++k)
    put(stack + ORDER[k], k < OF_ROWS ? results.made[k] : of.tensor[IN + k - OF_ROWS]);
}

constexpr int WIDE_INCOMING = OF_ROWS, INCOMING = OF_BOTH;
constexpr int place_of_wide(int k) { return ORDER[k]; }
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN>
constexpr auto OF_ELEMENTS = boxed_gradients<IN, OUT, PARAMS, DTYPES, LAUNCH, GIVEN>;
#else
// The sizes of the rows of some tensors, which broadcast, as a view without gaps.
template <int IN>
View rows_of_inputs(const Tensor (&tensor)[IN], Dims& sizes, Dims& strides) {
  View view[IN];
  int64_t dim = 0;
  for (int k = 0; k < IN; ++k) {
    view[k] = view_of(tensor[k]);
    dim = std::max(dim, view[k].dim);
  }
  const int64_t first = first_of_row(FUSEGEN_OVER, dim);
  int64_t* const size = sizes.resize(first);
  for (int64_t d = 0; d < first; ++d) {
    size[d] = 1;
    for (const View& each : view)
      if (const int64_t own = d - (dim - each.dim); own >= 0 && each.size[own] != 1) size[d] = each.size[own];
  }
  return sum_like({nullptr, first, size, nullptr}, strides);
}

// A forward kernel whose results are values of rows, and their tensors: new ones, or those behind the arguments.
template <int IN, int OUT, int PARAMS, class DTYPES, bool GIVEN>
struct WideOperands {
  static constexpr int FIRST = IN + PARAMS;
  Tensor values[OUT];
  std::optional<RowOperands<IN, OUT, PARAMS, DTYPES, true, Reduced::OUTPUT>> of;

  explicit WideOperands(const StableIValue* stack) {
    StableIValue own[FIRST + OUT];
    std::copy(stack, stack + FIRST, own);
    Taken<IN> inputs(stack);
    Dims sizes, strides;
    const View rows = rows_of_inputs(inputs.tensor, sizes, strides);
    const WideDtype wide(dtype_of(inputs.tensor[0]));
    int32_t index;
    aoti_torch_get_device_index(inputs.tensor[0].get(), &index);
    for (int k = 0; k < OUT; ++k)
      if constexpr (GIVEN) {
        values[k].reset(reinterpret_cast<AtenTensorHandle>(stack[FIRST + k]));
        check_output(view_of(values[k]), rows.dim, rows.size);
      } else values[k] = new_tensor(rows.dim, rows.size, rows.stride, wide.value, index);
    for (int k = 0; k < OUT; ++k) own[FIRST + k] = wide.as_elements(values[k]);
    inputs.put_back(own);
    of.emplace(own);
  }
};

// The same as the dispatcher calls it.
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN>
void boxed_wide_values(StableIValue* stack, uint64_t, uint64_t) {
  WideOperands<IN, OUT, PARAMS, DTYPES, GIVEN> with(stack);
  const char* error = LAUNCH(with.of->call);
  check(error == nullptr, error);
  for (int k = 0; k < OUT && !GIVEN; ++k) put(stack + k, with.values[k]);
}

constexpr int WIDE_INCOMING = FUSEGEN_RESULTS, INCOMING = FUSEGEN_RESULTS;
constexpr int place_of_wide(int k) { return k; }
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN>
constexpr auto OF_ELEMENTS = boxed_rows<IN, OUT, PARAMS, DTYPES, LAUNCH, GIVEN, Reduced::INPUT>;
#endif

// A gradient as the dispatcher calls it: another binding takes incoming gradients of values of rows as elements.
template <int IN, void (*OF_ELEMENTS)(StableIValue*, uint64_t, uint64_t)>
void boxed_wide_incoming(StableIValue* stack, uint64_t count, uint64_t results) {
  Taken<IN> inputs(stack);
  const WideDtype wide(dtype_of(inputs.tensor[INCOMING]));
  Tensor grads[WIDE_INCOMING];
  for (int k = 0; k < WIDE_INCOMING; ++k) {
    Tensor& own = inputs.tensor[place_of_wide(k)];
    const StableIValue elements = wide.as_elements(own);
    grads[k] = std::move(own);
    own.reset(reinterpret_cast<AtenTensorHandle>(elements));
  }
  inputs.put_back(stack);
  OF_ELEMENTS(stack, count, results);
}
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN>
constexpr auto boxed_wide_gradients = boxed_wide_incoming<IN, OF_ELEMENTS<IN, OUT, PARAMS, DTYPES, LAUNCH, GIVEN>>;

}  // namespace
}  // namespace fusegen

// Registers a kernel by one of the functions above, as FUSEGEN_REGISTER_ROWS does another one.
#define FUSEGEN_REGISTER_WIDE_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, BOXED, LAUNCH)                    \
  static const bool NAME##_registered = [] {                                                              \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                \
    constexpr auto launch = LAUNCH;                                                                       \
    TorchLibraryHandle library;                                                                           \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                           \
    aoti_torch_library_impl(library, #NAME, fusegen::BOXED<IN, OUT, PARAMS, Types, launch, false>);       \
    aoti_torch_library_impl(library, #NAME "_out", fusegen::BOXED<IN, OUT, PARAMS, Types, launch, true>); \
    return true;                                                                                          \
  }();
#define FUSEGEN_REGISTER_WIDE_VALUES(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                           \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                  \
  FUSEGEN_REGISTER_WIDE_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, boxed_wide_values, NAME##_launch)
#define FUSEGEN_REGISTER_WIDE_GRADIENTS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                        \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                  \
  FUSEGEN_REGISTER_WIDE_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, boxed_wide_gradients, NAME##_launch)
#define FUSEGEN_REGISTER_WIDE_GRADIENTS_WITH_SUMS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)              \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                  \
  extern "C" int64_t NAME##_workspace(const fusegen::Call<IN + OUT, PARAMS>& call);                   \
  extern "C" const char* NAME##_reduce(const fusegen::Call<IN + OUT, PARAMS>& call, void* to);        \
  FUSEGEN_REGISTER_WIDE_BY(                                                                           \
      NAMESPACE, KEY, NAME, IN, OUT, PARAMS, boxed_wide_gradients,                                        \
      (fusegen::launch_rows_with_sums<IN, OUT, PARAMS, NAME##_launch, NAME##_workspace, NAME##_reduce>))
