// The threads of a block on the CPU. They take turns: each runs until it waits for others. A turn does not follow their
// numbers, so that one that reads what another has yet to write finds what was there before, whichever of the two has
// the smaller number. Where all wait, the process ends.

#pragma once

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <utility>

struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};
inline dim3 blockIdx, threadIdx, blockDim, gridDim;

struct BlockThread {
  jmp_buf at;
  ucontext_t start;
  bool made, ended;
};
constexpr unsigned MOST_THREADS = 1024, STEP = 167;  // a prime that divides no number of threads
constexpr size_t STACK = 512 << 10;
inline BlockThread block_threads[MOST_THREADS];
inline jmp_buf between_threads;
inline void (*thread_body)(void*);
inline void* thread_argument;
inline bool some_thread_went_on;
inline int64_t blocks_begun = 0;

// Registers are kept by setjmp, which asks nothing of the system; swapcontext does, each time.
__attribute__((noinline)) inline void go_to(jmp_buf& to, jmp_buf& from) {
  if (_setjmp(from) == 0) _longjmp(to, 1);
}

// A thread stays when its block ends, and the next block has it.
inline void run_as_thread() {
  for (;;) {
    thread_body(thread_argument);
    BlockThread& own = block_threads[threadIdx.x];
    own.ended = some_thread_went_on = true;
    go_to(between_threads, own.at);
  }
}

__attribute__((noinline)) inline void start_thread(BlockThread& one) {
  void* const stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(stack, 4096, PROT_NONE);  // where a stack that is too small ends
  getcontext(&one.start);
  one.start.uc_stack.ss_sp = stack, one.start.uc_stack.ss_size = STACK;
  makecontext(&one.start, run_as_thread, 0);
  one.made = true;
  if (_setjmp(between_threads) == 0) setcontext(&one.start);
}

template <class Condition>
void wait_until(const Condition& holds) {
  while (!holds()) go_to(between_threads, block_threads[threadIdx.x].at);
  some_thread_went_on = true;
}

// All threads of a block, which wait for one another.
template <class Body>
void run_block(unsigned threads, Body& body) {
  thread_body = [](void* of) { (*static_cast<Body*>(of))(); };
  thread_argument = &body;
  blocks_begun += 1;
  for (unsigned k = 0; k < threads; ++k) block_threads[k].ended = false;
  unsigned left = threads;
  for (unsigned turn = 0; left > 0; ++turn) {
    some_thread_went_on = turn == 0;
    for (unsigned k = 0; k < threads; ++k) {
      threadIdx.x = (k * STEP + turn) % threads;
      BlockThread& one = block_threads[threadIdx.x];
      if (one.ended) continue;
      if (one.made) go_to(one.at, between_threads);
      else start_thread(one);
      left -= one.ended;
    }
    if (some_thread_went_on) continue;
    fputs("all threads of a block wait for one another\n", stderr);
    abort();
  }
  thread_argument = nullptr;
}

// Where so many threads of a block wait for one another, round after round. Some may have arrived when a block ends.
struct Barrier {
  unsigned arrived = 0;
  int64_t block = 0;
  unsigned round(unsigned threads) {
    if (block != blocks_begun) arrived = 0, block = blocks_begun;
    return arrived / threads;
  }
  unsigned arrive(unsigned threads) {
    const unsigned own = round(threads);
    arrived += 1;
    return own;
  }
  void wait(unsigned threads) {
    const unsigned own = arrive(threads);
    wait_until([&] { return arrived / threads > own; });
  }
};
inline Barrier whole_block;
inline void __syncthreads() { whole_block.wait(blockDim.x); }

// Where the lanes of each warp wait for one another, after each has shown something in the memory of an even or of an
// odd round, so that none overwrites what another still reads.
constexpr unsigned WARP_LANES = 32;
inline Barrier warp_barriers[MOST_THREADS / WARP_LANES];
inline Barrier& own_warp() { return warp_barriers[threadIdx.x / WARP_LANES]; }
inline int lane_of_warp() { return int(threadIdx.x % WARP_LANES); }
inline void __syncwarp() { own_warp().wait(WARP_LANES); }
template <class Shown>
struct ShownInWarp {
  Shown of[MOST_THREADS / WARP_LANES][2][WARP_LANES];
  // What the lanes of the warp show, each its own.
  const Shown (&show(const Shown& own))[WARP_LANES] {
    auto& shown = of[threadIdx.x / WARP_LANES][own_warp().round(WARP_LANES) % 2];
    shown[lane_of_warp()] = own;
    __syncwarp();
    return shown;
  }
};
