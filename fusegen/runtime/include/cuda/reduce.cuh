#pragma once
// Gradients of operands that are broadcast: sums, over the dimensions in which an output's stride is 0, of what the
// formula gives for each element. In two stages without atomics, so that they are the same in every run: a team of
// threads adds up a part of a row of the innermost dimension, and add_partials the sums of these parts.
#include "cuda/row_sweeps.cuh"

namespace fusegen {
namespace {

// The index, or one of a row of so many elements that is next to it.
__device__ __forceinline__ int64_t inside(int64_t index, int64_t size) {
  return index < 0 ? 0 : index < size ? index : size - 1;
}

// Computes a vector of each output, of which the row may have some elements only, and adds up those of sums.
template <typename T, typename M, class F>
__device__ __forceinline__ void sum_slot(const CallOf<F>& call, const RowSweep<F::INPUTS + F::OUTPUTS>& sweep,
                                         const int64_t* base, int64_t column, const ParamsOf<F, M>& p,
                                         decltype(load(T())) * sums) {
  constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = 16 / sizeof(T), IN = F::INPUTS;
  using A = decltype(load(T()));
  const int inner = call.rank - 1;
  const int64_t size = call.size[inner];
  const bool whole = column >= 0 && column + WIDTH <= size;
  Vector<T> v[N];
#pragma unroll
  for (int k = 0; k < IN; ++k) {
    const T* const from = static_cast<const T*>(call.data[k]) + base[k];
    const int64_t step = call.stride[k][inner];
    if (whole && int(sweep.access[k]) <= int(Access::VECTOR)) {
      v[k] = *reinterpret_cast<const Vector<T>*>(from + column);
    } else {
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) v[k].at[e] = from[inside(column + e, size) * step];
    }
  }
#pragma unroll
  for (int e = 0; e < WIDTH; ++e) {
    M in[IN], out[F::OUTPUTS];
#pragma unroll
    for (int k = 0; k < IN; ++k) in[k] = load(v[k].at[e]);
    F::template element<T>(in, out, p);
    const bool there = whole || (column + e >= 0 && column + e < size);
#pragma unroll
    for (int k = 0; k < F::OUTPUTS; ++k) {
      store_rounded(v[IN + k].at[e], out[k]);
      if (there) sums[k] += A(out[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < F::OUTPUTS; ++k) {
    if ((sweep.stores >> k & 1) == 0) continue;
    T* const to = static_cast<T*>(call.data[IN + k]) + base[IN + k];
    if (whole && int(sweep.access[IN + k]) <= int(Access::VECTOR)) {
      *reinterpret_cast<Vector<T>*>(to + column) = v[IN + k];
    } else {
#pragma unroll
      for (int e = 0; e < WIDTH; ++e)
        if (column + e >= 0 && column + e < size) to[(column + e) * call.stride[IN + k][inner]] = v[IN + k].at[e];
    }
  }
}

template <class F, typename T, typename M>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_rows(const __grid_constant__ CallOf<F> call, const __grid_constant__ RowSweep<F::INPUTS + F::OUTPUTS> sweep,
             const ParamsOf<F, M> p) {
  constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = 16 / sizeof(T);
  using A = decltype(load(T()));
  extern __shared__ double room[];
  const int lane = int(threadIdx.x) & (sweep.team - 1);
  const int64_t job = int64_t(blockIdx.x) * (blockDim.x / sweep.team) + threadIdx.x / sweep.team;
  A sums[F::OUTPUTS] = {};
  if (job < sweep.rows * sweep.parts) {
    const int64_t row = sweep.across ? job % sweep.rows : job / sweep.parts;
    const int64_t first = (sweep.across ? job / sweep.rows : job - row * sweep.parts) * sweep.part;
    int64_t base[N] = {}, rest = row;
    for (int d = call.rank - 2; d >= 0; --d) {
      const int64_t next = d > 0 ? rest / call.size[d] : 0, index = rest - next * call.size[d];
#pragma unroll
      for (int k = 0; k < N; ++k) base[k] += index * call.stride[k][d];
      rest = next;
    }
    const int head = sweep.flat ? int(row % WIDTH * (call.size[call.rank - 1] % WIDTH) % WIDTH) : 0;
    const int64_t end = first + sweep.part < sweep.slots ? first + sweep.part : sweep.slots;
    for (int64_t slot = first + lane; slot < end; slot += sweep.team)
      if (slot * WIDTH - head < call.size[call.rank - 1])
        sum_slot<T, M, F>(call, sweep, base, slot * WIDTH - head, p, sums);
  }
#pragma unroll
  for (int k = 0; k < F::OUTPUTS; ++k) {
    if ((sweep.sums >> k & 1) == 0) continue;
    const double sum = add_up(double(sums[k]), room, sweep.team);
    if (lane == 0 && job < sweep.rows * sweep.parts) static_cast<A*>(sweep.partial[F::INPUTS + k])[job] = A(sum);
  }
}

// The sweep, each of whose sums has its part of the workspace, which moves on.
template <int IN, typename A, int N>
RowSweep<N> with_room(RowSweep<N> sweep, A*& workspace) {
  for (int k = IN; k < N; ++k) {
    if ((sweep.sums >> (k - IN) & 1) == 0) continue;
    sweep.partial[k] = workspace;
    workspace += sweep.rows * sweep.parts;
  }
  return sweep;
}

// The first stage of a sweep.
template <class F, typename T, typename M>
cudaError_t launch_sum_rows(const CallOf<F>& call, const RowSweep<F::INPUTS + F::OUTPUTS>& sweep) {
  if (call.numel == 0) return cudaSuccess;
  const int64_t jobs = sweep.rows * sweep.parts, each = SUM_THREADS / sweep.team;
  const unsigned blocks = unsigned((jobs + each - 1) / each);
  const size_t bytes = SUM_THREADS * sizeof(double);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto kernel = sum_rows<F, T, M>;
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
    return launch_sum_rows<F, T, M>(of, with_room<IN>(sweep, at));
  });
  if (error != cudaSuccess) return error;
  at = static_cast<A*>(workspace);
  return each_sweep<F, T>(call, [&](const CallOf<F>& of, const auto& planned) {
    const auto sweep = with_room<IN>(planned, at);
    for (int k = IN; k < IN + F::OUTPUTS && error == cudaSuccess; ++k) {
      if ((sweep.sums >> (k - IN) & 1) == 0) continue;
      const A* const partial = static_cast<const A*>(sweep.partial[k]);
      error = launch_add_partials<T>(partials_of(of, sweep, k), partial, of.data[k], of.stream);
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
    each_sweep<F, decltype(element)>(call, [&](const CallOf<F>&, const auto& sweep) {
      const int64_t of_one = sweep.rows * sweep.parts * int64_t(sizeof(load(element)));
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
