// Copies into shared memory that arrive when a thread waits for them, and not before.

#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <vector>

#include "cuda_emulation.h"

struct Copy {
  void* to;
  const void* from;
  size_t bytes, zeros;
};
struct Copies {
  std::deque<std::vector<Copy>> on_their_way;
  std::vector<Copy> uncommitted;
  int64_t block = 0;
};
inline Copies all_copies[MOST_THREADS];
inline Copies& copies_of_thread() {
  Copies& own = all_copies[threadIdx.x];
  if (own.block != blocks_begun) own = {{}, {}, blocks_begun};
  return own;
}

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  const auto all = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
  if ((bytes != 4 && bytes != 8 && bytes != 16) || all % bytes) __builtin_trap();  // as the chip has it
  copies_of_thread().uncommitted.push_back({to, from, bytes - zeros, zeros});
}
inline void __pipeline_commit() {
  Copies& own = copies_of_thread();
  own.on_their_way.push_back(std::exchange(own.uncommitted, {}));
}
inline void __pipeline_wait_prior(size_t but) {
  auto& copies = copies_of_thread().on_their_way;
  for (; copies.size() > but; copies.pop_front())
    for (const Copy& copy : copies.front()) {
      std::memcpy(copy.to, copy.from, copy.bytes);
      std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
    }
}
