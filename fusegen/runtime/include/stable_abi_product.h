#pragma once
// The binding of a product of matrices.
#include "linear.h"
#include "stable_abi.h"

namespace fusegen {
namespace {

bool is_aligned(const void* data, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && pitch % 4 == 0;
}

// The product of five tensors: left (m, k), right (n, k), bias (m) or none of its elements, and what is known of left,
// the largest magnitude of each term (k) and the largest 2-norm of a row; and of the result (n, m).
Product product_of(const View (&view)[6]) {
  const auto& [left, right, bias, largest, norm, out] = view;
  check(left.dim == 2 && right.dim == 2 && out.dim == 2, "expected matrices");
  check(bias.dim == 1 && largest.dim == 1 && norm.dim == 0, "expected a vector for each row and term, and a norm");
  Product of{};
  of.rows = left.size[0], of.columns = right.size[0], of.terms = left.size[1];
  const bool fits = right.size[1] == of.terms && out.size[0] == of.columns && out.size[1] == of.rows &&
                    largest.size[0] == of.terms && (bias.size[0] == of.rows || bias.size[0] == 0);
  check(fits && of.rows > 0 && of.columns > 0 && of.terms > 0, "the sizes of the matrices do not fit together");
  of.terms_of_left = left.stride[1] == 1 ? Terms::TOGETHER : Terms::APART;
  of.left_pitch = left.stride[of.terms_of_left == Terms::TOGETHER ? 0 : 1], of.right_pitch = right.stride[0];
  const bool dense = (left.stride[1] == 1 || left.stride[0] == 1) && right.stride[1] == 1 && out.stride[1] == 1 &&
                     out.stride[0] == of.rows && (bias.size[0] == 0 || bias.stride[0] == 1) && largest.stride[0] == 1;
  check(dense, "expected matrices without gaps along their terms");
  check(is_aligned(left.data, of.left_pitch) && is_aligned(right.data, of.right_pitch),
        "expected rows that begin at multiples of 16 bytes");
  const auto floats = [](const View& of) { return static_cast<const float*>(of.data); };
  of.left = floats(left), of.right = floats(right), of.bias = bias.size[0] ? floats(bias) : nullptr;
  of.largest = floats(largest), of.norm = floats(norm), of.out = const_cast<float*>(floats(out));
  return of;
}

// Memory for a product; nullptr where there is not enough.
Tensor room_for(int64_t bytes, int32_t device) {
  AtenTensorHandle made = nullptr;
  const int64_t step = 1;
  const int32_t type = device_type();
  if (aoti_torch_empty_strided(1, &bytes, &step, aoti_torch_dtype_uint8(), type, device, &made) != 0) return nullptr;
  return Tensor(made);
}

// Runs a product, which is given its memory; tells whether it ran: not where that could not be had.
template <class LAUNCH>
bool run_in_room(Product of, int32_t device, const LAUNCH& launch) {
  const Tensor halves = room_for(bytes_of_halves(of), device), known = room_for(bytes_known(of), device);
  if (!halves || !known) return false;
  const Tensor levels = bytes_of_levels(of) > 0 ? room_for(bytes_of_levels(of), device) : nullptr;
  if (levels) of.levels = static_cast<float*>(const_cast<void*>(view_of(levels).data));
  of.halves = const_cast<void*>(view_of(halves).data), of.columns_known = const_cast<void*>(view_of(known).data);
  const char* const error = launch(of);
  check(error == nullptr, error);
  return true;
}

// As the dispatcher calls it. Tells whether it ran.
template <const char* (*LAUNCH)(const Product&, int, void*)>
void boxed_product(StableIValue* stack, uint64_t, uint64_t) {
  constexpr int COUNT = 6;
  Tensors<COUNT> call{};
  Tensor tensor[COUNT];
  View view[COUNT];
  for (int k = 0; k < COUNT; ++k) tensor[k].reset(reinterpret_cast<AtenTensorHandle>(stack[k]));
  describe(call, tensor, COUNT, FUSEGEN_DTYPES());
  for (int k = 0; k < COUNT; ++k) view[k] = view_of(tensor[k]);
  const auto launch = [&](const Product& of) { return LAUNCH(of, call.device, call.stream); };
  stack[0] = StableIValue(run_in_room(product_of(view), call.device, launch));
}

}  // namespace
}  // namespace fusegen

// Registers a product of matrices, whose left factor has its terms together or apart.
#define FUSEGEN_REGISTER_PRODUCT(NAMESPACE, KEY, NAME)                                                 \
  extern "C" const char* NAME##_launch(const fusegen::Product& of, int device, void* stream);          \
  static const bool NAME##_registered = [] {                                                           \
    TorchLibraryHandle library;                                                                        \
    aoti_torch_library_init_impl(NAMESPACE, KEY, __FILE__, __LINE__, &library);                        \
    aoti_torch_library_impl(library, #NAME, fusegen::boxed_product<NAME##_launch>);                    \
    return true;                                                                                       \
  }();
