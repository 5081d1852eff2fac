#pragma once
// The second stage of a sum: adds partial sums in double, always in the same order.
#include "cuda/broadcast.cuh"
#include "cuda/sums_of_threads.cuh"

namespace fusegen {
namespace {

// Stores a sum, rounded once.
template <typename T>
__device__ __forceinline__ void store_sum(T& y, double sum) {
  store(y, sizeof(T) == 2 ? decltype(load(T()))(round_to_odd(sum)) : decltype(load(T()))(sum));
}

// The layout of partial sums: those of dimensions that a result keeps, and those that are added up, innermost first.
struct Partials {
  int64_t count = 1, terms = 1;  // results, and partial sums of each
  int kept = 0, added = 0;       // dimensions
  int64_t size[MAX_RANK + 1], from[MAX_RANK + 1], to[MAX_RANK + 1];  // those kept
  int64_t length[MAX_RANK + 1], stride[MAX_RANK + 1];                // those added up
  void keep(int64_t n, int64_t from_stride, int64_t to_stride) {
    size[kept] = n, from[kept] = from_stride, to[kept++] = to_stride;
    count *= n;
  }
  void add(int64_t n, int64_t step) {
    if (n == 1) return;
    length[added] = n, stride[added++] = step;
    terms *= n;
  }
};

// Where a term lies, of several dimensions.
__device__ __forceinline__ int64_t added_offset(const Partials& of, int64_t term) {
  int64_t at = 0;
  for (int d = 0; d < of.added; ++d) {
    const int64_t next = d + 1 < of.added ? term / of.length[d] : 0;
    at += (term - next * of.length[d]) * of.stride[d];
    term = next;
  }
  return at;
}

template <typename T, typename A>
__global__ void __launch_bounds__(MOST_ADDING)
    add_partials(const __grid_constant__ Partials of, const A* partial, T* results, int team) {
  extern __shared__ double room[];
  const int64_t result = int64_t(blockIdx.x) * (blockDim.x / team) + threadIdx.x / team;
  int64_t from = 0, to = 0, rest = result;
  for (int d = 0; d < of.kept; ++d) {
    const int64_t next = rest / of.size[d], index = rest - next * of.size[d];
    from += index * of.from[d];
    to += index * of.to[d];
    rest = next;
  }
  double sum = 0;
  if (result < of.count && of.added < 2) {
    const int64_t step = of.added ? of.stride[0] : 0;
#pragma unroll 4
    for (int64_t term = threadIdx.x & (team - 1); term < of.terms; term += team)
      sum += double(partial[from + term * step]);
  } else if (result < of.count) {
    for (int64_t term = threadIdx.x & (team - 1); term < of.terms; term += team)
      sum += double(partial[from + added_offset(of, term)]);
  }
  sum = add_up(sum, room, team);
  if (result < of.count && (threadIdx.x & (team - 1)) == 0) store_sum(results[to], sum);
}

template <typename T, typename A>
cudaError_t launch_add_partials(const Partials& of, const A* partial, void* results, void* stream) {
  if (of.count == 0) return cudaSuccess;
  const int team = team_of((of.terms + 3) / 4, MOST_ADDING);
  const int threads = std::max(team, SUM_THREADS), each = threads / team;
  const unsigned blocks = unsigned((of.count + each - 1) / each);
  const size_t bytes = threads * sizeof(double);
  const auto on = static_cast<cudaStream_t>(stream);
  const auto kernel = add_partials<T, A>;
  kernel<<<blocks, threads, bytes, on>>>(of, partial, static_cast<T*>(results), team);
  return cudaGetLastError();
}

}  // namespace
}  // namespace fusegen
