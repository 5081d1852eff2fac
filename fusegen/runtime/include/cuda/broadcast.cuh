#pragma once
// Kernels of several tensors that are not all dense in one layout: operands that are constant along the innermost
// dimension, as a channel's bias in NCHW, or along others, as a row vector; 0-d tensors; halves. The outputs are
// written by 16-byte vectors; each thread finds the indices of a vector by multiplications, once.
#include "cuda/launch.cuh"
#include "cuda/vector.cuh"

namespace fusegen {
namespace {

constexpr int MOST_DIMS = 4;

// What divides a number below 2^31. Source: Granlund and Montgomery 1994, PLDI.
struct Divisor {
  uint32_t size, multiplier, shift;
};
Divisor divisor(int64_t size) {
  uint32_t shift = 0;
  while ((int64_t(1) << shift) < size) ++shift;
  return {uint32_t(size), uint32_t((((uint64_t(1) << shift) - uint64_t(size)) << 32) / uint64_t(size) + 1), shift};
}
__device__ __forceinline__ uint32_t quotient(uint32_t n, const Divisor& by) {
  return uint32_t((uint64_t(n) * by.multiplier >> 32) + n) >> by.shift;
}

// How a thread reaches a vector of a tensor.
enum class Access : int {
  FLAT,      // in the order of the elements, by vectors
  VECTOR,    // along the innermost dimension, by vectors
  CONSTANT,  // one element for all of the innermost dimension
  ELEMENTS   // one by one
};

// How the tensors of a call are reached.
template <int N>
struct Reach {
  Divisor by[MOST_DIMS];  // the sizes, outermost first
  Access access[N];
  bool crosses;  // a vector may hold elements of two rows of the innermost dimension
};

// Where a row of the innermost dimension begins, of each dimension but that.
struct RowIndex {
  uint32_t at[MOST_DIMS - 1];
};
template <int N>
__device__ __forceinline__ RowIndex row_index(const Tensors<N>& call, const Reach<N>& reach, uint32_t row) {
  RowIndex found;
#pragma unroll
  for (int d = MOST_DIMS - 2; d >= 0; --d) {
    found.at[d] = 0;
    if (d > call.rank - 2) continue;
    const uint32_t rest = d > 0 ? quotient(row, reach.by[d]) : 0;
    found.at[d] = row - rest * reach.by[d].size;
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
__device__ __forceinline__ Span span(const Tensors<N>& call, const Reach<N>& reach, uint32_t flat, uint32_t width) {
  const Divisor& inner = reach.by[call.rank - 1];
  const uint32_t row = quotient(flat, inner), index = flat - row * inner.size;
  Span found = {flat, index, inner.size - index, row_index(call, reach, row), {}};
  found.next = found.row;
  if (reach.crosses && found.left < width) found.next = row_index(call, reach, row + 1);
  return found;
}

template <int N>
__device__ __forceinline__ int64_t place(const Tensors<N>& call, const Reach<N>& reach, int k, const Span& at) {
  if (reach.access[k] == Access::FLAT) return at.flat;
  return offset(call, k, at.row) + int64_t(at.index) * call.stride[k][call.rank - 1];
}

// The vector of an input.
template <typename T, int N>
__device__ __forceinline__ Vector<T> fetch(const Tensors<N>& call, const Reach<N>& reach, int k, const Span& at) {
  constexpr int WIDTH = 16 / sizeof(T);
  const Access access = reach.access[k];
  const T* const data = static_cast<const T*>(call.data[k]);
  const int64_t first = place(call, reach, k, at);
  if (access == Access::FLAT || access == Access::VECTOR) return *reinterpret_cast<const Vector<T>*>(data + first);
  Vector<T> v;
  const bool two_rows = reach.crosses && at.left < WIDTH;
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
    broadcasting(const __grid_constant__ CallOf<F> call, const __grid_constant__ Reach<F::INPUTS + F::OUTPUTS> reach,
                 const ParamsOf<F, M> p) {
  constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = 16 / sizeof(T);
  const uint32_t block = VECTORS * WIDTH * blockDim.x, thread = threadIdx.x, n = uint32_t(call.numel);
  const uint32_t first = blockIdx.x * block;
  if (first + block <= n) {
    Vector<T> v[VECTORS][N];
    int64_t to[VECTORS][F::OUTPUTS];
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
      const Span at = span(call, reach, first + (VECTORS * (thread & ~31u) + j * 32 + (thread & 31)) * WIDTH, WIDTH);
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k) v[j][k] = fetch<T>(call, reach, k, at);
#pragma unroll
      for (int k = 0; k < F::OUTPUTS; ++k) to[j][k] = place(call, reach, F::INPUTS + k, at);
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
      const Span at = span(call, reach, i, 1);
      Vector<T> v[N];
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k) v[k].at[0] = static_cast<T*>(call.data[k])[place(call, reach, k, at)];
      element<F, T, M>(v, 0, p);
#pragma unroll
      for (int k = F::INPUTS; k < N; ++k) static_cast<T*>(call.data[k])[place(call, reach, k, at)] = v[k].at[0];
    }
  }
}

// How tensor k is reached by vectors of elements T.
template <typename T, int N>
Access access_of(const Tensors<N>& call, int k) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  const int inner = call.rank - 1;
  const bool aligned = reinterpret_cast<uintptr_t>(call.data[k]) % 16 == 0;
  bool flat = aligned, vectors = aligned && call.size[inner] % WIDTH == 0 && call.stride[k][inner] == 1;
  int64_t run = 1;
  for (int d = inner; d >= 0; run *= call.size[d--]) {
    flat = flat && (call.size[d] == 1 || call.stride[k][d] == run);
    vectors = vectors && (d == inner || call.stride[k][d] % WIDTH == 0);
  }
  if (flat || vectors) return flat ? Access::FLAT : Access::VECTOR;
  return call.stride[k][inner] == 0 ? Access::CONSTANT : Access::ELEMENTS;
}

// Says how the tensors are reached, if the outputs are by vectors that hold elements of at most two rows.
template <int OUT, typename T, int N>
bool find_reach(const Tensors<N>& call, Reach<N>& reach) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  const int inner = call.rank - 1;
  if (call.rank > MOST_DIMS || call.numel > INT32_MAX) return false;
  bool by_vectors = call.rank == 1 || call.size[inner] >= WIDTH;
  for (int k = 0; k < N; ++k) {
    reach.access[k] = access_of<T>(call, k);
    by_vectors = by_vectors && (k < N - OUT || int(reach.access[k]) <= int(Access::VECTOR));
  }
  for (int d = 0; d < call.rank; ++d) reach.by[d] = divisor(call.size[d]);
  reach.crosses = call.size[inner] % WIDTH != 0 && call.rank > 1;
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
  Reach<N> reach;
  if (!find_reach<F::OUTPUTS, T>(static_cast<const Tensors<N>&>(call), reach)) return false;
  const Launch by = select_config(broadcast_launches<F, T>(), chip_of(call.device), call.numel * sizeof(T));
  const int64_t block = by.vectors * by.threads * (16 / sizeof(T));
  const unsigned blocks = unsigned((call.numel + block - 1) / block);
  const auto kernel = broadcasting_kernel<F, T, M>(by.vectors);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  kernel<<<blocks, by.threads, 0, stream>>>(call, reach, params<ParamsOf<F, M>>(call));
  error = cudaGetLastError();
  return true;
}

}  // namespace
}  // namespace fusegen
