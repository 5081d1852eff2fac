#pragma once
// Sums over the rows, of outputs that have one row for all: parts of blocks are added in an order that the number of
// rows decides.
#include "cuda/held_rows.cuh"

namespace fusegen {
namespace {

constexpr int SUMMING_THREADS = 132 << 10;  // of the blocks that sum over the rows, on any GPU
constexpr int64_t MOST_SUMS = 160 << 10;    // bytes of a block's sums

constexpr int64_t summing_blocks(int threads) { return SUMMING_THREADS / threads; }

// Adds the parts of the sums over the rows, in order: each column by walkers, whose sums are added in pairs. Many loads
// of a walker are in flight, since few blocks have the columns of a weight.
constexpr int COLUMNS = 16, WALKERS = 32;
template <class F, typename T>
struct SumsTo {
  T* data[SUMS_OF<F>];
  int64_t step[SUMS_OF<F>];
};
template <class F, typename T>
__global__ void __launch_bounds__(COLUMNS* WALKERS)
    add_parts(const double* partial, int64_t parts, int64_t n, const __grid_constant__ SumsTo<F, T> to) {
  __shared__ double room[WALKERS][COLUMNS];
  const int lane = int(threadIdx.x) % COLUMNS, walker = int(threadIdx.x) / COLUMNS;
  const int which = int(blockIdx.x) % SUMS_OF<F>;
  const int64_t column = int64_t(blockIdx.x) / SUMS_OF<F> * COLUMNS + lane, distance = n * SUMS_OF<F>;
  const double* const from = partial + which * n + (column < n ? column : 0);
  double sum = 0;
#pragma unroll 8
  for (int64_t part = walker; part < parts; part += WALKERS) sum += from[part * distance];
  room[walker][lane] = sum;
  for (int half = WALKERS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (walker < half) room[walker][lane] += room[walker + half][lane];
  }
  if (walker == 0 && column < n) store_result(to.data[which][column * to.step[which]], room[0][lane]);
}

// Adds the parts of a call's sums: so many, each of n numbers for each feature.
template <class F, typename T>
cudaError_t add_all_parts(const CallOf<F>& call, const double* partial, int64_t parts) {
  const int64_t n = columns_of<F>(call);
  SumsTo<F, T> to{};
  for (int k = 0, sum = 0; k < F::OUTPUTS; ++k) {
    if (!(F::FEATURES >> k & 1)) continue;
    to.data[sum] = static_cast<T*>(call.data[F::INPUTS + k]);
    to.step[sum++] = F::BY_CHANNEL ? 1 : call.stride[F::INPUTS + k][call.rank - 1];
  }
  const unsigned blocks = unsigned((n + COLUMNS - 1) / COLUMNS * SUMS_OF<F>);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto kernel = add_parts<F, T>;
  if (n > 0) kernel<<<blocks, COLUMNS * WALKERS, 0, stream>>>(partial, parts, n, to);
  return cudaGetLastError();
}

// Sums of features of rows whose values are known: a thread has a unit of columns, a block walks down its rows.
constexpr int COLUMN_THREADS = 128, ROWS_AT_ONCE = 4;
constexpr int64_t MOST_WALKS = 128;  // blocks that share a column
template <class F, typename T, bool WHOLE>
__global__ void __launch_bounds__(COLUMN_THREADS)
    columns_kernel(const __grid_constant__ CallOf<F> call, int64_t rows, const typename F::Values* values,
                   double* partial) {
  using PHASE = typename F::Last;
  constexpr int WIDTH = WIDTH_OF<T>;
  const int64_t n = call.size[call.rank - 1], unit = blockIdx.x;
  const Places<WIDTH, WHOLE, int64_t> places{n, int(threadIdx.x), COLUMN_THREADS};
  double sums[SUMS_OF<F>][WIDTH] = {};
  for (int64_t first = int64_t(blockIdx.y) * ROWS_AT_ONCE; first < rows; first += int64_t(gridDim.y) * ROWS_AT_ONCE) {
    Unit<F, T> units[ROWS_AT_ONCE];
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; ++r)
      if (first + r < rows) RowOf<F, T>(call, first + r).template load<PHASE::IN>(units[r], places, unit);
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; ++r) {
      if (first + r >= rows) break;
      const typename F::Values p = values[first + r];
      FirstMathOf<PHASE, F, T> out[WIDTH][PHASE::RESULTS];
      compute_unit<PHASE>(units[r], out, p);
      for (int k = 0, sum = 0; k < F::OUTPUTS; ++k) {
        if (!(F::FEATURES >> k & 1)) continue;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sums[sum][e] += double(Rounded<T>(out[e][k]));
        ++sum;
      }
    }
  }
#pragma unroll
  for (int sum = 0; sum < SUMS_OF<F>; ++sum)
#pragma unroll
    for (int e = 0; e < WIDTH; ++e)
      if (places.has(unit, e))
        partial[(int64_t(blockIdx.y) * SUMS_OF<F> + sum) * n + places.at(unit, e)] = sums[sum][e];
}

// The blocks that share a column: several rows for each.
inline int64_t walks_of(int64_t rows) {
  const int64_t walks = (rows + 8 * ROWS_AT_ONCE - 1) / (8 * ROWS_AT_ONCE);
  return walks < MOST_WALKS ? (walks > 1 ? walks : 1) : MOST_WALKS;
}

// The bytes of a call's workspace: of the parts of sums, and of the rows' values where a kernel of columns makes them.
template <class F>
int64_t bytes_of_values(int64_t rows) {
  return (rows * int64_t(sizeof(typename F::Values)) + 15) / 16 * 16;
}
// The channels of all rows.
template <class F>
int64_t channels_of(const CallOf<F>& call, int64_t rows) {
  return rows * (call.size[call.rank - 1] / share_of_values(call, first_of(F::OF_FEATURES)));
}
// The parts of an image's sums by channels, whatever its elements are: one of each block that has a row.
template <class F>
int64_t parts_of_image(const CallOf<F>& call) {
  return std::max(1, std::max(runs_of<F>(call, 2).blocks, runs_of<F>(call, 4).blocks));
}
template <class F>
int64_t workspace_bytes(const CallOf<F>& call) {
  if (SUMS_OF<F> == 0) return 0;
  const int64_t n = columns_of<F>(call), rows = rows_of(call), row = n * SUMS_OF<F> * int64_t(sizeof(double));
  if (F::BY_CHANNEL) return bytes_of_values<F>(rows) + channels_of<F>(call, rows) / n * row * parts_of_image<F>(call);
  const int64_t blocks = rows < summing_blocks(SMALL_BLOCK) ? rows : summing_blocks(SMALL_BLOCK);
  const int64_t added = row > MOST_SUMS ? 0 : blocks * row, left = bytes_of_values<F>(rows) + walks_of(rows) * row;
  return added > left ? added : left;
}

template <class F, typename T, bool WHOLE>
cudaError_t sum_columns(const CallOf<F>& call, int64_t rows, void* workspace) {
  constexpr int64_t AT_ONCE = COLUMN_THREADS * WIDTH_OF<T>;
  const int64_t n = call.size[call.rank - 1], walks = walks_of(rows);
  const auto values = static_cast<const typename F::Values*>(workspace);
  const auto partial = reinterpret_cast<double*>(static_cast<char*>(workspace) + bytes_of_values<F>(rows));
  const dim3 grid(unsigned((n + AT_ONCE - 1) / AT_ONCE), unsigned(walks));
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto kernel = columns_kernel<F, T, WHOLE>;
  if (n > 0) kernel<<<grid, COLUMN_THREADS, 0, stream>>>(call, rows, values, partial);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? add_all_parts<F, T>(call, partial, walks) : error;
}

// Sums of features by channels of rows whose values are known: a team of threads has the elements of a channel.
constexpr int CHANNEL_BLOCK = 256, CHANNEL_UNITS = 2;
constexpr int64_t LARGE_CHANNEL = 4096;  // elements, for which a block is a team
template <class F, typename T, bool WHOLE>
__global__ void __launch_bounds__(CHANNEL_BLOCK)
    channels_kernel(const __grid_constant__ CallOf<F> call, int64_t all, int threads, const typename F::Values* values,
                    double* partial) {
  using PHASE = typename F::Last;
  constexpr int WIDTH = WIDTH_OF<T>;
  __shared__ double room[SUMS_OF<F>][CHANNEL_BLOCK];
  const int64_t share = share_of_values(call, first_of(F::OF_FEATURES)), columns = columns_of<F>(call);
  const int lane = int(threadIdx.x) & (threads - 1), teams = CHANNEL_BLOCK / threads;
  const int64_t channel = int64_t(blockIdx.x) * teams + threadIdx.x / threads;
  const int64_t of_row = call.size[call.rank - 1] / share;
  const Places<WIDTH, WHOLE, int64_t> places{share, lane, threads};
  double sums[SUMS_OF<F>] = {};
  if (channel < all) {
    RowOf<F, T> row(call, channel / of_row);
    row.skip_channels(channel % of_row);
    const typename F::Values p = values[row.number];
    for (int64_t first = 0; places.begin(first) < share; first += CHANNEL_UNITS) {
      Unit<F, T> units[CHANNEL_UNITS];
#pragma unroll
      for (int u = 0; u < CHANNEL_UNITS; ++u) row.template load<PHASE::IN>(units[u], places, first + u);
#pragma unroll
      for (int u = 0; u < CHANNEL_UNITS; ++u) {
        FirstMathOf<PHASE, F, T> out[WIDTH][PHASE::RESULTS];
        compute_unit<PHASE>(units[u], out, p);
        for (int k = 0, sum = 0; k < F::OUTPUTS; ++k) {
          if (!(F::FEATURES >> k & 1)) continue;
#pragma unroll
          for (int e = 0; e < WIDTH; ++e)
            if (places.has(first + u, e)) sums[sum] += double(Rounded<T>(out[e][k]));
          ++sum;
        }
      }
    }
  }
  for (int sum = 0; sum < SUMS_OF<F>; ++sum) room[sum][threadIdx.x] = sums[sum];
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int sum = 0; sum < SUMS_OF<F> && lane < half; ++sum) room[sum][threadIdx.x] += room[sum][threadIdx.x + half];
  }
  if (lane > 0 || channel >= all) return;
  for (int sum = 0; sum < SUMS_OF<F>; ++sum)
    partial[(channel / columns * SUMS_OF<F> + sum) * columns + channel % columns] = room[sum][threadIdx.x];
}

template <class F, typename T>
cudaError_t sum_channels(const CallOf<F>& call, int64_t rows, void* workspace) {
  const int64_t all = channels_of<F>(call, rows), share = share_of_values(call, first_of(F::OF_FEATURES));
  // a sum of one element has the same bits by one thread as by a warp
  const int threads = share > LARGE_CHANNEL ? CHANNEL_BLOCK : share > 1 ? WARP : 1, teams = CHANNEL_BLOCK / threads;
  const auto values = static_cast<const typename F::Values*>(workspace);
  const auto partial = reinterpret_cast<double*>(static_cast<char*>(workspace) + bytes_of_values<F>(rows));
  const unsigned blocks = unsigned((all + teams - 1) / teams);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const bool whole = sizeof(T) < 8 && share % WIDTH_OF<T> == 0;
  const auto kernel = whole ? channels_kernel<F, T, true> : channels_kernel<F, T, false>;
  if (blocks > 0) kernel<<<blocks, CHANNEL_BLOCK, 0, stream>>>(call, all, threads, values, partial);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? add_all_parts<F, T>(call, partial, all / columns_of<F>(call)) : error;
}

}  // namespace
}  // namespace fusegen
