#pragma once
// The dimensions of a call of a kernel of rows, on the host: those of the rows, and last the elements of one.
#include "layout.h"

namespace fusegen {
namespace {

// The first of the dimensions of a row, which has all behind it, counted from the last one if it is negative.
int64_t first_of_row(int64_t over, int64_t dim) {
  const int64_t first = over < 0 ? dim + over : over;
  check(0 <= first && first <= dim && (first < dim || dim == 0), "a tensor has too few dimensions for a row");
  return first;
}

// A view of values of rows as one of the tensor that these are rows of: with dimensions of size 1 behind.
View of_rows(const View& view, int64_t dim, Dims& size, Dims& stride) {
  int64_t *const sizes = size.resize(dim), *const strides = stride.resize(dim);
  for (int64_t d = 0; d < dim; ++d) {
    sizes[d] = d < view.dim ? view.size[d] : 1;
    strides[d] = d < view.dim ? view.stride[d] : 0;
  }
  return {view.data, dim, sizes, strides};
}

// The stride in dimension d, of dim, of a tensor that is broadcast to some sizes.
int64_t stride_in(const View& view, int64_t d, int64_t dim, const int64_t* size) {
  const int64_t own = d - (dim - view.dim);
  return own < 0 || view.size[own] != size[d] ? 0 : view.stride[own];
}

// The dimensions of a row, from `first` on, and whether its elements may lie apart, all at one distance.
struct RowDims {
  int64_t first, dim;
  bool apart;
};

// The distance of the elements of a row along the last of its dimensions that has several, or 0.
int64_t step_of(const View& view, const RowDims& row, const int64_t* size) {
  int64_t step = 0;
  for (int64_t d = row.first; d < row.dim; ++d)
    if (size[d] != 1) step = stride_in(view, d, row.dim, size);
  return step;
}

// True if the elements of a row lie side by side in a tensor, or are one, or may lie apart; on CUDA, if rows that have
// elements are in whole vectors of 16 bytes wherever their length is.
bool is_fit(const View& view, const RowDims& row, const int64_t* size, int64_t bytes, bool has_elements) {
  const int64_t first = row.first, dim = row.dim;
  int64_t last = dim - 1;
  for (int64_t d = dim - 2; d >= first; --d) {
    if (size[d] == 1) continue;
    if (size[last] != 1 &&
        stride_in(view, d, dim, size) != stride_in(view, last, dim, size) * size[last])
      return false;
    last = d;
  }
  int64_t n = 1;
  for (int64_t d = first; d < dim; ++d) n *= size[d];
  const int64_t step = step_of(view, row, size);
#ifdef ON_CUDA
  if (step == 0 && has_elements && n > 1) return false;
#endif
  if (n == 1 || step == 0 || row.apart) return true;
#ifdef ON_CUDA
  if (n * bytes % 16 == 0) {
    if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0) return false;
    for (int64_t d = 0; d < first; ++d)
      if (size[d] != 1 && stride_in(view, d, dim, size) * bytes % 16 != 0) return false;
  }
#endif
  return step == 1;
}

// The number of neighbours in a row that share a value of a tensor by channels: its values are a run along the first
// dimensions of a row, and the same along the others. 0 if it lies otherwise.
int64_t share_of(const View& view, const RowDims& row, const int64_t* size) {
  int64_t d = row.dim - 1, share = 1, run = 1;
  for (; d >= row.first && (size[d] == 1 || stride_in(view, d, row.dim, size) == 0); --d) share *= size[d];
  for (; d >= row.first; --d) {
    if (size[d] == 1) continue;
    if (stride_in(view, d, row.dim, size) != run) return 0;
    run *= size[d];
  }
  return std::max(share, int64_t(1));
}

// Puts the dimensions of the rows, neighbours merged, and the elements of a row into a call; see row_channels.h.
template <int N>
void lay_rows(Tensors<N>& call, const View (&view)[N], const RowDims& row, const int64_t* size, unsigned by_channel) {
  const int64_t first = row.first, dim = row.dim;
  call.rank = 0;
  const auto put = [&](int64_t d, bool merges) {
    for (int k = 0; k < N; ++k) {
      const int64_t stride = stride_in(view[k], d, dim, size);
      const bool merges_anyway = d >= first && by_channel >> k & 1;
      merges = merges && (merges_anyway || call.stride[k][call.rank - 1] == stride * size[d]);
    }
    check(merges || call.rank < MAX_RANK, "a kernel walks through at most 25 dimensions that do not merge");
    const int64_t at = merges ? call.rank - 1 : call.rank++;
    call.size[at] = merges ? call.size[at] * size[d] : size[d];
    for (int k = 0; k < N; ++k) call.stride[k][at] = stride_in(view[k], d, dim, size);
  };
  for (int64_t d = 0; d < first; ++d)
    if (size[d] != 1) put(d, call.rank > 0);
  const int64_t rows = call.rank;
  for (int64_t d = first; d < dim; ++d)
    if (size[d] != 1) put(d, call.rank > rows);
  if (call.rank == rows) {  // of one element
    call.size[call.rank++] = 1;
    for (int k = 0; k < N; ++k) call.stride[k][rows] = 1;
  }
  [[maybe_unused]] int64_t others = 0;
  for (int k = 0; k < N; ++k) {
    if (!(by_channel >> k & 1)) continue;
    const int64_t share = share_of(view[k], row, size);
    check(share > 0, "a tensor by channels lies across the rows; expand it");
#ifdef ON_CUDA  // where a thread finds one place for all of them
    check(others == 0 || share == others, "tensors by channels have other channels each; expand them");
    others = share;
#endif
    call.stride[k][call.rank - 1] = share > 1 ? -share : 1;
  }
}

}  // namespace
}  // namespace fusegen
