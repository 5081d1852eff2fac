#pragma once
// The launch of windows on CUDA, by the layout of the call: by threads along the channels where these lie side by side.
#include "cuda/window_channels.cuh"
#include "cuda/windows.cuh"

namespace fusegen {
namespace {

constexpr int64_t MOST_OF_WINDOW = 512;  // elements that one thread pools

// True if a tensor is alike at all places of a plane.
template <class F>
bool is_alike(const CallOf<F>& call, int k) {
  bool alike = true;
  for (int d = call.rank - 3; d < call.rank; ++d) alike = alike && (call.stride[k][d] == 0 || call.size[d] == 1);
  return alike;
}

// True if a call's channels lie side by side, in all tensors in front of the pooling that differ from place to place.
template <class F>
bool lies_by_channels(const CallOf<F>& call) {
  const int channels = call.rank - 4;
  if (channels < 0 || channels > 1 || call.size[channels] == 1 || call.size[channels] > INT32_MAX) return false;
  bool any = false, all = true;
  for (int k = 0; k < F::TENSORS; ++k)
    if (is_front<F>(k) && !is_alike<F>(call, F::FIRST + k)) {
      const int64_t stride = call.stride[F::FIRST + k][channels];
      any = any || stride == 1, all = all && (stride == 1 || stride == 0);
    }
  return any && all;
}

// True if a tensor's channels lie in whole vectors.
template <class F, typename T>
bool lies_in_vectors(const CallOf<F>& call, int k) {
  constexpr int64_t WIDTH = CHANNELS<F, T>;
  const int channels = call.rank - 4;
  bool whole = call.size[channels] % WIDTH == 0 && call.stride[k][channels] == 1;
  for (int d = 0; d < call.rank; ++d) whole = whole && (d == channels || call.stride[k][d] % WIDTH == 0);
  return whole && reinterpret_cast<uintptr_t>(call.data[k]) % (WIDTH * sizeof(T)) == 0;
}

// The threads of a call, for so many channels each.
template <class F>
ChannelThreads channel_threads(const CallOf<F>& call, int width, int64_t& count) {
  const int64_t *const size = call.size + call.rank - 3, *const out = size + 3;
  const int64_t channels = size[-1] / width, rows = (out[1] + DOWN<F> - 1) / DOWN<F>;
  const int64_t columns = (out[2] + ACROSS<F> - 1) / ACROSS<F>;
  count = channels * columns * rows * out[0] * (call.rank > 4 ? size[-2] : 1);
  return {divisor(channels), divisor(columns), divisor(rows), divisor(out[0]), uint32_t(count), 0};
}

// True of windows that a thread pools, in the order of threads that share columns.
template <class F, typename T>
constexpr bool pooled_by_thread() {
  if constexpr (F::FIRST != 0 || by_teams<F, true>(RESULTS_NEED<F, T>)) return false;
  else return F::KERNEL::depth * F::KERNEL::height * F::KERNEL::width <= MOST_OF_WINDOW;
}

template <class F, typename T, int WIDTH, unsigned HELD>
bool launch_channels(const CallOf<F>& call, unsigned vectors) {
  int64_t count;
  ChannelThreads threads = channel_threads<F>(call, WIDTH, count);
  if (count > INT32_MAX / 2 - BLOCK_OF_CHANNELS) return false;  // of which results are twice as many along a dimension
  threads.vectors = vectors;
  const unsigned blocks = unsigned((count + BLOCK_OF_CHANNELS - 1) / BLOCK_OF_CHANNELS);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto kernel = channels_kernel<F, T, WIDTH, HELD>;
  kernel<<<blocks, BLOCK_OF_CHANNELS, 0, stream>>>(call, threads);
  return true;
}

// Pools windows by threads that lie along the channels; returns false where these do not lie side by side.
template <class F, typename T>
bool launch_by_channels(const CallOf<F>& call) {
  if constexpr (!pooled_by_thread<F, T>()) return false;
  else {
    if (!lies_by_channels<F>(call)) return false;
    constexpr int WIDTH = CHANNELS<F, T>;
    constexpr unsigned OPERANDS = F::FRONT & (F::FRONT - 1);  // but the first tensor in front
    unsigned vectors = 0, alike = 0;
    bool in_vectors = true;
    for (int k = 0; k <= F::INPUTS; ++k) {
      const bool whole = lies_in_vectors<F, T>(call, k);
      vectors |= unsigned(whole) << k, alike |= unsigned(is_alike<F>(call, k)) << k;
      if (k < F::INPUTS && is_front<F>(k) && !is_alike<F>(call, k))
        in_vectors = in_vectors && (whole || call.stride[k][call.rank - 4] == 0);
    }
    if (!in_vectors) return launch_channels<F, T, 1, 0>(call, 0);
    return (alike & OPERANDS) == OPERANDS ? launch_channels<F, T, WIDTH, OPERANDS>(call, vectors)
                                          : launch_channels<F, T, WIDTH, 0>(call, vectors);
  }
}

template <class F, int... DTYPES>
const char* launch_any_layout(const CallOf<F>& call, Dtypes<DTYPES...>) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const auto launched = [&](int dtype, auto element) {
    using T = decltype(element);
    if (call.dtype != dtype) return false;
    if (!launch_by_channels<F, T>(call)) launch_pooling<F, T>(call);
    error = cudaGetLastError();
    return true;
  };
  if (error == cudaSuccess) (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// Launches F as `run` does, or by threads along the channels.
template <class F>
const char* run_by_layout(const CallOf<F>& call) {
  return launch_any_layout<F>(call, typename F::Elements());
}

}  // namespace
}  // namespace fusegen

// In place of FUSEGEN_KERNELS.
#ifdef WITHOUT_FORWARD
#define FUSEGEN_WINDOWS(NAME) FUSEGEN_BACKWARD(NAME)
#else
#define FUSEGEN_WINDOWS(NAME)                                                                   \
  extern "C" const char* NAME##_forward_launch(const fusegen::CallOf<fusegen::Forward>& call) { \
    return fusegen::run_by_layout<fusegen::Forward>(call);                                      \
  }                                                                                             \
  FUSEGEN_BACKWARD(NAME)
#endif
