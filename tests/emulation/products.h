// Products of matrices by warpgroups, from a left factor in registers and a right one in swizzled shared memory; the
// copy engine, which copies at once, and its barriers; what the threads of a warp tell one another. On the CPU.

#pragma once

#include <algorithm>

#include "cuda.h"
#include "cuda_fp16.h"
#include "cuda_pipeline_primitives.h"
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
inline void atomicAdd(int* to, int by) { *to += by; }

inline ShownInWarp<float> sums_of_lanes;
inline ShownInWarp<int64_t> numbers_of_lanes;
inline float __shfl_xor_sync(unsigned, float own, int lanes) { return sums_of_lanes.show(own)[lane_of_warp() ^ lanes]; }
inline int64_t __shfl_sync(unsigned, int64_t own, int lane) { return numbers_of_lanes.show(own)[lane]; }
inline unsigned __ballot_sync(unsigned, int holds) {
  const auto& shown = votes.show(holds);
  unsigned all = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (shown[lane]) all |= 1u << lane;
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
inline void change_phases(const void* of, int arrivals, int bytes) {
  Phases& at = phases[place_in_shared(of)];
  at.arrived += arrivals, at.bytes += bytes;
  at.end_if_all();
}
inline void start_phases(const void* of, int arrivals) { phases[place_in_shared(of)] = {arrivals}; }
inline void arrive_with(const void* of, int bytes) { change_phases(of, 1, bytes); }
inline void wait_for_phase(const void* of, uint32_t parity) {
  const Phases& at = phases[place_in_shared(of)];
  wait_until([&] { return at.phase % 2 != parity; });
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
  change_phases(barrier, 0, -of.box_rows * 128);
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
struct LeftTerms {
  uint32_t at[4];
};
inline ShownInWarp<LeftTerms> left_terms;
template <int TERMS, bool ONTO_ZERO, class Sums, class Left>
void multiply_terms(Sums& sums, const Left& left, uint32_t right) {
  LeftTerms own;
  static_assert(sizeof own == sizeof left.at);
  std::memcpy(own.at, left.at, sizeof left.at);
  const auto& shown = left_terms.show(own);
  const int lane = lane_of_warp();
  for (int k = 0; k < Sums::COUNT; ++k) {
    double all = ONTO_ZERO ? 0.0 : double(sums.at[k]);
    for (int term = 0; term < TERMS; ++term) {
      const int holder = lane / 4 * 4 + (TERMS == 8 ? term % 4 : term % 8 / 2);
      all += read_term<TERMS>(shown[holder].at, term, k / 2 % 2) *
             read_right<TERMS>(right, k / 4 * 8 + lane % 4 * 2 + k % 2, term);
    }
    sums.at[k] = float(all);
  }
  __syncwarp();  // no lane goes on while another one reads
}

// The same of one warp, whose lanes have the right terms of eight columns each, too.
template <class Right>
struct TermsOfLane {
  LeftTerms left;
  Right right;
};
template <class Right>
inline ShownInWarp<TermsOfLane<Right>> terms_of_lanes;
template <int TERMS, class Sums, class Left, class Right, int GROUPS>
void multiply_in_warp(Sums& sums, const Left& left, const Right (&right)[GROUPS]) {
  const int lane = lane_of_warp();
  for (int group = 0; group < GROUPS; ++group) {
    TermsOfLane<Right> own;
    std::memcpy(&own.left, left.at, sizeof left.at), own.right = right[group];
    const auto& shown = terms_of_lanes<Right>.show(own);
    for (int k = 0; k < 4; ++k) {
      double all = double(sums.at[group * 4 + k]);
      for (int term = 0; term < TERMS; ++term) {
        const int holder = TERMS == 8 ? term % 4 : term % 8 / 2, column = lane % 4 * 2 + k % 2;
        const uint32_t bits = shown[column * 4 + holder].right.at[TERMS == 8 ? term / 4 : term / 8];
        const double other =
            TERMS == 8 ? read_tf32(bits) : double(__half2float({uint16_t(bits >> term % 2 * 16)}));
        all += read_term<TERMS>(shown[lane / 4 * 4 + holder].left.at, term, k / 2) * other;
      }
      sums.at[group * 4 + k] = float(all);
    }
  }
}

inline ShownInWarp<const void*> rows_of_lanes;
inline uint4 loaded_matrices(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16) __builtin_trap();
  const auto& rows = rows_of_lanes.show(row);
  unsigned words[4];
  for (int matrix = 0; matrix < 4; ++matrix)
    std::memcpy(&words[matrix],
                static_cast<const char*>(rows[matrix * 8 + lane_of_warp() / 4]) + lane_of_warp() % 4 * 4, 4);
  return make_uint4(words[0], words[1], words[2], words[3]);
}
