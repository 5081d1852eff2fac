#pragma once
// The arguments of a module's call: those that C++ takes, and those that are left to the function in Python.
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace fusegen {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

// The shapes that a kernel of rows takes as they are: one, but for features, which may be one row.
struct RowShapes {
  long long first, features;    // dimension of a row, and bits of those of the tensors that are features
  int is_checked, has_one_row;  // else Python does, and features have the whole shape
  int has_dimensions, has_elements;

  bool fit(at::TensorList tensors) const {
    const auto shape = tensors[0].sizes();
    const int64_t dim = tensors[0].dim(), begin = std::clamp<int64_t>(first < 0 ? dim + first : first, 0, dim);
    const auto row = shape.slice(begin);
    std::optional<at::IntArrayRef> of_features;
    bool any_dimension = !has_dimensions;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const auto own = tensors[k].sizes();
      const bool is_feature = features >> k & 1;
      if (is_feature && !of_features) of_features = has_one_row && !row.empty() && own == row ? row : shape;
      if (own != (is_feature ? *of_features : shape) || (has_elements && tensors[k].numel() == 0)) return false;
      any_dimension = any_dimension || !own.empty();
    }
    return any_dimension;
  }
};

struct Call {
  c10::OperatorHandle forward, backward;
  PyObject* recorded;  // its gradients as autograd records them, of grad, what was saved, and the scalars
  PyObject* begin;     // builds both passes at once, before the first call whose gradient is recorded
  size_t tensors, scalars;
  uint64_t dtypes;    // a bit for each
  int64_t most;       // elements on a GPU below which C++ records the gradient; none if Python records all
  bool saves_output;  // in place of the tensors
  bool widens;        // 16 bits on a GPU, under autocast
  int64_t shortest, parts;  // elements of a part of a loss of whole tensors, and parts at most; else 0
  RowShapes rows;
  std::optional<c10::OperatorHandle> reduced;  // of a loss of classes, whose index stands behind the tensors
  std::string reduction;                       // that it has where a call says none
  PyObject* layers;  // of a call of a layer: pairs of a class, and a bit for each rank that it takes, or 0
  std::optional<c10::OperatorHandle> saving, reading;  // on CUDA: saves numbers of rows; the gradient that reads them
  mutable bool begun = false;  // whether a gradient was recorded
};

// True where the gradient of a call of x reads numbers of rows that the forward kernel saves.
bool saves_numbers(const Call& call, const Tensor& x) { return call.saving && x.is_cuda(); }

// True for a strided tensor on a CPU or a GPU of CUDA without a lazy negation, a batch or a tangent of torch.func.
bool is_plain(const Tensor& t) {
  constexpr c10::DispatchKeySet DEVICES({c10::DispatchKey::CPU, c10::DispatchKey::CUDA});
  constexpr c10::DispatchKeySet AROUND({c10::DispatchKey::ADInplaceOrView});
  constexpr auto KNOWN = DEVICES | AROUND | c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset;
  return (t.key_set().raw_repr() & ~KNOWN.raw_repr()) == 0;
}

// True where a mode, a transform or a tracer decides what a call does.
bool is_governed() {
  const auto included = c10::impl::tls_local_dispatch_key_set().included_.raw_repr();
  return (included & ~c10::default_included_set.raw_repr()) != 0 || at::impl::torch_function_mode_enabled() ||
         torch::jit::tracer::isTracing();
}

bool is_scalar(PyObject* given, double* scalar) {
  if (!PyFloat_CheckExact(given) && !PyLong_CheckExact(given)) return false;
  *scalar = PyFloat_AsDouble(given);
  if (*scalar != -1 || !PyErr_Occurred()) return true;
  PyErr_Clear();  // an integer beyond a double, of which Python tells
  return false;
}

bool is_of_pytorch(PyObject* given) {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(given));
  return type == THPVariableClass || type == ParameterClass;
}

bool is_tensor(PyObject* given, const Call& call, const c10::TensorImpl* first) {
  if (!is_of_pytorch(given)) return false;
  const Tensor& t = THPVariable_Unpack(given);
  const auto dtype = t.scalar_type();
  if (!is_plain(t) || !(call.dtypes >> int(dtype) & 1)) return false;
  return !first || (dtype == c10::typeMetaToScalarType(first->dtype()) && t.device() == first->device());
}

struct Arguments {
  c10::SmallVector<Tensor, 4> tensors;
  std::vector<double> scalars;
  bool are_usual = false, are_graded = false;

  Arguments(const Call& call, PyObject* const* given, size_t count) {
    if (count != call.tensors + call.scalars || is_governed()) return;
    for (size_t k = 0; k < call.tensors; ++k) {
      if (!is_tensor(given[k], call, k ? tensors[0].unsafeGetTensorImpl() : nullptr)) return;
      tensors.push_back(THPVariable_Unpack(given[k]));
      are_graded |= tensors[k].requires_grad();
    }
    for (size_t k = call.tensors; k < count; ++k)
      if (double scalar; is_scalar(given[k], &scalar)) scalars.push_back(scalar);
    are_graded = are_graded && at::GradMode::is_enabled();
    are_usual = scalars.size() == call.scalars && !need_python(call);
    are_usual = are_usual && (!call.rows.is_checked || call.rows.fit(tensors));
  }

  bool need_python(const Call& call) const {
    const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
    const Tensor& x = tensors[0];
    const bool halves = x.is_cuda() && x.element_size() == 2;
    if (call.widens && halves && !excluded.has(c10::DispatchKey::AutocastCUDA)) return true;
    if (torch::autograd::ForwardADLevel::try_get_by_idx(0)) return true;
    const bool is_large = call.most == 0 || (x.is_cuda() && x.numel() >= call.most);
    return are_graded && (is_large || excluded.has_any(c10::autograd_dispatch_keyset));
  }
};

Stack computed(const c10::OperatorHandle& kernel, Stack stack, const std::vector<double>& scalars) {
  at::AutoDispatchBelowADInplaceOrView below;
  stack.insert(stack.end(), scalars.begin(), scalars.end());
  kernel.callBoxed(&stack);
  return stack;
}

}  // namespace
}  // namespace fusegen
