#pragma once
// Gradients of operands that are broadcast: sums, over the dimensions in which an output's stride is 0, of what the
// formula gives for each element. In two stages without atomics, so that they are the same in every run: the threads of
// a block add up a part of a walk, and add_partials the sums of these parts.
#include "cuda/add_partials.cuh"
#include "cuda/broadcasting.cuh"
#include "cuda/sum_along.cuh"

namespace fusegen {
namespace {

// The number of vectors that a thread adds up, so that each of its sums has a fixed number of terms.
constexpr Shares ROW_SHARES = {SUM_THREADS, 16, 4, 1056}, COLUMN_SHARES = {SUM_THREADS, 32, 4, 1056};

// The partial sums of each output of a sweep.
template <int N>
int64_t partials(const Tensors<N>& call, const Sweep<N>& sweep) {
  return sweep.in_columns ? sweep.jobs / sweep.chunks * call.size[call.rank - 1] : sweep.jobs;
}

// The layout of the partial sums of output k after a sweep.
template <int N>
Partials partials_of(const Tensors<N>& call, const Sweep<N>& sweep, int k) {
  Partials found;
  int64_t step = 1;
  if (sweep.in_columns) {
    step = call.size[call.rank - 1];
    if (call.stride[k][call.rank - 1] == 0) found.add(step, 1);
    else found.keep(step, 1, call.stride[k][call.rank - 1]);
  }
  found.add(sweep.parts, step);
  step *= sweep.parts;
  for (int d = sweep.others - 1; d >= 0; step *= call.size[d--]) {
    if (call.stride[k][d] == 0) found.add(call.size[d], step);
    else found.keep(call.size[d], step, call.stride[k][d]);
  }
  if (call.numel == 0) found.terms = 0;
  return found;
}

// The sweeps of a call, each handed to `take` with its call. One is enough where all sums are over the innermost
// dimension, or all over another one; else the outputs that are written and the sums over the innermost have the last
// one, and each other sum one of its own.
template <class F, typename T, class TAKE>
cudaError_t each_sweep(const CallOf<F>& call, const TAKE& take) {
  constexpr int IN = F::INPUTS;
  const auto swept = [&](const CallOf<F>& of, auto sweep, unsigned sums, unsigned stores) {
    sweep.sums = sums, sweep.stores = stores;
    return take(of, sweep);
  };
  unsigned sums = 0, stores = 0, others = 0;
  for (int k = 0; k < F::OUTPUTS; ++k) {
    const bool inner = call.stride[IN + k][call.rank - 1] == 0;
    (is_sum(call, IN + k) ? inner ? sums : others : stores) |= 1u << k;
  }
  const Tensors<IN + F::OUTPUTS>& tensors = call;
  const int all = still_for_all(tensors, (sums | others) << IN);
  if (others != 0 && all >= 0) {
    const CallOf<F> other = turned(call, all);
    return swept(other, plan_columns<T>(other, COLUMN_SHARES), sums | others, stores);
  }
  cudaError_t error = cudaSuccess;
  for (int k = 0; k < F::OUTPUTS && error == cudaSuccess; ++k) {
    if ((others >> k & 1) == 0) continue;
    const CallOf<F> other = turned(call, still_for_all(tensors, 1u << (IN + k)));
    error = swept(other, plan_columns<T>(other, COLUMN_SHARES), 1u << k, 0);
  }
  if ((sums | stores) && error == cudaSuccess) error = swept(call, plan_rows<T>(call, ROW_SHARES), sums, stores);
  return error;
}

// The sweep, each of whose sums has its part of the workspace, which moves on.
template <int IN, typename A, int N>
Sweep<N> with_room(const Tensors<N>& call, Sweep<N> sweep, A*& workspace) {
  for (int k = IN; k < N; ++k) {
    if ((sweep.sums >> (k - IN) & 1) == 0) continue;
    sweep.partial[k] = workspace;
    workspace += partials(call, sweep);
  }
  return sweep;
}

// The first stage of a sweep.
template <class F, typename T, typename M>
cudaError_t launch_sum_along(const CallOf<F>& call, const Sweep<F::INPUTS + F::OUTPUTS>& sweep) {
  if (call.numel == 0) return cudaSuccess;
  const unsigned blocks = unsigned(quotient_up(sweep.jobs, sweep.each));
  const size_t bytes = SUM_THREADS * (sweep.in_columns ? 16 / sizeof(T) : 1) * sizeof(double);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto kernel = sweep.in_columns ? sum_along<F, T, M, true> : sum_along<F, T, M, false>;
  const auto p = params<ParamsOf<F, M>>(call);
  kernel<<<blocks, SUM_THREADS, bytes, stream>>>(call, sweep, p);
  return cudaGetLastError();
}

// Runs all sweeps of a kernel whose element is computed in M. An output may be an input: of the sweeps the last alone
// writes outputs, and no sum is written before all of them have read the inputs.
template <class F, typename T, typename M>
cudaError_t reduce_with(const CallOf<F>& call, void* workspace) {
  using A = decltype(load(T()));
  constexpr int IN = F::INPUTS;
  A* at = static_cast<A*>(workspace);
  cudaError_t error = each_sweep<F, T>(call, [&](const CallOf<F>& of, const auto& sweep) {
    return launch_sum_along<F, T, M>(of, with_room<IN>(tensors_of<F>(of), sweep, at));
  });
  if (error != cudaSuccess) return error;
  at = static_cast<A*>(workspace);
  return each_sweep<F, T>(call, [&](const CallOf<F>& of, const auto& planned) {
    const auto sweep = with_room<IN>(tensors_of<F>(of), planned, at);
    for (int k = IN; k < IN + F::OUTPUTS && error == cudaSuccess; ++k) {
      if ((sweep.sums >> (k - IN) & 1) == 0) continue;
      const A* const partial = static_cast<const A*>(sweep.partial[k]);
      error = launch_add_partials<T>(partials_of(tensors_of<F>(of), sweep, k), partial, of.data[k], of.stream);
    }
    return error;
  });
}

// Calls a function with an element of the type that the tensors have.
template <class TAKE, int... DTYPES>
void with_element(int dtype, const TAKE& take, Dtypes<DTYPES...>) {
  (void)((dtype == DTYPES ? (take(typename ElementOf<DTYPES>::type()), true) : false) || ...);
}

// The bytes of workspace that a call needs.
template <class F>
int64_t workspace_bytes(const CallOf<F>& call) {
  int64_t bytes = 0;
  const auto plan = [&](auto element) {
    each_sweep<F, decltype(element)>(call, [&](const CallOf<F>& of, const auto& sweep) {
      const int64_t of_one = partials(tensors_of<F>(of), sweep) * int64_t(sizeof(load(element)));
      for (unsigned left = sweep.sums; left != 0; left &= left - 1) bytes += of_one;
      return cudaSuccess;
    });
  };
  with_element(call.dtype, plan, typename F::Elements());
  return bytes;
}

// Runs F, whose outputs are sums where they have strides of 0, on the current stream of the tensors' device; returns
// what went wrong, or nothing.
template <class F>
const char* run_reducing(const CallOf<F>& call, void* workspace) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const auto reduce = [&](auto element) {
    using T = decltype(element);
    if (error == cudaSuccess) error = MethodOf<F, T>::template reduce<F, T>(call, workspace);
  };
  with_element(call.dtype, reduce, typename F::Elements());
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace
}  // namespace fusegen
