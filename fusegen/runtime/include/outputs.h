#pragma once
// Where tensors lie, and the shapes of new outputs.
#include <vector>
#include "call.h"

namespace fusegen {
namespace {

constexpr int FEW = 64;  // dimensions that need no memory from the heap

// Where a tensor's elements lie.
struct View {
  const void* data;
  int64_t dim;
  const int64_t *size, *stride;
};

// A number for each dimension.
class Dims {
 public:
  int64_t* resize(int64_t dim) {
    if (dim > FEW) many.resize(dim);
    return *this;
  }
  operator int64_t*() { return many.empty() ? few : many.data(); }
  operator const int64_t*() const { return many.empty() ? few : many.data(); }

 private:
  int64_t few[FEW];
  std::vector<int64_t> many;
};

// The shape and strides of a new output.
struct Shape {
  int64_t dim = 0;
  Dims size, stride;
};

// True if the outputs of a kernel are the gradients of its inputs but the first, each of which has the shape of its own
// input: a gradient of one that is broadcast is a sum. Where equal gradients are one output, FUSEGEN_GRADIENTS says
// which output is the gradient of each tensor.
#ifdef FUSEGEN_GRADIENTS
constexpr int GRADIENTS[] = FUSEGEN_GRADIENTS;
template <int IN, int OUT>
constexpr bool HAS_SUMS = IN == 1 + sizeof(GRADIENTS) / sizeof(int);
#else
template <int IN, int OUT>
constexpr bool HAS_SUMS = OUT > 1 && IN == OUT + 1;
#endif

// The input that has the shape of output k: of those whose gradient it is, the smallest, of the fewest dimensions.
template <int N>
const View& own_input(const View (&view)[N], int k) {
#ifdef FUSEGEN_GRADIENTS
  const auto numel = [](const View& of) {
    int64_t count = 1;
    for (int64_t d = 0; d < of.dim; ++d) count *= of.size[d];
    return count;
  };
  const View* own = nullptr;
  for (int j = 0; j < int(sizeof(GRADIENTS) / sizeof(int)); ++j) {
    if (GRADIENTS[j] != k) continue;
    const View& input = view[j + 1];
    const int64_t more = own == nullptr ? -1 : numel(input) - numel(*own);
    if (more < 0 || (more == 0 && input.dim < own->dim)) own = &input;
  }
  return *own;
#else
  return view[k + 1];
#endif
}

// A new output of an input's shape, in the order of its dimensions; a sum, unless that is the shape of all.
View sum_like(const View& input, Dims& own) {
  int64_t* const stride = own.resize(input.dim);
  for (int64_t d = input.dim - 1, run = 1; d >= 0; run *= input.size[d--]) stride[d] = run;
  return {nullptr, input.dim, input.size, stride};
}

// The shape and the strides of new output k: those of all, or of its own input where it is that one's gradient.
template <int IN, int N>
View new_output(const Tensors<N>& call, int k, const View& own, const Shape& shape) {
  const int64_t *size = shape.size, *stride = shape.stride;
  if constexpr (!HAS_SUMS<IN, N - IN>) return {nullptr, shape.dim, size, stride};
  return {nullptr, own.dim, own.size, is_sum(call, k) ? own.stride : stride + (shape.dim - own.dim)};
}

}  // namespace
}  // namespace fusegen
