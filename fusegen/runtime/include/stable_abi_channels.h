#pragma once
// The binding of kernels of channels over PyTorch's stable ABI. Of the inputs, the last FUSEGEN_CHANNELS and one more
// are of float64: numbers of each channel, and the moments, which are empty where the kernel finds them.
#include "channel_parts.h"
#include "stable_abi.h"

namespace fusegen {
namespace {

// Puts the channels, then the other dimensions of the elements, neighbours merged, into a call.
template <int N, int M>
void lay_channels(Tensors<N>& call, const View (&view)[M], int inputs, int first_output) {
  const int64_t dim = view[0].dim, *const size = view[0].size;
  const auto place = [&](int k) { return k < inputs ? k : first_output + k - inputs; };
  call.rank = 0;
  const auto append = [&](int64_t n, int64_t d) {
    check(call.rank < MAX_RANK, "a kernel walks through at most 25 dimensions that do not merge");
    call.size[call.rank] = n;
    for (int k = 0; k < M; ++k) call.stride[place(k)][call.rank] = d < 0 ? 0 : view[k].stride[d];
    ++call.rank;
  };
  append(size[1], 1);
  for (int64_t d = 0; d < dim; ++d) {
    if (d == 1 || size[d] == 1) continue;
    bool merges = call.rank > 1;
    for (int k = 0; k < M && merges; ++k)
      merges = call.stride[place(k)][call.rank - 1] == view[k].stride[d] * size[d];
    if (merges) --call.rank;
    append(merges ? call.size[call.rank] * size[d] : size[d], d);
  }
  while (call.rank < 3) {  // a run, and those of a channel
    append(1, -1);
    if (call.rank == 3) {
      std::swap(call.size[1], call.size[2]);
      for (int k = 0; k < M; ++k) std::swap(call.stride[place(k)][1], call.stride[place(k)][2]);
    }
  }
}

// The arguments of a kernel of channels: as `Operands`.
template <int IN, int OUT, int PARAMS, class DTYPES, bool GIVEN, bool BACKWARD>
struct ChannelOperands {
  static constexpr int N = IN + OUT, GIVEN_TENSORS = GIVEN ? N : IN, E = IN - FUSEGEN_CHANNELS - 1;
  static constexpr int RESULTS = BACKWARD ? E - 1 : 1;  // of elements
  Call<N, PARAMS> call{};
  Tensor tensor[N];
  Dims own[RESULTS];

  explicit ChannelOperands(const StableIValue* stack) {
    View view[E + RESULTS];
    for (int k = 0; k < GIVEN_TENSORS; ++k)
      tensor[k].reset(reinterpret_cast<AtenTensorHandle>(stack[k < IN ? k : k + PARAMS]));
    std::memcpy(call.param, stack + IN, sizeof(call.param));
    int64_t bytes = 0;
    if constexpr (GIVEN) bytes = describe(call, tensor + IN, RESULTS, DTYPES());
    const int dtype = call.dtype;
    bytes = describe(call, tensor, E, DTYPES());
    check(!GIVEN || dtype == call.dtype, FUSEGEN_EXPECTED);
    for (int k = 0; k < E; ++k) view[k] = view_of(tensor[k]);
    const int64_t dim = view[0].dim, *const size = view[0].size;
    check(dim >= 2, "expected tensors of two dimensions or more, the second of which are channels");
    for (int k = 0; k < E; ++k)
      check(view[k].dim == dim && std::equal(size, size + dim, view[k].size),
            "expected tensors of one shape; expand them");
    for (int k = 0; k < RESULTS && GIVEN; ++k) view[E + k] = view_of(tensor[IN + k]);
    for (int k = 0; k < RESULTS && HAS_SUMS<E, RESULTS> && !GIVEN; ++k)
      view[E + k] = sum_like(own_input(view, k), own[k]);
    Call<E + RESULTS, PARAMS> whole{};
    const Shape shape = coalesce_dimensions<E>(whole, view, GIVEN, bytes);
    call.numel = whole.numel;
    for (int k = 0; k < RESULTS && !GIVEN; ++k) {
      const View made = new_output<E>(whole, E + k, view[E + k], shape);
      tensor[IN + k] = new_tensor(made.dim, made.size, made.stride, call.dtype, call.device);
      view[E + k] = view_of(tensor[IN + k]);
    }
    for (int k = 0; k < E; ++k) call.data[k] = const_cast<void*>(view[k].data);
    for (int k = 0; k < RESULTS; ++k) call.data[IN + k] = const_cast<void*>(view[E + k].data);
    lay_channels(call, view, E, IN);
    const bool is_found = !BACKWARD && call.param[PARAMS - 1] != 0;
    for (int k = E; k < IN; ++k) take(k, k < IN - 1 ? size[1] : is_found ? 0 : 2 * size[1]);
    for (int k = IN + RESULTS; k < N; ++k) {
      const int64_t sizes[2] = {BACKWARD ? size[1] : is_found ? size[1] : 0, 2}, strides[2] = {BACKWARD ? 1 : 2, 1};
      if (!GIVEN) tensor[k] = new_tensor(BACKWARD ? 1 : 2, sizes, strides, aoti_torch_dtype_float64(), call.device);
      take(k, BACKWARD ? sizes[0] : 2 * sizes[0]);
    }
  }

  // Takes a tensor of so many numbers of float64.
  void take(int k, int64_t count) {
    const View view = view_of(tensor[k]);
    int32_t dtype, type, index;
    aoti_torch_get_dtype(tensor[k].get(), &dtype);
    aoti_torch_get_device_type(tensor[k].get(), &type);
    aoti_torch_get_device_index(tensor[k].get(), &index);
    check(type == device_type() && index == call.device,
          "expected numbers of channels on the device of the other tensors");
    int64_t run = 1;
    bool fits = dtype == aoti_torch_dtype_float64();
    for (int64_t d = view.dim - 1; d >= 0; --d) {
      fits = fits && (view.size[d] == 1 || view.stride[d] == run);
      run *= view.size[d];
    }
    check(fits && run == count, "expected a number of float64 for each channel, side by side");
    call.data[k] = const_cast<void*>(view.data);
  }
};

// A kernel of channels as the dispatcher calls it.
template <int IN, int OUT, int PARAMS, class DTYPES, const char* (*LAUNCH)(const Call<IN + OUT, PARAMS>&, void*),
          int64_t (*WORKSPACE)(const Call<IN + OUT, PARAMS>&), bool GIVEN, bool BACKWARD>
void boxed_channels(StableIValue* stack, uint64_t, uint64_t) {
  ChannelOperands<IN, OUT, PARAMS, DTYPES, GIVEN, BACKWARD> of(stack);
  check(of.call.numel > 0, "channels without elements have no statistics");
  const int64_t bytes = WORKSPACE(of.call), step = 1;
  const Tensor workspace = new_tensor(1, &bytes, &step, aoti_torch_dtype_uint8(), of.call.device);
  const char* error = LAUNCH(of.call, const_cast<void*>(view_of(workspace).data));
  check(error == nullptr, error);
  for (int k = 0; k < OUT && !GIVEN; ++k) put(stack + k, of.tensor[IN + k]);
}

}  // namespace
}  // namespace fusegen

// Registers a kernel of channels, as FUSEGEN_REGISTER does another one. BACKWARD says which one it is.
#define FUSEGEN_REGISTER_CHANNELS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, BACKWARD)                                   \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call, void* workspace);                \
  extern "C" int64_t NAME##_workspace(const fusegen::Call<IN + OUT, PARAMS>& call);                                  \
  static const bool NAME##_registered = [] {                                                                         \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                           \
    TorchLibraryHandle library;                                                                                      \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                      \
    aoti_torch_library_impl(                                                                                         \
        library, #NAME,                                                                                              \
        fusegen::boxed_channels<IN, OUT, PARAMS, Types, NAME##_launch, NAME##_workspace, false, BACKWARD>);          \
    aoti_torch_library_impl(                                                                                         \
        library, #NAME "_out",                                                                                       \
        fusegen::boxed_channels<IN, OUT, PARAMS, Types, NAME##_launch, NAME##_workspace, true, BACKWARD>);           \
    return true;                                                                                                     \
  }();
