#pragma once
// Windows of tensors whose channels lie side by side, as in channels_last, on CUDA. Threads lie along the channels:
// each has a vector of channels of one result, or of two by two where windows share elements. It pools them in the
// order of cuda/window_columns.cuh, the rows of a column and then the columns: results have the same bits.
#include "cuda/access.cuh"
#include "cuda/window_columns.cuh"

namespace fusegen {
namespace {

constexpr int BLOCK_OF_CHANNELS = 128;  // threads

// The channels of a thread: 16 bytes of elements, or half of that where sums of theirs would take too many registers.
template <class F, typename T>
constexpr int CHANNELS = 16 / int(std::max(sizeof(T), sizeof(PooledType<F, T>) / 2));

// Elements of neighbouring channels.
template <typename T, int WIDTH>
struct alignas(WIDTH * sizeof(T)) Channels {
  T at[WIDTH];
};

// The results of a thread along a dimension.
template <class F>
constexpr int results_along(int d) {
  const Dimension of = dimension<F>(d);
  return of.dilation == 1 && of.stride < of.kernel && of.kernel <= 8 ? 2 : 1;
}
template <class F>
constexpr int DOWN = results_along<F>(1);
template <class F>
constexpr int ACROSS = results_along<F>(2);

// The threads of a call: for vectors of channels and for the results along each dimension.
struct ChannelThreads {
  Divisor channels, columns, rows, depths;
  uint32_t count;
  unsigned vectors;  // the tensors of which channels lie in whole vectors, as bits
};

// A thread's channels of all tensors of a call, of which those that are HELD, as bits, are alike at all places.
template <class F, typename T, int WIDTH, unsigned HELD>
struct ThreadChannels {
  using A = PooledType<F, T>;
  using Values = Channels<T, WIDTH>;
  static constexpr int KERNEL = int(F::KERNEL::height), STRIDE = int(F::STRIDE::height);
  static constexpr int STEP = int(F::DILATION::height), ROWS = (DOWN<F> - 1) * STRIDE + KERNEL;
  static constexpr int AT_ONCE = std::min(ROWS, F::EXACT ? 4 : 2);  // rows that are loaded before any is computed

  const CallOf<F>& call;
  const ChannelThreads& threads;
  const double* p;
  uint32_t batch, channel;
  Values held[F::TENSORS];

  HOST_DEVICE ThreadChannels(const CallOf<F>& call, const ChannelThreads& threads, uint32_t batch, uint32_t channel)
      : call(call), threads(threads), p(scalars<F>(call)), batch(batch), channel(channel) {
#pragma unroll
    for (int k = 0; k < F::TENSORS; ++k)
      if (HELD >> k & 1) held[k] = read(F::FIRST + k, at(F::FIRST + k, {0, 0, 0}));
  }
  static HOST_DEVICE constexpr bool differs(int tensor) { return (F::FRONT & ~HELD) >> tensor & 1; }
  // The strides of tensor k: along the channels, then along the dimensions of a window.
  HOST_DEVICE const int64_t* strides(int k) const { return call.stride[k] + call.rank - 4; }
  HOST_DEVICE T* at(int k, const Place& i) const {
    const int64_t* const stride = strides(k);
    return static_cast<T*>(call.data[k]) + (call.rank > 4 ? batch * stride[-1] : 0) + channel * stride[0] +
           i.depth * stride[1] + i.height * stride[2] + i.width * stride[3];
  }
  // The launch gives vectors to a tensor that alone differs from place to place.
  HOST_DEVICE Values read(int k, const T* from) const {
    const bool lies_alone = WIDTH > 1 && (F::FRONT & ~HELD) == 1 && k == F::FIRST;
    if (lies_alone || threads.vectors >> k & 1) return *reinterpret_cast<const Values*>(from);
    Values found;
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) found.at[e] = from[e * strides(k)[0]];
    return found;
  }
  HOST_DEVICE A pooled(const Values (&t)[F::TENSORS], int e) const {
    if constexpr (F::EXACT) return load(t[F::EXACT_TENSOR].at[e]);
    else {
      double own[F::TENSORS];
#pragma unroll
      for (int k = 0; k < F::TENSORS; ++k)
        if (is_front<F>(k)) own[k] = differs(k) ? load(t[k].at[e]) : load(held[k].at[e]);
      return A(F::front(own, p));
    }
  }

  // Reduces the rows of a column of elements, for windows below each other, of which the first begins at a place.
  HOST_DEVICE void reduce(const Place& begin, const Limits& limits, int column, A (&made)[DOWN<F>][WIDTH]) const {
    for (int kd = 0; kd < int(F::KERNEL::depth); ++kd) {
      const int depth = kd * int(F::DILATION::depth);
      if (!limits.has(0, depth)) continue;
      const T* next[F::TENSORS];
#pragma unroll
      for (int k = 0; k < F::TENSORS; ++k)
        if (differs(k)) next[k] = at(F::FIRST + k, begin + Inside{depth, 0, column});
      for (int first = 0; first < ROWS; first += AT_ONCE) {
        Values t[AT_ONCE][F::TENSORS];
        bool has[AT_ONCE];
#pragma unroll
        for (int r = 0; r < AT_ONCE; ++r) {
          has[r] = first + r < ROWS && limits.has(1, (first + r) * STEP);
#pragma unroll
          for (int k = 0; k < F::TENSORS; ++k)
            if (differs(k)) {
              if (has[r]) t[r][k] = read(F::FIRST + k, next[k]);
              next[k] += STEP * strides(F::FIRST + k)[2];
            }
        }
#pragma unroll
        for (int r = 0; r < AT_ONCE; ++r) {
          if (!has[r]) continue;
#pragma unroll
          for (int e = 0; e < WIDTH; ++e) {
            const A v = pooled(t[r], e);
#pragma unroll
            for (int k = 0; k < DOWN<F>; ++k) {
              const int row = first + r - k * STRIDE;
              if (row >= 0 && row < KERNEL) made[k][e] = F::Fold::join(made[k][e], v);
            }
          }
        }
      }
    }
  }

  // Stores the results of a window.
  HOST_DEVICE void store(const Place& window, const A (&pooled)[WIDTH]) const {
    const double length = divisor<F>(window, call.size + call.rank - 3);
    double t[F::TENSORS];
    Values made;
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
#pragma unroll
      for (int k = 0; k < F::TENSORS; ++k)
        if (!is_front<F>(k)) t[k] = load(at(F::FIRST + k, window)[e * strides(F::FIRST + k)[0]]);
      store_rounded(made.at[e], F::behind(pooled[e], t, p, length));
    }
    T* const to = at(F::INPUTS, window);
    if (threads.vectors >> F::INPUTS & 1) *reinterpret_cast<Values*>(to) = made;
    else
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) to[e * strides(F::INPUTS)[0]] = made.at[e];
  }
};

// Blocks for which a multiprocessor has registers: fewer where a thread keeps several results, or reads more tensors.
template <class F, unsigned HELD>
constexpr int BLOCKS = ACROSS<F> * DOWN<F> > 1 || (F::FRONT & ~HELD) > 1 ? 4 : F::EXACT || F::TENSORS > 2 ? 6 : 7;

template <class F, typename T, int WIDTH, unsigned HELD>
__global__ void __launch_bounds__(BLOCK_OF_CHANNELS, BLOCKS<F, HELD>)
    channels_kernel(const __grid_constant__ CallOf<F> call, const __grid_constant__ ChannelThreads threads) {
  constexpr int DISTANCE = int(F::STRIDE::width), COLUMNS = (ACROSS<F> - 1) * DISTANCE + int(F::KERNEL::width);
  using A = PooledType<F, T>;
  uint32_t rest = blockIdx.x * BLOCK_OF_CHANNELS + threadIdx.x;
  if (rest >= threads.count) return;
  const auto next = [&](const Divisor& by) {
    const uint32_t above = quotient(rest, by), found = rest - above * by.size;
    rest = above;
    return found;
  };
  const uint32_t channel = next(threads.channels) * WIDTH;
  const int width = int(next(threads.columns)) * ACROSS<F>, height = int(next(threads.rows)) * DOWN<F>;
  const int depth = int(next(threads.depths));
  const ThreadChannels<F, T, WIDTH, HELD> of(call, threads, rest, channel);
  const Place window{depth, height, width}, begin = begin_of<F>(window);
  const Limits limits(call.size + call.rank - 3, begin), results(call.size + call.rank, window);
  A made[ACROSS<F>][DOWN<F>][WIDTH];
#pragma unroll
  for (auto& each : made)
#pragma unroll
    for (auto& own : each)
#pragma unroll
      for (A& value : own) value = A(F::Fold::IDENTITY);
#pragma unroll(F::EXACT && COLUMNS <= 8 ? COLUMNS : 1)
  for (int column = 0; column < COLUMNS; ++column) {
    const int place = column * int(F::DILATION::width);
    if (!limits.has(2, place)) continue;
    A value[DOWN<F>][WIDTH];
#pragma unroll
    for (auto& each : value)
#pragma unroll
      for (A& own : each) own = A(F::Fold::IDENTITY);
    of.reduce(begin, limits, place, value);
#pragma unroll
    for (int j = 0; j < ACROSS<F>; ++j) {
      const int own = column - j * DISTANCE;
      if (own < 0 || own >= int(F::KERNEL::width)) continue;
#pragma unroll
      for (int k = 0; k < DOWN<F>; ++k)
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) made[j][k][e] = F::Fold::join(made[j][k][e], value[k][e]);
    }
  }
#pragma unroll
  for (int j = 0; j < ACROSS<F>; ++j)
#pragma unroll
    for (int k = 0; k < DOWN<F>; ++k)
      if (results.has({0, k, j})) of.store({depth, height + k, width + j}, made[j][k]);
}

}  // namespace
}  // namespace fusegen
