#pragma once
// The work of a thread of a sweep: vectors along its walk, all loaded before the first is used. A vector at the end
// of a row may have some of its elements only; it and tensors that are not reached by vectors are read and written one
// element after the other.
#include "cuda/sweep_results.cuh"

namespace fusegen {
namespace {

// A thread's job, and its place in it. In columns a block has one job.
struct Lane {
  uint32_t slot, lane, column;
};
template <bool COLUMNS, int N>
__device__ __forceinline__ Lane lane_of(const Sweep<N>& sweep) {
  if constexpr (COLUMNS) {
    const uint32_t lane = quotient(threadIdx.x, sweep.by_columns);
    return {0, lane, threadIdx.x - lane * sweep.columns};
  } else {
    const uint32_t slot = threadIdx.x >> sweep.team_bits;
    return {slot, threadIdx.x - (slot << sweep.team_bits), 0};
  }
}

// Begins a walk at part `part` of the walk outside of which the offsets are given, in chunk `chunk` of the columns.
template <typename T, bool COLUMNS, int N, typename OFFSET>
__device__ __forceinline__ void begin(const Tensors<N>& call, const Sweep<N>& sweep, const Lane& mine, uint32_t chunk,
                                      uint32_t part, uint32_t head, Walker<N, OFFSET>& walker) {
  constexpr int WIDTH = 16 / sizeof(T);
  const int inner = call.rank - 1;
  const uint32_t column = COLUMNS ? chunk * sweep.columns + mine.column : 0;
  const OFFSET first = OFFSET(part) * OFFSET(sweep.part), rest = OFFSET(sweep.length) - first;
  int count = rest < OFFSET(sweep.part) ? int(rest) : int(sweep.part);
  walker.column = COLUMNS ? OFFSET(column * WIDTH) : (first + OFFSET(mine.lane)) * WIDTH - OFFSET(head);
  // a row may need one vector less than the longest
  if (!COLUMNS && (first + count) * WIDTH >= OFFSET(call.size[inner]) + OFFSET(WIDTH + head)) --count;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    walker.at[k] += OFFSET(part) * OFFSET(sweep.part_step[k]) + OFFSET(mine.lane) * OFFSET(sweep.step[k]);
    if constexpr (COLUMNS) walker.at[k] += OFFSET(column) * OFFSET(sweep.column_step[k]);
    else walker.at[k] -= OFFSET(head) * OFFSET(call.stride[k][inner]);
  }
  const int ahead = count - int(mine.lane);
  const bool idle = COLUMNS && (mine.lane >= uint32_t(sweep.team) || column >= sweep.width);
  const int up = ahead + sweep.team - 1;
  walker.left = idle || ahead <= 0 ? 0 : COLUMNS ? up / sweep.team : up >> sweep.team_bits;
}

// One element throughout.
template <typename T>
__device__ __forceinline__ Bytes constant(const T* from) {
  Vector<T> v;
#pragma unroll
  for (T& element : v.at) element = *from;
  return bit_cast<Bytes>(v);
}

// Elements of a tensor one by one: those of a vector that a row has; the others are of the nearest.
template <typename T>
__device__ __noinline__ Bytes gathered(const T* from, int64_t column, int64_t size, int64_t step) {
  Vector<T> v;
#pragma unroll
  for (int e = 0; e < int(16 / sizeof(T)); ++e) {
    const int64_t index = column + e, near = index < 0 ? 0 : index < size ? index : size - 1;
    v.at[e] = from[(near - column) * step];
  }
  return bit_cast<Bytes>(v);
}
template <typename T>
__device__ __noinline__ void scatter(T* to, Bytes bytes, int64_t step, uint32_t which) {
  const auto v = bit_cast<Vector<T>>(bytes);
#pragma unroll
  for (int e = 0; e < int(16 / sizeof(T)); ++e)
    if (which >> e & 1) to[e * step] = v.at[e];
}

// The elements of a vector that a row has, a bit each.
template <typename T>
__device__ __forceinline__ uint32_t present(int64_t column, int64_t size) {
  constexpr int WIDTH = 16 / sizeof(T);
  const int first = column < 0 ? int(-column) : 0, end = column + WIDTH > size ? int(size - column) : WIDTH;
  return end <= first ? 0 : ((uint64_t(1) << end) - 1) & ~((uint64_t(1) << first) - 1);
}

// Loads the inputs of vector j, which is there.
template <typename T, int IN, bool COLUMNS, int N, typename OFFSET>
__device__ __forceinline__ void load_inputs(const Tensors<N>& call, const Sweep<N>& sweep,
                                            const Walker<N, OFFSET>& here, int j, bool whole, Bytes (&v)[N]) {
  const int inner = call.rank - 1;
#pragma unroll
  for (int k = 0; k < IN; ++k) {
    const T* const from = static_cast<const T*>(call.data[k]) + here.at[k] + j * OFFSET(sweep.jump[k]);
    const int64_t column = COLUMNS ? here.column : here.column + j * sweep.team * int(16 / sizeof(T));
    if (sweep.constants >> k & 1) v[k] = constant(from);
    else if (whole && (sweep.vectors >> k & 1)) v[k] = *reinterpret_cast<const Bytes*>(from);
    else v[k] = gathered(from, column, call.size[inner], call.stride[k][inner]);
  }
}

// Computes up to VECTORS vectors of each output; `sums` takes the unrounded results.
template <class F, typename T, typename M, int VECTORS, bool COLUMNS, int N, typename OFFSET, class SUMS>
__device__ __forceinline__ void compute_vectors(const CallOf<F>& call, const Sweep<N>& sweep,
                                                const Walker<N, OFFSET>& here, const ParamsOf<F, M>& p, SUMS& sums) {
  constexpr int WIDTH = 16 / sizeof(T), IN = F::INPUTS, inner_jump = COLUMNS ? 0 : WIDTH;
  constexpr uint32_t ALL = (uint64_t(1) << WIDTH) - 1;
  const OFFSET size = OFFSET(call.size[call.rank - 1]), turn = inner_jump * sweep.team;
  const unsigned stores = SUMS::ALL_STORED ? (1u << F::OUTPUTS) - 1 : sweep.stores;
  const bool whole = here.left >= VECTORS && here.column >= 0 && here.column + (VECTORS - 1) * turn + WIDTH <= size;
  Bytes v[VECTORS][N];
#pragma unroll
  for (int j = 0; j < VECTORS; ++j)
    if (j == 0 || whole || j < here.left) load_inputs<T, IN, COLUMNS>(call, sweep, here, j, whole, v[j]);
  uint32_t undecided = 0;
#pragma unroll
  for (int j = 0; j < VECTORS; ++j) {
    if (j > 0 && !whole && j >= here.left) continue;
    M out[WIDTH][F::OUTPUTS];
    const uint32_t open = compute_vector<F, T, M>(v[j], out, stores, p);
    const uint32_t there = whole ? ALL : present<T>(here.column + j * turn, size), given = there & ~open;
    sums.add(out, there);
#pragma unroll
    for (int k = 0; k < F::OUTPUTS; ++k) {
      if ((stores >> k & 1) == 0) continue;
      T* const to = static_cast<T*>(call.data[IN + k]) + here.at[IN + k] + j * OFFSET(sweep.jump[IN + k]);
      if (given == ALL && (sweep.vectors >> (IN + k) & 1)) *reinterpret_cast<Bytes*>(to) = v[j][IN + k];
      else scatter(to, v[j][IN + k], call.stride[IN + k][call.rank - 1], given);
    }
    undecided |= (there & open) << j * WIDTH;
  }
  if constexpr (F::TWO_PHASES)
    if (undecided != 0) compute_undecided<F, T, M>(call, sweep, here, undecided, p);
}

// For outputs none of which is a sum.
struct NoSums {
  static constexpr bool ALL_STORED = true;
  template <class RESULTS>
  __device__ __forceinline__ void add(const RESULTS&, uint32_t) {}
};

// Each thread has VECTORS vectors at most. Jobs and dimensions are as many as `by` divides, and offsets have 32 bits.
template <class F, typename T, typename M, int VECTORS, bool COLUMNS>
__global__ void __launch_bounds__(MOST_THREADS)
    sweeping(const __grid_constant__ CallOf<F> call, const __grid_constant__ Sweep<F::INPUTS + F::OUTPUTS> sweep,
             const __grid_constant__ ParamsOf<F, M> p) {
  constexpr int N = F::INPUTS + F::OUTPUTS, WIDTH = 16 / sizeof(T);
  const Lane mine = lane_of<COLUMNS>(sweep);
  const uint32_t job = blockIdx.x * sweep.each + mine.slot;
  if (!COLUMNS && job >= sweep.jobs) return;
  const uint32_t walk = COLUMNS ? quotient(job, sweep.by_chunks) : job, other = quotient(walk, sweep.by_parts);
  Walker<N, int32_t> walker{};
  uint32_t rest = other;
#pragma unroll
  for (int d = MOST_DIMS - 2; d >= 0; --d) {
    if (d >= sweep.others) continue;
    const uint32_t next = d > 0 ? quotient(rest, sweep.by[d]) : 0, index = rest - next * sweep.by[d].size;
#pragma unroll
    for (int k = 0; k < N; ++k) walker.at[k] += int32_t(index) * int32_t(call.stride[k][d]);
    rest = next;
  }
  const uint32_t head = !COLUMNS && sweep.flat ? other * uint32_t(call.size[call.rank - 1]) % WIDTH : 0;
  const uint32_t chunk = job - walk * sweep.chunks, part = walk - other * sweep.parts;
  begin<T, COLUMNS>(static_cast<const Tensors<N>&>(call), sweep, mine, chunk, part, head, walker);
  NoSums none;
  if (walker.left > 0) compute_vectors<F, T, M, VECTORS, COLUMNS>(call, sweep, walker, p, none);
}

}  // namespace
}  // namespace fusegen
