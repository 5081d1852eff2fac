#pragma once
// The sweep on a GPU.
#include "judged.h"

namespace {

__device__ void raise(double* at, double v) {
  auto* place = reinterpret_cast<unsigned long long*>(at);
  for (unsigned long long old = *place; __longlong_as_double(old) < v;) {
    const unsigned long long seen = atomicCAS(place, old, __double_as_longlong(v));
    if (seen == old) return;
    old = seen;
  }
}

__global__ void __launch_bounds__(128) sweep_kernel(Task task, SweepTotals* totals) {
  using word = unsigned long long;
  const int64_t begin = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * RUN;
  __shared__ Found all;
  __shared__ uint32_t above[2 * WHO][LEVELS];
  for (int i = threadIdx.x; i < 2 * WHO * LEVELS; i += blockDim.x) above[0][i] = 0;
  if (threadIdx.x == 0) {
    all = Found{};
    all.first_mismatch = ~0ull;
    for (int k = 0; k < 2; ++k) {
      all.lowest[k] = all.lowest_given[k] = all.highest[k] = all.highest_given[k] = -INF;
    }
  }
  __syncthreads();
  if (begin < task.count) {
    const auto open = [&](uint32_t bits) {
      const word at = atomicAdd(reinterpret_cast<word*>(&totals->open), 1ull);
      if (at < task.room) task.open[at] = bits;
    };
    const auto count = [&](int k, int who, int level) { atomicAdd(&above[column(k, who)][level], 1u); };
    const Found found = judged(task, begin, open, count);
    atomicAdd(&all.inputs, found.inputs);
    const auto add = [](uint64_t& to, uint64_t v) { if (v) atomicAdd(reinterpret_cast<word*>(&to), word(v)); };
    const auto max = [](uint64_t& to, uint64_t v) { if (v) atomicMax(reinterpret_cast<word*>(&to), word(v)); };
    for (int k = 0; k < 2; ++k) {
      for (int who = 0; who < WHO; ++who) {
        max(all.worst[k][who], found.worst[k][who]);
        add(all.misrounded[k][who], found.misrounded[k][who]);
        add(all.overflows[k][who], found.overflows[k][who]);
      }
      atomicOr(&all.signs[k], found.signs[k]);
      add(all.bits_differ[k], found.bits_differ[k]);
      add(all.worse_than_eager[k], found.worse_than_eager[k]);
      raise(&all.lowest[k], -found.lowest[k]);
      raise(&all.highest[k], found.highest[k]);
      raise(&all.lowest_given[k], -found.lowest_given[k]);
      raise(&all.highest_given[k], found.highest_given[k]);
    }
    for (int who = 0; who < WHO; ++who) add(all.monotonicity_breaks[who], found.monotonicity_breaks[who]);
    add(all.mismatches, found.mismatches);
    atomicMin(reinterpret_cast<word*>(&all.first_mismatch), word(found.first_mismatch));
    max(all.worst_mismatch, found.worst_mismatch);
  }
  __syncthreads();
  const uint32_t first = task.start + uint32_t(int64_t(blockIdx.x) * blockDim.x * RUN);
  const int cell = int(first >> CELL_BITS);  // a block stays within one
  for (int i = threadIdx.x; i < 2 * WHO * LEVELS; i += blockDim.x) {
    const int of = i / LEVELS, level = i % LEVELS;
    if (above[of][level]) atomicAdd(&above_of(task.cells, of / 2, of % 2, cell)[level], above[of][level]);
  }
  if (threadIdx.x != 0) return;
  atomicAdd(&task.cells.inputs[cell], all.inputs);
  const auto add = [](uint64_t& to, uint64_t v) { if (v) atomicAdd(reinterpret_cast<word*>(&to), word(v)); };
  const auto max = [](uint64_t& to, uint64_t v) { if (v) atomicMax(reinterpret_cast<word*>(&to), word(v)); };
  for (int k = 0; k < 2; ++k) {
    for (int who = 0; who < WHO; ++who) {
      max(*worst_of(task.cells, k, who, cell), all.worst[k][who]);
      add(totals->misrounded[k][who], all.misrounded[k][who]);
      add(totals->overflows[k][who], all.overflows[k][who]);
    }
    atomicOr(&task.cells.signs[k * CELLS + cell], all.signs[k]);
    add(totals->bits_differ[k], all.bits_differ[k]);
    add(totals->worse_than_eager[k], all.worse_than_eager[k]);
    raise(&totals->lowest[k], all.lowest[k]);
    raise(&totals->highest[k], all.highest[k]);
    raise(&totals->lowest_given[k], all.lowest_given[k]);
    raise(&totals->highest_given[k], all.highest_given[k]);
  }
  for (int who = 0; who < WHO; ++who) add(totals->monotonicity_breaks[who], all.monotonicity_breaks[who]);
  add(totals->mismatches, all.mismatches);
  if (all.mismatches) atomicMin(reinterpret_cast<word*>(&totals->first_mismatch), word(all.first_mismatch));
  max(totals->worst_mismatch, all.worst_mismatch);
}

}  // namespace

// Holds the task's values, on the current device, against the formula; says what CUDA reports.
extern "C" int sweep(const Task* task, SweepTotals* totals, void* stream) {
  const int64_t block = 128 * RUN, blocks = (task->count + block - 1) / block;
  if (blocks > 0) sweep_kernel<<<unsigned(blocks), 128, 0, static_cast<cudaStream_t>(stream)>>>(*task, totals);
  return int(cudaGetLastError());
}
