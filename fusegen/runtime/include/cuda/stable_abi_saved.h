#pragma once
// The binding on CUDA of kernels of rows whose forward kernel saves FUSEGEN_SAVES numbers of a row, which the gradient
// reads, over PyTorch's stable ABI. A gradient that is given none has the forward kernel find them.
#include <string>
#include "names.h"
#include "row_phases.h"
#include "stable_abi_rows.h"

namespace fusegen {
namespace {

double* saved_in(const Tensor& saved) { return static_cast<double*>(const_cast<void*>(view_of(saved).data)); }

// Checks what is given as saved numbers of a call.
template <int N, int P>
void check_saved(const Call<N, P>& call, const Tensor& saved) {
  int32_t dtype, type, index;
  aoti_torch_get_dtype(saved.get(), &dtype);
  aoti_torch_get_device_type(saved.get(), &type);
  aoti_torch_get_device_index(saved.get(), &index);
  const View view = view_of(saved);
  check(type == device_type() && index == call.device, "expected saved numbers on the device of the other tensors");
  const bool fits = view.dim == 2 && view.size[0] == rows_of(call) && view.size[1] == FUSEGEN_SAVES;
  check(dtype == aoti_torch_dtype_float64() && fits && (view.size[0] <= 1 || view.stride[0] == FUSEGEN_SAVES) &&
            (FUSEGEN_SAVES == 1 || view.stride[1] == 1),
        "expected the saved numbers of each row in float64");
}

// Room for what is saved of the rows of a call.
template <int N, int P>
Tensor new_saved(const Call<N, P>& call) {
  const int64_t size[] = {rows_of(call), FUSEGEN_SAVES}, stride[] = {FUSEGEN_SAVES, 1};
  return new_tensor(2, size, stride, aoti_torch_dtype_float64(), call.device);
}

template <int N, int P>
using Save = const char* (*)(const Call<N, P>&, double*, bool);

// The numbers that a forward kernel saves of each row of a call; it stores its results, too, if RESULTS.
template <bool RESULTS, int N, int P>
Tensor saved_by(Save<N, P> save, const Call<N, P>& call) {
  Tensor saved = new_saved(call);
  const char* error = save(call, saved_in(saved), RESULTS);
  check(error == nullptr, error);
  return saved;
}

// The forward kernel as the dispatcher calls it: its results, if RESULTS, and what it saves of each row.
template <int IN, int OUT, int PARAMS, class DTYPES, Save<IN + OUT, PARAMS> SAVE, Reduced REDUCED, bool RESULTS>
void boxed_saving(StableIValue* stack, uint64_t, uint64_t) {
  RowOperands<IN, OUT, PARAMS, DTYPES, false, REDUCED> of(stack);
  Tensor saved = saved_by<RESULTS>(SAVE, of.call);
  for (int k = 0; k < OUT && RESULTS; ++k) put(stack + k, of.tensor[IN + k]);
  put(stack + (RESULTS ? OUT : 0), saved);
}

#ifdef FUSEGEN_DIVISOR
// The same with the reduction of the values of rows in place of these, as `boxed_reduced` has it.
template <int IN, int PARAMS, class DTYPES, Save<IN + 1, PARAMS> SAVE,
          const char* (*TOTAL)(const Call<IN + 1, PARAMS>&, const Reduction&)>
void boxed_reduced_saving(StableIValue* stack, uint64_t, uint64_t) {
  double known;
  std::memcpy(&known, stack + IN + PARAMS, sizeof(known));
  RowOperands<IN, 1, PARAMS, DTYPES, false, Reduced::OUTPUT> of(stack);
  Tensor saved = saved_by<true>(SAVE, of.call);
  put_reduced(stack, of.call, known, TOTAL);
  put(stack + 2, saved);
}
#endif

// The numbers that the forward kernel of a module saves of some inputs and scalars.
template <int INPUTS, int PARAMS>
Tensor numbers_found(const Tensor* inputs, const StableIValue* scalars) {
  StableIValue stack[INPUTS + PARAMS + 1];
  for (int k = 0; k < INPUTS; ++k) {
    AtenTensorHandle own = nullptr;
    check(aoti_torch_new_tensor_handle(inputs[k].get(), &own) == 0, "out of memory");
    stack[k] = reinterpret_cast<StableIValue>(own);
  }
  std::copy(scalars, scalars + PARAMS, stack + INPUTS);
  const std::string operation = std::string(names().space) + "::" + names().module + "_forward_numbers";
  check(aoti_torch_call_dispatcher(operation.c_str(), "", stack) == 0, "the forward kernel could not be called");
  return Tensor(reinterpret_cast<AtenTensorHandle>(stack[0]));
}

// The workspace of sums over the rows, if any output is one.
template <int IN, int OUT, int PARAMS>
Tensor room_of_sums(const Call<IN + OUT, PARAMS>& call, int64_t (*workspace)(const Call<IN + OUT, PARAMS>&)) {
  bool any = false;
  for (int k = IN; k < IN + OUT; ++k) {
    any = any || is_sum_of_rows(call, k);
    for (int d = 0; !by_channel<IN>() && is_sum(call, k) && d < call.rank - 1; ++d)
      check(call.stride[k][d] == 0, "a gradient is a sum over some of the rows; expand its tensor");
  }
  if (!any) return {};
  const int64_t bytes = workspace(call), step = 1;
  return new_tensor(1, &bytes, &step, aoti_torch_dtype_uint8(), call.device);
}

// The gradient as the dispatcher calls it: behind its inputs are the saved numbers, if IS_SAVED.
template <int IN, int OUT, int PARAMS, class DTYPES, class KERNEL, bool GIVEN, Reduced REDUCED, bool IS_SAVED>
void boxed_reading(StableIValue* stack, uint64_t, uint64_t) {
  constexpr int GRADS = FUSEGEN_RESULTS, BEHIND = PARAMS + (GIVEN ? OUT : 0);
  StableIValue own[IN + BEHIND + 1];
  std::copy(stack, stack + IN, own);
  std::copy(stack + IN + IS_SAVED, stack + IN + IS_SAVED + BEHIND, own + IN);
  Tensor saved;
  if constexpr (IS_SAVED) saved.reset(reinterpret_cast<AtenTensorHandle>(stack[IN]));
  RowOperands<IN, OUT, PARAMS, DTYPES, GIVEN, REDUCED> of(own);
  if constexpr (!IS_SAVED) saved = numbers_found<IN - GRADS, PARAMS>(of.tensor + GRADS, own + IN);
  check_saved(of.call, saved);
  Tensor room;
  if constexpr (KERNEL::HAS_SUMS) room = room_of_sums<IN, OUT, PARAMS>(of.call, KERNEL::workspace);
  void* const workspace = room ? const_cast<void*>(view_of(room).data) : nullptr;
  const char* error = KERNEL::read(of.call, workspace, saved_in(saved));
  check(error == nullptr, error);
  of.finish();
  for (int k = 0; k < OUT && !GIVEN; ++k) put(stack + k, of.tensor[IN + k]);
}
template <int IN, int OUT, int PARAMS, class DTYPES, class KERNEL, Reduced REDUCED>
struct Reading {
  template <bool GIVEN, bool IS_SAVED>
  static constexpr auto BOXED = boxed_reading<IN, OUT, PARAMS, DTYPES, KERNEL, GIVEN, REDUCED, IS_SAVED>;
};

}  // namespace
}  // namespace fusegen

// Registers, behind FUSEGEN_REGISTER_ROWS of a forward kernel NAME, those of its operators that save.
#define FUSEGEN_REGISTER_SAVING_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, SAVING, NUMBERS)                          \
  extern "C" const char* NAME##_save(const fusegen::Call<IN + OUT, PARAMS>& call, double* to, bool stores);         \
  static const bool NAME##_saving_registered = [] {                                                                 \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                          \
    TorchLibraryHandle library;                                                                                     \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                     \
    aoti_torch_library_impl(library, #NAME "_saving", SAVING);                                                      \
    aoti_torch_library_impl(library, #NAME "_numbers", NUMBERS);                                                    \
    return true;                                                                                                    \
  }();
#define FUSEGEN_REGISTER_SAVING(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, REDUCED)                                     \
  FUSEGEN_REGISTER_SAVING_BY(                                                                                       \
      NAMESPACE, KEY, NAME, IN, OUT, PARAMS,                                                                        \
      (fusegen::boxed_saving<IN, OUT, PARAMS, Types, NAME##_save, fusegen::Reduced::REDUCED, true>),                \
      (fusegen::boxed_saving<IN, OUT, PARAMS, Types, NAME##_save, fusegen::Reduced::REDUCED, false>))

#define FUSEGEN_REGISTER_REDUCED_SAVING_BY(NAMESPACE, KEY, NAME, IN, PARAMS, BOXED)                                 \
  static const bool NAME##_reduced_saving_registered = [] {                                                         \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                          \
    TorchLibraryHandle library;                                                                                     \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                     \
    aoti_torch_library_impl(library, #NAME "_reduced_saving",                                                       \
                            fusegen::BOXED<IN, PARAMS, Types, NAME##_save, NAME##_total>);                          \
    return true;                                                                                                    \
  }();
#define FUSEGEN_REGISTER_REDUCED_SAVING(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                      \
  FUSEGEN_REGISTER_REDUCED_SAVING_BY(NAMESPACE, KEY, NAME, IN, PARAMS, boxed_reduced_saving)

// Registers the operators of a gradient, those of a type Reading, as FUSEGEN_REGISTER_ROWS does those of another one.
#define FUSEGEN_REGISTER_READING_BY(NAMESPACE, KEY, NAME, ...)                                                    \
  static const bool NAME##_registered = [] {                                                                      \
    using Of = __VA_ARGS__;                                                                                       \
    TorchLibraryHandle library;                                                                                   \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                   \
    aoti_torch_library_impl(library, #NAME, Of::BOXED<false, false>);                                             \
    aoti_torch_library_impl(library, #NAME "_out", Of::BOXED<true, false>);                                       \
    aoti_torch_library_impl(library, #NAME "_reading", Of::BOXED<false, true>);                                   \
    return true;                                                                                                  \
  }();
#define FUSEGEN_READING_KERNEL(NAME, IN, OUT, PARAMS)                                                             \
  extern "C" const char* NAME##_read(const fusegen::Call<IN + OUT, PARAMS>& call, void* workspace, double* saved); \
  struct NAME##_of {                                                                                              \
    static constexpr bool HAS_SUMS = false;                                                                       \
    static constexpr auto read = NAME##_read;                                                                     \
  };
#define FUSEGEN_READING_KERNEL_WITH_SUMS(NAME, IN, OUT, PARAMS)                                                   \
  extern "C" const char* NAME##_read(const fusegen::Call<IN + OUT, PARAMS>& call, void* workspace, double* saved); \
  extern "C" int64_t NAME##_workspace(const fusegen::Call<IN + OUT, PARAMS>& call);                               \
  struct NAME##_of {                                                                                              \
    static constexpr bool HAS_SUMS = true;                                                                        \
    static constexpr auto read = NAME##_read;                                                                     \
    static constexpr auto workspace = NAME##_workspace;                                                           \
  };
#define FUSEGEN_READING_OF(NAME, IN, OUT, PARAMS, REDUCED) \
  fusegen::Reading<IN, OUT, PARAMS, fusegen::FUSEGEN_DTYPES, NAME##_of, fusegen::Reduced::REDUCED>
#define FUSEGEN_REGISTER_READING(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, REDUCED) \
  FUSEGEN_READING_KERNEL(NAME, IN, OUT, PARAMS)                                  \
  FUSEGEN_REGISTER_READING_BY(NAMESPACE, KEY, NAME, FUSEGEN_READING_OF(NAME, IN, OUT, PARAMS, REDUCED))
#define FUSEGEN_REGISTER_READING_WITH_SUMS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, REDUCED) \
  FUSEGEN_READING_KERNEL_WITH_SUMS(NAME, IN, OUT, PARAMS)                                  \
  FUSEGEN_REGISTER_READING_BY(NAMESPACE, KEY, NAME, FUSEGEN_READING_OF(NAME, IN, OUT, PARAMS, REDUCED))
