#pragma once
// The binding by pybind11, for PyTorch before 2.10: functions of tensors and scalars.
#include <torch/extension.h>
#include "layout.h"
#ifdef ON_CUDA
#include <c10/cuda/CUDAStream.h>
#else
#include <ATen/Parallel.h>
#endif

namespace fusegen {
namespace {

#ifdef ON_CUDA
constexpr auto device_type = at::kCUDA;
#else
constexpr auto device_type = at::kCPU;

// Splits begin to end over PyTorch's own threads.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context) {
  at::parallel_for(begin, end, grain, [&](int64_t from, int64_t to) { task(from, to, context); });
}
#endif

View view_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.dim(), tensor.sizes().data(), tensor.strides().data()};
}

// The dtype and the device that all tensors share, and the bytes of an element.
template <int N, int... DTYPES>
int64_t describe(Tensors<N>& call, const std::vector<at::Tensor>& tensors, Dtypes<DTYPES...>) {
  const at::Tensor& first = tensors[0];
  for (const at::Tensor& tensor : tensors) {
    check(tensor.layout() == at::kStrided, "expected dense tensors; call .to_dense() first");
    check(tensor.device().type() == device_type && tensor.device() == first.device(),
          "expected every tensor on one device, the CPU or a CUDA GPU");
    const int dtype = int(tensor.scalar_type());
    check(((dtype == DTYPES) || ...) && tensor.scalar_type() == first.scalar_type(), FUSEGEN_EXPECTED);
  }
  call.dtype = int(first.scalar_type());
  call.device = first.device().index();
#ifdef ON_CUDA
  call.stream = c10::cuda::getCurrentCUDAStream(first.device().index()).stream();
#endif
  return first.element_size();
}

// Launches a kernel whose outputs may be sums, which have a workspace.
template <int IN, int OUT, int PARAMS, const char* (*LAUNCH)(const Call<IN + OUT, PARAMS>&),
          int64_t (*WORKSPACE)(const Call<IN + OUT, PARAMS>&),
          const char* (*REDUCE)(const Call<IN + OUT, PARAMS>&, void*)>
const char* launch_with_sums(const Call<IN + OUT, PARAMS>& call) {
  if (!has_sums<IN>(call)) return call.numel > 0 ? LAUNCH(call) : nullptr;
  const auto options = at::TensorOptions(at::kByte).device(at::Device(device_type, c10::DeviceIndex(call.device)));
  const at::Tensor workspace = at::empty({WORKSPACE(call)}, options);
  return REDUCE(call, workspace.data_ptr());
}

// Runs a kernel on inputs, which given outputs may follow, and scalars; returns the outputs.
template <int IN, int OUT, int PARAMS, class DTYPES, const char* (*LAUNCH)(const Call<IN + OUT, PARAMS>&)>
std::vector<at::Tensor> run_kernel(std::vector<at::Tensor> tensors, std::initializer_list<double> scalars) {
  constexpr int N = IN + OUT;
  const bool given = tensors.size() == N;
  Call<N, PARAMS> call{};
  View view[N];
  if constexpr (PARAMS > 0) std::copy(scalars.begin(), scalars.end(), call.param);
  const int64_t bytes = describe(call, tensors, DTYPES());
  std::transform(tensors.begin(), tensors.end(), view, view_of);
  Dims own[OUT];
  for (int k = 0; k < OUT && HAS_SUMS<IN, OUT> && !given; ++k) view[IN + k] = sum_like(own_input(view, k), own[k]);
  const Shape shape = coalesce_dimensions<IN>(call, view, given, bytes);
  for (int k = int(tensors.size()); k < N; ++k) {
    const View made = new_output<IN>(call, k, view[k], shape);
    const at::IntArrayRef size(made.size, made.dim), stride(made.stride, made.dim);
    tensors.push_back(at::empty_strided(size, stride, tensors[0].options()));
    view[k] = view_of(tensors[k]);
    if (!is_sum(call, k)) advise_huge_pages(view[k], call.numel * bytes);
  }
  bind_pointers(call, view);
  const char* error = nullptr;
  if (call.numel > 0 || HAS_SUMS<IN, OUT>) {
    const pybind11::gil_scoped_release released;  // other Python threads go on meanwhile
    error = LAUNCH(call);
  }
  check(error == nullptr, error);
  return {tensors.begin() + IN, tensors.end()};
}

// T for each index of a sequence.
template <size_t, typename T>
using Each = T;
template <int N>
using Indices = std::make_index_sequence<N>;

// A kernel as a function of its inputs, its scalars and, where they are given, its outputs.
template <int IN, int OUT, int PARAMS, const char* (*LAUNCH)(const Call<IN + OUT, PARAMS>&), class, class, class>
struct Function;
template <int IN, int OUT, int PARAMS, const char* (*LAUNCH)(const Call<IN + OUT, PARAMS>&), size_t... I, size_t... P,
          size_t... O>
struct Function<IN, OUT, PARAMS, LAUNCH, std::index_sequence<I...>, std::index_sequence<P...>,
                std::index_sequence<O...>> {
  using Types = FUSEGEN_DTYPES;
  using Returned = std::conditional_t<OUT == 1, at::Tensor, std::vector<at::Tensor>>;
  static Returned make(Each<I, const at::Tensor&>... in, Each<P, double>... scalars) {
    auto made = run_kernel<IN, OUT, PARAMS, Types, LAUNCH>({in...}, {scalars...});
    if constexpr (OUT == 1) return made[0];
    else return made;
  }
  static void write(Each<I, const at::Tensor&>... in, Each<P, double>... scalars, Each<O, const at::Tensor&>... out) {
    run_kernel<IN, OUT, PARAMS, Types, LAUNCH>({in..., out...}, {scalars...});
  }
};
template <int IN, int OUT, int PARAMS, const char* (*LAUNCH)(const Call<IN + OUT, PARAMS>&)>
using FunctionOf = Function<IN, OUT, PARAMS, LAUNCH, Indices<IN>, Indices<PARAMS>, Indices<OUT>>;

}  // namespace
}  // namespace fusegen

// Defines the functions of a kernel of IN inputs, OUT outputs and PARAMS scalars, as FUNCTION and FUNCTION_out.
#define FUSEGEN_FUNCTIONS(NAME, FUNCTION, IN, OUT, PARAMS)                              \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);    \
  constexpr auto& FUNCTION = fusegen::FunctionOf<IN, OUT, PARAMS, NAME##_launch>::make; \
  constexpr auto& FUNCTION##_out = fusegen::FunctionOf<IN, OUT, PARAMS, NAME##_launch>::write;

// The same of a kernel whose outputs may be sums.
#define FUSEGEN_FUNCTIONS_WITH_SUMS(NAME, FUNCTION, IN, OUT, PARAMS)                              \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);              \
  extern "C" int64_t NAME##_workspace(const fusegen::Call<IN + OUT, PARAMS>& call);               \
  extern "C" const char* NAME##_reduce(const fusegen::Call<IN + OUT, PARAMS>& call, void* to);    \
  constexpr auto NAME##_any =                                                                     \
      fusegen::launch_with_sums<IN, OUT, PARAMS, NAME##_launch, NAME##_workspace, NAME##_reduce>; \
  constexpr auto& FUNCTION = fusegen::FunctionOf<IN, OUT, PARAMS, NAME##_any>::make;              \
  constexpr auto& FUNCTION##_out = fusegen::FunctionOf<IN, OUT, PARAMS, NAME##_any>::write;
