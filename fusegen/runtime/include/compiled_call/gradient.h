#pragma once
// A module's call with its gradient, as autograd records both.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/utils/object_ptr.h>

#include "compiled_call/arguments.h"

namespace fusegen {
namespace {

struct WithInterpreter {
  PyGILState_STATE state = PyGILState_Ensure();
  ~WithInterpreter() { PyGILState_Release(state); }
};

// The call of which a node of autograd is, beside the tensors that are saved.
struct Recorded {
  const Call* call;
  std::vector<double> scalars;
  std::string reduction;                  // of a loss
  at::ScalarType dtype = at::kDouble;     // of a layer's parameters
};

PyObject* wrapped(const Tensor& t) { return THPVariable_Wrap(t); }
PyObject* wrapped(double x) { return PyFloat_FromDouble(x); }
template <class T>
PyObject* list_of(const std::vector<T>& values) {
  PyObject* list = PyList_New(values.size());
  for (size_t k = 0; k < values.size(); ++k) PyList_SET_ITEM(list, k, wrapped(values[k]));
  return list;
}

// The gradients that functions in Python give, and autograd records; those of a loss need its reduction.
variable_list by_functions(const Call& call, const Tensor& grad, const variable_list& saved,
                           const std::vector<double>& scalars, const std::string& reduction = "") {
  WithInterpreter held;
  PyObject *const of_grad = THPVariable_Wrap(grad), *const tensors = list_of(saved), *const others = list_of(scalars);
  THPObjectPtr made(reduction.empty()
                        ? PyObject_CallFunction(call.recorded, "NNN", of_grad, tensors, others)
                        : PyObject_CallFunction(call.recorded, "NNNs", of_grad, tensors, others, reduction.c_str()));
  THPObjectPtr several(made ? PySequence_Tuple(made) : nullptr);
  if (!several) {
    python_error error;
    error.persist();
    throw error;
  }
  variable_list found;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(several.get()); ++k) {
    PyObject* const each = PyTuple_GET_ITEM(several.get(), k);
    found.push_back(each == Py_None ? Tensor() : THPVariable_Unpack(each));
  }
  return found;
}

bool need_python(const Tensor& grad) { return at::GradMode::is_enabled() || is_governed() || !is_plain(grad); }

const std::string CALL = "call", SCALARS = "scalars", REDUCTION = "reduction", DTYPE = "dtype";  // in a context

Recorded recorded_in(AutogradContext& context) {
  auto& data = context.saved_data;
  return {reinterpret_cast<const Call*>(data[CALL].toInt()), data[SCALARS].toDoubleVector(),
          data[REDUCTION].toStringRef(), at::ScalarType(data[DTYPE].toInt())};
}

template <class FUNCTION>
struct Node;

// Has autograd know, where a gradient is recorded, of what the saved tensors of a node were computed, unless it does.
template <class FUNCTION>
void connect(const Node<FUNCTION>&, variable_list&) {}

// A call of FUNCTION in autograd's graph. It keeps what is saved itself, since the context of PyTorch's functions costs
// more than a small kernel; it is filled when compiled autograd asks for it.
template <class FUNCTION>
struct Node final : torch::autograd::CppNode<FUNCTION> {
  using Base = torch::autograd::CppNode<FUNCTION>;
  Recorded of;
  c10::SmallVector<torch::autograd::SavedVariable, 3> saved;

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(this->mutex_);
    const Tensor grad = grads[0].defined() ? std::move(grads[0]) : this->input_metadata(0).zeros_like();
    variable_list tensors = unpacked();
    if (at::GradMode::is_enabled()) connect<FUNCTION>(*this, tensors);
    return FUNCTION::gradients(of, grad, tensors);
  }

  variable_list unpacked() const {
    TORCH_CHECK(!saved.empty(), torch::autograd::ERR_BACKWARD_TWICE);
    variable_list tensors;
    tensors.reserve(saved.size());
    for (const auto& each : saved) tensors.push_back(each.unpack(const_cast<Node*>(this)->getptr()));
    return tensors;
  }

  std::string name() const override { return of.call->backward.operator_name().name; }

  void release_variables() override {
    Base::release_variables();
    const std::lock_guard<std::mutex> lock(this->mutex_);
    saved.clear();
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    const_cast<Node*>(this)->fill_context();
    Base::compiled_args(args);
  }

  void fill_context() {
    auto& context = this->ctx_;
    this->set_ctx_grad_fn(this->getptr());
    context.save_for_backward(unpacked());
    this->save_variables_to_ctx();
    context.saved_data[CALL] = reinterpret_cast<int64_t>(of.call);
    context.saved_data[SCALARS] = of.scalars;
    context.saved_data[REDUCTION] = of.reduction;
    context.saved_data[DTYPE] = int64_t(of.dtype);
    this->is_variable_input_.assign(this->num_outputs(), true);
    if (this->output_info_.empty()) this->output_info_.emplace_back(this->input_metadata(0).zeros_like());
  }
};

// A new node, owned as the version of PyTorch does.
template <class NODE>
auto new_node() {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, NODE>) return c10::make_intrusive<NODE>();
  else return std::shared_ptr<NODE>(new NODE, [](auto* node) { deleteNode(node); });
}

// Records that a result is FUNCTION of some tensors, of which some may be none, and returns the node.
template <class FUNCTION>
auto connected(const Tensor& result, at::TensorList tensors, Recorded&& of) {
  auto node = new_node<Node<FUNCTION>>();
  torch::autograd::edge_list edges;
  edges.reserve(tensors.size());
  for (const Tensor& t : tensors)
    edges.push_back(t.defined() ? torch::autograd::impl::gradient_edge(t) : torch::autograd::Edge());
  node->set_next_edges(std::move(edges));
  node->of = std::move(of);
  torch::autograd::set_history(result, node);
  return node;
}

// Records the same; for the gradients these tensors are saved, or the result is; and others.
template <class FUNCTION>
void record(const Tensor& result, at::TensorList tensors, Recorded&& of, at::TensorList others = {}) {
  const bool saves_output = of.call->saves_output;
  const auto node = connected<FUNCTION>(result, tensors, std::move(of));
  if (saves_output) node->saved.emplace_back(result, true);
  else
    for (const Tensor& t : tensors) node->saved.emplace_back(t, false);
  for (const Tensor& t : others) node->saved.emplace_back(t, false);
}

// The gradients of a call by the kernel, of the incoming one, or by Python where autograd records these, too.
struct Graded : torch::autograd::Function<Graded> {
  static variable_list gradients(const Recorded& of, const Tensor& grad, const variable_list& saved) {
    const bool reads = of.call->reading && saved.size() > of.call->tensors;  // numbers behind the tensors
    if (need_python(grad)) {
      const auto end = reads ? saved.begin() + of.call->tensors : saved.end();
      return by_functions(*of.call, grad, {saved.begin(), end}, of.scalars);
    }
    Stack given{grad};
    given.insert(given.end(), saved.begin(), saved.end());
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
