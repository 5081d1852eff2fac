#pragma once
// Kernels with a pooling on CUDA. A block has a box of results, or of elements of the tensors in front of the pooling,
// to which their gradients go from the windows that they are in, in one order: each is written once, and has the same
// bits in each run. Where windows overlap, what is pooled is computed once for all windows of a block.
#include "launcher.h"
#include "cuda/launch.cuh"
#include "cuda/adaptive_teams.cuh"

namespace fusegen {
namespace {

// The first element of a window.
template <class F>
HOST_DEVICE Place begin_of(const Place& window) {
  return {dimension<F>(0).begin(window.depth), dimension<F>(1).begin(window.height),
          dimension<F>(2).begin(window.width)};
}

template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    pooling_kernel(const __grid_constant__ CallOf<F> call, const __grid_constant__ Boxes boxes) {
  extern __shared__ double memory[];
  const Staged<F, T> staged{reinterpret_cast<PooledType<F, T>*>(memory), boxes.elements};
  const int64_t* const size = call.size + call.rank - 3;
  const double* const p = scalars<F>(call);
  const int64_t first_plane = boxes.plane(blockIdx.x);
  const Place first = boxes.first(blockIdx.x);
  if (boxes.staged) staged.load(call, boxes, first_plane, begin_of<F>(first));
  __syncthreads();
  each_row(boxes.own, boxes.planes, [&](int plane, const Inside& row, int) {
    if (first_plane + plane >= boxes.all) return;
    const Plane<F, T> of(call, first_plane + plane);
    const RowOfPlane<F, T> results(of, first + row);
    const Part part = part_of_row(boxes.own, first, row, size + 3);
    each_of_row(boxes.own, part.begin, part.end, [&](int w) {
      const Inside at{row.depth, row.height, w};
      double t[F::TENSORS];
      results.load_tensors(t, w, false);
      const double pooled = pool_any<false>(staged, boxes.staged, of, plane, at, first + at, p).value;
      store_rounded(results.at(F::INPUTS, w), F::behind(pooled, t, p, divisor<F>(first + at, size)));
    });
  });
}

// The gradients of tensors behind the pooling.
template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    behind_gradient_kernel(const __grid_constant__ CallOf<F> call, int64_t windows) {
  int64_t index = int64_t(blockIdx.x) * POOLING_THREADS + threadIdx.x;
  if (index >= windows) return;
  const int64_t* const out = call.size + call.rank;
  Place at;
  at.width = index % out[2], index /= out[2];
  at.height = index % out[1], index /= out[1];
  at.depth = index % out[0];
  const Plane<F, T> of(call, index / out[0]);
  const double* const p = scalars<F>(call);
  double made[1 + F::TENSORS];
  window_gradients(of, at, F::READS_POOLED ? double(pool(of, at, p).value) : 0, p, made);
  for (int k = 0, place = 1; k < F::TENSORS; ++k)
    if (!is_front<F>(k)) store_rounded(of.at(F::INPUTS + k, at), made[place++]);
}

// The windows that a block keeps, from number `begin` on: their gradients, and the elements that these go to.
struct Kept {
  int begin, count;
  Place first;
  double* adjoint;
  int64_t* tap;
};

// The windows of a block that have an element, along a dimension: it lies `distance` behind the begin of the first one.
template <class F, int D>
struct Having {
  int distance, begin, end;
  HOST_DEVICE Having(int distance, int windows) : distance(distance), begin(dimension<F>(D).first(distance)) {
    const int last = distance / int(dimension<F>(D).stride) + 1;
    end = distance < 0 ? 0 : last < windows ? last : windows;
  }
  // The element's place in a window, or -1.
  HOST_DEVICE int tap(int window) const {
    constexpr Dimension OF = dimension<F>(D);
    const int in_window = distance - window * int(OF.stride);
    return in_window % int(OF.dilation) == 0 ? in_window / int(OF.dilation) : -1;
  }
};

// The gradient that an element has of windows of a plane of the block.
template <class F>
HOST_DEVICE double passed(const Kept& kept, const Area& windows, int plane, const Having<F, 0>& depth,
                          const Having<F, 1>& height, const Having<F, 2>& width) {
  double sum = 0;
  for (int d = depth.begin; d < depth.end; ++d) {
    for (int h = height.begin; h < height.end; ++h) {
      const int row = ((plane * windows.size[0] + d) * windows.size[1] + h) * windows.size[2] - kept.begin;
      const int64_t plane_tap = (depth.tap(d) * F::KERNEL::height + height.tap(h)) * F::KERNEL::width;
      const bool has_row = depth.tap(d) >= 0 && height.tap(h) >= 0;
      for (int w = width.begin; w < width.end; ++w) {
        const int k = row + w, kw = width.tap(w);
        if (!has_row || kw < 0 || k < 0 || k >= kept.count) continue;
        if (F::IS_SUM || kept.tap[k] == plane_tap + kw) sum += kept.adjoint[k];
      }
    }
  }
  return sum;
}

// Keeps the gradients of a block's windows, and which elements these go to.
template <class F, typename T>
HOST_DEVICE void keep_windows(const Kept& kept, const CallOf<F>& call, const Boxes& boxes, const Staged<F, T>& staged) {
  const int64_t *const out = call.size + call.rank, first_plane = boxes.plane(blockIdx.x);
  const double* const p = scalars<F>(call);
  each_row(boxes.windows, boxes.planes, [&](int plane, const Inside& row, int number) {
    if (first_plane + plane >= boxes.all) return;
    const Plane<F, T> of(call, first_plane + plane);
    const Part part = part_of_row(boxes.windows, kept.first, row, out);
    each_of_row(boxes.windows, part.begin, part.end, [&](int w) {
      const int k = number + w - kept.begin;
      if (k < 0 || k >= kept.count) return;
      const Inside at{row.depth, row.height, w};
      double made[1 + F::TENSORS], pooled = 0;
      if constexpr (!F::IS_SUM || F::READS_POOLED) {
        const Pooled<F, T> found = pool_any<true>(staged, boxes.staged, of, plane, at, kept.first + at, p);
        pooled = found.value, kept.tap[k] = found.tap;
      }
      window_gradients(of, kept.first + at, pooled, p, made);
      kept.adjoint[k] = made[0];
    });
  });
}

// The gradients of tensors in front of the pooling. Windows that are too many at once come one part after the other.
template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS, 3)
    front_gradient_kernel(const __grid_constant__ CallOf<F> call, const __grid_constant__ Boxes boxes) {
  extern __shared__ double memory[];
  const int64_t* const size = call.size + call.rank - 3;
  const double* const p = scalars<F>(call);
  const int64_t first_plane = boxes.plane(blockIdx.x);
  const int all = boxes.planes * int(boxes.windows.count()), most = all < WINDOWS_AT_ONCE ? all : WINDOWS_AT_ONCE;
  const Place from = boxes.first(blockIdx.x);
  constexpr Dimension OF[3] = {dimension<F>(0), dimension<F>(1), dimension<F>(2)};
  double* const adjoint = memory;  // of the block's elements
  const Place first{OF[0].first(from.depth + OF[0].padding), OF[1].first(from.height + OF[1].padding),
                    OF[2].first(from.width + OF[2].padding)};
  Kept kept{0, most, first, memory + boxes.planes * boxes.own.count(), nullptr};
  kept.tap = reinterpret_cast<int64_t*>(kept.adjoint + most);
  const Staged<F, T> staged{reinterpret_cast<PooledType<F, T>*>(kept.tap + most), boxes.elements};
  const Place begin = begin_of<F>(first);
  if ((!F::IS_SUM || F::READS_POOLED) && boxes.staged) staged.load(call, boxes, first_plane, begin);
  const int64_t left[3] = {size[3] - first.depth, size[4] - first.height, size[5] - first.width};
  int windows[3];  // that there are
  for (int d = 0; d < 3; ++d) windows[d] = left[d] < boxes.windows.size[d] ? int(left[d]) : boxes.windows.size[d];
  const Inside distance{int(from.depth - begin.depth), int(from.height - begin.height), int(from.width - begin.width)};
  for (; kept.begin < all; kept.begin += most) {
    __syncthreads();
    keep_windows(kept, call, boxes, staged);
    __syncthreads();
    each_row(boxes.own, boxes.planes, [&](int plane, const Inside& row, int number) {
      const Having<F, 0> depth(distance.depth + row.depth, windows[0]);
      const Having<F, 1> height(distance.height + row.height, windows[1]);
      each_of_row(boxes.own, 0, boxes.own.size[2], [&](int w) {
        const Having<F, 2> width(distance.width + w, windows[2]);
        const double sum = passed<F>(kept, boxes.windows, plane, depth, height, width);
        adjoint[number + w] = kept.begin == 0 ? sum : adjoint[number + w] + sum;
      });
    });
  }
  each_row(boxes.own, boxes.planes, [&](int plane, const Inside& row, int number) {
    if (first_plane + plane >= boxes.all) return;
    const RowOfPlane<F, T> of(Plane<F, T>(call, first_plane + plane), from + row);
    const Part part = part_of_row(boxes.own, from, row, size);
    each_of_row(boxes.own, part.begin, part.end, [&](int w) {
      double t[F::TENSORS], made[F::TENSORS];
      of.load_tensors(t, w, true);
      F::front_gradient(adjoint[number + w], t, p, made);
      for (int k = 0, place = 0; k < F::TENSORS; ++k)
        if (is_front<F>(k)) store_rounded(of.at(F::INPUTS + k, w), made[place++]);
    });
  });
}

template <class F, typename T>
void launch_pooling(const CallOf<F>& call) {
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const int64_t *const size = call.size + call.rank - 3, *const out = size + 3;
  constexpr int64_t BYTES = sizeof(PooledType<F, T>);
  const Boxes boxes = boxes_of<F>(size, out, call.numel, BYTES);
  const int64_t kept = boxes.staged ? boxes.planes * boxes.elements.count() * BYTES : 0;
  if constexpr (F::FIRST == 0) {
    const auto kernel = pooling_kernel<F, T>;
    kernel<<<unsigned(boxes.blocks), POOLING_THREADS, std::max<int64_t>(kept, 8), stream>>>(call, boxes);
  } else {
    const int64_t windows = std::min<int64_t>(boxes.planes * boxes.windows.count(), WINDOWS_AT_ONCE);
    const int64_t bytes = (boxes.planes * boxes.own.count() + 2 * windows) * 8 + kept;
    const auto front = front_gradient_kernel<F, T>;
    front<<<unsigned(boxes.blocks), POOLING_THREADS, bytes, stream>>>(call, boxes);
    if constexpr (F::FRONT != (1u << F::TENSORS) - 1) {
      const int64_t all = boxes.all * out[0] * out[1] * out[2];
      const auto behind = behind_gradient_kernel<F, T>;
      const auto blocks = unsigned((all + POOLING_THREADS - 1) / POOLING_THREADS);
      behind<<<blocks, POOLING_THREADS, 0, stream>>>(call, all);
    }
  }
}

template <class F, int... DTYPES>
const char* launch_any_pooling(const CallOf<F>& call, Dtypes<DTYPES...>) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    if constexpr (F::ADAPTIVE) launch_adaptive<F, decltype(element)>(call);
    else launch_pooling<F, decltype(element)>(call);
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
