#pragma once
// The plan of a sweep: the distribution of a call's vectors over threads that walk along one dimension. In rows
// the walk is along the innermost dimension, along which an operand stands still, as a channel's bias does in NCHW. In
// columns it is along another one, and a thread stays at its elements of the innermost, as in channels_last.
#include <algorithm>
#include "cuda/access.cuh"
#include "cuda/launch.cuh"

namespace fusegen {
namespace {

// A part of a walk, for some columns, is a job, which has a team of threads for each of its columns.
template <int N>
struct Sweep {
  unsigned vectors, constants;  // the tensors that are reached by vectors, and those by one element, a bit each
  unsigned sums, stores;        // the outputs that are added up, and those that are written
  bool in_columns, flat;        // flat: rows begin within a vector
  int others;                   // dimensions outside of the walk, the first ones of the call
  int team, team_bits, each;    // threads of a walk, in rows a power of two; jobs of a block
  int columns;                  // vectors of the innermost dimension that a job has; in rows 1
  uint32_t width, chunks;       // vectors of the innermost dimension, and how many times `columns` they take
  uint32_t part, parts;         // vectors of a part; parts of a walk
  int64_t length, jobs;         // vectors of a walk at most; jobs of the call
  int64_t step[N], jump[N];     // elements from a place of the walk to the next one, and to a thread's next one
  int64_t part_step[N], column_step[N];  // to the next part, and to the next vector of the innermost dimension
  Divisor by[MOST_DIMS - 1], by_parts, by_chunks, by_columns;
  void* partial[N];
};

// The threads of a block of a sweep, and how many vectors of each tensor a thread computes at most, and, while there
// are fewer jobs than `jobs`, at least.
struct Shares {
  int threads;
  int64_t most, least, jobs;
};

// The least power of two from n on, up to a number of threads.
int team_of(int64_t n, int threads) {
  int team = 1;
  while (team < n && 2 * team <= threads) team *= 2;
  return team;
}

int64_t quotient_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Cuts the walks into parts.
template <typename T, int N>
void share_out(const Tensors<N>& call, const Shares& shares, Sweep<N>& sweep) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  const int inner = call.rank - 1;
  int64_t others = 1;
  for (int d = 0; d < sweep.others; ++d) others *= call.size[d];
  const int64_t walks = std::max<int64_t>(1, others * sweep.chunks);
  const int64_t fewest = quotient_up(sweep.length, sweep.team * shares.most);
  const int64_t most = quotient_up(sweep.length, sweep.team * shares.least);
  const int64_t parts = std::max<int64_t>({1, fewest, std::min(most, quotient_up(shares.jobs, walks))});
  sweep.parts = uint32_t(parts), sweep.part = uint32_t(quotient_up(sweep.length, parts));
  sweep.jobs = others * sweep.chunks * parts;
  for (int k = 0; k < N; ++k) {
    sweep.column_step[k] = sweep.in_columns ? WIDTH * call.stride[k][inner] : 0;
    sweep.step[k] = sweep.in_columns ? call.stride[k][inner - 1] : WIDTH * call.stride[k][inner];
    sweep.jump[k] = sweep.team * sweep.step[k];
    sweep.part_step[k] = sweep.part * sweep.step[k];
  }
  for (int d = 0; d < std::min(sweep.others, MOST_DIMS - 1); ++d)
    sweep.by[d] = divisor(std::max<int64_t>(1, call.size[d]));
  sweep.by_parts = divisor(parts), sweep.by_chunks = divisor(sweep.chunks), sweep.by_columns = divisor(sweep.columns);
}

// The plan of a sweep in rows.
template <typename T, int N>
Sweep<N> plan_rows(const Tensors<N>& call, const Shares& shares) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  Sweep<N> sweep{};
  const int64_t size = call.size[call.rank - 1];
  for (int k = 0; k < N; ++k) {
    const Access access = access_of<T>(call, k);
    sweep.flat = sweep.flat || (access == Access::FLAT && size % WIDTH != 0);
    sweep.vectors |= unsigned(access == Access::FLAT || access == Access::VECTOR) << k;
    sweep.constants |= unsigned(access == Access::CONSTANT) << k;
  }
  sweep.others = call.rank - 1;
  sweep.length = quotient_up(size + (sweep.flat ? WIDTH - 1 : 0), WIDTH);
  sweep.team = team_of(sweep.length, shares.threads);
  while (1 << sweep.team_bits < sweep.team) ++sweep.team_bits;
  sweep.each = shares.threads / sweep.team;
  sweep.columns = 1, sweep.width = sweep.chunks = 1;
  share_out<T>(call, shares, sweep);
  return sweep;
}

// True if tensor k is reached by vectors in columns.
template <typename T, int N>
bool by_vectors_in_columns(const Tensors<N>& call, int k) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  const int inner = call.rank - 1;
  bool vectors = reinterpret_cast<uintptr_t>(call.data[k]) % 16 == 0 && call.stride[k][inner] == 1;
  for (int d = 0; d < inner; ++d) vectors = vectors && (call.size[d] == 1 || call.stride[k][d] % WIDTH == 0);
  return vectors;
}

// The plan of a sweep in columns, along the last dimension but one.
template <typename T, int N>
Sweep<N> plan_columns(const Tensors<N>& call, const Shares& shares) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  Sweep<N> sweep{};
  sweep.in_columns = true;
  for (int k = 0; k < N; ++k) {
    sweep.vectors |= unsigned(by_vectors_in_columns<T>(call, k)) << k;
    sweep.constants |= unsigned(call.stride[k][call.rank - 1] == 0) << k;
  }
  sweep.others = call.rank - 2;
  sweep.length = call.size[call.rank - 2];
  const int64_t width = std::max<int64_t>(1, quotient_up(call.size[call.rank - 1], WIDTH));
  sweep.width = uint32_t(width), sweep.chunks = uint32_t(quotient_up(width, shares.threads));
  sweep.columns = int(quotient_up(width, sweep.chunks));
  sweep.team = int(std::min<int64_t>(shares.threads / sweep.columns, std::max<int64_t>(1, sweep.length)));
  sweep.each = 1;
  share_out<T>(call, shares, sweep);
  return sweep;
}

// The longest dimension but the innermost along which all of some tensors stand still, a bit each, or -1.
template <int N>
int still_for_all(const Tensors<N>& call, unsigned tensors) {
  int found = -1;
  for (int d = 0; d + 1 < call.rank; ++d) {
    bool all = found < 0 || call.size[d] > call.size[found];
    for (int k = 0; k < N; ++k) all = all && ((tensors >> k & 1) == 0 || call.stride[k][d] == 0);
    if (all) found = d;
  }
  return found;
}

// A call whose last dimension but one is another.
template <class C>
C turned(const C& call, int walk) {
  C other = call;
  const int end = call.rank - 1;
  std::rotate(other.size + walk, other.size + walk + 1, other.size + end);
  for (auto& stride : other.stride) std::rotate(stride + walk, stride + walk + 1, stride + end);
  return other;
}

// True if 32 bits hold the offset of every element, of vectors at the end of a row, too.
template <int N>
bool in_32_bits(const Tensors<N>& call) {
  bool all = call.numel <= INT32_MAX;
  for (const auto& stride : call.stride) {
    int64_t last = 1 << 14;  // elements, which the vectors of a thread behind the last row span at most
    for (int d = 0; d < call.rank; ++d) last += (call.size[d] - 1) * stride[d];
    all = all && last <= INT32_MAX;
  }
  return all;
}

// The tensors of a call.
template <class F>
const Tensors<F::INPUTS + F::OUTPUTS>& tensors_of(const CallOf<F>& call) {
  return call;
}

}  // namespace
}  // namespace fusegen
