#pragma once
// Kernels with a pooling on CUDA. A block has a box of results, or of elements of the tensors in front of the pooling,
// to which their gradients go from the windows that they are in, in one order: each is written once, and has the same
// bits in each run. Windows share the columns of elements that a thread takes through several of them.
#include "launcher.h"
#include "cuda/launch.cuh"
#include "cuda/window_columns.cuh"
#include "cuda/window_teams.cuh"

namespace fusegen {
namespace {

// The gradient of a pooled value, and, behind it, those of the tensors behind the pooling.
template <class F, typename T>
HOST_DEVICE void window_gradients(const Near<F, T>& near, int plane, const Inside& at, const Place& window,
                                  double pooled, const double* p, double (&made)[1 + F::TENSORS]) {
  double t[F::TENSORS];
  near.load_tensors(t, plane, at, false);
  F::behind_gradient(load(*near.at(0, plane, at)), pooled, t, p, divisor<F>(window, near.of.size), made);
}

// The results, or the gradients of tensors behind the pooling.
template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    pooling_kernel(const __grid_constant__ CallOf<F> call, const __grid_constant__ Boxes boxes) {
  extern __shared__ double memory[];
  const double* const p = scalars<F>(call);
  Place first;
  const int64_t first_plane = boxes.begin(blockIdx.x, first);
  const Near<F, T> near(call, first_plane, first);
  const auto store = [&](int plane, const Inside& at, int, const Found<F, T>& found) {
    if constexpr (F::FIRST == 0) {
      double t[F::TENSORS];
      near.load_tensors(t, plane, at, false);
      const double result = F::behind(found.value, t, p, divisor<F>(first + at, near.of.size));
      store_rounded(*near.at(F::INPUTS, plane, at), result);
    } else {
      double made[1 + F::TENSORS];
      window_gradients(near, plane, at, first + at, double(found.value), p, made);
      for (int k = 0, place = 1; k < F::TENSORS; ++k)
        if (!is_front<F>(k)) store_rounded(*near.at(F::INPUTS + k, plane, at), made[place++]);
    }
  };
  each_window<F::FIRST == 0 || F::READS_POOLED, false, F, T>(call, boxes, first_plane, first, memory, store);
}

// A block's own elements, from a place of a plane on, and the windows that reach into them.
template <class F>
struct OwnElements {
  const Boxes& boxes;
  Place first;  // of the windows
  Inside begin;  // of the elements, behind the begin of the first window
  int windows[3];

  HOST_DEVICE OwnElements(const Boxes& boxes, const Place& from, const int64_t* out) : boxes(boxes) {
    constexpr Dimension OF[3] = {dimension<F>(0), dimension<F>(1), dimension<F>(2)};
    first = {OF[0].first(from.depth + OF[0].padding), OF[1].first(from.height + OF[1].padding),
             OF[2].first(from.width + OF[2].padding)};
    begin = from - begin_of<F>(first);
    const int64_t places[3] = {first.depth, first.height, first.width};
    for (int d = 0; d < 3; ++d)
      windows[d] = out[d] - places[d] < boxes.windows.size[d] ? int(out[d] - places[d]) : boxes.windows.size[d];
  }
  // The number of the element at a place in a window, or -1.
  HOST_DEVICE int number(int plane, const Inside& window, int tap) const {
    constexpr int W = int(F::KERNEL::width), H = int(F::KERNEL::height);
    const int row = tap / W;
    const int depth = window.depth * int(F::STRIDE::depth) + row / H * int(F::DILATION::depth) - begin.depth;
    const int height = window.height * int(F::STRIDE::height) + row % H * int(F::DILATION::height) - begin.height;
    const int width = window.width * int(F::STRIDE::width) + tap % W * int(F::DILATION::width) - begin.width;
    const int* const size = boxes.own.size;
    const bool has = tap >= 0 && unsigned(depth) < unsigned(size[0]) && unsigned(height) < unsigned(size[1]) &&
                     unsigned(width) < unsigned(size[2]);
    return has ? ((plane * size[0] + depth) * size[1] + height) * size[2] + width : -1;
  }
};

// The windows of a block that have an element, along a dimension: it lies `distance` behind the begin of the first one.
template <class F, int D>
struct Having {
  int begin, end;
  HOST_DEVICE Having(int distance, int windows) {
    constexpr Dimension OF = dimension<F>(D);
    const int last = distance < 0 ? 0 : distance / int(OF.stride) + 1;
    begin = OF.first(distance), end = last < windows ? last : windows;
  }
};

// The sum of the gradients that an element has from its windows, in one order.
template <class F>
HOST_DEVICE double passed(const OwnElements<F>& own, const double* kept, int plane, const Inside& at) {
  const Having<F, 0> depth(at.depth + own.begin.depth, own.windows[0]);
  const Having<F, 1> height(at.height + own.begin.height, own.windows[1]);
  const Having<F, 2> width(at.width + own.begin.width, own.windows[2]);
  const int* const size = own.boxes.windows.size;
  double sum = 0;
  for (int d = depth.begin; d < depth.end; ++d)
    for (int h = height.begin; h < height.end; ++h) {
      const double* const row = kept + ((plane * size[0] + d) * size[1] + h) * size[2];
      for (int w = width.begin; w < width.end; ++w) sum += row[w];
    }
  return sum;
}

// A window that a block keeps: its gradient, and, of a selection, the number among the block's own elements of the
// one that this goes to, or -1.
template <class F>
constexpr int64_t KEPT_BYTES = sizeof(double) + (F::IS_SUM ? 0 : sizeof(int));
template <class F>
struct Kept {
  double* adjoint;
  int* own;
  HOST_DEVICE Kept(double* memory, int windows) : adjoint(memory), own(reinterpret_cast<int*>(memory + windows)) {}
  // The memory behind, from where a double may begin.
  HOST_DEVICE double* behind(int windows) const {
    return adjoint + windows + (F::IS_SUM ? 0 : (windows + 1) / 2);
  }
};

// Adds to the elements that were selected, one phase after the other: windows of one phase share no element, and the
// place of a window in its plane decides its phase.
template <class F>
HOST_DEVICE void add_selected(const OwnElements<F>& own, const Kept<F>& kept, int planes, double* adjoint) {
  constexpr int D = PHASES<F, 0>, H = PHASES<F, 1>, W = PHASES<F, 2>;
  const int elements = int(own.boxes.own.count()) * planes;
  for (int k = int(threadIdx.x); k < elements; k += POOLING_THREADS) adjoint[k] = 0;
  const int begin[3] = {D - int(own.first.depth % D), H - int(own.first.height % H), W - int(own.first.width % W)};
  const int* const size = own.boxes.windows.size;
  for (int phase = 0; phase < D * H * W; ++phase) {
    __syncthreads();
    const Inside from{(phase / W / H + begin[0]) % D, (phase / W % H + begin[1]) % H, (phase % W + begin[2]) % W};
    each_place(own.boxes.of_phase, planes, [&](int plane, const Inside& at, int) {
      const int depth = from.depth + at.depth * D, height = from.height + at.height * H;
      const int width = from.width + at.width * W;
      if (depth >= own.windows[0] || height >= own.windows[1] || width >= own.windows[2]) return;
      const int number = ((plane * size[0] + depth) * size[1] + height) * size[2] + width;
      if (kept.own[number] >= 0) adjoint[kept.own[number]] += kept.adjoint[number];
    });
  }
}

// The gradients of tensors in front of the pooling.
template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    front_gradient_kernel(const __grid_constant__ CallOf<F> call, const __grid_constant__ Boxes boxes) {
  extern __shared__ double memory[];
  const double* const p = scalars<F>(call);
  Place from;
  const int64_t first_plane = boxes.begin(blockIdx.x, from);
  const int planes = boxes.planes_from(first_plane), windows = int(boxes.windows.count()) * planes;
  const OwnElements<F> own(boxes, from, call.size + call.rank);
  const Kept<F> kept(memory, windows);
  double* const adjoint = kept.behind(windows);  // where the columns were
  const Near<F, T> behind(call, first_plane, own.first);
  const auto keep = [&](int plane, const Inside& at, int number, const Found<F, T>& found) {
    double made[1 + F::TENSORS];
    window_gradients(behind, plane, at, own.first + at, double(found.value), p, made);
    kept.adjoint[number] = made[0];
    if constexpr (!F::IS_SUM) kept.own[number] = own.number(plane, at, found.tap);
  };
  each_window<!F::IS_SUM || F::READS_POOLED, true, F, T>(call, boxes, first_plane, own.first, adjoint, keep);
  __syncthreads();
  if constexpr (!F::IS_SUM) add_selected<F>(own, kept, planes, adjoint);
  __syncthreads();
  const Near<F, T> near(call, first_plane, from);
  const Limits limits(call.size + call.rank - 3, from);
  each_place(boxes.own, planes, [&](int plane, const Inside& at, int number) {
    if (!limits.has(at)) return;
    double t[F::TENSORS], made[F::TENSORS], sum;
    if constexpr (F::IS_SUM) sum = passed<F>(own, kept.adjoint, plane, at);
    else sum = adjoint[number];
    near.load_tensors(t, plane, at, true);
    F::front_gradient(sum, t, p, made);
    for (int k = 0, place = 0; k < F::TENSORS; ++k)
      if (is_front<F>(k)) store_rounded(*near.at(F::INPUTS + k, plane, at), made[place++]);
  });
}

// True if teams of threads pool windows: of an adaptive pooling, and where no box is small enough.
template <class F, bool RESULTS>
constexpr bool by_teams(const Needs& needs) {
  if constexpr (F::ADAPTIVE) return true;
  else return !fits<F, RESULTS>(needs);
}

// The shared memory for results, or gradients of tensors behind the pooling, and for gradients in front.
template <class F, typename T>
constexpr Needs RESULTS_NEED = {0, F::FIRST == 0 || F::READS_POOLED ? Columns<F, T, false>::BYTES : 0, 0};
template <class F, typename T>
constexpr Needs GRADIENTS_NEED = {KEPT_BYTES<F>, !F::IS_SUM || F::READS_POOLED ? Columns<F, T, true>::BYTES : 0,
                                  F::IS_SUM ? 0 : sizeof(double)};

template <class F, typename T>
void launch_pooling(const CallOf<F>& call) {
  const auto stream = static_cast<cudaStream_t>(call.stream);
  if constexpr (F::FIRST == 0 || F::FRONT != (1u << F::TENSORS) - 1) {
    if constexpr (by_teams<F, true>(RESULTS_NEED<F, T>)) launch_teams<F, T>(call, stream);
    else {
      const Boxes boxes = boxes_of<F, true>(call, RESULTS_NEED<F, T>);
      const auto kernel = pooling_kernel<F, T>;
      kernel<<<unsigned(boxes.blocks), POOLING_THREADS, std::max<int64_t>(boxes.shared, 8), stream>>>(call, boxes);
    }
  }
  if constexpr (F::FIRST != 0) {
    if constexpr (by_teams<F, false>(GRADIENTS_NEED<F, T>)) launch_gradient_by_teams<F, T>(call, stream);
    else {
      const Boxes boxes = boxes_of<F, false>(call, GRADIENTS_NEED<F, T>);
      const auto front = front_gradient_kernel<F, T>;
      front<<<unsigned(boxes.blocks), POOLING_THREADS, std::max<int64_t>(boxes.shared, 8), stream>>>(call, boxes);
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
