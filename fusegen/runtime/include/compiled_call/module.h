#pragma once
// A module's call in C++: of plain tensors it runs the operators of the kernels, and records their gradient. Every
// other call, and a gradient that is itself recorded, goes to the module's functions in Python. Unlike kernels, it is
// built with PyTorch's own C++, for one version of PyTorch and of Python.
#include <torch/csrc/Dtype.h>

#include <structmember.h>

#include <utility>

#include "compiled_call/layer_call.h"
#include "compiled_call/loss.h"
#include "compiled_call/row_loss.h"

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

Tensor result(const Call& call, Arguments& of) {
  begin(call, of);
  WithoutInterpreter released;
  const bool saves = of.are_graded && saves_numbers(call, of.tensors[0]);
  const auto found =
      computed(saves ? *call.saving : call.forward, Stack(of.tensors.begin(), of.tensors.end()), of.scalars);
  const Tensor made = found[0].toTensor();
  variable_list numbers;
  if (saves) numbers.push_back(found[1].toTensor());
  if (of.are_graded) record<Graded>(made, of.tensors, {&call, std::move(of.scalars), {}}, numbers);
  return made;
}

// A callable of Python: what C++ takes of a call, and a function for everything else. The interpreter calls it by
// `vectorcall`; compilers of Python, as dynamo, read the attribute __call__ of its class, which is Python's.
struct Callable {
  PyObject_HEAD vectorcallfunc vectorcall;
  const Call* call;
  PyObject* python;
};

PyObject* called(PyObject* self, PyObject* const* given, size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  const auto& own = *reinterpret_cast<const Callable*>(self);
  const size_t count = names == nullptr ? PyVectorcall_NARGS(flags) : 0;
  if (Arguments arguments(*own.call, given, count); arguments.are_usual)
    return THPVariable_Wrap(result(*own.call, arguments));
  // Nothing holds the tensors any more, whose owners Python may count.
  return PyObject_Vectorcall(own.python, given, flags, names);
  END_HANDLE_TH_ERRORS
}

Tensor result_of_loss(const Call& call, Arguments& of, const std::string& reduction) {
  begin(call, of);
  WithoutInterpreter released;
  const Tensor made = reduced(call, of.tensors, of.scalars, divisor(reduction, of.tensors[0]));
  if (of.are_graded) record<GradedLoss>(made, of.tensors, {&call, std::move(of.scalars), reduction});
  return made;
}

// The same of a loss, whose reduction comes last.
PyObject* called_loss(PyObject* self, PyObject* const* given, size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  const auto& own = *reinterpret_cast<const Callable*>(self);
  const size_t count = names == nullptr ? PyVectorcall_NARGS(flags) : 0;
  if (count > 0 && PyUnicode_CheckExact(given[count - 1])) {
    const char* const name = PyUnicode_AsUTF8(given[count - 1]);
    Arguments arguments(*own.call, given, count - 1);
    if (name && arguments.are_usual && are_alike(arguments.tensors) && divisor(name, arguments.tensors[0]))
      return THPVariable_Wrap(result_of_loss(*own.call, arguments, name));
    PyErr_Clear();  // of a text that is none, of which Python tells
  }
  return PyObject_Vectorcall(own.python, given, flags, names);
  END_HANDLE_TH_ERRORS
}

Tensor result_of_row_loss(const Call& call, Arguments& of, const Tensor& index, const std::string& reduction) {
  begin(call, of);
  WithoutInterpreter released;
  const bool saves = of.are_graded && saves_numbers(call, of.tensors[0]);
  const auto made = reduced_rows(call, of.tensors, index, of.scalars, reduction, saves);
  variable_list others{index, made.divisor};
  if (saves) others.push_back(made.numbers);
  if (of.are_graded) record<GradedRowLoss>(made.result, of.tensors, {&call, std::move(of.scalars), reduction}, others);
  return made.result;
}

// The same of a loss of classes: behind the tensors and the scalars may stand a reduction and the index to ignore.
PyObject* called_row_loss(PyObject* self, PyObject* const* given, size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  const auto& own = *reinterpret_cast<const Callable*>(self);
  const size_t count = names == nullptr ? PyVectorcall_NARGS(flags) : 0, place = own.call->tensors;
  const size_t least = place + 1 + own.call->scalars;
  if (const Words words(*own.call, given, count, least); words.are_usual && is_of_pytorch(given[place])) {
    c10::SmallVector<PyObject*, 8> others(given, given + place);
    others.append(given + place + 1, given + least);
    Arguments arguments(*own.call, others.data(), others.size());
    Tensor index;
    if (arguments.are_usual)
      index = index_of(*own.call, arguments.tensors[0], THPVariable_Unpack(given[place]), words.ignored);
    if (index.defined()) return THPVariable_Wrap(result_of_row_loss(*own.call, arguments, index, words.reduction));
  }
  return PyObject_Vectorcall(own.python, given, flags, names);
  END_HANDLE_TH_ERRORS
}

Tensor result_of_layer(const Call& call, LayerCall& of) {
  begin(call, *of.arguments);
  WithoutInterpreter released;
  return layer_result(call, *of.arguments, *of.layer);
}

// The same of a layer: the module, tensors, and the scalars, if it has others than its eps.
PyObject* called_layer(PyObject* self, PyObject* const* given, size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  const auto& own = *reinterpret_cast<const Callable*>(self);
  const size_t count = names == nullptr ? PyVectorcall_NARGS(flags) : 0;
  if (LayerCall of(*own.call, given, count); of.are_usual) return THPVariable_Wrap(result_of_layer(*own.call, of));
  return PyObject_Vectorcall(own.python, given, flags, names);
  END_HANDLE_TH_ERRORS
}

PyTypeObject* callable_type() {
  static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, ""},
                                  {"python", T_OBJECT_EX, offsetof(Callable, python), READONLY, ""},
                                  {}};
  const auto name_of = [](PyObject* self, void*) {
    return PyObject_GetAttrString(reinterpret_cast<Callable*>(self)->python, "__name__");
  };
  const auto reduced = [](PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__name__"); };
  static PyMethodDef methods[] = {{"__reduce__", reduced, METH_NOARGS, "its name, so that a copy is itself"}, {}};
  static PyGetSetDef attributes[] = {{"__name__", name_of, nullptr, "", nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_members, members},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {}};
  static PyType_Spec spec{"compiled_call.Callable", sizeof(Callable), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  static PyObject* const type = PyType_FromSpec(&spec);
  return reinterpret_cast<PyTypeObject*>(type);
}

// A callable, which lives for ever, as what it calls does.
PyObject* new_callable(const Call* call, PyObject* python) {
  auto* made = PyObject_New(Callable, callable_type());
  if (made == nullptr) return nullptr;
  made->vectorcall = call->layers    ? called_layer
                     : call->reduced ? called_row_loss
                     : call->parts   ? called_loss
                                     : called;
  made->call = call;
  made->python = python;
  for (PyObject* const held : {python, reinterpret_cast<PyObject*>(made)}) Py_INCREF(held);
  return reinterpret_cast<PyObject*>(made);
}

// otherwise(callable, python): one that leaves what C++ does not take to another function.
PyObject* otherwise(PyObject*, PyObject* arguments) {
  PyObject *callable, *python;
  if (!PyArg_ParseTuple(arguments, "O!O", callable_type(), &callable, &python)) return nullptr;
  return new_callable(reinterpret_cast<Callable*>(callable)->call, python);
}

// shown_as(function): the function that compilers of Python read in place of a callable.
PyObject* shown_as(PyObject*, PyObject* function) {
  if (PyDict_SetItemString(callable_type()->tp_dict, "__call__", function) < 0) return nullptr;
  PyType_Modified(callable_type());
  Py_RETURN_NONE;
}

// compiled_call(forward, backward, python, recorded, begin, tensors, scalars, dtypes, most, saves_output, widens,
// saves, (shortest, parts), the numbers of RowShapes or nothing, the operator and the reduction of a loss of classes or
// nothing, the classes of layers or nothing)
PyObject* compiled_call(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  const char *forward, *backward, *reduced = nullptr, *reduction = nullptr;
  PyObject *python, *recorded, *begin, *dtypes, *layers = nullptr;
  long long tensors, scalars, most, shortest, parts;
  int saves_output, widens, saves;
  RowShapes rows{};
  if (!PyArg_ParseTuple(arguments, "ssOOOLLO!Lppp(LL)|(LLpppp)(zz)O!", &forward, &backward, &python, &recorded, &begin,
                        &tensors, &scalars, &PyTuple_Type, &dtypes, &most, &saves_output, &widens, &saves, &shortest,
                        &parts, &rows.first, &rows.features, &rows.is_checked, &rows.has_one_row,
                        &rows.has_dimensions, &rows.has_elements, &reduced, &reduction, &PyTuple_Type, &layers))
    return nullptr;
  auto& known = c10::Dispatcher::singleton();
  const auto of_forward = known.findSchemaOrThrow(forward, ""), of_backward = known.findSchemaOrThrow(backward, "");
  auto* call = new Call{of_forward,      of_backward, recorded,           begin,        size_t(tensors),
                        size_t(scalars), 0,           most,               bool(saves_output), bool(widens),
                        shortest,        parts,       rows,               {},           reduction ? reduction : "",
                        layers,          {},          {}};  // for ever
  if (reduced) call->reduced = known.findSchemaOrThrow(reduced, "");
  const std::string first = reduced ? reduced : forward, last = backward;
  if (saves) call->saving = known.findSchemaOrThrow((first + "_saving").c_str(), "");
  if (saves) call->reading = known.findSchemaOrThrow((last + "_reading").c_str(), "");
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(dtypes); ++k)
    call->dtypes |= 1ull << int(reinterpret_cast<THPDtype*>(PyTuple_GET_ITEM(dtypes, k))->scalar_type);
  for (PyObject* const held : {recorded, begin, layers}) Py_XINCREF(held);
  return new_callable(call, python);
  END_HANDLE_TH_ERRORS
}

}  // namespace
}  // namespace fusegen

PyMODINIT_FUNC PyInit_compiled_call() {
  static PyMethodDef methods[] = {{"compiled_call", fusegen::compiled_call, METH_VARARGS, ""},
                                  {"otherwise", fusegen::otherwise, METH_VARARGS, ""},
                                  {"shown_as", fusegen::shown_as, METH_O, ""},
                                  {}};
  static PyModuleDef module{PyModuleDef_HEAD_INIT, "compiled_call", nullptr, -1, methods};
  PyObject* const made = PyModule_Create(&module);
  if (made != nullptr) PyModule_AddType(made, fusegen::callable_type());
  return made;
}
