#pragma once
// Kernels of channels on the CPU: the parts of all channels over PyTorch's threads, whose sums are added in order.
// Channels that are neighbours in memory are taken together, a line of the cache at a time.
#include "cpu/channel_sums.h"

namespace fusegen {
namespace {

// Splits begin to end over PyTorch's own threads; the binding defines it.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*), void* context);

constexpr int64_t LEAST_PART = 64 * TILE, MOST_PARTS = 256;

// A tile of WIDTH channels: of each its elements from j on, side by side, where they lie or copied.
template <class F, typename T, int WIDTH>
class ChannelTile {
  static constexpr int N = F::INPUTS + F::OUTPUTS;

 public:
  ChannelTile(const ChannelCall<F>& call, int64_t channel, int64_t count)
      : call(call), channel(channel), count(count) {}
  RowOf<F, T> row[WIDTH];

  // Takes n elements of the inputs in the bits.
  void take(int64_t j, int64_t n, unsigned inputs) {
    for (int k = 0; k < F::INPUTS; ++k)
      if (inputs >> k & 1) place(k, k, j, n, true);
  }
  // Takes the places of n results.
  void point(int64_t j, int64_t n) {
    for (int k = 0; k < F::OUTPUTS; ++k) place(F::INPUTS + k, F::MOMENTS + 1 + k, j, n, false);
  }
  // Puts results that were made beside their places there.
  void put(int64_t j, int64_t n) {
    for (int k = 0; k < F::OUTPUTS; ++k)
      if (row[0].data[F::INPUTS + k] == memory[F::INPUTS + k][0])
        each(F::INPUTS + k, F::MOMENTS + 1 + k, j, n, [](T& there, T& here) { there = here; });
  }

 private:
  void place(int own, int k, int64_t j, int64_t n, bool copies) {
    const int64_t length = call.size[call.rank - 1], step = call.stride[k][call.rank - 1];
    const bool side_by_side = WIDTH == 1 && step == 1 && j % length + n <= length;
    T* const begin = static_cast<T*>(call.data[k]) + channel * call.stride[k][0];
    for (int w = 0; w < count; ++w) {
      row[w].step[own] = 1;
      row[w].data[own] = side_by_side ? begin + begin_of_run(call, k, j / length) + j % length : memory[own][w];
    }
    if (!side_by_side && copies) each(own, k, j, n, [](T& there, T& here) { here = there; });
  }
  template <class FUNCTION>
  void each(int own, int k, int64_t j, int64_t n, const FUNCTION& function) {
    const int64_t length = call.size[call.rank - 1], step = call.stride[k][call.rank - 1], apart = call.stride[k][0];
    T* const begin = static_cast<T*>(call.data[k]) + channel * apart;
    for (int64_t e = 0; e < n;) {
      const int64_t place = (j + e) % length, some = std::min(n - e, length - place);
      T* const from = begin + begin_of_run(call, k, (j + e) / length) + place * step;
      if (count == WIDTH && apart == 1)
        for (int64_t s = 0; s < some; ++s)
          for (int w = 0; w < WIDTH; ++w) function(from[s * step + w], memory[own][w][e + s]);
      else
        for (int64_t s = 0; s < some; ++s)
          for (int w = 0; w < count; ++w) function(from[s * step + w * apart], memory[own][w][e + s]);
      e += some;
    }
  }
  const ChannelCall<F>& call;
  const int64_t channel, count;
  T memory[N][WIDTH][TILE + LANES];  // which begin at different places of a cache
};

// A call with its workspace: the values of each channel, and the sums of each part.
template <class F>
struct ChannelTask {
  const ChannelCall<F>& call;
  typename F::Values* values;
  double* partial;
  int64_t channels, elements, parts;
  bool begun;
};

// Runs a phase over the parts from begin to end of groups of WIDTH channels.
template <class PHASE, class F, typename T, int WIDTH>
void run_parts(const ChannelTask<F>& task, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t channel = item / task.parts * WIDTH, part = item % task.parts;
    const int64_t count = std::min<int64_t>(WIDTH, task.channels - channel);
    const int64_t first = begin_of_part(task.elements, part, task.parts, TILE);
    const int64_t last = begin_of_part(task.elements, part + 1, task.parts, TILE);
    ChannelTile<F, T, WIDTH> tile(task.call, channel, count);
    if constexpr (PHASE::STORES) {
      for (int64_t j = first; j < last; j += TILE) {
        const int64_t n = std::min(TILE, last - j);
        tile.take(j, n, PHASE::IN);
        tile.point(j, n);
        for (int w = 0; w < count; ++w) {
          MathOf<PHASE, F, T> out[PHASE::RESULTS][TILE];
          compute_tile<PHASE, F, T>(tile.row[w], 0, n, out, task.values[channel + w]);
          for (int k = 0; k < F::OUTPUTS; ++k) narrow(out[k], tile.row[w].data[F::INPUTS + k], n);
        }
        tile.put(j, n);
      }
    } else {
      SumsOf<PHASE, F, T> sums[WIDTH];
      for (int64_t j = first; j < last; j += TILE) {
        const int64_t n = std::min(TILE, last - j);
        tile.take(j, n, PHASE::IN);
        for (int w = 0; w < count; ++w) sums[w].add(tile.row[w], n, task.values[channel + w]);
      }
      for (int w = 0; w < count; ++w)
        sums[w].write(task.partial + ((channel + w) * task.parts + part) * SumsOf<PHASE, F, T>::SIZE);
    }
  }
}

template <class PHASE, class F, typename T, int WIDTH>
void run_groups(ChannelTask<F>& task) {
  const auto some = [](int64_t begin, int64_t end, void* context) {
    run_parts<PHASE, F, T, WIDTH>(*static_cast<const ChannelTask<F>*>(context), begin, end);
  };
  const int64_t groups = (task.channels + WIDTH - 1) / WIDTH, each = task.elements / task.parts * WIDTH;
  parallel_for(0, groups * task.parts, std::max<int64_t>(32768 / std::max<int64_t>(each, 1), 1), some, &task);
}

// Runs a phase of all channels, and what follows it once a channel.
template <class PHASE, class FIRST, class F, typename T>
void run_channel_phase(ChannelTask<F>& task) {
  constexpr bool FINDS = std::is_same_v<PHASE, FIRST>;
  if (FINDS && !(F::FINDS && is_of_batch<F>(task.call))) return;
  if (!FINDS && !task.begun)
    for (int64_t c = 0; c < task.channels; ++c) task.values[c] = begin_channel<FIRST, F>(task.call, c);
  task.begun = task.begun || !FINDS;
  if (has_channels_side_by_side<F>(task.call)) run_groups<PHASE, F, T, 64 / int(sizeof(T))>(task);
  else run_groups<PHASE, F, T, 1>(task);
  if constexpr (!PHASE::STORES) {
    using SUMS = SumsOf<PHASE, F, T>;
    for (int64_t c = 0; c < task.channels; ++c) {
      double* const total = task.partial + c * task.parts * SUMS::SIZE;
      for (int64_t part = 1; part < task.parts; ++part) SUMS::join(total, total + part * SUMS::SIZE);
      if constexpr (FINDS) {
        double* const moments = moments_of<F>(task.call) + 2 * c;
        moments[0] = total[1], moments[1] = total[2] / total[0];
      } else PHASE::row(total, task.values[c]);
    }
  }
}

template <class F, typename T, int IN, int OUT, int P, class VALUES, class FIRST, class... PHASES>
void run_channel_phases(ChannelTask<F>& task, const Rows<IN, OUT, P, VALUES, FIRST, PHASES...>&) {
  run_channel_phase<FIRST, FIRST, F, T>(task);
  const auto run = [&](auto phase) {
    using PHASE = decltype(phase);
    if constexpr (PHASE::STORES && F::SUMS > 0)
      for (int64_t c = 0; c < task.channels; ++c) end_sums<F, PHASES...>(task.call, c, task.values[c]);
    run_channel_phase<PHASE, FIRST, F, T>(task);
  };
  (run(PHASES()), ...);
}

template <class F, int... DTYPES>
void run_any_channels(ChannelTask<F>& task, Dtypes<DTYPES...>) {
  const auto run_as = [&](int dtype, auto element) {
    if (task.call.dtype == dtype) run_channel_phases<F, decltype(element)>(task, F());
    return task.call.dtype == dtype;
  };
  (void)(run_as(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
}

// The bytes of workspace of a call, and the call with it.
template <class F>
int64_t channel_workspace(const ChannelCall<F>& call) {
  constexpr int SIZE = F::MOST_RESULTS > Moment::SIZE ? F::MOST_RESULTS : Moment::SIZE;
  const int64_t parts = parts_of(elements_of(call), LEAST_PART, MOST_PARTS);
  return call.size[0] * int64_t(sizeof(typename F::Values) + parts * SIZE * sizeof(double));
}
template <class F>
const char* run_channels(const ChannelCall<F>& call, void* workspace) {
  const int64_t channels = call.size[0], elements = elements_of(call);
  const auto values = static_cast<typename F::Values*>(workspace);
  const int64_t parts = parts_of(elements, LEAST_PART, MOST_PARTS);
  ChannelTask<F> task{call, values, reinterpret_cast<double*>(values + channels), channels, elements, parts, false};
  run_any_channels<F>(task, typename F::Elements());
  return nullptr;
}

}  // namespace
}  // namespace fusegen
