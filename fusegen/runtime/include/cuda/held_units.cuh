#pragma once
// The memory of a team, and of a row in shared memory. A thread has every so-manieth vector of the row, or its warp
// has a run of them, which ends where the next warp's begins and is cut where a channel ends.
#include "cuda/row_elements.cuh"
#include "cuda/row_joins.cuh"
#include "cuda/undecided_units.cuh"

namespace fusegen {
namespace {

// The vectors of a row that a warp has: from `begin` on to `end`. The first one of its block, and those of a channel.
struct Run {
  int begin, end, of_block, share;
};
// Where the run of a warp begins in a row of so many vectors that is cut into `warps` runs: runs have whole rounds of a
// warp's lanes, but for the last one.
HOST_DEVICE int begin_of_warp(int vectors, int warp, int warps) {
  const int begin = (vectors + WARP - 1) / WARP * warp / warps * WARP;
  return begin < vectors ? begin : vectors;
}

// The memory of a team: in global memory, the values of rows that it leaves; in shared memory, what is held of a row,
// so many units of each input and thread, or in runs so many of each input.
template <class F, typename T, class SHAPE>
struct TeamMemory {
  static constexpr bool IN_RUNS = SHAPE::kept == Kept::RUNS;
  static constexpr unsigned HELD = IN_RUNS || SHAPE::kept == Kept::SHARED ? HELD_OF<F> : 0;
  static constexpr int WIDTH = WIDTH_OF<T>;

  // Copies the thread's units of what phases share to shared memory.
  template <class ROW, class PLACES>
  __device__ __forceinline__ void hold(const ROW& row, const PLACES& places) const {
    const int lane = int(threadIdx.x) % WARP;
    for (int k = 0, slot = 0; k < F::INPUTS; ++k) {
      if (!(HELD >> k & 1)) continue;
      if constexpr (IN_RUNS)
        for (int u = run.begin + lane; u < run.end; u += WARP) copy_to_shared(place(slot, u), row.data[k] + u * WIDTH);
      else
        for (int u = 0; u < held_units && places.has(u, 0); ++u)
          copy_to_shared(place(slot, u), row.data[k] + places.first(u));
      ++slot;
    }
    wait_for_copies();
    if constexpr (IN_RUNS) __syncwarp();  // lanes read what others have copied
  }
  __device__ __forceinline__ Vector<T>* place(int slot, int u) const {
    if constexpr (IN_RUNS) return held + slot * held_units + (u - run.of_block);
    else return held + (slot * held_units + u) * SHAPE::threads + threadIdx.x;
  }
  template <unsigned INPUTS>
  __device__ __forceinline__ void take(Unit<F, T>& to, int u) const {
    int slot = 0;
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k) {
      if (!(HELD >> k & 1)) continue;
      if (INPUTS >> k & 1) {
        const Vector<T> v = *place(slot, u);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to.at[k][e] = v.at[e];
      }
      ++slot;
    }
  }
  // Calls a function with each unit of the thread in its warp's run, of which it loads INPUTS: those by channel once a
  // channel. ENDS is called by the whole warp behind a channel's part of the run.
  template <unsigned INPUTS, class ROW, class PLACES, class FUNCTION, class ENDS>
  __device__ __forceinline__ void each_of_run(const ROW& row, const PLACES& places, const FUNCTION& function,
                                              const ENDS& ends) const {
    constexpr unsigned BY_CHANNEL = F::BY_CHANNEL ? INPUTS & F::OF_FEATURES : 0;
    int channel = run.begin / run.share;
    for (int begin = run.begin; begin < run.end; ++channel) {
      const int next = (channel + 1) * run.share, end = next < run.end ? next : run.end;
      Unit<F, T> of_channel;
#pragma unroll
      for (int k = 0; k < F::INPUTS; ++k)
        if (BY_CHANNEL >> k & 1)
#pragma unroll
          for (int e = 0; e < WIDTH; ++e) of_channel.at[k][e] = row.data[k][channel];
#pragma unroll 2
      for (int u = begin + int(threadIdx.x) % WARP; u < end; u += WARP) {
        Unit<F, T> unit = of_channel;
        row.template load<INPUTS & ~BY_CHANNEL & ~HELD>(unit, places, u);
        take<INPUTS>(unit, u);
        function(unit, u);
      }
      ends(channel);
      begin = end;
    }
  }

  typename F::Values* values;
  Vector<T>* held;
  int held_units;
  Run run;
  SavedMemory<F> saved;
};

}  // namespace
}  // namespace fusegen
