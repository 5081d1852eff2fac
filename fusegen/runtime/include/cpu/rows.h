#pragma once
// Kernels of rows on the CPU: the rows over PyTorch's threads. Those whose elements lie apart are copied side by side.
#include <vector>
#include "cpu/row_tiles.h"

namespace fusegen {
namespace {

// Splits begin to end over PyTorch's own threads; the binding defines it.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context);

constexpr int64_t GRAIN = 32768;
constexpr int64_t MOST_CHUNKS = 64;  // of the rows, whose sums are added in order

template <class F, typename T, int IN, int OUT, int P, class VALUES, class... PHASES>
void run_row(const CallOf<F>& call, int64_t row, double* partial, const Rows<IN, OUT, P, VALUES, PHASES...>&) {
  const Tensors<IN + OUT>& tensors = call;
  const RowOf<F, T> of(tensors, row);
  VALUES p = F::values(call, double(of.n));
  (run_phase<PHASES, F, T>(of, p, partial), ...);
}

// Rows that are neighbours and whose elements lie apart: an element of all of them is a run of memory. Elements are
// copied side by side, and results back.
template <class F, typename T>
class Panel {
  static constexpr int N = F::INPUTS + F::OUTPUTS;

 public:
  static constexpr int64_t WIDTH = 64 / int64_t(sizeof(T));  // rows, of a line of the cache
  explicit Panel(const Tensors<N>& call) : call(call), n(call.size[call.rank - 1]) {
    for (int k = 0; k < N; ++k)
      if (call.stride[k][call.rank - 1] > 1) memory[k].resize(size_t(WIDTH * n));
  }
  static bool is_of(const Tensors<N>& call) {
    bool any = false;
    for (int k = 0; k < N; ++k) any = any || call.stride[k][call.rank - 1] > 1;
    return any && F::APART;
  }

  // Runs rows, at most WIDTH.
  template <int IN, int OUT, int P, class VALUES, class... PHASES>
  void run(const CallOf<F>& whole, int64_t begin, int64_t count, const Rows<IN, OUT, P, VALUES, PHASES...>&) {
    for (int64_t r = 0; r < count; ++r) row[r] = own[r] = RowOf<F, T>(call, begin + r);
    for (int k = 0; k < N; ++k) {
      if (memory[k].empty()) continue;
      for (int64_t r = 0; r < count; ++r) row[r].data[k] = memory[k].data() + r * n, row[r].step[k] = 1;
      if (k < F::INPUTS) copy(k, count, [](T& there, T& here) { here = there; });
    }
    for (int64_t r = 0; r < count; ++r) {
      VALUES p = F::values(whole, double(n));
      (run_phase<PHASES, F, T>(row[r], p, nullptr), ...);
    }
    for (int k = F::INPUTS; k < N; ++k)
      if (!memory[k].empty()) copy(k, count, [](T& there, T& here) { there = here; });
  }

 private:
  template <class FUNCTION>
  void copy(int k, int64_t count, const FUNCTION& function) {
    bool side_by_side = count == WIDTH;
    for (int64_t r = 1; r < count; ++r) side_by_side = side_by_side && own[r].data[k] == own[0].data[k] + r;
    T *const there = own[0].data[k], *const here = memory[k].data();
    const int64_t step = own[0].step[k];
    for (int64_t e = 0; e < n; ++e)
      if (side_by_side)
        for (int64_t r = 0; r < WIDTH; ++r) function(there[e * step + r], here[r * n + e]);
      else
        for (int64_t r = 0; r < count; ++r) function(own[r].data[k][e * step], here[r * n + e]);
  }

  const Tensors<N>& call;
  const int64_t n;
  RowOf<F, T> own[WIDTH], row[WIDTH];
  std::vector<T> memory[N];
};

// Runs rows from begin to end.
template <class F, typename T>
void run_some(const CallOf<F>& call, int64_t begin, int64_t end) {
  if (!Panel<F, T>::is_of(call)) {
    for (int64_t row = begin; row < end; ++row) run_row<F, T>(call, row, nullptr, F());
    return;
  }
  Panel<F, T> panel(call);
  for (int64_t row = begin; row < end; row += Panel<F, T>::WIDTH)
    panel.run(call, row, std::min(Panel<F, T>::WIDTH, end - row), F());
}

// A call with its workspace, for the threads: the rows of each chunk add up for themselves.
template <class F>
struct RowTask {
  const CallOf<F>& call;
  int64_t rows, chunks;
  double* workspace;
};

template <class F>
int64_t chunks_of(const CallOf<F>& call) {
  return std::max(std::min(rows_of(call), MOST_CHUNKS), int64_t(1));
}

template <class F, typename T>
void run_rows(RowTask<F>& task) {
  const int64_t n = task.call.size[task.call.rank - 1];
  if (task.workspace == nullptr) {
    const auto some = [](int64_t begin, int64_t end, void* context) {
      const RowTask<F>& task = *static_cast<const RowTask<F>*>(context);
      run_some<F, T>(task.call, begin, end);
    };
    parallel_for(0, task.rows, std::max(GRAIN / std::max(n, int64_t(1)), int64_t(1)), some, &task);
    return;
  }
  const auto chunk = [](int64_t begin, int64_t end, void* context) {
    const RowTask<F>& task = *static_cast<const RowTask<F>*>(context);
    const int64_t all = columns_of<F>(task.call) * SUMS_OF<F>;
    for (int64_t c = begin; c < end; ++c) {
      double* const partial = task.workspace + c * all;
      std::fill(partial, partial + all, 0.0);
      for (int64_t row = task.rows * c / task.chunks; row < task.rows * (c + 1) / task.chunks; ++row)
        run_row<F, T>(task.call, row, partial, F());
    }
  };
  parallel_for(0, task.chunks, 1, chunk, &task);
  const int64_t columns = columns_of<F>(task.call);
  for (int k = 0, sum = 0; k < F::OUTPUTS; ++k) {
    if (!(F::FEATURES >> k & 1)) continue;
    T* const to = static_cast<T*>(task.call.data[F::INPUTS + k]);
    const int64_t step = F::BY_CHANNEL ? 1 : task.call.stride[F::INPUTS + k][task.call.rank - 1];
    for (int64_t j = 0; j < columns; ++j) {
      double total = 0;
      for (int64_t c = 0; c < task.chunks; ++c)
        total += task.workspace[(c * SUMS_OF<F> + sum) * columns + j];
      to[j * step] = cast_to_storage<T>(total);
    }
    ++sum;
  }
}

template <class F, int... DTYPES>
void run_any(RowTask<F>& task, Dtypes<DTYPES...>) {
  const auto run_as = [&](int dtype, auto element) {
    if (task.call.dtype == dtype) run_rows<F, decltype(element)>(task);
    return task.call.dtype == dtype;
  };
  (void)(run_as(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
}

// The call of a kernel; it returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  RowTask<F> task{call, rows_of(call), 0, nullptr};
  run_any<F>(task, typename F::Elements());
  return nullptr;
}

// The bytes of workspace that sums over the rows need, and the call with it.
template <class F>
int64_t workspace_bytes(const CallOf<F>& call) {
  return chunks_of<F>(call) * columns_of<F>(call) * SUMS_OF<F> * int64_t(sizeof(double));
}
template <class F>
const char* run_reducing(const CallOf<F>& call, void* workspace) {
  if (const char* refused = refuse_sums<F>(call)) return refused;
  RowTask<F> task{call, rows_of(call), chunks_of<F>(call), static_cast<double*>(workspace)};
  run_any<F>(task, typename F::Elements());
  return nullptr;
}

}  // namespace
}  // namespace fusegen
