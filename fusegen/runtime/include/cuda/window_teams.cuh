#pragma once
// Adaptive poolings, and windows of which no block can keep the columns, on CUDA. Neighbouring threads, a team, pool a
// window together; how many they are the sizes of a plane and of the result decide, so that a result has the same bits
// in any batch. In the gradient a block has a box of elements, and keeps what comes back from the windows that reach
// into it: a global pooling has a block for each plane.
#include "cuda/pooled.cuh"

namespace fusegen {
namespace {

constexpr int MOST_KEPT = 1024;                // windows whose gradients a block keeps
constexpr int64_t BOX_OF_ELEMENTS = 4096;      // elements of a block, unless a few windows have more
constexpr int64_t MOST_OF_BOX = 1 << 30;       // so that an int counts them

// The part of a window that a thread of a team pools.
template <class F, typename T>
HOST_DEVICE Pooled<F, T> pool_part(const Plane<F, T>& of, const Place& window, const double* p, int lane, int lanes) {
  const Elements<F, 0> d(window.depth, of.size[0], of.out[0]);
  const Elements<F, 1> h(window.height, of.size[1], of.out[1]);
  const Elements<F, 2> w(window.width, of.size[2], of.out[2]);
  const int64_t width = w.count, height = h.count, across = width * height;
  Pooled<F, T> made{PooledType<F, T>(F::Fold::IDENTITY), INT64_MAX};
  Place at{quotient(lane, across), quotient(lane, width) % height, lane % width};
  const Place step{quotient(lanes, across), quotient(lanes, width) % height, lanes % width};
  while (at.depth < d.count) {
    const Place place{d.begin + at.depth * d.step, h.begin + at.height * h.step, w.begin + at.width * w.step};
    join(made, {of.element(place, p), (place.depth * of.size[1] + place.height) * of.size[2] + place.width});
    at.width += step.width;
    const bool next_row = at.width >= width;
    at.width -= next_row ? width : 0;
    at.height += step.height + next_row;
    const bool next = at.height >= height;
    at.height -= next ? height : 0;
    at.depth += step.depth + next;
  }
  return made;
}

// Pools a window by its team; all threads of a block call it.
template <class F, typename T>
HOST_DEVICE Pooled<F, T> pool_by_team(const Plane<F, T>& of, const Place& window, const double* p, int lanes,
                                      double* memory) {
  const int lane = int(threadIdx.x) & (lanes - 1);
  const Pooled<F, T> part = pool_part(of, window, p, lane, lanes);
  if (lanes == 1) return part;
  Pooled<F, T>* const parts = reinterpret_cast<Pooled<F, T>*>(memory) + threadIdx.x;
  __syncthreads();  // what was there is read
  *parts = part;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) join(*parts, parts[half]);
  }
  __syncthreads();
  return parts[-lane];
}

// The results of windows, or, in the gradient, the gradients of tensors behind them.
template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    teams_kernel(const __grid_constant__ CallOf<F> call, int lanes, int64_t windows) {
  extern __shared__ double memory[];
  const int64_t* const out = call.size + call.rank;
  const double* const p = scalars<F>(call);
  int64_t index = (int64_t(blockIdx.x) * POOLING_THREADS + threadIdx.x) / lanes;
  const bool has = index < windows;
  if (!has) index = 0;
  Place at;
  at.width = index % out[2], index /= out[2];
  at.height = index % out[1], index /= out[1];
  at.depth = index % out[0];
  const Plane<F, T> of(call, index / out[0]);
  double pooled = 0;
  if constexpr (F::FIRST == 0 || F::READS_POOLED) pooled = double(pool_by_team(of, at, p, lanes, memory).value);
  if (!has || (int(threadIdx.x) & (lanes - 1)) != 0) return;
  if constexpr (F::FIRST == 0) {
    double t[F::TENSORS];
    of.load_tensors(t, at, false);
    store_rounded(of.at(F::INPUTS, at), F::behind(pooled, t, p, divisor<F>(at, of.size)));
  } else {
    double made[1 + F::TENSORS];
    window_gradients(of, at, pooled, p, made);
    for (int k = 0, place = 1; k < F::TENSORS; ++k)
      if (!is_front<F>(k)) store_rounded(of.at(F::INPUTS + k, at), made[place++]);
  }
}

// The boxes of elements of a call, and the windows of each: those that a block keeps, unless they are too many.
struct ElementBoxes {
  Area own, windows;
  int planes, lanes;
  int64_t all, along[3], blocks;
  bool kept;
};

// A pooled window's gradient, and the place in the plane of the element that has it.
template <class F, typename T>
HOST_DEVICE double passed_on(const Plane<F, T>& of, const Place& at, const Pooled<F, T>& found, const double* p) {
  double made[1 + F::TENSORS];
  window_gradients(of, at, double(found.value), p, made);
  return made[0];
}

// The gradients of tensors in front of the pooling.
template <class F, typename T>
__global__ void __launch_bounds__(POOLING_THREADS)
    gradient_by_teams_kernel(const __grid_constant__ CallOf<F> call, const __grid_constant__ ElementBoxes boxes) {
  extern __shared__ double memory[];
  const int64_t *const size = call.size + call.rank - 3, *const out = size + 3;
  const double* const p = scalars<F>(call);
  const int64_t block = blockIdx.x, cuts = boxes.along[0] * boxes.along[1] * boxes.along[2];
  const int64_t first_plane = block / cuts * boxes.planes;
  const Place from{block / boxes.along[2] / boxes.along[1] % boxes.along[0] * boxes.own.size[0],
                   block / boxes.along[2] % boxes.along[1] * boxes.own.size[1],
                   block % boxes.along[2] * boxes.own.size[2]};
  const Place first{Windows<F, 0>(from.depth, size[0], out[0]).begin, Windows<F, 1>(from.height, size[1], out[1]).begin,
                    Windows<F, 2>(from.width, size[2], out[2]).begin};
  const Area& windows = boxes.windows;
  const int count = int(windows.count()), all = boxes.kept ? boxes.planes * count : 0;
  double* const adjoint = memory + 2 * POOLING_THREADS;
  int64_t* const taken = reinterpret_cast<int64_t*>(adjoint + all);
  const int teams = POOLING_THREADS / boxes.lanes;
  for (int begin = 0; begin < all; begin += teams) {
    const int number = begin + int(threadIdx.x) / boxes.lanes;
    const int inside = number % count, in_plane = inside / windows.size[2];
    Place at{first.depth + in_plane / windows.size[1], first.height + in_plane % windows.size[1],
             first.width + inside % windows.size[2]};
    const int64_t plane = first_plane + number / count;
    const bool has = number < all && plane < boxes.all && at.depth < out[0] && at.height < out[1] && at.width < out[2];
    if (!has) at = first;
    const Plane<F, T> of(call, has ? plane : first_plane);
    Pooled<F, T> found{0, 0};
    if constexpr (!F::IS_SUM || F::READS_POOLED) found = pool_by_team(of, at, p, boxes.lanes, memory);
    if (!has || (int(threadIdx.x) & (boxes.lanes - 1)) != 0) continue;
    adjoint[number] = passed_on(of, at, found, p), taken[number] = found.tap;
  }
  __syncthreads();
  const Limits limits(size, from);
  const auto store = [&](int plane, const Inside& inside, int) {
    const Place at = from + inside;
    if (first_plane + plane >= boxes.all || !limits.has(inside)) return;
    const Plane<F, T> whole(call, first_plane + plane);
    const Windows<F, 0> d(at.depth, size[0], out[0]);
    const Windows<F, 1> h(at.height, size[1], out[1]);
    const Windows<F, 2> across(at.width, size[2], out[2]);
    const int64_t own = (at.depth * size[1] + at.height) * size[2] + at.width;
    double sum = 0;
    for (int64_t i = d.begin; i < d.end; ++i)
      for (int64_t j = h.begin; j < h.end; ++j)
        for (int64_t k = across.begin; k < across.end; ++k) {
          if (boxes.kept) {
            const int64_t in_rows = (plane * windows.size[0] + i - first.depth) * windows.size[1] + j - first.height;
            const int64_t number = in_rows * windows.size[2] + k - first.width;
            if (F::IS_SUM || taken[number] == own) sum += adjoint[number];
          } else {
            Pooled<F, T> found{0, 0};
            if constexpr (!F::IS_SUM || F::READS_POOLED) found = pool_part(whole, {i, j, k}, p, 0, 1);
            if (F::IS_SUM || found.tap == own) sum += passed_on(whole, {i, j, k}, found, p);
          }
        }
    double t[F::TENSORS], made[F::TENSORS];
    whole.load_tensors(t, at, true);
    F::front_gradient(sum, t, p, made);
    for (int k = 0, place = 0; k < F::TENSORS; ++k)
      if (is_front<F>(k)) store_rounded(whole.at(F::INPUTS + k, at), made[place++]);
  };
  if (boxes.own.count() * boxes.planes < MOST_PLACES) each_place(boxes.own, boxes.planes, store);
  else each_of_many_places(boxes.own, boxes.planes, store);
}

// The threads of a team, for the elements of a window.
template <class F>
int lanes_of(const int64_t* size) {
  double elements = 1;
  for (int d = 0; d < 3; ++d) elements *= elements_along<F>(d, size[d], size[3 + d]);
  int lanes = 1;
  while (lanes < POOLING_THREADS && elements >= 8.0 * lanes) lanes *= 2;
  return lanes;
}

// Cuts planes of some size.
template <class F>
ElementBoxes element_boxes(const int64_t* size, int64_t numel) {
  const int64_t* const out = size + 3;
  int64_t own[3] = {size[0], size[1], size[2]}, windows[3];
  ElementBoxes made{};
  for (;;) {
    for (int d = 0; d < 3; ++d) windows[d] = windows_along<F>(d, own[d], size[d], out[d]);
    const double kept = double(windows[0]) * double(windows[1]) * double(windows[2]);
    const double elements = double(own[0]) * double(own[1]) * double(own[2]);
    made.kept = kept <= MOST_KEPT;
    if (made.kept && (elements <= BOX_OF_ELEMENTS || kept <= 8) && elements <= MOST_OF_BOX) break;
    int widest = -1;  // of the dimensions whose cut leaves fewer windows, or fewer elements where these are too many
    const int64_t* const counted = elements > MOST_OF_BOX ? own : windows;
    for (int d = 0; d < 3; ++d)
      if (own[d] > 1 && counted[d] > 1 && (widest < 0 || counted[d] > counted[widest])) widest = d;
    if (widest < 0) break;
    own[widest] = (own[widest] + 1) / 2;
  }
  made.own = area(own[0], own[1], own[2]);
  made.windows = made.kept ? area(windows[0], windows[1], windows[2]) : area(1, 1, 1);
  int64_t boxes = 1;
  for (int d = 0; d < 3; ++d) boxes *= made.along[d] = (size[d] + own[d] - 1) / own[d];
  made.all = numel / (size[0] * size[1] * size[2]);
  const int64_t most = std::min(BOX_OF_ELEMENTS / made.own.count(), MOST_KEPT / made.windows.count());
  made.planes = boxes > 1 ? 1 : int(std::min(std::max<int64_t>(most, 1), made.all));
  made.blocks = (made.all + made.planes - 1) / made.planes * boxes;
  made.lanes = lanes_of<F>(size);
  return made;
}

constexpr int64_t OF_TEAMS = POOLING_THREADS * 16;  // bytes

template <class F, typename T>
void launch_teams(const CallOf<F>& call, cudaStream_t stream) {
  const int64_t *const size = call.size + call.rank - 3, *const out = size + 3;
  const int lanes = lanes_of<F>(size);
  const int64_t plane = F::FIRST == 0 ? out[0] * out[1] * out[2] : size[0] * size[1] * size[2];
  const int64_t windows = call.numel / plane * out[0] * out[1] * out[2], teams = POOLING_THREADS / lanes;
  const auto kernel = teams_kernel<F, T>;
  kernel<<<unsigned((windows + teams - 1) / teams), POOLING_THREADS, OF_TEAMS, stream>>>(call, lanes, windows);
}

template <class F, typename T>
void launch_gradient_by_teams(const CallOf<F>& call, cudaStream_t stream) {
  const ElementBoxes boxes = element_boxes<F>(call.size + call.rank - 3, call.numel);
  const int64_t kept = boxes.kept ? boxes.planes * boxes.windows.count() * 16 : 0;
  const auto front = gradient_by_teams_kernel<F, T>;
  front<<<unsigned(boxes.blocks), POOLING_THREADS, OF_TEAMS + kept, stream>>>(call, boxes);
}

}  // namespace
}  // namespace fusegen
