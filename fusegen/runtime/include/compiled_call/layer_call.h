#pragma once
// The call of a layer with the statistics of batches: it runs the kernel, records its gradient and moves the running
// statistics, with the bits that runtime/channels.py gives.
#include "compiled_call/layer.h"

namespace fusegen {
namespace {

// The dtype of the parameters.
at::ScalarType dtype_of(const Tensor& weight, const Tensor& bias) {
  return weight.defined() ? weight.scalar_type() : bias.defined() ? bias.scalar_type() : at::kDouble;
}

// Its gradient's numbers of channels, the last two, are those of parameters, in their dtype.
struct GradedLayer : torch::autograd::Function<GradedLayer> {
  static variable_list gradients(const Recorded& of, const Tensor& grad, const variable_list& saved) {
    const size_t place = of.call->tensors;
    if (need_python(grad)) return by_functions(*of.call, grad, saved, of.scalars);  // autograd converts these
    variable_list found = Graded::gradients(of, grad, saved);
    at::AutoDispatchBelowADInplaceOrView below;
    variable_list numbers = converted(at::TensorList(found).slice(place), of.dtype);
    std::move(numbers.begin(), numbers.end(), found.begin() + place);
    return found;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    return gradients(recorded_in(*context), grads[0], context->get_saved_variables());
  }
};

// The conversion of a parameter to double, where a gradient is recorded that reads the saved number.
struct Widened final : torch::autograd::Node {
  at::ScalarType dtype = at::kDouble;
  variable_list apply(variable_list&& grads) override {
    return {grads[0].defined() ? grads[0].to(dtype) : Tensor()};
  }
};

// A saved number in double is none of autograd's; it becomes what was computed of the parameter.
template <>
void connect<GradedLayer>(const Node<GradedLayer>& node, variable_list& saved) {
  for (size_t k = node.of.call->tensors; k < node.num_outputs(); ++k) {
    const torch::autograd::Edge& edge = node.next_edge(k);
    if (!edge.is_valid() || saved[k].requires_grad()) continue;
    auto widened = new_node<Widened>();
    widened->dtype = node.of.dtype;
    widened->set_next_edges({edge});
    saved[k] = saved[k].detach();
    torch::autograd::set_history(saved[k], widened);
  }
}

// A number in double of each channel: a parameter's, or one for all of them.
Tensor or_filled(const Tensor& numbers, const Tensor& x, double value) {
  return numbers.defined() ? numbers : at::full({x.size(1)}, value, x.options().dtype(at::kDouble));
}

// The moments that a kernel is given: none, or the running ones, side by side.
Tensor moments_of(const Layer& layer, const Tensor& x) {
  if (!layer.is_given) return at::empty({0, 2}, x.options().dtype(at::kDouble));
  const Tensor &mean = layer.running.mean, &var = layer.running.var;
  if (!are_direct(mean)) return at::stack({mean, var}, 1);
  const Tensor made = at::empty({x.size(1), 2}, mean.options());
  const size_t size = mean.element_size();
  auto* const to = static_cast<char*>(made.mutable_data_ptr());
  const auto *const means = static_cast<const char*>(mean.const_data_ptr()),
                    *const vars = static_cast<const char*>(var.const_data_ptr());
  for (int64_t k = 0; k < x.size(1); ++k) {
    std::memcpy(to + 2 * k * size, means + k * size, size);
    std::memcpy(to + (2 * k + 1) * size, vars + k * size, size);
  }
  return made;
}

// The parameters and the moments of a call in double, and the statistics that move, by one operation.
variable_list widened(Layer& layer, const Tensor& x) {
  at::AutoDispatchBelowADInplaceOrView below;
  Running& running = layer.running;
  variable_list numbers{layer.weight, layer.bias, moments_of(layer, x)};
  const bool are_wide = layer.moves && !are_direct(running.mean);
  if (are_wide) numbers.insert(numbers.end(), {running.mean, running.var});
  numbers = converted(numbers, at::kDouble);
  if (are_wide) running.wide_mean = numbers[3], running.wide_var = numbers[4];
  return {or_filled(numbers[0], x, 1), or_filled(numbers[1], x, 0), numbers[2]};
}

Tensor layer_result(const Call& call, Arguments& of, Layer& layer) {
  const Tensor& x = of.tensors[0];
  variable_list numbers = widened(layer, x);
  of.scalars.push_back(layer.is_given ? 0 : 1);
  Stack stack(of.tensors.begin(), of.tensors.end());
  stack.insert(stack.end(), numbers.begin(), numbers.end());
  stack = computed(call.forward, std::move(stack), of.scalars);
  const Tensor result = stack[0].toTensor();
  if (!layer.is_given) numbers[2] = stack[1].toTensor();
  if (layer.moves) {
    at::AutoDispatchBelowADInplaceOrView below;
    layer.running.move(numbers[2], x.numel() / x.size(1), layer.share);
  }
  if (!of.are_graded) return result;
  variable_list leaves(of.tensors.begin(), of.tensors.end());
  leaves.insert(leaves.end(), {layer.weight, layer.bias});
  auto node = connected<GradedLayer>(result, leaves, {&call, of.scalars, {}, dtype_of(layer.weight, layer.bias)});
  for (const Tensor& t : of.tensors) node->saved.emplace_back(t, false);
  for (const Tensor& t : numbers) node->saved.emplace_back(t, false);
  return result;
}

}  // namespace
}  // namespace fusegen
