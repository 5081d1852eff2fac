#pragma once
// Kernels of rows on the CPU: the rows over PyTorch's threads, and a row in tiles, whose loops are vectorised. A row's
// sums are of the sixteen lanes of a tile in turn, and of tiles, so that they depend on the row alone.
#include "launcher.h"
#include <algorithm>
#include <vector>
#include "cpu/elements.h"
#include "cpu/math.h"
#include "row_range.h"

namespace fusegen {
namespace {

// Splits begin to end over PyTorch's own threads; the binding defines it.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context);

constexpr int LANES = 16;
constexpr int64_t TILE = 256, GRAIN = 32768;
constexpr int64_t MOST_CHUNKS = 64;  // of the rows, whose sums are added in order

// A loop in which every call is inlined, however large it is: a call would keep the loop from being vectorised.
#define INLINES_ALL __attribute__((flatten)) inline

// The elements of an input that a tile takes, in the type that is computed in.
template <typename T, typename M>
INLINES_ALL void widen_tile(const T* from, int64_t step, M* to, int64_t n) {
  if (step == 1) widen(from, to, n);
  else
    for (int64_t e = 0; e < n; ++e) to[e] = load(from[e * step]);
}

// A row of a call: where its tensors begin, and the distances of their elements.
template <class F, typename T>
struct RowOf {
  static constexpr int N = F::INPUTS + F::OUTPUTS;
  RowOf() = default;
  RowOf(const Tensors<N>& call, int64_t row) : n(call.size[call.rank - 1]) {
    for (int k = 0; k < N; ++k) {
      data[k] = static_cast<T*>(call.data[k]) + begin_of_row(call, k, row);
      step[k] = call.stride[k][call.rank - 1];
    }
  }
  int64_t n, step[N];
  T* data[N];
};

// The results of a phase, in M, for the n elements of a row from j on.
template <class PHASE, class F, typename T, typename M>
INLINES_ALL void compute_tile(const RowOf<F, T>& row, int64_t j, int64_t n, M (&out)[PHASE::RESULTS][TILE],
                              const typename F::Values& p) {
  M in[F::INPUTS][TILE];
  for (int k = 0; k < F::INPUTS; ++k)
    if (PHASE::IN >> k & 1) widen_tile(row.data[k] + j * row.step[k], row.step[k], in[k], n);
#pragma GCC ivdep
  for (int64_t e = 0; e < n; ++e) {
    M of[F::INPUTS], results[PHASE::RESULTS];
    for (int k = 0; k < F::INPUTS; ++k) of[k] = PHASE::IN >> k & 1 ? in[k][e] : M(0);
    PHASE::template element<T>(of, results, p);
    for (int k = 0; k < PHASE::RESULTS; ++k) out[k][e] = results[k];
  }
}

// Joins a tile's values by themselves before they join the row's, so that the error of a sum grows with the tiles.
template <class FOLD, typename M>
INLINES_ALL void join_tile(double (&lane)[LANES], const M (&values)[TILE], int64_t n) {
  double own[LANES];
  for (int l = 0; l < LANES; ++l) own[l] = FOLD::IDENTITY;
  for (int64_t e = 0; e + LANES <= n; e += LANES)
    for (int l = 0; l < LANES; ++l) own[l] = FOLD::join(own[l], double(values[e + l]));
  for (int64_t e = n - n % LANES, l = 0; e < n; ++e, ++l) own[l] = FOLD::join(own[l], double(values[e]));
  for (int l = 0; l < LANES; ++l) lane[l] = FOLD::join(lane[l], own[l]);
}

// True if a tile has results beyond float's range, or infinities and NaN.
template <int RESULTS, typename M>
INLINES_ALL bool leaves_range(const M (&out)[RESULTS][TILE], int64_t n) {
  int leaves = 0;
  for (int k = 0; k < RESULTS; ++k)
    for (int64_t e = 0; e < n; ++e) leaves |= int(!(fabs(out[k][e]) < M(INFINITY)));
  return leaves;
}

// Reduces what a phase computes in M of the n elements of a row from j on; false where M's range is left.
template <class PHASE, class F, typename T, typename M>
INLINES_ALL bool reduce_tile(const RowOf<F, T>& row, int64_t j, int64_t n, double (&lane)[PHASE::RESULTS][LANES],
                             const typename F::Values& p) {
  M out[PHASE::RESULTS][TILE];
  compute_tile<PHASE, F, T>(row, j, n, out, p);
  if (CHECKS_RANGE<PHASE, M> && leaves_range(out, n)) return false;
  PHASE::each([&](int k, auto fold) { join_tile<decltype(fold)>(lane[k], out[k], n); });
  return true;
}

// A phase of a row; sums of features go to `partial`, n numbers for each.
template <class PHASE, class F, typename T>
void run_phase(const RowOf<F, T>& row, typename F::Values& p, double* partial) {
  using M = MathOf<PHASE, F, T>;
  if constexpr (PHASE::STORES) {
    M out[PHASE::RESULTS][TILE];
    const int64_t count = F::ONCE_A_ROW ? 1 : row.n;
    for (int64_t j = 0; j < count; j += TILE) {
      const int64_t n = std::min(TILE, count - j);
      compute_tile<PHASE, F, T>(row, j, n, out, p);
      for (int k = 0, sum = 0; k < F::OUTPUTS; ++k) {
        T* const to = row.data[F::INPUTS + k] + j * row.step[F::INPUTS + k];
        if (partial != nullptr && F::FEATURES >> k & 1) {
          double* const total = partial + sum++ * row.n + j;
          for (int64_t e = 0; e < n; ++e) total[e] += double(out[k][e]);
        } else if (row.step[F::INPUTS + k] == 1) narrow(out[k], to, n);
        else
          for (int64_t e = 0; e < n; ++e) to[e * row.step[F::INPUTS + k]] = cast_to_storage<T>(out[k][e]);
      }
    }
  } else {
    double lane[PHASE::RESULTS][LANES], total[PHASE::RESULTS];
    PHASE::each([&](int k, auto fold) { std::fill(lane[k], lane[k] + LANES, decltype(fold)::IDENTITY); });
    for (int64_t j = 0; j < row.n; j += TILE) {
      const int64_t n = std::min(TILE, row.n - j);
      if (!reduce_tile<PHASE, F, T, M>(row, j, n, lane, p)) reduce_tile<PHASE, F, T, WiderOf<M>>(row, j, n, lane, p);
    }
    PHASE::each([&](int k, auto fold) {
      for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lane[k][l] = decltype(fold)::join(lane[k][l], lane[k][l + half]);
      total[k] = lane[k][0];
    });
    PHASE::row(total, p);
  }
}

template <class F, typename T, int IN, int OUT, int P, class VALUES, class... PHASES>
void run_row(const CallOf<F>& call, int64_t row, double* partial, const Rows<IN, OUT, P, VALUES, PHASES...>&) {
  const Tensors<IN + OUT>& tensors = call;
  const RowOf<F, T> of(tensors, row);
  VALUES p = F::values(call, double(of.n));
  (run_phase<PHASES, F, T>(of, p, partial), ...);
}

// Rows that are neighbours and whose elements lie apart: an element of all of them is a run of memory. Their elements are
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
    const int64_t n = task.call.size[task.call.rank - 1], all = n * SUMS_OF<F>;
    for (int64_t c = begin; c < end; ++c) {
      double* const partial = task.workspace + c * all;
      std::fill(partial, partial + all, 0.0);
      for (int64_t row = task.rows * c / task.chunks; row < task.rows * (c + 1) / task.chunks; ++row)
        run_row<F, T>(task.call, row, partial, F());
    }
  };
  parallel_for(0, task.chunks, 1, chunk, &task);
  for (int k = 0, sum = 0; k < F::OUTPUTS; ++k) {
    if (!(F::FEATURES >> k & 1)) continue;
    T* const to = static_cast<T*>(task.call.data[F::INPUTS + k]);
    const int64_t step = task.call.stride[F::INPUTS + k][task.call.rank - 1];
    for (int64_t j = 0; j < n; ++j) {
      double total = 0;
      for (int64_t c = 0; c < task.chunks; ++c)
        total += task.workspace[(c * SUMS_OF<F> + sum) * n + j];
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
  return chunks_of<F>(call) * call.size[call.rank - 1] * SUMS_OF<F> * int64_t(sizeof(double));
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
