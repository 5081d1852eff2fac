#pragma once
// Numbers of channels in double, which kernels of channels read, and the running statistics of a batch norm: as
// runtime/channels.py converts and moves them, with the same bits. On the CPU those of float and double take no
// operations of tensors, others as few as there are.
#include <cmath>

#include "compiled_call/arguments.h"

namespace fusegen {
namespace {

// True for numbers that are read and written here.
bool are_direct(const Tensor& t) {
  return t.is_cpu() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble);
}

template <class FROM, class TO>
void copy_each(const Tensor& from, const Tensor& to) {
  const auto* const given = from.const_data_ptr<FROM>();
  auto* const made = to.mutable_data_ptr<TO>();
  const int64_t count = from.numel();
  for (int64_t k = 0; k < count; ++k) made[k] = TO(given[k]);
}

// Some numbers in a dtype, side by side: those that have it as they are, of the others copies by one operation.
variable_list converted(at::TensorList numbers, at::ScalarType dtype) {
  variable_list made, from, to;
  for (const Tensor& t : numbers) {
    if (!t.defined() || t.scalar_type() == dtype) {
      made.push_back(t);
      continue;
    }
    made.push_back(at::empty(t.sizes(), t.options().dtype(dtype)));
    if (are_direct(t) && are_direct(made.back())) {
      const auto copied = dtype == at::kDouble ? copy_each<float, double> : copy_each<double, float>;
      copied(t, made.back());
      continue;
    }
    from.push_back(t), to.push_back(made.back());
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  return made;
}

// True if PyTorch's lerp of doubles does not round a product, which depends on the processor.
bool lerp_is_fused() {
  static const bool is_fused = [] {
    const double a = 1, b = 4.0 / 3, share = 0.1, once = std::fma(share, b - a, a);  // a + share * (b - a) is less
    const auto of = [](double value) { return at::full({1}, value, at::kDouble); };
    return at::lerp(of(a), of(b), share).item<double>() == once;
  }();
  return is_fused;
}

// From one number towards another one, as PyTorch's lerp.
double between(double a, double b, double share, bool is_fused) {
  const bool is_small = std::abs(share) < 0.5;
  const double base = is_small ? a : b, factor = is_small ? share : share - 1;
  return is_fused ? std::fma(factor, b - a, base) : base + factor * (b - a);
}

template <class T>
void move_each(const Tensor& mean, const Tensor& var, const Tensor& moments, double unbiased, double share) {
  const bool is_fused = lerp_is_fused();
  const auto* const found = moments.const_data_ptr<double>();
  T *const means = mean.mutable_data_ptr<T>(), *const vars = var.mutable_data_ptr<T>();
  const int64_t count = mean.numel();
  for (int64_t k = 0; k < count; ++k) {
    means[k] = T(between(means[k], found[2 * k], share, is_fused));
    vars[k] = T(between(vars[k], found[2 * k + 1] * unbiased, share, is_fused));
  }
}

void mark_changed(const Tensor& t) {
  if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
}

// Running statistics, as they are, and in double.
struct Running {
  Tensor mean, var, batches, wide_mean, wide_var;

  // Moves them towards the moments of a batch of so many elements in a channel.
  void move(const Tensor& moments, int64_t length, double share) {
    const double unbiased = double(length) / double(length - 1);
    if (batches.is_cpu()) ++*batches.mutable_data_ptr<int64_t>();
    else batches.add_(1);
    if (are_direct(mean)) {
      const auto moved = mean.scalar_type() == at::kFloat ? move_each<float> : move_each<double>;
      moved(mean, var, moments, unbiased, share);
    } else {  // in double, and rounded to their dtype by the same operation
      at::lerp_out(mean, wide_mean, moments.select(1, 0), share);
      at::lerp_out(var, wide_var, moments.select(1, 1).mul(unbiased), share);
    }
    for (const Tensor* const t : {&batches, &mean, &var}) mark_changed(*t);
  }
};

}  // namespace
}  // namespace fusegen
