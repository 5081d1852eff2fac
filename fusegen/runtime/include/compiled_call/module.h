#pragma once
// A module's call in C++: of plain tensors it runs the operators of the kernels, and records their gradient. Every
// other call, and a gradient that is itself recorded, goes to the module's functions in Python. Unlike kernels, it is
// built with PyTorch's own C++, for one version of PyTorch and of Python.
#include <torch/csrc/Dtype.h>

#include <utility>

#include "compiled_call/loss.h"

namespace fusegen {
namespace {

struct WithoutInterpreter {
  PyThreadState* state = PyEval_SaveThread();
  ~WithoutInterpreter() { PyEval_RestoreThread(state); }
};

void begin(const Call& call, const Arguments& of) {
  if (!of.are_graded || std::exchange(call.begun, true)) return;
  if (const THPObjectPtr told(PyObject_CallNoArgs(call.begin)); !told.get()) throw python_error();
}

Tensor result(const Call& call, const Arguments& of) {
  begin(call, of);
  WithoutInterpreter released;
  if (of.are_graded) return Graded::apply(&call, at::TensorList(of.tensors), of.scalars);
  return computed(call.forward, Stack(of.tensors.begin(), of.tensors.end()), of.scalars).at(0).toTensor();
}

// A call that C++ takes, or the module's function.
PyObject* called(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const Call& call = *static_cast<const Call*>(PyCapsule_GetPointer(self, nullptr));
  if (const Arguments arguments(call, given, count); arguments.are_usual)
    return THPVariable_Wrap(result(call, arguments));
  // Nothing holds the tensors any more, whose owners Python may count.
  return PyObject_Vectorcall(call.python, given, count, nullptr);
  END_HANDLE_TH_ERRORS
}

Tensor result_of_loss(const Call& call, const Arguments& of, const std::string& reduction) {
  begin(call, of);
  WithoutInterpreter released;
  if (of.are_graded) return GradedLoss::apply(&call, at::TensorList(of.tensors), of.scalars, reduction);
  return reduced(call, of.tensors, of.scalars, divisor(reduction, of.tensors[0]));
}

// The same of a loss, whose reduction comes last.
PyObject* called_loss(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const Call& call = *static_cast<const Call*>(PyCapsule_GetPointer(self, nullptr));
  if (count > 0 && PyUnicode_CheckExact(given[count - 1])) {
    const char* const name = PyUnicode_AsUTF8(given[count - 1]);
    const Arguments arguments(call, given, count - 1);
    if (name && arguments.are_usual && are_alike(arguments.tensors) && divisor(name, arguments.tensors[0]))
      return THPVariable_Wrap(result_of_loss(call, arguments, name));
    PyErr_Clear();  // of a text that is none, of which Python tells
  }
  return PyObject_Vectorcall(call.python, given, count, nullptr);
  END_HANDLE_TH_ERRORS
}

// compiled_call(forward, backward, python, recorded, begin, tensors, scalars, dtypes, most, saves_output, widens,
// shortest, parts)
PyObject* compiled_call(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  static PyMethodDef method{"compiled_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(called)),
                            METH_FASTCALL, "The call of a module's function, of tensors and scalars."};
  static PyMethodDef loss{"compiled_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(called_loss)),
                          METH_FASTCALL, "The call of a loss, of tensors, scalars and a reduction."};
  const char *forward, *backward;
  PyObject *python, *recorded, *begin, *dtypes;
  long long tensors, scalars, most, shortest, parts;
  int saves_output, widens;
  if (!PyArg_ParseTuple(arguments, "ssOOOLLO!LppLL", &forward, &backward, &python, &recorded, &begin, &tensors,
                        &scalars, &PyTuple_Type, &dtypes, &most, &saves_output, &widens, &shortest, &parts))
    return nullptr;
  auto& known = c10::Dispatcher::singleton();
  auto* call = new Call{known.findSchemaOrThrow(forward, ""), known.findSchemaOrThrow(backward, ""), python, recorded,
                        begin, size_t(tensors), size_t(scalars), 0, most, bool(saves_output), bool(widens),
                        shortest, parts};  // for ever
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(dtypes); ++k)
    call->dtypes |= 1ull << int(reinterpret_cast<THPDtype*>(PyTuple_GET_ITEM(dtypes, k))->scalar_type);
  for (PyObject* const held : {python, recorded, begin}) Py_INCREF(held);
  THPObjectPtr self(PyCapsule_New(call, nullptr, nullptr));
  return PyCFunction_New(parts ? &loss : &method, self);
  END_HANDLE_TH_ERRORS
}

}  // namespace
}  // namespace fusegen

PyMODINIT_FUNC PyInit_compiled_call() {
  static PyMethodDef methods[] = {{"compiled_call", fusegen::compiled_call, METH_VARARGS, ""}, {}};
  static PyModuleDef module{PyModuleDef_HEAD_INIT, "compiled_call", nullptr, -1, methods};
  return PyModule_Create(&module);
}
