#pragma once
// A copy between NCHW and channels_last: each image, a matrix of channels and pixels, is transposed by tiles in shared
// memory, so that 16-byte vectors are read along its rows and written along its columns. Floats may be rounded to TF32.
#include "cuda/access.cuh"
#include "cuda/launch.cuh"

namespace fusegen {
namespace {

constexpr int TILE = 64, TILE_THREADS = 256;  // elements on a side; threads that copy one

// Of shared memory: the elements of a word, which are of neighbouring rows, and the words of a column of a tile, so
// many that those of a row lie in several banks.
template <typename T>
constexpr int IN_WORD = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
template <typename T>
constexpr int PITCH = TILE / IN_WORD<T> + 1;
template <typename T>
using Word = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <typename T>
struct Neighbours {
  T at[IN_WORD<T>];
};

// One of the two tensors: matrices whose rows, or columns, are without gaps.
struct Matrices {
  int64_t step;    // elements to the next matrix
  uint32_t pitch;  // and to its next row or column
  int bytes;       // 16 or 8 where all of these begin at a multiple, else 0
};

// A transposition: matrices of so many rows and columns, and the tiles along each.
struct Transposition {
  int64_t rows, columns;
  Divisor tiles_down, tiles_across;
  Matrices from, to;
};

// An element as it is, or a float as TF32 has it: with the nearest 10 bits behind the first, a tie away from 0, as
// cvt.rna.tf32.f32 rounds it.
struct AsItIs {
  template <typename T>
  static __device__ __forceinline__ T of(T v) {
    return v;
  }
};
struct ToTf32 {
  static __device__ __forceinline__ uint32_t of(uint32_t v) {
    constexpr uint32_t EXPONENT = 0x7f800000, LOWEST = 1 << 13;
    return (v & EXPONENT) == EXPONENT ? v : (v + LOWEST / 2) & ~(LOWEST - 1);
  }
};

// Reads a vector, of which `left` elements are there.
template <typename T>
__device__ __forceinline__ Vector<T> read_vector(const T* from, int bytes, int64_t left) {
  constexpr int WIDTH = 16 / sizeof(T);
  if (left >= WIDTH && bytes == 16) return vector(from, true);
  Vector<T> v{};
  if (left >= WIDTH && bytes == 8) {
    const uint64_t* const two = reinterpret_cast<const uint64_t*>(from);
    const Vector<uint64_t> halves = {two[0], two[1]};
    return bit_cast<Vector<T>>(halves);
  }
#pragma unroll
  for (int e = 0; e < WIDTH; ++e)
    if (e < left) v.at[e] = from[e];
  return v;
}
template <typename T>
__device__ __forceinline__ void write_vector(T* to, const Vector<T>& v, int bytes, int64_t left) {
  constexpr int WIDTH = 16 / sizeof(T);
  if (left >= WIDTH && bytes == 16) {
    *reinterpret_cast<Vector<T>*>(to) = v;
  } else if (left >= WIDTH && bytes == 8) {
    const auto halves = bit_cast<Vector<uint64_t>>(v);
    uint64_t* const two = reinterpret_cast<uint64_t*>(to);
    two[0] = halves.at[0], two[1] = halves.at[1];
  } else {
#pragma unroll
    for (int e = 0; e < WIDTH; ++e)
      if (e < left) to[e] = v.at[e];
  }
}

template <typename T, class COPIED>
__global__ void __launch_bounds__(TILE_THREADS)
    transpose(const T* from, T* to, const __grid_constant__ Transposition of) {
  constexpr int WIDTH = 16 / sizeof(T), VECTORS = TILE / WIDTH, IN = IN_WORD<T>;
  extern __shared__ double room[];
  Word<T>* const tile = reinterpret_cast<Word<T>*>(room);
  const uint32_t strip = quotient(blockIdx.x, of.tiles_down), matrix = quotient(strip, of.tiles_across);
  const int64_t row = int64_t(blockIdx.x - strip * of.tiles_down.size) * TILE;
  const int64_t column = int64_t(strip - matrix * of.tiles_across.size) * TILE;
  const T* const source = from + matrix * of.from.step + row * of.from.pitch + column;
  T* const target = to + matrix * of.to.step + column * of.to.pitch + row;
  const int rows = of.rows - row < TILE ? int(of.rows - row) : TILE;
  const int columns = of.columns - column < TILE ? int(of.columns - column) : TILE;
#pragma unroll
  for (int i = int(threadIdx.x); i < TILE / IN * VECTORS; i += TILE_THREADS) {
    const int r = i / VECTORS * IN, c = i % VECTORS * WIDTH;
    Vector<T> v[IN];
#pragma unroll
    for (int k = 0; k < IN; ++k)
      v[k] = read_vector(source + uint64_t(r + k) * of.from.pitch + c, of.from.bytes, r + k < rows ? columns - c : 0);
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      Neighbours<T> word;
#pragma unroll
      for (int k = 0; k < IN; ++k) word.at[k] = COPIED::of(v[k].at[e]);
      tile[(c + e) * PITCH<T> + r / IN] = bit_cast<Word<T>>(word);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = int(threadIdx.x); i < TILE * VECTORS; i += TILE_THREADS) {
    const int c = i / VECTORS, r = i % VECTORS * WIDTH;
    if (c >= columns) continue;
    Vector<Word<T>> v;
#pragma unroll
    for (int w = 0; w < WIDTH / IN; ++w) v.at[w] = tile[c * PITCH<T> + r / IN + w];
    write_vector(target + uint64_t(c) * of.to.pitch + r, bit_cast<Vector<T>>(v), of.to.bytes, rows - r);
  }
}

// One of the tensors of a call, whose rows or columns lie so far apart.
template <typename T>
Matrices matrices(const Call<2, 1>& call, int k, int64_t pitch) {
  const int64_t step = call.rank == 3 ? call.stride[k][0] : 0;
  const int64_t all = (step | pitch) * int64_t(sizeof(T)) | int64_t(reinterpret_cast<uintptr_t>(call.data[k]));
  return {step, uint32_t(pitch), all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : 0};
}

// A single row where pixels, or channels, are one, and so no dimension of their own.
template <typename T, class COPIED = AsItIs>
cudaError_t launch_transpose(const Call<2, 1>& call) {
  const int rank = call.rank, down = rank - 1, across = rank > 1 ? rank - 2 : 0;
  if (rank > 3 || call.stride[0][across] != 1 || call.stride[1][down] != 1) return cudaErrorInvalidValue;
  const int64_t rows = rank > 1 ? call.size[down] : 1, columns = call.size[across];
  const int64_t pitch = rank > 1 ? call.stride[0][down] : columns, to_pitch = call.stride[1][across];
  if (pitch > UINT32_MAX || to_pitch > UINT32_MAX) return cudaErrorInvalidValue;
  const int64_t tiles_down = (rows + TILE - 1) / TILE, tiles_across = (columns + TILE - 1) / TILE;
  const int64_t blocks = (rank == 3 ? call.size[0] : 1) * tiles_down * tiles_across;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  const Transposition of = {rows, columns, divisor(tiles_down), divisor(tiles_across), matrices<T>(call, 0, pitch),
                            matrices<T>(call, 1, to_pitch)};
  const size_t bytes = TILE * PITCH<T> * sizeof(Word<T>);
  const auto on = static_cast<cudaStream_t>(call.stream);
  const auto kernel = transpose<T, COPIED>;
  T* const to = static_cast<T*>(call.data[1]);
  kernel<<<unsigned(blocks), TILE_THREADS, bytes, on>>>(static_cast<const T*>(call.data[0]), to, of);
  return cudaGetLastError();
}

// Copies the first tensor of a call into the second, floats to TF32 if the scalar is not 0; returns what went wrong, or
// nothing.
[[maybe_unused]] const char* run_transposed(const Call<2, 1>& call) {
  const OnDevice here(call.device);
  const bool rounds = call.dtype == FLOAT32 && call.param[0] != 0;
  cudaError_t error = here.error;
  if (error == cudaSuccess)
    error = rounds                    ? launch_transpose<uint32_t, ToTf32>(call)
            : call.dtype == FLOAT64   ? launch_transpose<uint64_t>(call)
            : call.dtype == FLOAT32   ? launch_transpose<uint32_t>(call)
                                      : launch_transpose<uint16_t>(call);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace
}  // namespace fusegen

// The function that the binding calls.
#define FUSEGEN_TRANSPOSED(NAME)                                                   \
  extern "C" const char* NAME##_transposed_launch(const fusegen::Call<2, 1>& call) { \
    return fusegen::run_transposed(call);                                          \
  }
