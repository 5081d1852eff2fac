#pragma once
// Sums over the threads of a team.
#include "call.h"

namespace fusegen {
namespace {

constexpr int SUM_THREADS = 128, MOST_ADDING = 512;  // threads of a block, of the first stage and of the second

// The sum of a value of each thread of a team, whose threads are neighbours and as many as a power of two; its first
// thread has it.
__device__ __forceinline__ double add_up(double value, double* room, int team) {
  const int thread = int(threadIdx.x), lane = thread & (team - 1);
  room[thread] = value;
  __syncthreads();
  for (int half = team / 2; half > 0; half /= 2) {
    if (lane < half) room[thread] += room[thread + half];
    __syncthreads();
  }
  const double sum = room[thread];
  __syncthreads();
  return sum;
}

}  // namespace
}  // namespace fusegen
