#pragma once
// The names of a library: the namespace and the name of its operators. The code has none of them, so that the runtime
// makes the library of another module of equal kernels by writing other names behind the mark (library_names.py).
#include <cstring>
#include <string>

namespace fusegen {
namespace {

struct Names {
  char mark[24], space[256], module[256];
};
const Names NAMES = {"fusegen's names follow:", FUSEGEN_SPACE, FUSEGEN_MODULE};

// The names as the file has them when it is loaded: the compiler may not take them for those above.
const Names& names() {
  const Names* found = &NAMES;
  asm("" : "+r"(found));
  return *found;
}

// An operator's name, from that of its kernel in the code, which begins with FUSEGEN_SYMBOL.
[[maybe_unused]] std::string operator_name(const char* kernel) {
  return std::string(names().module) + (kernel + std::strlen(FUSEGEN_SYMBOL));
}

}  // namespace
}  // namespace fusegen

#define FUSEGEN_NAME std::string(fusegen::names().module) +  // in front of a message, which is a literal
