#pragma once
// A copy between NCHW and channels_last: each image, a matrix of channels and pixels, is transposed by tiles in shared
// memory, so that 16-byte vectors are read along its rows and written along its columns.
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

template <typename T>
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
      for (int k = 0; k < IN; ++k) word.at[k] = v[k].at[e];
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
Matrices matrices(const Call<2, 0>& call, int k, int64_t pitch) {
  const int64_t step = call.rank == 3 ? call.stride[k][0] : 0;
  const int64_t all = (step | pitch) * int64_t(sizeof(T)) | int64_t(reinterpret_cast<uintptr_t>(call.data[k]));
  return {step, uint32_t(pitch), all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : 0};
}

template <typename T>
cudaError_t launch_transpose(const Call<2, 0>& call) {
  const int down = call.rank - 1, across = call.rank - 2;
  const bool fits = (call.rank == 2 || call.rank == 3) && call.stride[0][across] == 1 && call.stride[1][down] == 1;
  if (!fits || call.stride[0][down] > UINT32_MAX || call.stride[1][across] > UINT32_MAX) return cudaErrorInvalidValue;
  const int64_t rows = call.size[down], columns = call.size[across];
  const int64_t tiles_down = (rows + TILE - 1) / TILE, tiles_across = (columns + TILE - 1) / TILE;
  const int64_t blocks = (call.rank == 3 ? call.size[0] : 1) * tiles_down * tiles_across;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  const Transposition of = {rows, columns, divisor(tiles_down), divisor(tiles_across),
                            matrices<T>(call, 0, call.stride[0][down]), matrices<T>(call, 1, call.stride[1][across])};
  const size_t bytes = TILE * PITCH<T> * sizeof(Word<T>);
  const auto on = static_cast<cudaStream_t>(call.stream);
  const auto kernel = transpose<T>;
  T* const to = static_cast<T*>(call.data[1]);
  kernel<<<unsigned(blocks), TILE_THREADS, bytes, on>>>(static_cast<const T*>(call.data[0]), to, of);
  return cudaGetLastError();
}

// Copies the first tensor of a call into the second; returns what went wrong, or nothing.
[[maybe_unused]] const char* run_transposed(const Call<2, 0>& call) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  if (error == cudaSuccess)
    error = call.dtype == FLOAT64   ? launch_transpose<uint64_t>(call)
            : call.dtype == FLOAT32 ? launch_transpose<uint32_t>(call)
                                    : launch_transpose<uint16_t>(call);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace
}  // namespace fusegen

// The function that the binding calls, in the library of the forward kernel.
#ifdef WITHOUT_FORWARD
#define FUSEGEN_TRANSPOSED(NAME)
#else
#define FUSEGEN_TRANSPOSED(NAME)                                                   \
  extern "C" const char* NAME##_transposed_launch(const fusegen::Call<2, 0>& call) { \
    return fusegen::run_transposed(call);                                          \
  }
#endif
