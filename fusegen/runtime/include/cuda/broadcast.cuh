#pragma once
// Kernels of several tensors that are not all dense in one layout: operands that are constant along the innermost
// dimension, as a channel's bias in NCHW, or along others, as a row vector; 0-d tensors; halves. The outputs are
// written by 16-byte vectors; each thread finds the indices of a vector by multiplications, once.
#include "cuda/sweep_vectors.cuh"

namespace fusegen {
namespace {

constexpr int LONG_ROW = 64;  // vectors of a row of the innermost dimension for a sweep in rows, at least

// The access paths to the tensors of a call.
template <int N>
struct Paths {
  Divisor by[MOST_DIMS];  // the sizes, outermost first
  Access access[N];
  bool crosses;  // a vector may hold elements of two rows of the innermost dimension
};

// Where a row of the innermost dimension begins, of each dimension but that.
struct RowIndex {
  uint32_t at[MOST_DIMS - 1];
};
template <int N>
__device__ __forceinline__ RowIndex row_index(const Tensors<N>& call, const Paths<N>& paths, uint32_t row) {
  RowIndex found;
#pragma unroll
  for (int d = MOST_DIMS - 2; d >= 0; --d) {
    found.at[d] = 0;
    if (d > call.rank - 2) continue;
    const uint32_t rest = d > 0 ? quotient(row, paths.by[d]) : 0;
    found.at[d] = row - rest * paths.by[d].size;
    row = rest;
  }
  return found;
}
template <int N>
__device__ __forceinline__ int64_t offset(const Tensors<N>& call, int k, const RowIndex& row) {
  int64_t found = 0;
#pragma unroll
  for (int d = 0; d < MOST_DIMS - 1; ++d)
    if (d < call.rank - 1) found += int64_t(row.at[d]) * call.stride[k][d];
  return found;
}

// Where a vector lies: in one row from an index on, and after `left` elements in the next row.
struct Span {
  uint32_t flat, index, left;
  RowIndex row, next;
};
template <int N>
__device__ __forceinline__ Span span(const Tensors<N>& call, const Paths<N>& paths, uint32_t flat, uint32_t width) {
  const Divisor& inner = paths.by[call.rank - 1];
  const uint32_t row = quotient(flat, inner), index = flat - row * inner.size;
  Span found = {flat, index, inner.size - index, row_index(call, paths, row), {}};
  found.next = found.row;
  if (paths.crosses && found.left < width) found.next = row_index(call, paths, row + 1);
  return found;
}

template <int N>
__device__ __forceinline__ int64_t place(const Tensors<N>& call, const Paths<N>& paths, int k, const Span& at) {
  if (paths.access[k] == Access::FLAT) return at.flat;
  return offset(call, k, at.row) + int64_t(at.index) * call.stride[k][call.rank - 1];
}

// The vector of an input.
template <typename T, int N>
__device__ __forceinline__ Vector<T> fetch(const Tensors<N>& call, const Paths<N>& paths, int k, const Span& at) {
  constexpr int WIDTH = 16 / sizeof(T);
  const Access access = paths.access[k];
  const T* const data = static_cast<const T*>(call.data[k]);
  const int64_t first = place(call, paths, k, at);
  if (access == Access::FLAT || access == Access::VECTOR) return *reinterpret_cast<const Vector<T>*>(data + first);
  Vector<T> v;
  const bool two_rows = paths.crosses && at.left < WIDTH;
  const int64_t next = two_rows ? offset(call, k, at.next) : 0;
  if (access == Access::CONSTANT) {
    const T here = data[first], there = two_rows ? data[next] : here;
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) v.at[e] = e < int(at.left) ? here : there;
  } else {
    const int64_t step = call.stride[k][call.rank - 1];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e)
      v.at[e] = data[!two_rows || e < int(at.left) ? first + e * step : next + (e - int(at.left)) * step];
  }
  return v;
}

// A thread computes VECTORS 16-byte vectors of each output, after it has loaded all that it needs for them; in the
// block where the tensors end, elements one by one.
template <class F, typename T, typename M, int VECTORS>
__global__ void __launch_bounds__(MOST_THREADS)
    broadcasting(const __grid_constant__ CallOf<F> call, const __grid_constant__ Paths<F::INPUTS + F::OUTPUTS> paths,
                 const ParamsOf<F, M> p) {
  constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = 16 / sizeof(T);
  const uint32_t block = VECTORS * WIDTH * blockDim.x, thread = threadIdx.x, n = uint32_t(call.numel);
  const uint32_t first = blockIdx.x * block;
  if (first + block <= n) {
    Vector<T> v[VECTORS][N];
    int64_t to[VECTORS][F::OUTPUTS];
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
      const Span at = span(call, paths, first + (VECTORS * (thread & ~31u) + j * 32 + (thread & 31)) * WIDTH, WIDTH);
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k) v[j][k] = fetch<T>(call, paths, k, at);
#pragma unroll
      for (int k = 0; k < F::OUTPUTS; ++k) to[j][k] = place(call, paths, F::INPUTS + k, at);
    }
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) element<F, T, M>(v[j], e, p);
#pragma unroll
      for (int k = 0; k < F::OUTPUTS; ++k)
        *reinterpret_cast<Vector<T>*>(static_cast<T*>(call.data[F::INPUTS + k]) + to[j][k]) = v[j][F::INPUTS + k];
    }
  } else {
#pragma unroll 1
    for (uint32_t i = first + thread; i < n; i += blockDim.x) {
      const Span at = span(call, paths, i, 1);
      Vector<T> v[N];
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k) v[k].at[0] = static_cast<T*>(call.data[k])[place(call, paths, k, at)];
      element<F, T, M>(v, 0, p);
#pragma unroll
      for (int k = F::INPUTS; k < N; ++k) static_cast<T*>(call.data[k])[place(call, paths, k, at)] = v[k].at[0];
    }
  }
}

// Says how the tensors are reached, if the outputs are by vectors that hold elements of at most two rows.
template <int OUT, typename T, int N>
bool find_paths(const Tensors<N>& call, Paths<N>& paths) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  const int inner = call.rank - 1;
  if (call.rank > MOST_DIMS || call.numel > INT32_MAX) return false;
  bool by_vectors = call.rank == 1 || call.size[inner] >= WIDTH;
  for (int k = 0; k < N; ++k) {
    paths.access[k] = access_of<T>(call, k);
    by_vectors = by_vectors && (k < N - OUT || int(paths.access[k]) <= int(Access::VECTOR));
  }
  for (int d = 0; d < call.rank; ++d) paths.by[d] = divisor(call.size[d]);
  paths.crosses = call.size[inner] % WIDTH != 0 && call.rank > 1;
  return by_vectors;
}

// Cuts a call in two through its outermost dimension that has several indices, so that flat tensors stay so: the first
// half, which keeps vectors aligned where it can, and the second in `rest`.
template <typename T, class C>
C outer_half(const C& call, C& rest) {
  int d = 0;
  while (call.size[d] == 1) ++d;
  const int64_t half = call.size[d] / 2, first = half >= 16 ? half & ~int64_t(15) : half;
  return cut<T>(call, rest, d, first);
}

// The kernel for so many vectors a thread.
template <class F, typename T, typename M>
constexpr auto broadcasting_kernel(int vectors) {
  constexpr auto all = broadcast_launches<F, T>();
  if constexpr (any_has(all, 4)) {
    if (vectors == 4) return broadcasting<F, T, M, 4>;
  }
  if constexpr (any_has(all, 1)) {
    if (vectors == 1) return broadcasting<F, T, M, 1>;
  }
  return broadcasting<F, T, M, 2>;
}

// The kernel of a sweep for so many vectors a thread.
template <class F, typename T, typename M, bool COLUMNS>
constexpr auto sweeping_kernel(int vectors) {
  constexpr auto all = broadcast_launches<F, T>();
  if constexpr (any_has(all, 4)) {
    if (vectors == 4) return sweeping<F, T, M, 4, COLUMNS>;
  }
  if constexpr (any_has(all, 1)) {
    if (vectors == 1) return sweeping<F, T, M, 1, COLUMNS>;
  }
  return sweeping<F, T, M, 2, COLUMNS>;
}

// The inputs that stand still along a dimension, a bit each.
template <class F>
unsigned operands(const CallOf<F>& call) {
  unsigned found = 0;
  for (int k = 0; k < F::INPUTS; ++k) found |= unsigned(is_sum(call, k)) << k;
  return found;
}

// Launches F as a sweep, if all tensors are then reached by vectors: in rows where these are long and an operand stands
// still along them; else in columns, if all operands stand still along one dimension.
template <class F, typename T, typename M>
bool launch_sweeping(const CallOf<F>& call, const Launch& by, cudaError_t& error) {
  constexpr int N = F::INPUTS + F::OUTPUTS;
  constexpr int64_t WIDTH = 16 / sizeof(T);
  const auto run = [&](const CallOf<F>& of, Sweep<N> sweep) {
    sweep.stores = (1u << F::OUTPUTS) - 1;
    const bool vectors = (sweep.vectors | sweep.constants) == (1u << N) - 1;
    if (!vectors || sweep.others >= MOST_DIMS || !in_32_bits(tensors_of<F>(of))) return false;
    const unsigned blocks = unsigned(quotient_up(sweep.jobs, sweep.each));
    const auto rows = sweeping_kernel<F, T, M, false>, columns = sweeping_kernel<F, T, M, true>;
    const auto kernel = (sweep.in_columns ? columns : rows)(by.vectors);
    const auto stream = static_cast<cudaStream_t>(of.stream);
    kernel<<<blocks, by.threads, 0, stream>>>(of, sweep, params<ParamsOf<F, M>>(of));
    error = cudaGetLastError();
    return true;
  };
  const Tensors<N>& tensors = call;
  const Shares shares = {by.threads, by.vectors, by.vectors, 0};
  bool still = false;
  for (int k = 0; k < F::INPUTS; ++k) still = still || call.stride[k][call.rank - 1] == 0;
  if (still && call.size[call.rank - 1] >= LONG_ROW * WIDTH) return run(call, plan_rows<T>(tensors, shares));
  const unsigned of = operands<F>(call);
  const int walk = of ? still_for_all(tensors, of) : -1;
  if (walk < 0) return false;
  const CallOf<F> other = turned(call, walk);
  return run(other, plan_columns<T>(static_cast<const Tensors<N>&>(other), shares));
}

// Launches F if the outputs are reached by vectors.
template <class F, typename T, typename M>
bool launch_broadcasting(const CallOf<F>& call, cudaError_t& error) {
  constexpr int N = F::INPUTS + F::OUTPUTS;
  if (call.numel > INT32_MAX) {
    CallOf<F> rest;
    error = launch<F, T, M>(outer_half<T>(call, rest));
    if (error == cudaSuccess) error = launch<F, T, M>(rest);
    return true;
  }
  const Launch by = select_config(broadcast_launches<F, T>(), chip_of(call.device), call.numel * sizeof(T));
  if constexpr (F::OUTPUTS == 1)  // sums have kernels of their own
    if (launch_sweeping<F, T, M>(call, by, error)) return true;
  Paths<N> paths;
  if (!find_paths<F::OUTPUTS, T>(static_cast<const Tensors<N>&>(call), paths)) return false;
  const int64_t block = by.vectors * by.threads * (16 / sizeof(T));
  const unsigned blocks = unsigned((call.numel + block - 1) / block);
  const auto kernel = broadcasting_kernel<F, T, M>(by.vectors);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  kernel<<<blocks, by.threads, 0, stream>>>(call, paths, params<ParamsOf<F, M>>(call));
  error = cudaGetLastError();
  return true;
}

}  // namespace
}  // namespace fusegen
