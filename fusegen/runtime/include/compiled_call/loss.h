#pragma once
// The call of a loss of whole tensors, the means of whose parts the kernel gives in double, with its gradient: as
// runtime/parts.py cuts and adds them.
#include "compiled_call/gradient.h"

namespace fusegen {
namespace {

// The number that the sum of all elements is divided by, or 0 for what Python computes.
int64_t divisor(const std::string& reduction, const Tensor& of) {
  if (reduction == "mean") return of.numel();
  if (reduction == "batchmean") return of.dim() ? of.size(0) : 1;
  return reduction == "sum";
}

// True for tensors of one shape that have elements.
bool are_alike(at::TensorList tensors) {
  for (const Tensor& t : tensors)
    if (t.sizes() != tensors[0].sizes()) return false;
  return tensors[0].numel() > 0;
}

// The parts of tensors as rows, and what is left as one row more.
std::vector<variable_list> cut(const Call& call, at::TensorList tensors) {
  const int64_t size = tensors[0].numel();
  int64_t length = call.shortest;
  while (length * call.parts < size) length *= 2;
  const int64_t rest = size % length, whole = size - rest;
  std::vector<variable_list> parts(whole > 0 && rest > 0 ? 2 : 1);
  for (const Tensor& t : tensors) {
    if (parts.size() == 1) {
      const int64_t rows = rest > 0 ? 1 : whole / length;
      parts[0].push_back(t.is_contiguous() ? t.view({rows, size / rows}) : t.reshape({rows, -1}));
      continue;
    }
    const Tensor flat = t.reshape({-1});
    parts[0].push_back(flat.narrow(0, 0, whole).view({-1, length}));
    parts[1].push_back(flat.narrow(0, whole, rest).view({1, -1}));
  }
  return parts;
}

// The sum of some means, times a number. That of one mean on the CPU takes no operations of tensors.
Tensor scaled_sum(const Tensor& means, double share) {
  if (!means.is_cpu() || means.numel() != 1) return means.sum().mul(share);
  double* const only = means.mutable_data_ptr<double>();
  *only = (0.0 + *only) * share;  // as PyTorch's sum, which begins with 0, so that the sum of -0 is 0
  return means.view(at::IntArrayRef());
}

Tensor reduced(const Call& call, at::TensorList tensors, const std::vector<double>& scalars, int64_t count) {
  at::AutoDispatchBelowADInplaceOrView below;
  Tensor total;
  for (const variable_list& rows : cut(call, tensors)) {
    const Tensor means = computed(call.forward, Stack(rows.begin(), rows.end()), scalars).at(0).toTensor();
    const Tensor part = scaled_sum(means, double(rows[0].size(1)) / double(count));
    total = total.defined() ? total.add(part) : part;
  }
  return total.to(tensors[0].scalar_type());
}

Tensor as(at::ScalarType dtype, const Tensor& t) { return t.scalar_type() == dtype ? t : t.to(dtype); }

// An incoming gradient times a number, in double, rounded to a dtype, for each row. On the CPU it is read and written
// without operations of tensors.
Tensor of_rows(const Tensor& grad, double share, at::ScalarType dtype, int64_t rows) {
  if (!grad.is_cpu()) return grad.to(at::kDouble).mul(share).to(dtype).expand({rows});
  const bool is_float = grad.scalar_type() == at::kFloat, makes_float = dtype == at::kFloat;
  const double value = (is_float ? double(*grad.const_data_ptr<float>()) : grad.item<double>()) * share;
  const Tensor made = at::empty({1}, grad.options().dtype(makes_float ? at::kFloat : at::kDouble));
  if (makes_float) *made.mutable_data_ptr<float>() = float(value);
  else *made.mutable_data_ptr<double>() = value;
  const Tensor rounded = as(dtype, made);
  return rows == 1 ? rounded : rounded.expand({rows});
}

// The gradients of the tensors of some parts, of the incoming one, of which a mean has a share. That of a mean is the
// sum of those of its elements, which may exceed float16, so that the kernel runs in float then.
variable_list of_parts(const Call& call, const Tensor& grad, double share, const variable_list& rows,
                       const std::vector<double>& scalars) {
  const auto dtype = rows[0].scalar_type();
  const auto in = dtype == at::kHalf && rows[0].size(1) > 1 ? at::kFloat : dtype;
  Stack given{of_rows(grad, share, in, rows[0].size(0))};
  for (const Tensor& t : rows) given.emplace_back(as(in, t));
  variable_list found;
  for (const auto& made : computed(call.backward, std::move(given), scalars))
    found.push_back(as(dtype, made.toTensor()));
  return found;
}

struct GradedLoss : torch::autograd::Function<GradedLoss> {
  static variable_list gradients(const Recorded& of, const Tensor& grad, const variable_list& saved) {
    const bool is_usual = !need_python(grad) && are_alike(saved);  // hooks may unpack other shapes than were packed
    if (!is_usual) return by_functions(*of.call, grad, saved, of.scalars, of.reduction);
    at::AutoDispatchBelowADInplaceOrView below;
    const int64_t count = divisor(of.reduction, saved[0]);
    std::vector<variable_list> made;
    for (const variable_list& rows : cut(*of.call, saved))
      made.push_back(of_parts(*of.call, grad, double(rows[0].size(1)) / double(count), rows, of.scalars));
    for (size_t k = 0; k < saved.size(); ++k) {
      if (made.size() > 1) made[0][k] = at::cat({made[0][k].view({-1}), made[1][k].view({-1})});
      made[0][k] = made[0][k].view(saved[k].sizes());
    }
    return made[0];
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    return gradients(recorded_in(*context), grads[0], context->get_saved_variables());
  }
};

}  // namespace
}  // namespace fusegen
