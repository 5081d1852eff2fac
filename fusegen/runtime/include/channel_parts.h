#pragma once
// Kernels of channels: rows of everything but dimension 1, whose mean and variance one loop finds, or evaluation gives.
// A call has the channels as its first dimension, and in front of the last one, a run, those of the runs.
#include "on_both.h"
#include "row_phases.h"

namespace fusegen {
namespace {

// A kernel of rows whose first phase finds the mean and the variance of what it computes. Behind the tensors of
// elements a call has `GIVEN` ones of float64 with a number for each channel, then the moments; behind the results of
// elements `MADE` of a number for each channel. The last scalar says whether the moments are those of the batch.
template <class ROWS, int GIVEN, int MADE, bool BACKWARD>
struct Channels : ROWS {
  static constexpr int CHANNELS = GIVEN, SUMS = MADE, MOMENTS = ROWS::INPUTS + GIVEN;
  static constexpr bool FINDS = !BACKWARD;  // whether the moments are computed, and stored behind the results
  static constexpr int TENSORS = MOMENTS + 1 + ROWS::OUTPUTS + MADE + FINDS;
  static constexpr int FIRST_SUM = MOMENTS + 1 + ROWS::OUTPUTS;
};
template <class F>
using ChannelCall = Call<F::TENSORS, F::SCALARS + 1>;

// The phase that finds the moments of what it computes of elements.
template <class VALUES, unsigned INPUTS>
struct Moments : Reduces<VALUES, INPUTS, Added> {};

// The statements that set scalars p, from those of a call, the numbers c of a channel and the length of its row.
#define FUSEGEN_CHANNEL_VALUES(...)                                                                 \
  static HOST_DEVICE Values values([[maybe_unused]] const double* param, [[maybe_unused]] const double* c, \
                                   [[maybe_unused]] double length) {                                \
    Values p{};                                                                                     \
    __VA_ARGS__;                                                                                    \
    return p;                                                                                       \
  }
// The statements that set the results c of a channel from its values p.
#define FUSEGEN_CHANNEL_SUMS(...)                                                         \
  static HOST_DEVICE void sums([[maybe_unused]] const Values& p, [[maybe_unused]] double* c) { __VA_ARGS__; }

// The number, the mean and the sum of squared differences to it of some elements, joined as by Chan et al. 1979.
struct Moment {
  double n, mean, squares;
  static constexpr int SIZE = 3;
  HOST_DEVICE void join(const Moment& other) {
    if (other.n == 0) return;
    if (n == 0) {
      *this = other;
      return;
    }
    const double all = n + other.n, apart = other.mean - mean;
    mean += apart * (other.n / all);
    squares += other.squares + apart * apart * (n * other.n / all);
    n = all;
  }
};

template <class F>
ON_BOTH bool is_of_batch(const ChannelCall<F>& call) {
  return call.param[F::SCALARS] != 0;
}

// The mean and the variance of each channel, side by side: given, or where they were stored.
template <class F>
HOST_DEVICE double* moments_of(const ChannelCall<F>& call) {
  return static_cast<double*>(call.data[F::FINDS && is_of_batch<F>(call) ? F::TENSORS - 1 : F::MOMENTS]);
}

// The elements of a channel; its runs, and where one begins in tensor k, in elements.
template <int N>
ON_BOTH int64_t elements_of(const Tensors<N>& call) {
  int64_t all = 1;
  for (int d = 1; d < call.rank; ++d) all *= call.size[d];
  return all;
}
template <int N>
HOST_DEVICE int64_t begin_of_run(const Tensors<N>& call, int k, int64_t run) {
  if (call.rank == 3) return run * call.stride[k][1];
  int64_t at = 0;
#ifdef __CUDACC__
#pragma unroll 1
#endif
  for (int d = call.rank - 2; d > 0; --d) {
    at += run % call.size[d] * call.stride[k][d];
    run /= call.size[d];
  }
  return at;
}

// True if the channels are neighbours in memory, and the elements of one are not.
template <class F>
bool has_channels_side_by_side(const ChannelCall<F>& call) {
  return call.stride[0][0] == 1 && call.stride[0][call.rank - 1] != 1 && call.size[0] > 1;
}

// The values of a channel whose moments are known. Given ones have no gradient: the share of an element is 0.
template <class FIRST, class F>
HOST_DEVICE typename F::Values begin_channel(const ChannelCall<F>& call, int64_t channel) {
  double c[F::CHANNELS + 1];
  for (int k = 0; k < F::CHANNELS; ++k) c[k] = static_cast<const double*>(call.data[F::INPUTS + k])[channel];
  const double* const moments = moments_of<F>(call) + 2 * channel;
  typename F::Values p = F::values(call.param, c, is_of_batch<F>(call) ? double(elements_of(call)) : INFINITY);
  FIRST::row(moments, p);
  return p;
}

// Stores the results of a channel; then its values are those that a given mean and variance have.
template <class F, class... PHASES>
HOST_DEVICE void end_sums(const ChannelCall<F>& call, int64_t channel, typename F::Values& p) {
  double c[F::SUMS + 1];
  F::sums(p, c);
  for (int k = 0; k < F::SUMS; ++k) static_cast<double*>(call.data[F::FIRST_SUM + k])[channel] = c[k];
  if (is_of_batch<F>(call)) return;
  const double none[F::MOST_RESULTS] = {};
  const auto clear = [&](auto phase) {
    if constexpr (!decltype(phase)::STORES) decltype(phase)::row(none, p);
  };
  (clear(PHASES()), ...);
}

// The parts of a channel, of which each has its own sums: a number that depends on the shape alone.
ON_BOTH int64_t parts_of(int64_t elements, int64_t least, int64_t most) {
  const int64_t parts = (elements + least - 1) / least;
  return parts < 1 ? 1 : parts < most ? parts : most;
}
HOST_DEVICE int64_t begin_of_part(int64_t elements, int64_t part, int64_t parts, int64_t unit) {
  const int64_t units = (elements + unit - 1) / unit, begin = units * part / parts * unit;
  return begin < elements ? begin : elements;
}

}  // namespace
}  // namespace fusegen

// The functions that the binding calls. WITHOUT_FORWARD and WITHOUT_BACKWARD leave one of the two out.
#define FUSEGEN_CHANNEL_LAUNCHER(NAME, F)                                                               \
  extern "C" int64_t NAME##_workspace(const fusegen::ChannelCall<fusegen::F>& call) {                   \
    return fusegen::channel_workspace<fusegen::F>(call);                                                \
  }                                                                                                     \
  extern "C" const char* NAME##_launch(const fusegen::ChannelCall<fusegen::F>& call, void* workspace) { \
    return fusegen::run_channels<fusegen::F>(call, workspace);                                          \
  }
#ifdef WITHOUT_FORWARD
#define FUSEGEN_CHANNEL_FORWARD(NAME)
#else
#define FUSEGEN_CHANNEL_FORWARD(NAME) FUSEGEN_CHANNEL_LAUNCHER(NAME##_forward, Forward)
#endif
#ifdef WITHOUT_BACKWARD
#define FUSEGEN_CHANNEL_BACKWARD(NAME)
#else
#define FUSEGEN_CHANNEL_BACKWARD(NAME) FUSEGEN_CHANNEL_LAUNCHER(NAME##_backward, Backward)
#endif
#define FUSEGEN_CHANNEL_KERNELS(NAME) \
  FUSEGEN_CHANNEL_FORWARD(NAME)       \
  FUSEGEN_CHANNEL_BACKWARD(NAME)
