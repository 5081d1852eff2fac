// Products of matrices by warpgroups, from a left factor in registers and a right one in swizzled shared memory; the
// copy engine, which copies at once, and its barriers; what the threads of a warp tell one another. On the CPU.

#pragma once

#include <algorithm>

#include "cuda.h"
#include "cuda_fp16.h"
#include "warpgroups.h"

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
constexpr int cudaEnableDefault = 0;
inline cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** found, int, int,
                                                    cudaDriverEntryPointQueryResult*) {
  *found = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 __half22float2(__half2 of) { return {__half2float(of.x), __half2float(of.y)}; }
inline int __ldg(const int* from) { return *from; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline std::mutex counting;
inline void atomicAdd(int* to, int by) {
  const std::lock_guard<std::mutex> lock(counting);
  *to += by;
}

// Something of each thread of a warp, which all can read.
struct Told {
  uint64_t of[2][32];
};
inline Told told_in_warp[16];
template <class T>
T of_lane(T own, int lane) {
  Warp& warp = warps[threadIdx.x / 32];
  Told& told = told_in_warp[threadIdx.x / 32];
  const int turn = warp_turn ^= 1;
  std::memcpy(&told.of[turn][threadIdx.x % 32], &own, sizeof own);
  pthread_barrier_wait(&warp.all);
  std::memcpy(&own, &told.of[turn][lane], sizeof own);
  return own;
}
inline float __shfl_xor_sync(unsigned, float own, int lanes) { return of_lane(own, int(threadIdx.x % 32) ^ lanes); }
inline int64_t __shfl_sync(unsigned, int64_t own, int lane) { return of_lane(own, lane); }
inline unsigned __ballot_sync(unsigned, int holds) {
  unsigned all = 0;
  const uint64_t own = holds != 0;
  of_lane(own, 0);
  for (int lane = 0; lane < 32; ++lane)
    if (told_in_warp[threadIdx.x / 32].of[warp_turn][lane]) all |= 1u << lane;
  return all;
}

inline uint32_t place_in_shared(const void* of) { return uint32_t(static_cast<const char*>(of) - shared<char>()); }

// A barrier of the copy engine: a phase ends when so many have arrived and all bytes that were announced have come.
struct Phases {
  int arrivals = 0, arrived = 0, bytes = 0;
  uint32_t phase = 0;
  void end_if_all() {
    if (arrived == arrivals && bytes == 0) arrived = 0, ++phase;
  }
};
inline std::map<uint32_t, Phases> phases;
inline std::mutex phases_mutex;
inline std::condition_variable phases_ended;
template <class Change>
void change_phases(uint32_t place, const Change& change) {
  const std::lock_guard<std::mutex> lock(phases_mutex);
  change(phases[place]);
  phases[place].end_if_all();
  phases_ended.notify_all();
}
inline void start_phases(const void* of, int arrivals) {
  const std::lock_guard<std::mutex> lock(phases_mutex);
  phases[place_in_shared(of)] = {arrivals};
}
inline void arrive_with(const void* of, int bytes) {
  change_phases(place_in_shared(of), [&](Phases& at) { ++at.arrived, at.bytes += bytes; });
}
inline void wait_for_phase(const void* of, uint32_t parity) {
  std::unique_lock<std::mutex> lock(phases_mutex);
  const uint32_t place = place_in_shared(of);
  phases_ended.wait(lock, [&] { return phases[place].phase % 2 != parity; });
}

// Bits 4 to 6 of an address in swizzled memory, changed by bits 7 to 9.
inline uint32_t swizzle_128(uint32_t place) { return place ^ ((place >> 7 & 7) << 4); }

inline void copy_box_at_once(void* to, const CUtensorMap& of, const void* barrier, int column, int row) {
  const uint32_t first = place_in_shared(to);
  if (first % 1024) __builtin_trap();  // where the swizzle of a row would be another one
  for (int r = 0; r < of.box_rows; ++r)
    for (int c = 0; c < of.box_columns; ++c) {
      char* const at = shared<char>() + swizzle_128(first + r * 128 + c * of.bytes);
      const bool there = row + r < of.rows && column + c < of.columns;
      if (there) std::memcpy(at, of.data + (row + r) * of.pitch + (column + c) * of.bytes, of.bytes);
      else std::memset(at, 0, of.bytes);
    }
  change_phases(place_in_shared(barrier), [&](Phases& at) { at.bytes -= of.box_rows * 128; });
}

template <int TERMS>
double read_term(const uint32_t (&registers)[4], int term, int row) {
  if (TERMS == 8) return read_tf32(registers[term / 4 * 2 + row]);
  return double(__half2float({uint16_t(registers[term / 8 * 2 + row] >> term % 2 * 16)}));
}
template <int TERMS>
double read_right(uint32_t place, int column, int term) {
  const char* const at = shared<char>() + swizzle_128(place + column * 128 + term * 32 / TERMS);
  if (TERMS == 8) return read_tf32(*reinterpret_cast<const uint32_t*>(at));
  return double(__half2float({*reinterpret_cast<const uint16_t*>(at)}));
}
// The sums of a thread, which four lanes have the left terms of.
template <int TERMS, bool ONTO_ZERO, class Sums, class Left>
void multiply_terms(Sums& sums, const Left& left, uint32_t right) {
  Warp& warp = warps[threadIdx.x / 32];
  const int lane = int(threadIdx.x % 32), turn = warp_turn ^= 1;
  std::memcpy(warp.left[turn][0][lane], left.at, sizeof left.at);
  pthread_barrier_wait(&warp.all);
  for (int k = 0; k < Sums::COUNT; ++k) {
    double all = ONTO_ZERO ? 0.0 : double(sums.at[k]);
    for (int term = 0; term < TERMS; ++term) {
      const int holder = lane / 4 * 4 + (TERMS == 8 ? term % 4 : term % 8 / 2);
      all += read_term<TERMS>(warp.left[turn][0][holder], term, k / 2 % 2) *
             read_right<TERMS>(right, k / 4 * 8 + lane % 4 * 2 + k % 2, term);
    }
    sums.at[k] = float(all);
  }
}
