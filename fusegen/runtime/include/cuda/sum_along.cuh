#pragma once
// The first stage of a sum: each thread adds up what it computes along its walk, and the threads of a block their sums.
#include "cuda/sums_of_threads.cuh"
#include "cuda/sweep_vectors.cuh"

namespace fusegen {
namespace {

// Vectors of each tensor that a thread loads before it computes: as many as gave the most on an H200.
template <typename T, bool COLUMNS>
constexpr int SUM_VECTORS = COLUMNS && sizeof(T) == 2 ? 2 : 1;

// A thread's sums of each output: in columns one for each element of a vector, where elements that no row has are added
// up, too, and dropped in the end; in rows one.
template <typename A, int OUT, int WIDTH, bool COLUMNS>
struct Sums {
  static constexpr bool ALL_STORED = false;
  A at[OUT][COLUMNS ? WIDTH : 1];
  template <typename M>
  __device__ __forceinline__ void add(const M (&out)[WIDTH][OUT], uint32_t there) {
    constexpr uint32_t ALL = (uint64_t(1) << WIDTH) - 1;
#pragma unroll
    for (int k = 0; k < OUT; ++k) {
      A term[WIDTH];
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) term[e] = A(out[e][k]);
      if constexpr (COLUMNS) {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) at[k][e] += term[e];
        continue;
      }
      if (there != ALL) {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          if ((there >> e & 1) == 0) term[e] = 0;
      }
#pragma unroll
      for (int half = WIDTH / 2; half > 0; half /= 2) {
#pragma unroll
        for (int e = 0; e < half; ++e) term[e] += term[e + half];
      }
      at[k][0] += term[0];
    }
  }
};

// Stores the sums of a block's columns, each over the threads of its team.
template <typename A, int WIDTH, int N>
__device__ __forceinline__ void store_columns(const Sweep<N>& sweep, const A (&sums)[WIDTH], double* room, int64_t size,
                                              A* partial) {
  const int64_t job = blockIdx.x, walk = sweep.chunks > 1 ? job / sweep.chunks : job;
  const int64_t first = (job - walk * sweep.chunks) * sweep.columns * WIDTH;
#pragma unroll
  for (int e = 0; e < WIDTH; ++e) room[threadIdx.x * WIDTH + e] = double(sums[e]);
  __syncthreads();
  for (int at = int(threadIdx.x), width = sweep.columns * WIDTH; at < width; at += int(blockDim.x)) {
    double total = 0;
    for (int lane = 0; lane < sweep.team; ++lane) total += room[lane * width + at];
    if (first + at < size) partial[walk * size + first + at] = A(total);
  }
  __syncthreads();
}

// Moves to an index of the dimensions outside of the walk.
template <int N>
__device__ __noinline__ Walker<N, int64_t> outside(const Tensors<N>& call, const Sweep<N>& sweep, int64_t other) {
  Walker<N, int64_t> found{};
#pragma unroll 1
  for (int d = sweep.others - 1; d >= 0; --d) {
    const int64_t next = d > 0 ? other / call.size[d] : 0, index = other - next * call.size[d];
#pragma unroll
    for (int k = 0; k < N; ++k) found.at[k] += index * call.stride[k][d];
    other = next;
  }
  return found;
}

// Blocks on an SM for which registers are left, by the sums that a thread has.
template <typename T, bool COLUMNS, int OUT>
constexpr int SUM_BLOCKS = sizeof(T) == 8 || (COLUMNS && sizeof(T) == 2) ? 4 : OUT < 3 ? 8 : 6;

template <class F, typename T, typename M, bool COLUMNS>
__global__ void __launch_bounds__(SUM_THREADS, SUM_BLOCKS<T, COLUMNS, F::OUTPUTS>)
    sum_along(const __grid_constant__ CallOf<F> call, const __grid_constant__ Sweep<F::INPUTS + F::OUTPUTS> sweep,
              const __grid_constant__ ParamsOf<F, M> p) {
  constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = 16 / sizeof(T), VECTORS = SUM_VECTORS<T, COLUMNS>;
  using A = decltype(load(T()));
  extern __shared__ double room[];
  const Tensors<N>& tensors = call;
  const Lane mine = lane_of<COLUMNS>(sweep);
  const int64_t job = int64_t(blockIdx.x) * sweep.each + mine.slot, size = call.size[call.rank - 1];
  Sums<A, F::OUTPUTS, WIDTH, COLUMNS> sums = {};
  if (job < sweep.jobs) {
    const int64_t walk = job / sweep.chunks, other = walk / sweep.parts;
    Walker<N, int64_t> walker = outside(tensors, sweep, other);
    const uint32_t head = !COLUMNS && sweep.flat ? uint32_t(other) * uint32_t(size) % WIDTH : 0;
    const uint32_t chunk = uint32_t(job - walk * sweep.chunks), part = uint32_t(walk - other * sweep.parts);
    begin<T, COLUMNS>(tensors, sweep, mine, chunk, part, head, walker);
#pragma unroll 1
    for (; walker.left > 0; walker.left -= VECTORS) {
      compute_vectors<F, T, M, VECTORS, COLUMNS>(call, sweep, walker, p, sums);
#pragma unroll
      for (int k = 0; k < N; ++k) walker.at[k] += VECTORS * sweep.jump[k];
      if constexpr (!COLUMNS) walker.column += VECTORS * sweep.team * WIDTH;
    }
  }
#pragma unroll
  for (int k = 0; k < F::OUTPUTS; ++k) {
    if ((sweep.sums >> k & 1) == 0) continue;
    A* const partial = static_cast<A*>(sweep.partial[F::INPUTS + k]);
    if constexpr (COLUMNS) {
      store_columns(sweep, sums.at[k], room, size, partial);
    } else {
      const double sum = add_up(double(sums.at[k][0]), room, sweep.team);
      if (mine.lane == 0 && job < sweep.jobs) partial[job] = A(sum);
    }
  }
}

}  // namespace
}  // namespace fusegen
