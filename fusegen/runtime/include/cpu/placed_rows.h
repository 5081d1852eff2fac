#pragma once
// Rows on the CPU whose elements know their places. All is in double, and rows have neither an index nor groups.
#include "cpu/rows.h"
#include "row_places.h"

namespace fusegen {
namespace {

// The results of a phase for the n elements of a row from j on, whose places are behind the inputs.
template <class PHASE, class F, typename T, typename M>
INLINES_ALL void compute_placed(const RowOf<F, T>& row, int64_t j, int64_t n, M (&out)[PHASE::RESULTS][TILE],
                                const typename F::Values& p) {
  M in[F::INPUTS][TILE];
  for (int k = 0; k < F::INPUTS; ++k)
    if (PHASE::IN >> k & 1) widen_tile(row.data[k] + j * row.step[k], row.step[k], in[k], n);
#pragma GCC ivdep
  for (int64_t e = 0; e < n; ++e) {
    M of[F::INPUTS + 1], results[PHASE::RESULTS];
    for (int k = 0; k < F::INPUTS; ++k) of[k] = PHASE::IN >> k & 1 ? in[k][e] : M(0);
    of[F::INPUTS] = M(j + e);
    PHASE::template element<T>(of, results, p);
    for (int k = 0; k < PHASE::RESULTS; ++k) out[k][e] = results[k];
  }
}

// A phase of a row; sums of features go to `partial`.
template <class PHASE, class F, typename T>
void run_placed(const RowOf<F, T>& row, typename F::Values& p, double* partial) {
  MathOf<PHASE, F, T> out[PHASE::RESULTS][TILE];
  double lane[PHASE::RESULTS][LANES], total[PHASE::RESULTS];
  if constexpr (!PHASE::STORES)
    PHASE::each([&](int k, auto fold) { std::fill(lane[k], lane[k] + LANES, decltype(fold)::IDENTITY); });
  const int64_t count = PHASE::STORES && F::ONCE_A_ROW ? 1 : row.n;
  for (int64_t j = 0; j < count; j += TILE) {
    const int64_t n = std::min(TILE, count - j);
    compute_placed<PHASE, F, T>(row, j, n, out, p);
    if constexpr (!PHASE::STORES)
      PHASE::each([&](int k, auto fold) { join_tile<decltype(fold)>(lane[k], out[k], n); });
    else
      for (int k = 0, sum = 0; k < F::OUTPUTS; ++k) {
        const int64_t step = row.step[F::INPUTS + k];
        if (partial != nullptr && F::FEATURES >> k & 1)
          add_tile<F>(row, k, j, out[k], n, partial + sum++ * row.columns);
        else
          for (int64_t e = 0; e < n; ++e) row.data[F::INPUTS + k][(j + e) * step] = cast_to_storage<T>(out[k][e]);
      }
  }
  if constexpr (!PHASE::STORES) {
    PHASE::each([&](int k, auto fold) {
      total[k] = decltype(fold)::IDENTITY;
      for (const double each : lane[k]) total[k] = decltype(fold)::join(total[k], each);
    });
    PHASE::row(total, p);
  }
}

template <class F, typename T, int IN, int OUT, int P, class VALUES, class... PHASES>
void run_phases(const RowOf<F, T>& row, VALUES& p, double* partial, const Rows<IN, OUT, P, VALUES, PHASES...>&) {
  (run_placed<PHASES, F, T>(row, p, partial), ...);
}

// Chosen in place of that of other kernels, whose last argument such a kernel is converted to.
template <class F, typename T, class KERNEL>
void run_row(const CallOf<F>& call, int64_t row, double* partial, const Placed<KERNEL>& kernel) {
  const Tensors<F::INPUTS + F::OUTPUTS>& tensors = call;
  const RowOf<F, T> of(tensors, row);
  typename F::Values p = F::values(call, double(of.n));
  run_phases(of, p, partial, kernel);
}

// Rows whose elements lie apart are read where they are.
template <class KERNEL, typename T>
class Panel<Placed<KERNEL>, T> {
  using Own = Tensors<KERNEL::INPUTS + KERNEL::OUTPUTS>;

 public:
  static constexpr int64_t WIDTH = 1;
  explicit Panel(const Own&) {}
  static bool is_of(const Own&) { return false; }
  template <class CALL>
  void run(const CALL&, int64_t, int64_t, const KERNEL&) {}
};

}  // namespace
}  // namespace fusegen
