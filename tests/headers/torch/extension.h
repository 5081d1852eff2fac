#pragma once
// The part of PyTorch's header of this name that a module's binding uses, which compiles in a third of the time.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
