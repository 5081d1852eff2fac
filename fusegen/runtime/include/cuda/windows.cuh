#pragma once
// Kernels with a pooling on CUDA. A thread has a result; in the gradient, an element of the tensors in front of the
// pooling, for which it takes the windows that the element is in, in one order, and finds the largest element of each
// again. So each gradient is written once, and has the same bits in each run.
#include "launcher.h"
#include "cuda/elements.cuh"
#include "cuda/launch.cuh"
#include "cuda/math.cuh"
#include "window_parts.h"

namespace fusegen {
namespace {

constexpr int POOLING_THREADS = 256;

// The plane and the place in it of an index, along the given sizes of a plane.
struct Spot {
  HOST_DEVICE Spot(int64_t index, const int64_t* size) {
    at.width = index % size[2];
    index /= size[2];
    at.height = index % size[1];
    index /= size[1];
    at.depth = index % size[0];
    plane = index / size[0];
  }
  int64_t plane;
  Place at;
};

// A pooled value, and where the element lies that it is, if it is one.
template <class F, typename T>
struct Pooled {
  PooledType<F, T> value;
  Place from;
};

// Pools a window.
template <class F, typename T>
HOST_DEVICE Pooled<F, T> pool(const Plane<F, T>& of, const Place& window, const double* p) {
  using A = PooledType<F, T>;
  using FOLD = typename F::Fold;
  Pooled<F, T> made{A(FOLD::IDENTITY), {-1, -1, -1}};
  for (int64_t kd = 0; kd < F::KERNEL::depth; ++kd) {
    const int64_t d = window.depth * F::STRIDE::depth - F::PADDING::depth + kd * F::DILATION::depth;
    if (d < 0 || d >= of.size[0]) continue;
    for (int64_t kh = 0; kh < F::KERNEL::height; ++kh) {
      const int64_t h = window.height * F::STRIDE::height - F::PADDING::height + kh * F::DILATION::height;
      if (h < 0 || h >= of.size[1]) continue;
      for (int64_t kw = 0; kw < F::KERNEL::width; ++kw) {
        const int64_t w = window.width * F::STRIDE::width - F::PADDING::width + kw * F::DILATION::width;
        if (w < 0 || w >= of.size[2]) continue;
        const A v = of.element({d, h, w}, p);
        if constexpr (F::IS_SUM) made.value = FOLD::join(made.value, v);
        else if (made.from.depth < 0 || replaces<FOLD>(made.value, v)) made = {v, {d, h, w}};
      }
    }
  }
  return made;
}

template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    pooling_kernel(const __grid_constant__ CallOf<F> call) {
  const int64_t index = int64_t(blockIdx.x) * POOLING_THREADS + threadIdx.x;
  if (index >= call.numel) return;
  const int64_t* const size = call.size + call.rank - 3;
  const Spot spot(index, size + 3);
  const Plane<F, T> of(call, spot.plane);
  const double* const p = scalars<F>(call);
  double t[F::TENSORS];
  of.load_tensors(t, spot.at, false);
  const double pooled = pool(of, spot.at, p).value;
  store_rounded(of.at(F::INPUTS, spot.at), F::behind(pooled, t, p, divisor<F>(spot.at, size)));
}

// The gradient of a pooled value, and, behind it, those of the tensors behind the pooling.
template <class F, typename T>
HOST_DEVICE void window_gradients(const Plane<F, T>& of, const Place& at, double pooled, const double* p,
                                  double (&made)[1 + F::TENSORS]) {
  double t[F::TENSORS];
  of.load_tensors(t, at, false);
  F::behind_gradient(load(of.at(0, at)), pooled, t, p, divisor<F>(at, of.size), made);
}

template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    behind_gradient_kernel(const __grid_constant__ CallOf<F> call, int64_t windows) {
  const int64_t index = int64_t(blockIdx.x) * POOLING_THREADS + threadIdx.x;
  if (index >= windows) return;
  const Spot spot(index, call.size + call.rank);
  const Plane<F, T> of(call, spot.plane);
  const double* const p = scalars<F>(call);
  double made[1 + F::TENSORS];
  const double pooled = F::READS_POOLED ? double(pool(of, spot.at, p).value) : 0;
  window_gradients(of, spot.at, pooled, p, made);
  for (int k = 0, place = 1; k < F::TENSORS; ++k)
    if (!is_front<F>(k)) store_rounded(of.at(F::INPUTS + k, spot.at), made[place++]);
}

// The window along a dimension that has element `at` at distance `k` from its first one; -1 where none has.
HOST_DEVICE int64_t window_with(int64_t at, int64_t k, int64_t padding, int64_t stride, int64_t windows) {
  const int64_t first = at + padding - k;
  return first < 0 || first % stride != 0 || first / stride >= windows ? -1 : first / stride;
}

// The part of an element's gradient that a window passes to it.
template <class F, typename T>
HOST_DEVICE double passed(const Plane<F, T>& of, const Place& window, const Place& at, const double* p) {
  double pooled = 0, made[1 + F::TENSORS];
  if constexpr (!F::IS_SUM || F::READS_POOLED) {
    const Pooled<F, T> found = pool(of, window, p);
    pooled = found.value;
    const Place& from = found.from;
    if (!F::IS_SUM && (from.depth != at.depth || from.height != at.height || from.width != at.width)) return 0;
  }
  window_gradients(of, window, pooled, p, made);
  return made[0];
}

template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    front_gradient_kernel(const __grid_constant__ CallOf<F> call) {
  const int64_t index = int64_t(blockIdx.x) * POOLING_THREADS + threadIdx.x;
  if (index >= call.numel) return;
  const Spot spot(index, call.size + call.rank - 3);
  const Plane<F, T> of(call, spot.plane);
  const double* const p = scalars<F>(call);
  const Place& at = spot.at;
  double adjoint = 0;
  for (int64_t kd = 0; kd < F::KERNEL::depth; ++kd) {
    const int64_t d =
        window_with(at.depth, kd * F::DILATION::depth, F::PADDING::depth, F::STRIDE::depth, of.out[0]);
    if (d < 0) continue;
    for (int64_t kh = 0; kh < F::KERNEL::height; ++kh) {
      const int64_t h =
          window_with(at.height, kh * F::DILATION::height, F::PADDING::height, F::STRIDE::height, of.out[1]);
      if (h < 0) continue;
      for (int64_t kw = 0; kw < F::KERNEL::width; ++kw) {
        const int64_t w =
            window_with(at.width, kw * F::DILATION::width, F::PADDING::width, F::STRIDE::width, of.out[2]);
        if (w >= 0) adjoint += passed(of, {d, h, w}, at, p);
      }
    }
  }
  double t[F::TENSORS], made[F::TENSORS];
  of.load_tensors(t, at, true);
  F::front_gradient(adjoint, t, p, made);
  for (int k = 0, place = 0; k < F::TENSORS; ++k)
    if (is_front<F>(k)) store_rounded(of.at(F::INPUTS + k, at), made[place++]);
}

int64_t pooling_blocks(int64_t numel) { return (numel + POOLING_THREADS - 1) / POOLING_THREADS; }

template <class F, typename T>
void launch_pooling(const CallOf<F>& call) {
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto blocks = unsigned(pooling_blocks(call.numel));
  if constexpr (F::FIRST == 0) {
    const auto kernel = pooling_kernel<F, T>;
    kernel<<<blocks, POOLING_THREADS, 0, stream>>>(call);
  } else {
    const auto front = front_gradient_kernel<F, T>;
    front<<<blocks, POOLING_THREADS, 0, stream>>>(call);
    if constexpr (F::FRONT != (1u << F::TENSORS) - 1) {
      const int64_t* const size = call.size + call.rank - 3;
      const int64_t windows = call.numel / (size[0] * size[1] * size[2]) * size[3] * size[4] * size[5];
      const auto behind = behind_gradient_kernel<F, T>;
      behind<<<unsigned(pooling_blocks(windows)), POOLING_THREADS, 0, stream>>>(call, windows);
    }
  }
}

template <class F, int... DTYPES>
const char* launch_any_pooling(const CallOf<F>& call, Dtypes<DTYPES...>) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    launch_pooling<F, decltype(element)>(call);
    error = cudaGetLastError();
    return true;
  };
  if (error == cudaSuccess) (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// Launches F on the current stream of the tensors' device; returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  return launch_any_pooling<F>(call, typename F::Elements());
}

}  // namespace
}  // namespace fusegen
