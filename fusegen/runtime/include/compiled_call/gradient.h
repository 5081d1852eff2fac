#pragma once
// A module's call with its gradient, as autograd records both.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/object_ptr.h>

#include "compiled_call/arguments.h"

namespace fusegen {
namespace {

struct WithInterpreter {
  PyGILState_STATE state = PyGILState_Ensure();
  ~WithInterpreter() { PyGILState_Release(state); }
};

const std::string CALL = "call", SCALARS = "scalars";  // what is saved beside tensors

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

// A call with a gradient: for it the result is saved, or the tensors are. Each tensor has a gradient of its own.
struct Graded : torch::autograd::Function<Graded> {
  static Tensor forward(AutogradContext* context, const Call* call, at::TensorList given,
                        const std::vector<double>& scalars) {
    Tensor result = computed(call->forward, Stack(given.begin(), given.end()), scalars).at(0).toTensor();
    context->save_for_backward(call->saves_output ? variable_list{result} : variable_list(given.begin(), given.end()));
    context->saved_data[CALL] = reinterpret_cast<int64_t>(call);
    if (!scalars.empty()) context->saved_data[SCALARS] = scalars;
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const Call& call = *reinterpret_cast<const Call*>(context->saved_data[CALL].toInt());
    const auto scalars = call.scalars ? context->saved_data[SCALARS].toDoubleVector() : std::vector<double>();
    const auto saved = context->get_saved_variables();
    const bool by_python = at::GradMode::is_enabled() || is_governed() || !is_plain(grads[0]);
    auto found = by_python ? by_functions(call, grads[0], saved, scalars) : by_kernel(call, grads[0], saved, scalars);
    found.insert(found.begin(), Tensor());  // of the call
    found.emplace_back();                   // of the scalars
    return found;
  }

  static variable_list by_kernel(const Call& call, const Tensor& grad, const variable_list& saved,
                                 const std::vector<double>& scalars) {
    Stack given{grad};
    given.insert(given.end(), saved.begin(), saved.end());
    variable_list found;
    for (const auto& made : computed(call.backward, std::move(given), scalars)) found.push_back(made.toTensor());
    return found;
  }
};

}  // namespace
}  // namespace fusegen
