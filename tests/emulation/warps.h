// Products of matrices whose fragments the 32 threads of a warp hold together, on the CPU.

#pragma once

#include <pthread.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_emulation.h"

struct int2 {
  int x, y;
};
inline int2 make_int2(int x, int y) { return {x, y}; }

// What the tensor cores read of a register.
inline double read_tf32(uint32_t bits) { return double(bits_as<float>(bits & 0xffffe000)); }

// What the threads of a warp show one another, in turns, so that none overwrites what another still reads.
struct Warp {
  uint32_t left[2][4][32][4], right[2][8][32][2], votes[2][32];
  pthread_barrier_t all;
  Warp() { pthread_barrier_init(&all, nullptr, 32); }
};
inline Warp warps[16];
inline thread_local int warp_turn = 0;

template <int LEFT, int RIGHT, class Sum, class Left, class Right>
void multiply_together(Sum (&sum)[LEFT][RIGHT], const Left (&a)[LEFT], const Right (&b)[RIGHT]) {
  Warp& warp = warps[threadIdx.x / 32];
  const int lane = int(threadIdx.x % 32), turn = warp_turn ^= 1;
  for (int i = 0; i < LEFT; ++i) std::memcpy(warp.left[turn][i][lane], a[i].at, sizeof a[i].at);
  for (int j = 0; j < RIGHT; ++j) std::memcpy(warp.right[turn][j][lane], b[j].at, sizeof b[j].at);
  pthread_barrier_wait(&warp.all);
  for (int i = 0; i < LEFT; ++i)
    for (int j = 0; j < RIGHT; ++j)
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2, row = lane / 4, column = lane % 4 * 2 + e % 2;
        double all = 0;
        for (int k = 0; k < 8; ++k)
          all += read_tf32(warp.left[turn][i][row * 4 + k % 4][half + k / 4 * 2]) *
                 read_tf32(warp.right[turn][j][column * 4 + k % 4][k / 4]);
        sum[i][j].at[e] = float(double(sum[i][j].at[e]) + all);
      }
}

inline void __syncwarp() { pthread_barrier_wait(&warps[threadIdx.x / 32].all); }

// Whether a condition holds in any thread of a warp.
inline int __any_sync(unsigned, int holds) {
  Warp& warp = warps[threadIdx.x / 32];
  const int turn = warp_turn ^= 1;
  warp.votes[turn][threadIdx.x % 32] = holds != 0;
  pthread_barrier_wait(&warp.all);
  for (const uint32_t vote : warp.votes[turn])
    if (vote) return 1;
  return 0;
}
