#pragma once
// The distribution of the elements of dense tensors over threads.
#include <algorithm>
#include <type_traits>
#include "basics.h"
#include "call.h"

namespace fusegen {
namespace {

// A row: on a chip from this one on, for tensors up to so many KiB, a block has so many threads, and a thread so many
// 16-byte vectors of each tensor. fusegen/launch.toml says where the numbers come from.
struct Launch {
  int chip;
  int64_t kib;
  int threads, vectors;
};
// A row that may have a block prefetch into L2 what the block so many further on will read.
struct PrefetchLaunch {
  int chip;
  int64_t kib;
  int threads, vectors, prefetch_blocks = 0;
};
constexpr int64_t ANY = INT64_MAX;
constexpr int MOST_THREADS = 256;  // of a block

// The rows of a kernel for elements of a type; and whether a thread has so many vectors in any of them.
template <class F, typename T>
constexpr auto launches() {
  if constexpr (sizeof(T) == 2) return &F::BITS16[0];
  else if constexpr (sizeof(T) == 4) return &F::BITS32[0];
  else return &F::BITS64[0];
}
// The rows of a kernel for tensors that are not all dense in one layout.
template <class F, typename T>
constexpr const Launch* broadcast_launches() {
  if constexpr (sizeof(T) == 2) return F::BROADCAST16;
  else if constexpr (sizeof(T) == 4) return F::BROADCAST32;
  else return F::BROADCAST64;
}
template <class F, typename T>
constexpr bool PREFETCHES = std::is_same_v<decltype(launches<F, T>()), const PrefetchLaunch*>;
template <class Row>
constexpr bool any_has(const Row* row, int vectors) {
  return row->threads && (row->vectors == vectors || any_has(row + 1, vectors));
}

// The row for tensors of so many bytes on a chip: as on the next older chip where it has none.
template <class Row>
Row select_config(const Row* row, int chip, int64_t bytes) {
  const Row* found = row;
  for (const Row* next = row + 1; next->threads && next->chip <= std::max(chip, row->chip); ++next)
    if (next->chip > found->chip || found->kib < bytes >> 10) found = next;
  return *found;
}

int chip_of(int device) {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return 10 * major + minor;
}

// Makes a device the current one for a while.
struct OnDevice {
  explicit OnDevice(int device) : before(device), error(cudaGetDevice(&before)), moved(before != device) {
    if (moved) error = cudaSetDevice(device);
  }
  ~OnDevice() {
    if (moved) cudaSetDevice(before);
  }
  int before;
  cudaError_t error;
  bool moved;
};

// True if the elements of every tensor come in whole vectors, side by side.
template <typename T, int N>
bool in_vectors(const Tensors<N>& call) {
  constexpr int64_t WIDTH = 16 / sizeof(T);
  const int inner = call.rank - 1;
  bool whole = call.aligned && (call.dense || call.size[inner] % WIDTH == 0);
  for (const auto& stride : call.stride) {
    if (stride[inner] == 0) continue;
    whole = whole && stride[inner] == 1;
    for (int d = 0; d < inner; ++d) whole = whole && stride[d] % WIDTH == 0;
  }
  return whole;
}

// Cuts a call in two through dimension d: the first indices of it, and the others in `rest`.
template <typename T, class C>
C cut(const C& call, C& rest, int d, int64_t first) {
  C part = call;
  part.size[d] = first;
  part.numel = call.numel / call.size[d] * first;
  rest = call;
  for (size_t k = 0; k < sizeof(call.data) / sizeof(call.data[0]); ++k) {
    rest.data[k] = static_cast<T*>(call.data[k]) + first * call.stride[k][d];
    rest.aligned = rest.aligned && reinterpret_cast<uintptr_t>(rest.data[k]) % 16 == 0;
  }
  rest.size[d] = call.size[d] - first;
  rest.numel = call.numel - part.numel;
  return part;
}

// Cuts a call in two through its longest dimension.
template <typename T, class C>
C first_half(const C& call, C& rest) {
  const int d = int(std::max_element(call.size, call.size + call.rank) - call.size);
  return cut<T>(call, rest, d, call.size[d] / 2);
}

}  // namespace
}  // namespace fusegen
