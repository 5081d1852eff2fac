#pragma once
// The binding of kernels of rows with results of two shapes. FUSEGEN_ORDER has the places of the
// function's results in the order of the kernels: the FUSEGEN_RESULTS that are values of rows, then those of elements.
#include "stable_abi_rows.h"

namespace fusegen {
namespace {

constexpr int ORDER[] = FUSEGEN_ORDER;
constexpr int OF_ROWS = FUSEGEN_RESULTS, OF_BOTH = sizeof(ORDER) / sizeof(int);

// The tensors of the results of rows of a forward kernel, contiguous; what is given is copied to.
template <bool GIVEN>
struct RowResults {
  Tensor made[OF_ROWS], given[OF_ROWS];

  // Takes the given ones off the results on a stack; the others go on in `elements`.
  void take(const StableIValue* results, StableIValue* elements) {
    for (int k = 0; k < OF_BOTH && GIVEN; ++k)
      if (k < OF_ROWS) given[k].reset(reinterpret_cast<AtenTensorHandle>(results[ORDER[k]]));
      else elements[k - OF_ROWS] = results[ORDER[k]];
  }

  // Makes them of the rows of a tensor of the whole shape, and puts them into a call, from tensor `at` on.
  template <int N, int P, class DTYPES>
  void make(Call<N, P>& call, int at, const View& whole, DTYPES dtypes) {
    const int64_t first = first_of_row(FUSEGEN_OVER, whole.dim);
    Dims laid;
    const View rows = sum_like({nullptr, first, whole.size, nullptr}, laid);
    const int dtype = call.dtype;
    if constexpr (GIVEN) describe(call, given, OF_ROWS, dtypes);
    check(dtype == call.dtype, FUSEGEN_EXPECTED);
    for (int k = 0; k < OF_ROWS; ++k) {
      if constexpr (GIVEN) check_output(view_of(given[k]), first, whole.size);
      made[k] = new_tensor(first, rows.size, rows.stride, call.dtype, call.device);
      call.data[at + k] = const_cast<void*>(view_of(made[k]).data);
      call.stride[at + k][call.rank - 1] = 0;
      int64_t run = 1;  // the dimensions of the rows are in their order, neighbours merged
      for (int d = call.rank - 2; d >= 0; run *= call.size[d--]) call.stride[at + k][d] = run;
    }
  }

  void finish() {
    for (int k = 0; k < OF_ROWS && GIVEN; ++k)
      check(aoti_torch_copy_(given[k].get(), made[k].get(), 0) == 0, "out cannot be written");
  }
};

// A call with room for COUNT tensors from tensor `at` on.
template <int COUNT, int N, int P>
Call<N + COUNT, P> with_room(const Call<N, P>& call, int at) {
  Call<N + COUNT, P> made{};
  made.numel = call.numel, made.dtype = call.dtype, made.device = call.device, made.stream = call.stream;
  made.dense = call.dense, made.aligned = call.aligned, made.rank = call.rank;
  std::copy(call.size, call.size + MAX_RANK, made.size);
  for (int k = 0; k < N; ++k) {
    const int to = k < at ? k : k + COUNT;
    made.data[to] = call.data[k];
    std::copy(call.stride[k], call.stride[k] + MAX_RANK, made.stride[to]);
  }
  if constexpr (P > 0) std::memcpy(made.param, call.param, sizeof(call.param));
  return made;
}

// A forward kernel as the dispatcher calls it.
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN>
void boxed_results(StableIValue* stack, uint64_t, uint64_t) {
  constexpr int ELEMENTS = OUT - OF_ROWS, FIRST = IN + PARAMS;
  StableIValue own[FIRST + ELEMENTS];
  std::copy(stack, stack + FIRST, own);
  RowResults<GIVEN> results;
  results.take(stack + FIRST, own + FIRST);
  RowOperands<IN, ELEMENTS, PARAMS, DTYPES, GIVEN, Reduced::NONE> of(own);
  auto call = with_room<OF_ROWS>(of.call, IN);
  results.make(call, IN, view_of(of.tensor[IN]), DTYPES());
  const char* error = LAUNCH(call);
  check(error == nullptr, error);
  of.finish();
  results.finish();
  for (int k = 0; k < OUT && !GIVEN; ++k)
    put(stack + ORDER[k], k < OF_ROWS ? results.made[k] : of.tensor[IN + k - OF_ROWS]);
}

// A gradient as the dispatcher calls it: incoming gradients of values of rows go first.
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN>
void boxed_gradients(StableIValue* stack, uint64_t count, uint64_t results) {
  StableIValue grads[OF_BOTH];
  for (int k = 0; k < OF_BOTH; ++k) grads[k] = stack[ORDER[k]];
  std::copy(grads, grads + OF_BOTH, stack);
  boxed_rows<IN, OUT, PARAMS, DTYPES, LAUNCH, GIVEN, Reduced::INPUT>(stack, count, results);
}

}  // namespace
}  // namespace fusegen

// Registers a kernel by one of the two functions above, as FUSEGEN_REGISTER_ROWS does another one.
#define FUSEGEN_REGISTER_RESULTS_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, BOXED, LAUNCH)                         \
  static const bool NAME##_registered = [] {                                                                      \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                        \
    constexpr auto launch = LAUNCH;                                                                               \
    TorchLibraryHandle library;                                                                                   \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                   \
    aoti_torch_library_impl(library, #NAME, fusegen::BOXED<IN, OUT, PARAMS, Types, launch, false>);               \
    aoti_torch_library_impl(library, #NAME "_out", fusegen::BOXED<IN, OUT, PARAMS, Types, launch, true>);         \
    return true;                                                                                                  \
  }();
#define FUSEGEN_REGISTER_ROW_RESULTS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                       \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                              \
  FUSEGEN_REGISTER_RESULTS_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, boxed_results, NAME##_launch)
#define FUSEGEN_REGISTER_ROW_GRADIENTS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                     \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                              \
  FUSEGEN_REGISTER_RESULTS_BY(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, boxed_gradients, NAME##_launch)
#define FUSEGEN_REGISTER_ROW_GRADIENTS_WITH_SUMS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                           \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                              \
  extern "C" int64_t NAME##_workspace(const fusegen::Call<IN + OUT, PARAMS>& call);                               \
  extern "C" const char* NAME##_reduce(const fusegen::Call<IN + OUT, PARAMS>& call, void* to);                    \
  FUSEGEN_REGISTER_RESULTS_BY(                                                                                    \
      NAMESPACE, KEY, NAME, IN, OUT, PARAMS, boxed_gradients,                                                     \
      (fusegen::launch_rows_with_sums<IN, OUT, PARAMS, NAME##_launch, NAME##_workspace, NAME##_reduce>))
