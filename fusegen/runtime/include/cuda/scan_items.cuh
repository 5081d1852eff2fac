#pragma once
// The elements that a thread of a scan has at a time, eight side by side, in double.
#include <algorithm>
#include "launcher.h"
#include "cuda/elements.cuh"
#include "cuda/launch.cuh"
#include "cuda/math.cuh"
#include "scan_phases.h"

namespace fusegen {
namespace {

constexpr int LANES = 32, SCANNING = 256, ITEMS = 8;
constexpr int64_t SHORT = 2 * LANES * ITEMS;  // elements of a row that a warp has
constexpr int KEPT = 1024;                    // tiles of which a block keeps what is carried into them

// A row of a call: where its tensors begin, and the distances of their elements.
template <class F, typename T>
struct ScannedRow {
  static constexpr int N = F::INPUTS + F::OUTPUTS;
  HOST_DEVICE ScannedRow(const CallOf<F>& call, int64_t row) : n(call.size[call.rank - 1]) {
    UNROLL
    for (int k = 0; k < N; ++k) {
      begin[k] = begin_of_row(call, k, row);
      data[k] = static_cast<T*>(call.data[k]) + begin[k];
      step[k] = call.stride[k][call.rank - 1];
    }
  }
  int64_t n, begin[N], step[N];
  T* data[N];
};

// Eight elements of a row, and what scans make of them.
template <class F>
struct Columns {
  double at[F::INPUTS + 2][ITEMS];
};

// A vector of 16 bytes.
template <typename T>
struct alignas(16) Vector {
  static constexpr int WIDTH = 16 / sizeof(T);
  T at[WIDTH];
};

// Loads a thread's elements, from j on, of which n are in the row; in whole vectors, if WHOLE.
template <class F, typename T, bool WHOLE>
HOST_DEVICE void load_items(const ScannedRow<F, T>& row, int64_t j, int n, Columns<F>& in) {
  constexpr int WIDTH = Vector<T>::WIDTH;
  UNROLL
  for (int k = 0; k < F::INPUTS; ++k) {
    if (!(read_by<PhasesOf<F>>() >> k & 1)) continue;
    if constexpr (WHOLE) {
      UNROLL
      for (int e = 0; e < ITEMS; e += WIDTH) {
        if (e >= n) continue;
        const Vector<T> own = *reinterpret_cast<const Vector<T>*>(row.data[k] + j + e);
        UNROLL
        for (int i = 0; i < WIDTH; ++i) in.at[k][e + i] = load(own.at[i]);
      }
    } else {
      UNROLL
      for (int e = 0; e < ITEMS; ++e)
        if (e < n) in.at[k][e] = load(row.data[k][(j + e) * row.step[k]]);
    }
  }
}

// The results of a phase for element e.
template <class PHASE, class F>
HOST_DEVICE void compute(const Columns<F>& in, int e, double (&results)[PHASE::RESULTS],
                         const typename F::Values& p) {
  double of[F::INPUTS + 2];
  UNROLL
  for (int k = 0; k < F::INPUTS + 2; ++k) of[k] = PHASE::IN >> k & 1 ? in.at[k][e] : 0;
  PHASE::template element<double>(of, results, p);
}

// Stores the results of a thread's elements.
template <class F, typename T, bool WHOLE>
HOST_DEVICE void store_items(const ScannedRow<F, T>& row, int64_t j, int n, const Columns<F>& in,
                             const typename F::Values& p) {
  constexpr int WIDTH = WHOLE ? Vector<T>::WIDTH : 1;
  UNROLL
  for (int e = 0; e < ITEMS; e += WIDTH) {
    if (e >= n) continue;
    Vector<T> made[F::OUTPUTS];
    UNROLL
    for (int i = 0; i < WIDTH; ++i) {
      double results[F::OUTPUTS];
      compute<typename PhasesOf<F>::Last, F>(in, e + i, results, p);
      UNROLL
      for (int k = 0; k < F::OUTPUTS; ++k) store_rounded(made[k].at[i], results[k]);
    }
    UNROLL
    for (int k = 0; k < F::OUTPUTS; ++k)
      if constexpr (WHOLE) *reinterpret_cast<Vector<T>*>(row.data[F::INPUTS + k] + j + e) = made[k];
      else row.data[F::INPUTS + k][(j + e) * row.step[F::INPUTS + k]] = made[k].at[0];
  }
}

}  // namespace
}  // namespace fusegen
