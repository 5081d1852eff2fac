#pragma once
// The elements and the sums of a thread of the kernels of channels on CUDA, and how sums of several are joined.
#include "cuda/row_elements.cuh"
#include "channel_parts.h"
#include "row_range.h"

namespace fusegen {
namespace {

constexpr int CHANNEL_THREADS = 256, LANES_OF_CHANNELS = 32;
constexpr int64_t LEAST_OF_PART = 8192, LEAST_OF_LANES = 512, MOST_OF_PARTS = 1024;
constexpr int64_t ENOUGH_BLOCKS = 4096, LARGE_PART = 1 << 17;  // beyond so many blocks, parts have so many elements

// The numbers that a phase leaves of a part.
template <class PHASE, class FIRST>
constexpr int SIZE_OF = std::is_same_v<PHASE, FIRST> ? Moment::SIZE : PHASE::RESULTS;

template <class PHASE, class FIRST>
HOST_DEVICE void join_parts(double* total, const double* part) {
  if constexpr (std::is_same_v<PHASE, FIRST>) {
    Moment joined{total[0], total[1], total[2]};
    joined.join({part[0], part[1], part[2]});
    total[0] = joined.n, total[1] = joined.mean, total[2] = joined.squares;
  } else PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::join(total[k], part[k]); });
}
template <class PHASE, class FIRST>
HOST_DEVICE void clear_part(double* total) {
  if constexpr (std::is_same_v<PHASE, FIRST>) total[0] = total[1] = total[2] = 0;
  else PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::IDENTITY; });
}

// Joins what the slots of each of some channels have, in one order: a thread is a slot of one of the lanes, and has its
// own place in memory.
template <class PHASE, class FIRST>
__device__ void join_slots(double (*memory)[SIZE_OF<PHASE, FIRST>], int slot, int slots, int lanes) {
  for (int half = slots / 2; half > 0; half /= 2) {
    __syncthreads();
    if (slot < half) join_parts<PHASE, FIRST>(memory[threadIdx.x], memory[threadIdx.x + half * lanes]);
  }
  __syncthreads();
}

// The elements of a channel: in vectors where its runs are whole ones. A thread mostly stays in a run, whose places it
// keeps.
template <class F, typename T>
struct ChannelElements {
  static constexpr int WIDTH = WIDTH_OF<T>;
  const ChannelCall<F>& call;
  int64_t channel, elements, length;
  bool whole;
  int64_t begin = 0, end = 0, first_of[F::TENSORS] = {};  // of the run

  __device__ __forceinline__ void go_to(int64_t e) {
    if (e >= begin && e < end) return;
    const int64_t run = elements >> 32 ? e / length : int64_t(uint32_t(e) / uint32_t(length));
    begin = run * length, end = begin + length;
#pragma unroll
    for (int k = 0; k < F::TENSORS; ++k)
      if (k < F::INPUTS || (k > F::MOMENTS && k <= F::MOMENTS + F::OUTPUTS))
        first_of[k] = channel * call.stride[k][0] + begin_of_run(call, k, run);
  }
  __device__ __forceinline__ int64_t place(int k, int64_t e) const {
    return first_of[k] + (e - begin) * call.stride[k][call.rank - 1];
  }
  // In place of what the channel has not, its last elements.
  template <unsigned INPUTS>
  __device__ __forceinline__ void load(Unit<F, T>& to, int64_t first) {
    if (whole) {
      go_to(first);
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k)
        if (INPUTS >> k & 1)
          keep(to.at[k], *reinterpret_cast<const Vector<T>*>(static_cast<const T*>(call.data[k]) + place(k, first)));
    } else
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        const int64_t at = first + e < elements ? first + e : elements - 1;
        go_to(at);
#pragma unroll
        for (int k = 0; k < F::INPUTS; ++k)
          if (INPUTS >> k & 1) to.at[k][e] = static_cast<const T*>(call.data[k])[place(k, at)];
      }
  }
  template <typename M, int RESULTS>
  __device__ __forceinline__ void store(const M (&out)[WIDTH][RESULTS], int64_t first) {
    const auto to = [&](int k) { return static_cast<T*>(call.data[F::MOMENTS + 1 + k]); };
    if (whole) {
      go_to(first);
#pragma unroll
      for (int k = 0; k < RESULTS; ++k) {
        Vector<T> made;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) store_result(made.at[e], out[e][k]);
        *reinterpret_cast<Vector<T>*>(to(k) + place(F::MOMENTS + 1 + k, first)) = made;
      }
    } else
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        if (first + e >= elements) break;
        go_to(first + e);
#pragma unroll
        for (int k = 0; k < RESULTS; ++k) store_result(to(k)[place(F::MOMENTS + 1 + k, first + e)], out[e][k]);
      }
  }
};

// The sums of a thread.
template <class PHASE, class F, typename T, bool MOMENTS>
struct ThreadSums {
  double total[PHASE::RESULTS];
  __device__ __forceinline__ ThreadSums() {
    PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::IDENTITY; });
  }
  template <typename N>
  __device__ __forceinline__ void join(const N (&out)[PHASE::RESULTS]) {
    PHASE::each([&](int k, auto fold) { total[k] = decltype(fold)::join(total[k], as_double(out[k])); });
  }
  __device__ __forceinline__ void write(double* to, int64_t) const {
#pragma unroll
    for (int k = 0; k < PHASE::RESULTS; ++k) to[k] = total[k];
  }
};
// The same of moments: sums of differences to the first element, which differs from the mean by about a deviation.
template <class PHASE, class F, typename T>
struct ThreadSums<PHASE, F, T, true> {
  double shift = 0, sum = 0, squares = 0;
  bool begun = false;
  template <typename N>
  __device__ __forceinline__ void join(const N (&out)[PHASE::RESULTS]) {
    const double value = as_double(out[0]);
    if (!begun) shift = value, begun = true;
    const double d = value - shift;
    sum += d, squares += d * d;
  }
  // Writes the number, the mean and the sum of squared differences of n elements.
  __device__ __forceinline__ void write(double* to, int64_t n) const {
    const double mean = n > 0 ? sum / double(n) : 0;
    to[0] = double(n), to[1] = shift + mean, to[2] = squares - sum * mean;
  }
};

}  // namespace
}  // namespace fusegen
