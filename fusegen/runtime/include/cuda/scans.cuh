#pragma once
// Kernels of scans on CUDA. A block has a row, or a warp a short one. Rows whose elements lie apart have a thread each,
// which joins them one after the other.
#include "cuda/scan_rows.cuh"

namespace fusegen {
namespace {

template <class F>
HOST_DEVICE int64_t* place_of_result(const CallOf<F>& call, int64_t begin) {
  return static_cast<int64_t*>(call.data[F::INPUTS]) + begin;
}

// THREADS have a row; a block is of SCANNING threads.
template <class F, typename T, bool WHOLE, int THREADS>
__global__ void __launch_bounds__(SCANNING) scan_kernel(const __grid_constant__ CallOf<F> call, int64_t rows) {
  constexpr int TEAMS = SCANNING / THREADS;
  __shared__ double left[2][TEAMS == 1 ? THREADS / LANES : 1][4];
  __shared__ double kept[TEAMS][PhasesOf<F>::SCANS < 2 ? 1 : TEAMS == 1 ? KEPT : SHORT / (LANES * ITEMS)];
  const int own = int(threadIdx.x) / THREADS;
  const int64_t row = int64_t(blockIdx.x) * TEAMS + own;
  if (row >= rows) return;
  Scanners<THREADS> team{int(threadIdx.x) % THREADS, left};
  const ScannedRow<F, T> of(call, row);
  const typename F::Values p = F::values(call, double(of.n));
  if constexpr (finds<F>) find_in_row<F, T, WHOLE>(team, of, place_of_result<F>(call, of.begin[F::INPUTS]), p);
  else scan_row<F, T, WHOLE>(team, of, p, kept[own]);
}

// A thread has a row, whose elements lie apart; neighbouring threads have neighbouring rows.
template <class F, typename T>
__global__ void __launch_bounds__(SCANNING) scan_strided_kernel(const __grid_constant__ CallOf<F> call, int64_t rows) {
  using PHASES = PhasesOf<F>;
  const int64_t row = int64_t(blockIdx.x) * SCANNING + threadIdx.x;
  if (row >= rows) return;
  const ScannedRow<F, T> of(call, row);
  const typename F::Values p = F::values(call, double(of.n));
  Columns<F> in = {};
  const int64_t tiles = (of.n + ITEMS - 1) / ITEMS;
  const auto each = [&](const auto& function) {
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t j = (PHASES::REVERSE ? tiles - 1 - i : i) * ITEMS;
      const int n = int(of.n - j < ITEMS ? of.n - j : ITEMS);
      load_items<F, T, false>(of, j, n, in);
      function(j, n);
    }
  };
  if constexpr (finds<F>) {
    using FOLD = typename PHASES::Last::Fold;
    Found best{0, -1};
    each([&](int64_t j, int n) {
      UNROLL
      for (int e = 0; e < ITEMS; ++e) {
        if (e >= n) continue;
        double value[1];
        compute<typename PHASES::Last, F>(in, e, value, p);
        if (best.place < 0 || replaces<FOLD>(best.value, value[0])) best = {value[0], j + e};
      }
    });
    *place_of_result<F>(call, of.begin[F::INPUTS]) = best.place;
  } else if constexpr (PHASES::SCANS == 0) {
    each([&](int64_t j, int n) { store_items<F, T, false>(of, j, n, in, p); });
  } else {
    using PHASE = typename PHASES::First;
    using SCAN = typename PHASE::Own;
    auto carried = SCAN::none();
    each([&](int64_t j, int n) {
      UNROLL
      for (int i = 0; i < ITEMS; ++i) {
        const int e = SCAN::REVERSE ? ITEMS - 1 - i : i;
        if (e >= n) continue;
        double own[PHASE::RESULTS];
        compute<PHASE, F>(in, e, own, p);
        const auto joined = SCAN::join(carried, SCAN::of(own));
        in.at[F::INPUTS][e] = SCAN::result(SCAN::EXCLUSIVE ? carried : joined, own);
        carried = joined;
      }
      store_items<F, T, false>(of, j, n, in, p);
    });
  }
}

template <class F, typename T>
void launch_scan(const CallOf<F>& call) {
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const int64_t rows = rows_of(call), n = call.size[call.rank - 1];
  bool apart = false, whole = n % Vector<T>::WIDTH == 0 && (!F::APART || in_vectors<T>(call));
  for (int k = 0; k < F::INPUTS + F::OUTPUTS; ++k) {
    if (k >= F::INPUTS && finds<F>) continue;
    const int64_t step = call.stride[k][call.rank - 1];
    apart = apart || step > 1;
    whole = whole && step == 1 && !(F::OF_ROW >> k & 1);
  }
  const auto blocks = [](int64_t rows, int64_t of_block) { return unsigned((rows + of_block - 1) / of_block); };
  if (rows == 0) return;
  if constexpr (PhasesOf<F>::SCANS < 2)
    if (apart) {
      const auto kernel = scan_strided_kernel<F, T>;
      kernel<<<blocks(rows, SCANNING), SCANNING, 0, stream>>>(call, rows);
      return;
    }
  const auto launch = [&](auto kernel, int64_t of_block) {
    kernel<<<blocks(rows, of_block), SCANNING, 0, stream>>>(call, rows);
  };
  constexpr int64_t SHORT_ROWS = SCANNING / LANES;
  if (n <= SHORT) launch(whole ? scan_kernel<F, T, true, LANES> : scan_kernel<F, T, false, LANES>, SHORT_ROWS);
  else launch(whole ? scan_kernel<F, T, true, SCANNING> : scan_kernel<F, T, false, SCANNING>, 1);
}

template <class F, int... DTYPES>
const char* launch_any_scan(const CallOf<F>& call, Dtypes<DTYPES...>) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    launch_scan<F, decltype(element)>(call);
    error = cudaGetLastError();
    return true;
  };
  if (error == cudaSuccess) (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// Launches F on the current stream of the tensors' device; returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  if (const char* refused = refuse_rows<F>(call)) return refused;
  return launch_any_scan<F>(call, typename F::Elements());
}
template <class F>
int64_t workspace_bytes(const CallOf<F>&) {
  return 0;
}
template <class F>
const char* run_reducing(const CallOf<F>&, void*) {
  return REFUSED_SUM;
}

}  // namespace
}  // namespace fusegen
