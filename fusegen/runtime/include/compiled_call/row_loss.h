#pragma once
// The call of a loss of classes, whose index picks an element of each row: one operator gives the reduction of the
// values of rows and what their sum was divided by, as runtime/row_reductions.py calls it, with the same gradient.
#include "compiled_call/loss.h"

namespace fusegen {
namespace {

constexpr int64_t IGNORED = -100, BEYOND = -2;  // as runtime/indices.py has them
constexpr double COUNTED = -1;                  // in place of a divisor that the index decides

// The reduction of a call, and the index that it ignores.
struct Words {
  std::string reduction;
  int64_t ignored = IGNORED;
  bool are_usual = false;

  // Of `count` arguments of a call, behind the `least` that it has at least.
  Words(const Call& call, PyObject* const* given, size_t count, size_t least) : reduction(call.reduction) {
    if (count < least || count > least + 2) return;
    if (count > least) {
      if (!PyUnicode_CheckExact(given[least])) return;
      const char* const name = PyUnicode_AsUTF8(given[least]);
      if (name == nullptr) PyErr_Clear();  // of a text that is none, of which Python tells
      reduction = name ? name : "";
    }
    int overflow = 0;
    if (count > least + 1) {
      if (!PyLong_CheckExact(given[least + 1])) return;
      ignored = PyLong_AsLongLongAndOverflow(given[least + 1], &overflow);
    }
    are_usual = overflow == 0 && (reduction == "mean" || reduction == "sum" || reduction == "batchmean");
  }
};

// The number that the sum of all values is divided by.
double known_divisor(const std::string& reduction, const Tensor& index) {
  if (reduction == "batchmean") return index.dim() ? double(index.size(0)) : 1;
  return reduction == "sum" ? 1 : COUNTED;
}

at::IntArrayRef rows_of(const Call& call, const Tensor& x) {
  const int64_t first = call.rows.first < 0 ? x.dim() + call.rows.first : call.rows.first;
  return x.sizes().slice(0, std::clamp<int64_t>(first, 0, x.dim()));
}

// True for an int64 for each row of x, beside it; Python refuses or takes others.
bool is_index(const Call& call, const Tensor& x, const Tensor& index) {
  return is_plain(index) && index.scalar_type() == at::kLong && index.device() == x.device() &&
         x.dim() > int64_t(index.dim()) && index.sizes() == rows_of(call, x);
}

// An index whose integers on the CPU lie in the range of rows of so many elements, as kernels take it; nothing if
// Python is to say which does not.
Tensor in_range(const Tensor& index, int64_t elements, int64_t ignored) {
  if (!index.is_contiguous()) return {};
  const auto* const given = index.const_data_ptr<int64_t>();
  const int64_t rows = index.numel();
  for (int64_t k = 0; k < rows; ++k)
    if (uint64_t(given[k]) >= uint64_t(elements) && given[k] != ignored) return {};
  if (ignored == IGNORED) return index;
  const Tensor mapped = at::empty_like(index);
  auto* const made = mapped.mutable_data_ptr<int64_t>();
  for (int64_t k = 0; k < rows; ++k) made[k] = given[k] == ignored ? IGNORED : given[k];
  return mapped;
}

// The index of the rows of x as kernels take it, or nothing where Python is to take the call.
Tensor index_of(const Call& call, const Tensor& x, const Tensor& index, int64_t ignored) {
  if (!is_index(call, x, index)) return {};
  at::AutoDispatchBelowADInplaceOrView below;
  const auto row = x.sizes().slice(index.dim());
  if (index.is_cpu()) return in_range(index, c10::multiply_integers(row), ignored);
  if (ignored == IGNORED) return index;
  return index.masked_fill(index.eq(IGNORED), BEYOND).masked_fill(index.eq(ignored), IGNORED);
}

// An index with the dimensions of a row of x, of size 1: a view as PyTorch makes it, without the dispatcher's share.
Tensor beside(const Tensor& x, const Tensor& index) {
  c10::SmallVector<int64_t, 5> sizes(index.sizes()), strides(index.strides());
  sizes.resize(x.dim(), 1), strides.resize(x.dim(), 1);
  const auto keys = index.key_set();
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(index.storage()), keys,
                                                         index.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, index.storage_offset());
  return made;
}

struct ReducedRows {
  Tensor result, divisor, numbers;  // saved of the rows, or none
};

ReducedRows reduced_rows(const Call& call, at::TensorList tensors, const Tensor& index,
                         const std::vector<double>& scalars, const std::string& reduction, bool saves) {
  at::AutoDispatchBelowADInplaceOrView below;
  Stack stack;
  stack.reserve(tensors.size() + scalars.size() + 2);
  stack.insert(stack.end(), tensors.begin(), tensors.end());
  stack.emplace_back(beside(tensors[0], index));
  stack.insert(stack.end(), scalars.begin(), scalars.end());
  stack.emplace_back(known_divisor(reduction, index));
  (saves ? *call.saving : *call.reduced).callBoxed(&stack);
  return {std::move(stack[0]).toTensor(), std::move(stack[1]).toTensor(),
          saves ? std::move(stack[2]).toTensor() : Tensor()};
}

// An incoming gradient over a divisor, divided in double and rounded once to its dtype.
Tensor divided(const Tensor& grad, const Tensor& divisor) {
  const Tensor made = at::empty_like(grad);
  if (!grad.is_cpu() || grad.scalar_type() != at::kFloat) return at::div_out(const_cast<Tensor&>(made), grad, divisor);
  *made.mutable_data_ptr<float>() = float(double(*grad.const_data_ptr<float>()) / *divisor.const_data_ptr<double>());
  return made;
}

struct GradedRowLoss : torch::autograd::Function<GradedRowLoss> {
  // Behind the tensors the index and the divisor are saved, and numbers of the rows, if the gradient reads any.
  static variable_list gradients(const Recorded& of, const Tensor& grad, const variable_list& saved) {
    const size_t count = of.call->tensors;
    const Tensor &x = saved[0], &index = saved[count];
    const bool is_usual = !need_python(grad) && is_index(*of.call, x, index);  // hooks may unpack other shapes
    const bool reads = saved.size() > count + 2;
    if (!is_usual)
      return by_functions(*of.call, grad, {saved.begin(), saved.begin() + count + 2}, of.scalars, of.reduction);
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor of_sum = of.reduction == "sum" ? grad : divided(grad, saved[count + 1]);
    Stack given;
    given.reserve(count + of.scalars.size() + 3);
    given.emplace_back(of_sum.expand(index.sizes()));
    given.insert(given.end(), saved.begin(), saved.begin() + count);
    given.emplace_back(beside(x, index));
    if (reads) given.emplace_back(saved[count + 2]);
    variable_list found;
    for (auto& made : computed(reads ? *of.call->reading : of.call->backward, std::move(given), of.scalars))
      found.push_back(std::move(made).toTensor());
    return found;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    return gradients(recorded_in(*context), grads[0], context->get_saved_variables());
  }
};

}  // namespace
}  // namespace fusegen
