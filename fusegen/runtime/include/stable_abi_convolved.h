#pragma once
// The binding of a convolution that is one kernel with what comes behind it.
#include "convolution.h"
#include "stable_abi.h"

namespace fusegen {
namespace {

// A tensor of four dimensions beside the others of a call.
void bind_view(const View& view, void*& data, int64_t (&stride)[MAX_RANK]) {
  check(view.dim == 4, "expected tensors of four dimensions");
  data = const_cast<void*>(view.data);
  std::copy(view.stride, view.stride + 4, stride);
}

bool is_dense(const View& view) {
  int64_t run = 1;
  for (int64_t d = view.dim - 1; d >= 0; run *= view.size[d--])
    if (view.size[d] != 1 && view.stride[d] != run) return false;
  return true;
}

// The sizes of a convolution; its input, its weight and its output have to be NCHW, without gaps, and to fit.
Convolution convolution_of(const View& x, const View& weight, const View& out, const StableIValue* sizes) {
  check(x.dim == 4 && weight.dim == 4 && out.dim == 4, "expected tensors of four dimensions");
  check(is_dense(x) && is_dense(weight) && is_dense(out), "expected dense tensors in the order of their dimensions");
  Convolution of = {x.data, weight.data};
  int* const to[] = {&of.stride_y, &of.stride_x, &of.padding_y, &of.padding_x};
  for (int k = 0; k < 4; ++k) *to[k] = int(std::clamp<int64_t>(int64_t(sizes[k]), -1, INT32_MAX));
  bool fits = x.size[1] > 0 && weight.size[1] == x.size[1] && weight.size[0] == out.size[1] && x.size[0] == out.size[0];
  int64_t terms = x.size[1], area = 1;
  for (int d = 2; d < 4 && fits; ++d) {
    const int64_t step = *to[d - 2], around = x.size[d] + 2 * int64_t(*to[d]);
    fits = step > 0 && *to[d] >= 0 && weight.size[d] > 0 && around >= weight.size[d] &&
           around <= INT32_MAX / 4 && out.size[d] == (around - weight.size[d]) / step + 1;
    terms *= weight.size[d], area *= out.size[d];
  }
  const int64_t image = x.size[1] * x.size[2] * x.size[3];
  fits = fits && std::max(image, area) <= INT32_MAX && terms <= INT32_MAX / 2;
  check(fits, "the sizes of the convolution do not fit together");
  of.channels = int(x.size[1]), of.height = int(x.size[2]), of.width = int(x.size[3]);
  of.out_channels = int(out.size[1]), of.out_height = int(out.size[2]), of.out_width = int(out.size[3]);
  of.kernel_height = int(weight.size[2]), of.kernel_width = int(weight.size[3]);
  return of;
}

// As the dispatcher calls it: the input, the weight, the operands of a kernel of IN inputs besides its first, its
// scalars, four sizes and the output. Tells whether it ran: not where no tile fits a block's shared memory.
template <int IN, int PARAMS, class DTYPES,
          const char* (*LAUNCH)(const Call<IN + 1, PARAMS>&, const Convolution&, bool&)>
void boxed_convolution(StableIValue* stack, uint64_t, uint64_t) {
  Call<IN + 1, PARAMS> call{};
  Tensor tensor[IN + 2];  // the input, the weight, the operands, the output
  for (int k = 0; k < IN + 2; ++k)
    tensor[k].reset(reinterpret_cast<AtenTensorHandle>(stack[k <= IN ? k : k + PARAMS + 4]));
  if constexpr (PARAMS > 0) std::memcpy(call.param, stack + IN + 1, sizeof(call.param));
  describe(call, tensor, IN + 2, DTYPES());
  const View out = view_of(tensor[IN + 1]);
  const Convolution of = convolution_of(view_of(tensor[0]), view_of(tensor[1]), out, stack + IN + 1 + PARAMS);
  call.rank = 4, call.numel = 1;
  for (int d = 0; d < 4; ++d) call.numel *= call.size[d] = out.size[d];
  for (int k = 1; k <= IN; ++k) {
    const View view = view_of(tensor[k + 1]);
    bind_view(view, call.data[k], call.stride[k]);
    check(std::equal(view.size, view.size + 4, out.size), "expected operands of the shape of the output");
  }
  bool fits = true;
  const char* const error = call.numel > 0 ? LAUNCH(call, of, fits) : nullptr;
  check(error == nullptr, error);
  stack[0] = StableIValue(fits);
}

}  // namespace
}  // namespace fusegen

// Registers a convolution with a kernel of IN inputs and PARAMS scalars behind it.
#define FUSEGEN_REGISTER_CONVOLVED(NAMESPACE, KEY, NAME, IN, PARAMS)                                              \
  extern "C" const char* NAME##_convolved_launch(const fusegen::Call<IN + 1, PARAMS>& call,                       \
                                                 const fusegen::Convolution& of, bool& fits);                     \
  static const bool NAME##_convolved_registered = [] {                                                            \
    using Types = fusegen::FUSEGEN_DTYPES;                                                                        \
    TorchLibraryHandle library;                                                                                   \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                                   \
    aoti_torch_library_impl(library, #NAME "_convolved",                                                          \
                            fusegen::boxed_convolution<IN, PARAMS, Types, NAME##_convolved_launch>);              \
    return true;                                                                                                  \
  }();
