#pragma once
// The binding over PyTorch's stable ABI: from the dispatcher's stack to a kernel.
#include <memory>
#include <torch/csrc/stable/c/shim.h>
#include "layout.h"
#ifdef ON_CUDA
extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t device, void** stream);
#endif

namespace fusegen {
namespace {

#ifdef ON_CUDA
const auto device_type = aoti_torch_device_type_cuda;
#else
const auto device_type = aoti_torch_device_type_cpu;

// Splits begin to end over PyTorch's own threads.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context) {
  torch_parallel_for(begin, end, grain, task, context);
}
#endif

struct Release {
  void operator()(AtenTensorHandle tensor) const { aoti_torch_delete_tensor_object(tensor); }
};
using Tensor = std::unique_ptr<AtenTensorOpaque, Release>;

View view_of(const Tensor& tensor) {
  View view{};
  void* data = nullptr;
  int64_t *size, *stride;
  aoti_torch_get_data_ptr(tensor.get(), &data);
  aoti_torch_get_dim(tensor.get(), &view.dim);
  aoti_torch_get_sizes(tensor.get(), &size);
  aoti_torch_get_strides(tensor.get(), &stride);
  return {data, view.dim, size, stride};
}

// The dtype and the device that all tensors share, and the bytes of an element.
template <int N, int... DTYPES>
int64_t describe(Tensors<N>& call, const Tensor* tensor, int count, Dtypes<DTYPES...>) {
  for (int k = 0; k < count; ++k) {
    int32_t dtype, type, index, layout;
    aoti_torch_get_layout(tensor[k].get(), &layout);
    check(layout == aoti_torch_layout_strided(), "expected dense tensors; call .to_dense() first");
    aoti_torch_get_dtype(tensor[k].get(), &dtype);
    aoti_torch_get_device_type(tensor[k].get(), &type);
    aoti_torch_get_device_index(tensor[k].get(), &index);
    check(type == device_type() && (k == 0 || index == call.device),
          "expected every tensor on one device, the CPU or a CUDA GPU");
    check(((dtype == DTYPES) || ...) && (k == 0 || dtype == call.dtype), FUSEGEN_EXPECTED);
    call.dtype = dtype;
    call.device = index;
  }
#ifdef ON_CUDA
  check(aoti_torch_get_current_cuda_stream(call.device, &call.stream) == 0, "the GPU has no current stream");
#endif
  return int64_t(aoti_torch_dtype_element_size(call.dtype));
}

Tensor new_tensor(int64_t dim, const int64_t* size, const int64_t* stride, int32_t dtype, int32_t device) {
  AtenTensorHandle made = nullptr;
  const int32_t type = device_type();
  check(aoti_torch_empty_strided(dim, size, stride, dtype, type, device, &made) == 0, "out of memory");
  return Tensor(made);
}

// The arguments of a kernel: inputs, scalars and given outputs off the stack, whose tensors are ours to release,
// and new outputs.
template <int IN, int OUT, int PARAMS, class DTYPES, bool GIVEN>
struct Operands {
  static constexpr int N = IN + OUT;
  Call<N, PARAMS> call{};
  Tensor tensor[N];
  int64_t bytes;  // of an element

  explicit Operands(const StableIValue* stack) {
    View view[N];
    for (int k = 0; k < (GIVEN ? N : IN); ++k)
      tensor[k].reset(reinterpret_cast<AtenTensorHandle>(stack[k < IN ? k : k + PARAMS]));
    if constexpr (PARAMS > 0) std::memcpy(call.param, stack + IN, sizeof(call.param));
    bytes = describe(call, tensor, GIVEN ? N : IN, DTYPES());
    for (int k = 0; k < (GIVEN ? N : IN); ++k) view[k] = view_of(tensor[k]);
    Dims own[OUT];
    for (int k = 0; k < OUT && HAS_SUMS<IN, OUT> && !GIVEN; ++k) view[IN + k] = sum_like(own_input(view, k), own[k]);
    const Shape shape = coalesce_dimensions<IN>(call, view, GIVEN, bytes);
    for (int k = GIVEN ? N : IN; k < N; ++k) {
      const View made = new_output<IN>(call, k, view[k], shape);
      tensor[k] = new_tensor(made.dim, made.size, made.stride, call.dtype, call.device);
      view[k] = view_of(tensor[k]);
      if (!is_sum(call, k)) advise_huge_pages(view[k], call.numel * bytes);
    }
    bind_pointers(call, view);
  }
};

void put(StableIValue* stack, Tensor& tensor) { *stack = reinterpret_cast<StableIValue>(tensor.release()); }

template <int IN, int OUT, int PARAMS>
using Launcher = const char* (*)(const Call<IN + OUT, PARAMS>&);

// Launches a kernel whose outputs may be sums, which have a workspace.
template <int IN, int OUT, int PARAMS, Launcher<IN, OUT, PARAMS> LAUNCH,
          int64_t (*WORKSPACE)(const Call<IN + OUT, PARAMS>&),
          const char* (*REDUCE)(const Call<IN + OUT, PARAMS>&, void*)>
const char* launch_with_sums(const Call<IN + OUT, PARAMS>& call) {
  if (!has_sums<IN>(call)) return call.numel > 0 ? LAUNCH(call) : nullptr;
  const int64_t bytes = WORKSPACE(call), step = 1;
  const Tensor workspace = new_tensor(1, &bytes, &step, aoti_torch_dtype_uint8(), call.device);
  return REDUCE(call, const_cast<void*>(view_of(workspace).data));
}

// A kernel as the dispatcher calls it.
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN>
void boxed(StableIValue* stack, uint64_t, uint64_t) {
  Operands<IN, OUT, PARAMS, DTYPES, GIVEN> of(stack);
  const char* error = of.call.numel > 0 || HAS_SUMS<IN, OUT> ? LAUNCH(of.call) : nullptr;
  check(error == nullptr, error);
  for (int k = 0; k < OUT && !GIVEN; ++k) put(stack + k, of.tensor[IN + k]);
}

}  // namespace
}  // namespace fusegen

// Registers a kernel of IN inputs, OUT outputs and PARAMS scalars, and the form that writes into given tensors, in the
// library of NAMESPACE, for the dispatch key KEY.
#define FUSEGEN_REGISTER(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                                  \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                             \
  static const bool NAME##_registered = [] {                                                                     \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                       \
    TorchLibraryHandle library;                                                                                  \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                  \
    aoti_torch_library_impl(library, #NAME, fusegen::boxed<IN, OUT, PARAMS, Types, NAME##_launch, false>);       \
    aoti_torch_library_impl(library, #NAME "_out", fusegen::boxed<IN, OUT, PARAMS, Types, NAME##_launch, true>); \
    return true;                                                                                                 \
  }();

// The same of a kernel whose outputs may be sums.
#define FUSEGEN_REGISTER_WITH_SUMS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)                                 \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                      \
  extern "C" int64_t NAME##_workspace(const fusegen::Call<IN + OUT, PARAMS>& call);                       \
  extern "C" const char* NAME##_reduce(const fusegen::Call<IN + OUT, PARAMS>& call, void* to);            \
  static const bool NAME##_registered = [] {                                                              \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                \
    constexpr auto launch =                                                                               \
        fusegen::launch_with_sums<IN, OUT, PARAMS, NAME##_launch, NAME##_workspace, NAME##_reduce>;       \
    TorchLibraryHandle library;                                                                           \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                           \
    aoti_torch_library_impl(library, #NAME, fusegen::boxed<IN, OUT, PARAMS, Types, launch, false>);       \
    aoti_torch_library_impl(library, #NAME "_out", fusegen::boxed<IN, OUT, PARAMS, Types, launch, true>); \
    return true;                                                                                          \
  }();
