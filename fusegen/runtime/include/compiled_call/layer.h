#pragma once
// The arguments of a call of a layer with the statistics of batches: a module, whose parameters and buffers are read as
// `Channels.by_python` of runtime/channels.py reads them, and tensors. Python takes all that is unusual.
#include "compiled_call/loss.h"
#include "compiled_call/numbers.h"

namespace fusegen {
namespace {

PyObject* interned(const char* name) { return PyUnicode_InternFromString(name); }

// Attributes of a module, of its parameters or of its buffers, by name; whether all that were asked for are usual.
struct Attributes {
  PyObject* dict;  // or nothing
  bool* are_usual;

  PyObject* of(PyObject* name) const {
    PyObject* const found = dict && PyDict_Check(dict) ? PyDict_GetItemWithError(dict, name) : nullptr;
    if (found == nullptr) PyErr_Clear(), *are_usual = false;
    return found;
  }

  bool is_true(PyObject* name) const {
    PyObject* const found = of(name);
    if (found != Py_True && found != Py_False) *are_usual = false;
    return found == Py_True;
  }

  // A tensor, or nothing in place of None.
  Tensor tensor(PyObject* name) const {
    PyObject* const found = of(name);
    if (found == Py_None || found == nullptr) return {};
    if (is_of_pytorch(found)) return THPVariable_Unpack(found);
    *are_usual = false;
    return {};
  }
};

// True for classes of layers that take tensors of so many dimensions; Python asks of others.
bool takes(PyObject* layers, PyTypeObject* type, int64_t dim) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(layers); ++k) {
    PyObject* const each = PyTuple_GET_ITEM(layers, k);
    auto* const known = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(each, 0));
    const long ranks = PyLong_AsLong(PyTuple_GET_ITEM(each, 1));
    if (ranks == 0 ? PyType_IsSubtype(type, known) : type == known && dim < 8 && (ranks >> dim & 1)) return true;
  }
  return false;
}

// The parameters, buffers and numbers of a module that a call reads.
struct Layer {
  Tensor weight, bias;
  Running running;
  PyObject *eps = nullptr, *channels = nullptr;
  double share = 0;
  bool are_usual = true, is_given = false, moves = false;  // whether the statistics are the running ones; move

  explicit Layer(PyObject* module) {
    static PyObject* const names[] = {
        interned("_parameters"),  interned("weight"),      interned("bias"),
        interned("_buffers"),     interned("running_mean"), interned("running_var"),
        interned("training"),     interned("eps"),          interned("track_running_stats"),
        interned("num_batches_tracked"), interned("momentum"), interned("num_features")};
    THPObjectPtr dict(PyObject_GenericGetDict(module, nullptr));
    if (dict.get() == nullptr) PyErr_Clear();
    const Attributes own{dict.get(), &are_usual};
    const Attributes parameters{own.of(names[0]), &are_usual}, buffers{own.of(names[3]), &are_usual};
    weight = parameters.tensor(names[1]), bias = parameters.tensor(names[2]);
    running.mean = buffers.tensor(names[4]), running.var = buffers.tensor(names[5]);
    const bool is_training = own.is_true(names[6]), has_mean = running.mean.defined();
    is_given = !is_training && has_mean;
    moves = is_training && has_mean && own.is_true(names[8]);
    eps = own.of(names[7]), channels = own.of(names[11]);
    if (moves) {
      running.batches = buffers.tensor(names[9]);
      PyObject* const momentum = own.of(names[10]);
      are_usual = are_usual && momentum && is_scalar(momentum, &share);
    }
  }

  // True for numbers of each channel of x, which nothing else may read as it is written.
  bool fit(const Tensor& x) const {
    if (!PyLong_CheckExact(channels) || PyLong_AsLongLong(channels) != x.size(1)) return PyErr_Clear(), false;
    const int64_t count = x.size(1), length = x.numel() / count;
    const auto fits = [&](const Tensor& t, const Tensor& like) {
      return is_plain(t) && t.dim() == 1 && t.size(0) == count && t.is_contiguous() && t.device() == x.device() &&
             at::isFloatingType(t.scalar_type()) && t.scalar_type() == like.scalar_type();
    };
    const Tensor& parameter = weight.defined() ? weight : bias;
    for (const Tensor* const t : {&weight, &bias})
      if (t->defined() && !fits(*t, parameter)) return false;
    if (!is_given && length == 1) return false;
    if (!is_given && !moves) return true;
    for (const Tensor* const t : {&running.mean, &running.var})
      if (!t->defined() || !fits(*t, running.mean) || t->requires_grad() || t->is_inference()) return false;
    if (!moves) return true;
    const Tensor& batches = running.batches;
    const bool is_counted = batches.defined() && is_plain(batches) && batches.scalar_type() == at::kLong &&
                            batches.dim() == 0 && batches.device() == x.device() && !batches.is_inference();
    return is_counted && !running.mean.is_alias_of(running.var);
  }

  bool require_grad() const {
    return (weight.defined() && weight.requires_grad()) || (bias.defined() && bias.requires_grad());
  }
};

// The arguments of a call: the module, tensors of one shape, and scalars, in whose place the module's eps may be.
struct LayerCall {
  std::optional<Layer> layer;
  std::optional<Arguments> arguments;
  bool are_usual = false;

  LayerCall(const Call& call, PyObject* const* given, size_t count) {
    const size_t place = 1 + call.tensors;
    if ((count != place && count != place + call.scalars) || !is_of_pytorch(given[1])) return;
    const Tensor& x = THPVariable_Unpack(given[1]);
    if (!is_plain(x) || x.dim() < 2 || !takes(call.layers, Py_TYPE(given[0]), x.dim())) return;
    layer.emplace(given[0]);
    if (!layer->are_usual) return;
    c10::SmallVector<PyObject*, 4> others(given + 1, given + count);
    if (count == place) others.push_back(layer->eps);
    arguments.emplace(call, others.data(), others.size());
    if (!arguments->are_usual || !are_alike(arguments->tensors) || !layer->fit(x)) return;
    arguments->are_graded |= layer->require_grad() && at::GradMode::is_enabled();
    are_usual = !arguments->need_python(call);
  }
};

}  // namespace
}  // namespace fusegen
