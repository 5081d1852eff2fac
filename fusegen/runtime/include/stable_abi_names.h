#pragma once
// The binding over PyTorch's stable ABI for the names of a library: operators are registered under these.
#include "names.h"
#include "stable_abi.h"

#define aoti_torch_library_impl(LIBRARY, NAME, ...) \
  aoti_torch_library_impl(LIBRARY, fusegen::operator_name(NAME).c_str(), __VA_ARGS__)
