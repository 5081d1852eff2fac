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

// A call with a gradient: for it the result is saved, or the tensors that it reads.
struct Graded : torch::autograd::Function<Graded> {
  static Tensor forward(AutogradContext* context, const Call* call, at::TensorList given,
                        const std::vector<double>& scalars) {
    Tensor result = computed(call->forward, Stack(given.begin(), given.end()), scalars).at(0).toTensor();
    variable_list saved(given.begin(), given.end());
    for (size_t k = 0; k < given.size(); ++k)
      if (call->unread[k]) saved[k] = Tensor(), context->saved_data[std::to_string(k)] = given[k].sizes().vec();
    context->save_for_backward(call->saves_output ? variable_list{result} : std::move(saved));
    context->saved_data[CALL] = reinterpret_cast<int64_t>(call);
    if (!scalars.empty()) context->saved_data[SCALARS] = scalars;
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const Call& call = *reinterpret_cast<const Call*>(context->saved_data[CALL].toInt());
    const auto scalars = call.scalars ? context->saved_data[SCALARS].toDoubleVector() : std::vector<double>();
    const Tensor& grad = grads[0];
    std::vector<bool> wanted(call.places.size());
    for (size_t k = 0; k < wanted.size(); ++k) wanted[k] = context->needs_input_grad(k);
    const bool by_python = at::GradMode::is_enabled() || is_governed() || !is_plain(grad);
    const auto read = read_by(call, *context, grad, wanted, by_python);
    auto found = by_python || !is_one_call(call, read) ? by_functions(call, grad, read, scalars, wanted)
                                                       : by_kernel(call, grad, read, scalars);
    found.insert(found.begin(), Tensor());  // of the call
    found.emplace_back();                   // of the scalars
    return found;
  }

  // The tensors that the gradient reads: in place of a tensor that was not saved, another of its shape. In place of one
  // of the result's whose gradient nobody asks for, a value, where its gradient, a sum, costs less than what it replaces.
  static variable_list read_by(const Call& call, AutogradContext& context, const Tensor& grad,
                               const std::vector<bool>& wanted, bool by_python) {
    auto read = context.get_saved_variables();
    for (size_t k = 0; k < read.size() && !call.saves_output; ++k) {
      if (!call.unread[k]) continue;
      const auto sizes = context.saved_data[std::to_string(k)].toIntVector();
      bool is_wanted = by_python || !grad.is_cpu() || grad.element_size() < 4;
      for (size_t other = 0; other < wanted.size(); ++other)
        is_wanted |= call.places[other] == call.places[k] && wanted[other];
      const bool is_whole = grad.sizes() == at::IntArrayRef(sizes);
      read[k] = !is_whole ? grad.new_empty(sizes) : is_wanted ? grad : grad.new_zeros({});
    }
    return read;
  }

  // True if tensors that share a gradient have one shape, so that one run of the kernel gives all gradients.
  static bool is_one_call(const Call& call, const variable_list& read) {
    for (size_t k = 1; k < call.places.size(); ++k)
      for (size_t before = 0; before < k; ++before)
        if (call.places[before] == call.places[k] && read[before].sizes() != read[k].sizes()) return false;
    return true;
  }

  static variable_list by_kernel(const Call& call, const Tensor& grad, const variable_list& read,
                                 const std::vector<double>& scalars) {
    Stack given{grad};
    given.insert(given.end(), read.begin(), read.end());
    const Stack made = computed(call.backward, std::move(given), scalars);
    variable_list found;
    for (const int64_t place : call.places) found.push_back(made.at(place).toTensor());
    return found;
  }

  static variable_list by_functions(const Call& call, const Tensor& grad, const variable_list& read,
                                    const std::vector<double>& scalars, const std::vector<bool>& wanted) {
    WithInterpreter held;
    THPObjectPtr made(PyObject_CallFunction(call.recorded, "NNNN", THPVariable_Wrap(grad), list_of(read),
                                                  list_of(scalars), list_of(wanted)));
    THPObjectPtr several(made ? PySequence_Tuple(made) : nullptr);
    if (!several) {
      python_error error;
      error.persist();
      throw error;
    }
    variable_list found;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(several.get()); ++k) {
      PyObject* each = PyTuple_GET_ITEM(several.get(), k);
      found.push_back(each == Py_None ? Tensor() : THPVariable_Unpack(each));
    }
    return found;
  }

  static PyObject* wrapped(const Tensor& t) { return THPVariable_Wrap(t); }
  static PyObject* wrapped(double x) { return PyFloat_FromDouble(x); }
  static PyObject* wrapped(bool is) { return PyBool_FromLong(is); }
  template <class T>
  static PyObject* list_of(const std::vector<T>& values) {
    PyObject* list = PyList_New(values.size());
    for (size_t k = 0; k < values.size(); ++k) PyList_SET_ITEM(list, k, wrapped(T(values[k])));
    return list;
  }
};

}  // namespace
}  // namespace fusegen
