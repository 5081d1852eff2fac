// Products of matrices whose fragments the 32 threads of a warp hold together, on the CPU.

#pragma once

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

struct Fragments {
  uint32_t left[4][4], right[8][2];
};
inline ShownInWarp<Fragments> fragments_of_warps;

template <int LEFT, int RIGHT, class Sum, class Left, class Right>
void multiply_together(Sum (&sum)[LEFT][RIGHT], const Left (&a)[LEFT], const Right (&b)[RIGHT]) {
  Fragments own = {};
  for (int i = 0; i < LEFT; ++i) std::memcpy(own.left[i], a[i].at, sizeof a[i].at);
  for (int j = 0; j < RIGHT; ++j) std::memcpy(own.right[j], b[j].at, sizeof b[j].at);
  const auto& shown = fragments_of_warps.show(own);
  const int lane = lane_of_warp();
  for (int i = 0; i < LEFT; ++i)
    for (int j = 0; j < RIGHT; ++j)
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2, row = lane / 4, column = lane % 4 * 2 + e % 2;
        double all = 0;
        for (int k = 0; k < 8; ++k)
          all += read_tf32(shown[row * 4 + k % 4].left[i][half + k / 4 * 2]) *
                 read_tf32(shown[column * 4 + k % 4].right[j][k / 4]);
        sum[i][j].at[e] = float(double(sum[i][j].at[e]) + all);
      }
}

// True if a condition holds in any thread of a warp.
inline ShownInWarp<int> votes;
inline int __any_sync(unsigned, int holds) {
  for (const int vote : votes.show(holds))
    if (vote) return 1;
  return 0;
}
