#pragma once
// Kernels of channels on CUDA: a block has a part of a channel, or of 32 channels that are neighbours in memory, and a
// second kernel joins the sums of the parts of a channel in one order. The number of parts and the
// elements of a thread depend on the shape, and on whether channels are neighbours.
#include "cuda/channel_threads.cuh"

namespace fusegen {
namespace {

// The memory of a call: the values of each channel, if they are there, and the sums of parts.
template <class F>
struct ChannelRoom {
  typename F::Values* values;
  double* partial;
  int64_t parts;
  bool begun, together, whole;  // whether channels are neighbours, and runs are whole vectors
};

template <class FIRST, class F>
__device__ __forceinline__ typename F::Values values_of(const ChannelCall<F>& call, const ChannelRoom<F>& room,
                                                        int64_t channel) {
  return room.begun ? room.values[channel] : begin_channel<FIRST, F>(call, channel);
}

template <class PHASE, class FIRST, class F, typename T>
__global__ void __launch_bounds__(CHANNEL_THREADS, 2)
    channel_kernel(const __grid_constant__ ChannelCall<F> call, const __grid_constant__ ChannelRoom<F> room) {
  constexpr int WIDTH = WIDTH_OF<T>;
  constexpr bool FINDS = std::is_same_v<PHASE, FIRST>;
  __shared__ typename F::Values own[LANES_OF_CHANNELS];
  const int lanes = room.together ? LANES_OF_CHANNELS : 1, lane = threadIdx.x % lanes;
  const int slot = threadIdx.x / lanes, slots = CHANNEL_THREADS / lanes;
  const int64_t group = blockIdx.x / room.parts, part = blockIdx.x % room.parts, channel = group * lanes + lane;
  const bool active = channel < call.size[0];
  if (!FINDS && slot == 0 && active) own[lane] = values_of<FIRST, F>(call, room, channel);
  __syncthreads();
  const int64_t elements = elements_of(call);
  ChannelElements<F, T> of{call, active ? channel : 0, elements, call.size[call.rank - 1], room.whole};
  const int64_t end = begin_of_part(elements, part + 1, room.parts, WIDTH), step = int64_t(slots) * WIDTH;
  const int64_t begin = begin_of_part(elements, part, room.parts, WIDTH) + slot * WIDTH;
  const typename F::Values& p = own[lane];
  // Calls a function with the thread's units, of which several are loaded before the first is used.
  const auto each_unit = [&](const auto& function) {
    constexpr int IN_FLIGHT = count_of(PHASE::IN) > 1 ? 2 : 4;
    for (int64_t first = begin; active && first < end; first += IN_FLIGHT * step) {
      Unit<F, T> several[IN_FLIGHT];
#pragma unroll
      for (int u = 0; u < IN_FLIGHT; ++u)
        of.template load<PHASE::IN>(several[u], first + u * step < end ? first + u * step : first);
#pragma unroll
      for (int u = 0; u < IN_FLIGHT; ++u)
        if (first + u * step < end) function(several[u], first + u * step);
    }
  };
  if constexpr (PHASE::STORES) {
    const bool in_range = !PHASE::WATCHES || sizeof(T) != 2 || are_in_range(p);
    each_unit([&](const Unit<F, T>& unit, int64_t e) {
      FirstMathOf<PHASE, F, T> out[WIDTH][PHASE::RESULTS];
      compute_unit<PHASE>(unit, out, p);
      if (PHASE::WATCHES && sizeof(T) == 2 && !(in_range && suffices<F>(out))) {
        MathOf<PHASE, F, T> exact[WIDTH][PHASE::RESULTS];
        compute_unit<PHASE>(unit, exact, p);
        of.store(exact, e);
      } else of.store(out, e);
    });
  } else {
    constexpr int SIZE = SIZE_OF<PHASE, FIRST>;
    using M = MathOf<PHASE, F, T>;
    __shared__ double memory[CHANNEL_THREADS][SIZE];
    ThreadSums<PHASE, F, T, FINDS> sums;
    int64_t joined = 0;
    each_unit([&](const Unit<F, T>& unit, int64_t e) {
      M out[WIDTH][PHASE::RESULTS];
      compute_unit<PHASE>(unit, out, p);
      joined += end - e < WIDTH ? end - e : WIDTH;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        if (e + j >= end) continue;
        bool leaves = false;
        if constexpr (CHECKS_RANGE<PHASE, M>)
          for (int k = 0; k < PHASE::RESULTS; ++k) leaves = leaves || !(fabsf(float(out[j][k])) < INFINITY);
        if (leaves) {
          WiderOf<M> wide[PHASE::RESULTS];
          element_of<PHASE>(unit, j, wide, p);
          sums.join(wide);
        } else sums.join(out[j]);
      }
    });
    sums.write(memory[threadIdx.x], joined);
    join_slots<PHASE, FIRST>(memory, slot, slots, lanes);
    if (slot == 0 && active)
      for (int k = 0; k < SIZE; ++k) room.partial[(channel * room.parts + part) * SIZE + k] = memory[lane][k];
  }
}

// Joins the parts of each channel: 32 threads have every 32nd one, and join what they have as the slots of a block do.
template <class PHASE, class FIRST, class F, class... PHASES>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    join_channels(const __grid_constant__ ChannelCall<F> call, const __grid_constant__ ChannelRoom<F> room) {
  constexpr int SIZE = SIZE_OF<PHASE, FIRST>, LANES = CHANNEL_THREADS / 32;
  __shared__ double memory[CHANNEL_THREADS][SIZE];
  const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
  const int64_t channel = int64_t(blockIdx.x) * LANES + lane;
  double total[SIZE];
  clear_part<PHASE, FIRST>(total);
  for (int64_t part = slot; channel < call.size[0] && part < room.parts; part += 32)
    join_parts<PHASE, FIRST>(total, room.partial + (channel * room.parts + part) * SIZE);
  for (int k = 0; k < SIZE; ++k) memory[threadIdx.x][k] = total[k];
  join_slots<PHASE, FIRST>(memory, slot, 32, LANES);
  if (slot != 0 || channel >= call.size[0]) return;
  if constexpr (std::is_same_v<PHASE, FIRST>) {
    double* const moments = moments_of<F>(call) + 2 * channel;
    moments[0] = memory[lane][1], moments[1] = memory[lane][2] / memory[lane][0];
  } else {
    typename F::Values p = values_of<FIRST, F>(call, room, channel);
    PHASE::row(memory[lane], p);
    if constexpr (F::SUMS > 0) end_sums<F, PHASES...>(call, channel, p);
    room.values[channel] = p;
  }
}

template <class PHASE, class FIRST, class F, typename T, class... PHASES>
void launch_channel_phase(const ChannelCall<F>& call, ChannelRoom<F>& room) {
  constexpr bool FINDS = std::is_same_v<PHASE, FIRST>;
  if (FINDS && !(F::FINDS && is_of_batch<F>(call))) return;
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const int64_t lanes = room.together ? LANES_OF_CHANNELS : 1, groups = (call.size[0] + lanes - 1) / lanes;
  const auto kernel = channel_kernel<PHASE, FIRST, F, T>;
  kernel<<<unsigned(groups * room.parts), CHANNEL_THREADS, 0, stream>>>(call, room);
  if constexpr (!PHASE::STORES) {
    const auto join = join_channels<PHASE, FIRST, F, PHASES...>;
    join<<<unsigned((call.size[0] + CHANNEL_THREADS / 32 - 1) / (CHANNEL_THREADS / 32)), CHANNEL_THREADS, 0, stream>>>(
        call, room);
    room.begun = !FINDS;
  }
}

template <class F, typename T, int IN, int OUT, int P, class VALUES, class FIRST, class... PHASES>
void launch_channel_phases(const ChannelCall<F>& call, ChannelRoom<F>& room,
                           const Rows<IN, OUT, P, VALUES, FIRST, PHASES...>&) {
  static_assert(sizeof...(PHASES) <= 2, "behind the moments a channel has one more loop of sums at most");
  constexpr int64_t WIDTH = WIDTH_OF<T>;
  const int inner = call.rank - 1;
  room.whole = call.size[inner] % WIDTH == 0 && sizeof(T) < 8;
  const auto check = [&](int k) {
    room.whole = room.whole && call.stride[k][inner] == 1 && reinterpret_cast<uintptr_t>(call.data[k]) % 16 == 0;
    for (int d = 0; d < inner; ++d) room.whole = room.whole && (call.size[d] == 1 || call.stride[k][d] % WIDTH == 0);
  };
  for (int k = 0; k < F::INPUTS; ++k) check(k);
  for (int k = 0; k < F::OUTPUTS; ++k) check(F::MOMENTS + 1 + k);
  launch_channel_phase<FIRST, FIRST, F, T, PHASES...>(call, room);
  (launch_channel_phase<PHASES, FIRST, F, T, PHASES...>(call, room), ...);
}

template <class F>
int64_t parts_of_call(const ChannelCall<F>& call) {
  const int64_t lanes = has_channels_side_by_side<F>(call) ? LANES_OF_CHANNELS : 1, elements = elements_of(call);
  const int64_t groups = std::max((call.size[0] + lanes - 1) / lanes, int64_t(1));
  const int64_t most = std::max({ENOUGH_BLOCKS / groups, elements * lanes / LARGE_PART, int64_t(1)});
  return parts_of(elements, lanes > 1 ? LEAST_OF_LANES : LEAST_OF_PART, std::min(most, MOST_OF_PARTS));
}

// The bytes of workspace of a call, and the call with it, on the current stream of the tensors' device.
template <class F>
int64_t channel_workspace(const ChannelCall<F>& call) {
  constexpr int SIZE = F::MOST_RESULTS > Moment::SIZE ? F::MOST_RESULTS : Moment::SIZE;
  return call.size[0] * int64_t(sizeof(typename F::Values) + parts_of_call<F>(call) * SIZE * sizeof(double));
}
template <class F, int... DTYPES>
const char* launch_channels(const ChannelCall<F>& call, ChannelRoom<F> room, Dtypes<DTYPES...>) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    launch_channel_phases<F, decltype(element)>(call, room, F());
    error = cudaGetLastError();
    return true;
  };
  if (error == cudaSuccess) (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
template <class F>
const char* run_channels(const ChannelCall<F>& call, void* workspace) {
  const auto values = static_cast<typename F::Values*>(workspace);
  const ChannelRoom<F> room{values, reinterpret_cast<double*>(values + call.size[0]), parts_of_call<F>(call), false,
                            has_channels_side_by_side<F>(call), false};
  return launch_channels<F>(call, room, typename F::Elements());
}

}  // namespace
}  // namespace fusegen
