#pragma once
// The binding of kernels with a pooling over PyTorch's stable ABI. FUSEGEN_WINDOW is the number of dimensions of a
// window, then its sizes, strides, paddings and dilations and whether windows may begin late (ceil_mode), or, of an
// adaptive pooling, those of the result. FUSEGEN_IN_FRONT are the tensors in front of the pooling, as bits.
#include "row_layout.h"
#include "stable_abi.h"

namespace fusegen {
namespace {

struct WindowDims {
  int rank;
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  bool ceil, adaptive;
  int64_t output[3];  // of an adaptive pooling the sizes of the result, 0 for that of the tensor

  // The size of the result along a dimension of the window, for that of a tensor.
  int64_t size(int d, int64_t of) const {
    if (adaptive) return output[d] > 0 ? output[d] : of;
    const int64_t span = of + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    const int64_t made = floor_quotient(span + (ceil ? stride[d] - 1 : 0), stride[d]) + 1;
    return made - (ceil && (made - 1) * stride[d] >= of + padding[d]);
  }
};
constexpr WindowDims WINDOW = FUSEGEN_WINDOW;

bool is_channels_last(const View& view) {
  if (view.dim != WINDOW.rank + 2 || WINDOW.rank == 1) return false;
  int64_t run = 1, from_last = 1;  // the strides of channels_last, and of a tensor without gaps
  bool holds = true, plain = true;
  for (int64_t j = 0; j < view.dim; ++j) {
    if (view.size[j] == 0) return false;
    const int64_t d = j == 0 ? 1 : j == view.dim - 1 ? 0 : view.dim - j, e = view.dim - 1 - j;
    holds = holds && (view.size[d] == 1 || view.stride[d] == run);
    plain = plain && (view.size[e] == 1 || view.stride[e] == from_last);
    run *= view.size[d], from_last *= view.size[e];
  }
  return holds && !plain;
}

// A new tensor without gaps, of some sizes.
View laid(int64_t dim, const int64_t* size, bool channels_last, Dims& own) {
  int64_t* const stride = own.resize(dim);
  int64_t run = 1;
  for (int64_t j = 0; j < dim; ++j) {
    const int64_t d = !channels_last ? dim - 1 - j : j == 0 ? 1 : j == dim - 1 ? 0 : dim - j;
    stride[d] = run;
    run *= std::max<int64_t>(size[d], 1);
  }
  return {nullptr, dim, size, stride};
}

// The arguments of a kernel with a pooling: as `Operands`. BACKWARD has the incoming gradient in front of the tensors.
template <int IN, int OUT, int PARAMS, class DTYPES, bool GIVEN, bool BACKWARD>
struct WindowOperands {
  static constexpr int N = IN + OUT, GIVEN_TENSORS = GIVEN ? N : IN, FIRST = BACKWARD;
  Call<N, PARAMS> call{};
  Tensor tensor[N];
  Dims whole, made, own[N];

  static bool is_front(int k) {  // whether argument k has the sizes of the input
    const int tensor = k < IN ? k - FIRST : BACKWARD ? k - IN : -1;
    return tensor >= 0 && (FUSEGEN_IN_FRONT >> tensor & 1);
  }

  explicit WindowOperands(const StableIValue* stack) {
    View view[N];
    for (int k = 0; k < GIVEN_TENSORS; ++k)
      tensor[k].reset(reinterpret_cast<AtenTensorHandle>(stack[k < IN ? k : k + PARAMS]));
    if constexpr (PARAMS > 0) std::memcpy(call.param, stack + IN, sizeof(call.param));
    const int64_t bytes = describe(call, tensor, GIVEN_TENSORS, DTYPES());
    for (int k = 0; k < GIVEN_TENSORS; ++k) view[k] = view_of(tensor[k]);
    int first = FIRST;
    while (!is_front(first)) ++first;
    const int64_t dim = view[first].dim;
    check(dim > WINDOW.rank, "a tensor has too few dimensions for its windows and the channels before them");
    int64_t *const size = whole.resize(dim), *const out = made.resize(dim);
    for (int64_t d = 0; d < dim; ++d) {
      const int64_t own = d - (dim - WINDOW.rank);
      size[d] = view[first].size[d];
      out[d] = own < 0 ? size[d] : WINDOW.size(int(own), size[d]);
      check(own < 0 || size[d] > 0, "a dimension of the windows has no elements");
      check(own < 0 || out[d] > 0, "a window is larger than the tensor with its padding");
    }
    const bool channels_last = is_channels_last(view[first]);
    for (int k = 0; k < N; ++k) {
      const int64_t* const sizes = is_front(k) ? size : out;
      if (k < IN) {
        check(view[k].dim == dim && std::equal(sizes, sizes + dim, view[k].size),
              "the tensors in a pooling have one shape, and those behind it the shape of the result");
      } else if (GIVEN) {
        check_output(view[k], dim, sizes);
        for (int j = 0; j < IN; ++j)
          check(!overlap(view[k], view[j], bytes), "an input and the written-to tensor share memory; clone() one");
      } else {
        const View like = laid(dim, sizes, channels_last, own[k]);
        tensor[k] = new_tensor(dim, sizes, like.stride, call.dtype, call.device);
        view[k] = view_of(tensor[k]);
      }
    }
    lay(view, dim, size, out);
    bind_pointers(call, view);
  }

  // Puts the dimensions before a window, neighbours merged, and the three of a window into the call.
  void lay(const View (&view)[N], int64_t dim, const int64_t* size, const int64_t* out) {
    call.rank = 0;
    call.numel = 1;
    const auto append = [&](int64_t d, int64_t n) {
      call.size[call.rank] = n;
      for (int k = 0; k < N; ++k) call.stride[k][call.rank] = d < 0 ? 0 : view[k].stride[d];
      ++call.rank;
    };
    for (int64_t d = 0; d < dim - WINDOW.rank; ++d) {
      call.numel *= size[d];
      if (size[d] == 1) continue;
      bool merges = call.rank > 0;
      for (int k = 0; k < N && merges; ++k)
        merges = call.stride[k][call.rank - 1] == view[k].stride[d] * size[d];
      check(merges || call.rank < MAX_RANK - 6, "a kernel walks through at most 18 dimensions before a window");
      if (!merges) append(d, size[d]);
      else {
        call.size[call.rank - 1] *= size[d];
        for (int k = 0; k < N; ++k) call.stride[k][call.rank - 1] = view[k].stride[d];
      }
    }
    for (int j = 0; j < 3; ++j) {
      const int64_t d = j + WINDOW.rank < 3 ? -1 : dim - 3 + j;
      append(d, d < 0 ? 1 : size[d]);
      call.numel *= d < 0 ? 1 : (BACKWARD ? size : out)[d];
      call.size[MAX_RANK - 3 + j] = d < 0 ? 1 : out[d];
    }
    std::copy(call.size + MAX_RANK - 3, call.size + MAX_RANK, call.size + call.rank);
  }
};

// A kernel with a pooling as the dispatcher calls it.
template <int IN, int OUT, int PARAMS, class DTYPES, Launcher<IN, OUT, PARAMS> LAUNCH, bool GIVEN, bool BACKWARD>
void boxed_windows(StableIValue* stack, uint64_t, uint64_t) {
  WindowOperands<IN, OUT, PARAMS, DTYPES, GIVEN, BACKWARD> of(stack);
  const char* error = of.call.numel > 0 ? LAUNCH(of.call) : nullptr;
  check(error == nullptr, error);
  for (int k = 0; k < OUT && !GIVEN; ++k) put(stack + k, of.tensor[IN + k]);
}

}  // namespace
}  // namespace fusegen

// Registers a kernel with a pooling, as FUSEGEN_REGISTER does another one. BACKWARD says which one it is.
#define FUSEGEN_REGISTER_WINDOWS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS, BACKWARD)                              \
  extern "C" const char* NAME##_launch(const fusegen::Call<IN + OUT, PARAMS>& call);                           \
  static const bool NAME##_registered = [] {                                                                   \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                     \
    TorchLibraryHandle library;                                                                                \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                \
    aoti_torch_library_impl(library, #NAME,                                                                    \
                            fusegen::boxed_windows<IN, OUT, PARAMS, Types, NAME##_launch, false, BACKWARD>);   \
    aoti_torch_library_impl(library, #NAME "_out",                                                             \
                            fusegen::boxed_windows<IN, OUT, PARAMS, Types, NAME##_launch, true, BACKWARD>);    \
    return true;                                                                                               \
  }();
