#pragma once
// The layout of the dimensions of a call, on the host: checks, and merges of neighbours.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>
#ifdef __linux__
#include <sys/mman.h>
#endif
#include "outputs.h"

#ifndef FUSEGEN_NAME
#define FUSEGEN_NAME "fusegen"  // in front of a message
#endif

namespace fusegen {
namespace {

void check(bool holds, const char* otherwise) {
  if (!holds) throw std::runtime_error(std::string(FUSEGEN_NAME ": ") + otherwise);
}

// The bytes from the first element to the last, and whether the tensor fills them.
struct MemoryRange {
  MemoryRange(const View& view, int64_t bytes) : begin(static_cast<const char*>(view.data)), numel(1) {
    int64_t last = 0;
    for (int64_t d = 0; d < view.dim; ++d) {
      numel *= view.size[d];
      last += (view.size[d] - 1) * view.stride[d];
    }
    filled = last + 1 == numel;
    end = begin + (last + 1) * bytes;
  }
  const char *begin, *end;
  int64_t numel;
  bool filled;
};

// A part of the distance between two elements: a stride, and how many times it is taken.
struct Axis {
  int64_t stride, from, to;
};

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// True if a sum of multiples along the axes, the longest strides first, is the distance. Where that takes too many
// trials to tell, the answer is yes.
bool reaches(const Axis* axis, const Axis* end, int64_t distance, int& trials) {
  if (axis == end) return distance == 0;
  int64_t low = 0, high = 0;  // the sums along the other axes
  for (const Axis* other = axis + 1; other < end; ++other) {
    low += other->from * other->stride;
    high += other->to * other->stride;
  }
  const int64_t first = std::max(axis->from, -floor_quotient(high - distance, axis->stride));
  const int64_t last = std::min(axis->to, floor_quotient(distance - low, axis->stride));
  for (int64_t step = first; step <= last; ++step)
    if (--trials < 0 || reaches(axis + 1, end, distance - step * axis->stride, trials)) return true;
  return false;
}

// True if any element of one tensor lies in one of the other.
bool overlap(const View& a, const View& b, int64_t bytes) {
  const MemoryRange first(a, bytes), second(b, bytes);
  if (first.numel == 0 || second.numel == 0 || first.end <= second.begin || second.end <= first.begin) return false;
  const int64_t distance = second.begin - first.begin;
  if ((first.filled && second.filled) || distance % bytes != 0) return true;
  std::vector<Axis> axes;
  for (const View* view : {&a, &b})
    for (int64_t d = 0; d < view->dim; ++d) {
      const int64_t steps = view->size[d] - 1, stride = view->stride[d];
      if (steps == 0 || stride == 0) continue;
      const auto alike = [&](const Axis& axis) { return axis.stride == stride; };
      auto axis = std::find_if(axes.begin(), axes.end(), alike);
      if (axis == axes.end()) axis = axes.insert(axis, Axis{stride, 0, 0});
      (view == &a ? axis->to : axis->from) += view == &a ? steps : -steps;
    }
  std::sort(axes.begin(), axes.end(), [](const Axis& p, const Axis& q) { return p.stride > q.stride; });
  int trials = 10000;
  return reaches(axes.data(), axes.data() + axes.size(), distance / bytes, trials);
}

void check_output(const View& out, int64_t dim, const int64_t* size) {
  check(out.dim == dim && std::equal(out.size, out.size + dim, size), "out has another shape than the result");
  for (int64_t d = 0; d < out.dim; ++d)
    check(out.size[d] <= 1 || out.stride[d] != 0,
          "several elements of the written-to tensor share their memory; clone() it first");
}

// Refuses tensors whose shapes do not broadcast.
void refuse_shapes(const View* view, int count) {
  std::string shapes;
  for (int k = 0; k < count; ++k) {
    shapes += k == 0 ? "[" : k + 1 < count ? ", [" : " and [";
    for (int64_t d = 0; d < view[k].dim; ++d) shapes += (d ? ", " : "") + std::to_string(view[k].size[d]);
    shapes += "]";
  }
  check(false, ("the shapes " + shapes + " do not broadcast").c_str());
}

// The walk through IN inputs, which are broadcast, and the outputs, which are given or still to be made.
// New outputs lie in memory in the order in which TensorIterator would lay them; neighbouring dimensions
// that are one run in every tensor are merged.
template <int IN, int N>
Shape coalesce_dimensions(Tensors<N>& call, const View (&view)[N], bool given, int64_t bytes) {
  const int tensors = given ? N : IN;
  Shape shape;
  for (int k = 0; k < IN; ++k) shape.dim = std::max(shape.dim, view[k].dim);
  const int64_t dim = shape.dim;
  Dims inner_first, strides[N];
  int64_t* const size = shape.size.resize(dim);
  int64_t* const laid = shape.stride.resize(dim);
  int64_t* const order = inner_first.resize(dim);
  int64_t* stride[N];
  for (int k = 0; k < N; ++k) stride[k] = strides[k].resize(dim);
  const auto own = [&](int k, int64_t d) { return d - (dim - view[k].dim); };
  call.numel = 1;
  for (int64_t d = 0; d < dim; ++d) {
    order[d] = dim - 1 - d;
    size[d] = 1;
    for (int k = 0; k < IN; ++k) {
      const int64_t length = own(k, d) < 0 ? 1 : view[k].size[own(k, d)];
      if (length != 1 && size[d] != 1 && length != size[d]) refuse_shapes(view, IN);
      if (length != 1) size[d] = length;
    }
    call.numel *= size[d];
  }
  for (int k = IN; k < tensors; ++k) {
    const View& like = HAS_SUMS<IN, N - IN> ? own_input(view, k - IN) : View{nullptr, dim, size, nullptr};
    check_output(view[k], like.dim, like.size);
  }
  const auto stands_still = [&](int k, int64_t d) { return own(k, d) < 0 || view[k].size[own(k, d)] != size[d]; };
  const auto is_summed = [&](int k) {
    bool found = false;
    for (int64_t d = 0; d < dim && k >= IN && HAS_SUMS<IN, N - IN>; ++d)
      found = found || (size[d] != 1 && stands_still(k, d));
    return found;
  };
  for (int k = 0; k < N; ++k)
    for (int64_t d = 0; d < dim && (k < tensors || is_summed(k)); ++d)
      stride[k][d] = stands_still(k, d) ? 0 : view[k].stride[own(k, d)];
  const auto same = [&](int a, int b) {  // an output may be an input
    bool alike = view[a].data == view[b].data;
    for (int64_t d = 0; d < dim; ++d) alike = alike && (size[d] == 1 || stride[a][d] == stride[b][d]);
    return alike;
  };
  for (int k = IN; k < tensors; ++k)
    for (int j = 0; j < IN; ++j)
      check(same(k, j) || !overlap(view[k], view[j], bytes),
            "some elements of an input and of the written-to tensor share their memory; clone() one of them");
  const auto outside = [&](int64_t a, int64_t b) {  // 1: a lies outside b, -1: inside, 0: no tensor tells
    for (int i = 0; i < tensors; ++i) {
      const int k = given ? (i + IN) % N : i;  // a given output decides before the inputs
      if (stride[k][a] == 0 || stride[k][b] == 0) continue;
      if (stride[k][a] != stride[k][b]) return stride[k][a] > stride[k][b] ? 1 : -1;
      if (size[a] > size[b]) return 1;
    }
    return 0;
  };
  for (int i = 1; i < dim; ++i)
    for (int at = i, j = i - 1; j >= 0; --j) {
      const int side = outside(order[j], order[at]);
      if (side < 0) break;
      if (side > 0) std::swap(order[at], order[j]), at = j;
    }
  for (int64_t j = 0, run = 1; j < dim; run *= std::max<int64_t>(size[order[j++]], 1)) {
    laid[order[j]] = run;
    for (int k = tensors; k < N; ++k)
      if (!is_summed(k)) stride[k][order[j]] = run;
  }
  call.rank = 0;
  for (int64_t j = dim - 1; j >= 0; --j) {
    const int64_t d = order[j], last = call.rank - 1;
    if (size[d] == 1) continue;
    bool merges = last >= 0;
    for (int k = 0; k < N; ++k) merges = merges && call.stride[k][last] == stride[k][d] * size[d];
    check(merges || call.rank < MAX_RANK,
          "a kernel walks through at most 25 dimensions that do not merge; .contiguous() merges them");
    const int64_t at = merges ? last : call.rank++;
    call.size[at] = merges ? call.size[at] * size[d] : size[d];
    for (int k = 0; k < N; ++k) call.stride[k][at] = stride[k][d];
  }
  if (call.rank == 0) {
    call.rank = 1;
    call.size[0] = 1;
    for (int k = 0; k < N; ++k) call.stride[k][0] = 1;
  }
  return shape;
}

// Asks for large pages below a new output on the CPU of 32 MiB or more, which malloc maps again unless as much has been
// freed: the first write to each small page is a fault, and these can take longer than the formula. Without large pages
// nothing changes.
void advise_huge_pages(const View& out, int64_t bytes) {
#if defined(__linux__) && !defined(ON_CUDA)
  constexpr uintptr_t PAGE = 1 << 21;
  if (bytes < 32 << 20) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(out.data), whole = (begin + PAGE - 1) & ~(PAGE - 1);
  madvise(reinterpret_cast<void*>(whole), size_t((begin + bytes - whole) & ~(PAGE - 1)), MADV_HUGEPAGE);
#endif
}

// The pointers of all tensors, and what follows from where they point.
template <int N>
void bind_pointers(Tensors<N>& call, const View (&view)[N]) {
  call.dense = call.rank == 1;
  call.aligned = true;
  for (int k = 0; k < N; ++k) {
    call.data[k] = const_cast<void*>(view[k].data);
    call.dense = call.dense && call.stride[k][0] == 1;
    call.aligned = call.aligned && reinterpret_cast<uintptr_t>(view[k].data) % 16 == 0;
  }
}

}  // namespace
}  // namespace fusegen
