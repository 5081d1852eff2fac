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
inline thread_local std::deque<std::vector<Copy>> on_their_way;
inline thread_local std::vector<Copy> uncommitted;

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  const auto all = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
  if ((bytes != 4 && bytes != 8 && bytes != 16) || all % bytes) __builtin_trap();  // as the chip has it
  uncommitted.push_back({to, from, bytes - zeros, zeros});
}
inline void __pipeline_commit() { on_their_way.push_back(std::exchange(uncommitted, {})); }
inline void __pipeline_wait_prior(size_t but) {
  for (; on_their_way.size() > but; on_their_way.pop_front())
    for (const Copy& copy : on_their_way.front()) {
      std::memcpy(copy.to, copy.from, copy.bytes);
      std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
    }
}
