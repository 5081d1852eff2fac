#pragma once
// The sums over rows that a team has: doubles in shared memory, a thread's own; of 16-bit elements it first adds a few
// rows in registers, in floats, which have far more bits than the result.
#include "cuda/row_elements.cuh"
#include "cuda/row_joins.cuh"

namespace fusegen {
namespace {

// A choice for the outputs F::FEATURES: a kernel stores their elements, adds them over the rows, or leaves them to a
// kernel of columns, for which it stores the values of each row.
enum class Features { STORED, ADDED, LEFT };

// Of UNITS units of each of a team's threads.
template <class F, typename T, int UNITS>
struct TeamSums {
  static constexpr int WIDTH = WIDTH_OF<T>, PAIRS = WIDTH / 2, SUMS = SUMS_OF<F>;
  static constexpr bool IN_REGISTERS = sizeof(T) == 2;
  static constexpr int ROWS = 8;  // that registers add
  static constexpr int OF_THREAD = SUMS * UNITS * PAIRS;

  // The first pair of a unit's sums, of a team of the block; others lie a team's threads apart.
  __device__ __forceinline__ double2* at(int sum, int u, int team) const {
    return memory + (team * OF_THREAD + (sum * UNITS + u) * PAIRS) * threads + lane;
  }
  __device__ __forceinline__ double2* own(int sum, int u) const { return at(sum, u, team); }

  __device__ __forceinline__ void clear() {
    for (int k = 0; k < OF_THREAD; ++k) own(0, 0)[k * threads] = double2{0, 0};
    clear_near();
  }
  __device__ __forceinline__ void clear_near() {
    if constexpr (IN_REGISTERS)
#pragma unroll
      for (int k = 0; k < SUMS * UNITS * WIDTH; ++k) near[k] = 0;
  }

  // Adds result k of a unit's elements to a sum.
  template <int RESULTS, typename M>
  __device__ __forceinline__ void add(int sum, int u, const M (&out)[WIDTH][RESULTS], int k) {
    if constexpr (IN_REGISTERS) {
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) near[(sum * UNITS + u) * WIDTH + e] += float(out[e][k]);
    } else {
#pragma unroll
      for (int e = 0; e < WIDTH; e += 2)
        add_pair(own(sum, u)[e / 2 * threads], double(out[e][k]), double(out[e + 1][k]));
    }
  }
  static __device__ __forceinline__ void add_pair(double2& to, double x, double y) {
    double2 pair = to;
    pair.x += x;
    pair.y += y;
    to = pair;
  }

  // Ends row number `row` of the team's.
  __device__ __forceinline__ void end_row(int row) {
    if (IN_REGISTERS && row % ROWS == ROWS - 1) flush();
  }
  __device__ __forceinline__ void flush() {
    if constexpr (IN_REGISTERS) {
#pragma unroll
      for (int k = 0; k < SUMS * UNITS * PAIRS; ++k) add_pair(own(0, 0)[k * threads], near[2 * k], near[2 * k + 1]);
      clear_near();
    }
  }

  // Writes the sums of a block's teams, in order.
  template <class PLACES>
  __device__ __forceinline__ void write(double* to, int teams, const PLACES& places) {
    flush();
    __syncthreads();
    if (team > 0) return;
    for (int sum = 0; sum < SUMS; ++sum)
      for (int u = 0; u < UNITS; ++u)
        for (int e = 0; e < WIDTH; ++e) {
          double total = 0;
          for (int each = 0; each < teams; ++each) {
            const double2 pair = at(sum, u, each)[e / 2 * threads];
            total += e % 2 ? pair.y : pair.x;
          }
          if (places.has(u, e)) to[int64_t(sum) * places.n + places.at(u, e)] = total;
        }
  }

  double2* memory;
  int threads, lane, team;  // of the team, in it, and its number in the block
  float near[IN_REGISTERS ? SUMS * UNITS * WIDTH : 1];
};
// Of a kernel that has none.
struct NoSums {};

// Sums by channels, of a warp whose run has parts of some: a lane adds what it stores, its warp what its lanes have.
// The part of a channel in a warp's run has the number of both added, which no other part of the block has.
template <class F, typename T>
struct ChannelSums {
  static constexpr int SUMS = SUMS_OF<F>, WIDTH = WIDTH_OF<T>;
  double own[SUMS] = {};
  double* of_part;  // of part 0 of the block

  template <int RESULTS, typename M>
  __device__ __forceinline__ void add(int sum, int, const M (&out)[WIDTH][RESULTS], int k) {
    using A = std::conditional_t<sizeof(T) == 2, float, double>;  // which has far more bits than the result
    A part[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) part[e] = A(out[e][k]);
#pragma unroll
    for (int many = WIDTH / 2; many > 0; many /= 2)
#pragma unroll
      for (int e = 0; e < many; ++e) part[e] += part[e + many];
    own[sum] += double(part[0]);
  }
  __device__ __forceinline__ void end_part(int channel) {
    const int part = channel + int(threadIdx.x) / WARP;
#pragma unroll
    for (int sum = 0; sum < SUMS; ++sum) {
#pragma unroll
      for (int d = WARP / 2; d > 0; d /= 2) own[sum] += __shfl_xor_sync(~0u, own[sum], d);
      if (threadIdx.x % WARP == 0) of_part[part * SUMS + sum] = own[sum];
      own[sum] = 0;
    }
  }
};

}  // namespace
}  // namespace fusegen
