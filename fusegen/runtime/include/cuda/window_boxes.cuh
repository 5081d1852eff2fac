#pragma once
// The cut of planes into boxes, on CUDA. A block has a box of a plane, or whole planes where these are small: of the
// results, or, in the gradient, of the elements; with the windows that reach into it, and the elements of these.
#include "on_both.h"
#include "window_parts.h"

namespace fusegen {
namespace {

constexpr int POOLING_THREADS = 256, BOX = 1024;  // results or elements of a block at most
constexpr int WINDOWS_AT_ONCE = 1280;             // whose gradients a block keeps
constexpr int64_t STAGED_BYTES = 20 << 10;        // of elements that a block keeps: in all 48 KiB

// A dimension of a window.
struct Dimension {
  int64_t kernel, stride, padding, dilation;
  // The first element of a window, and the elements from that of the first one of some windows to the last one's.
  ON_BOTH constexpr int64_t begin(int64_t window) const { return window * stride - padding; }
  ON_BOTH constexpr int64_t span(int64_t windows) const { return (windows - 1) * stride + reach() + 1; }
  ON_BOTH constexpr int64_t reach() const { return (kernel - 1) * dilation; }
  // The first window that may have an element that lies so far behind the begin of window 0.
  template <typename I>
  ON_BOTH constexpr I first(I distance) const {
    const I from = distance - I(reach());
    return from <= 0 ? 0 : (from + I(stride) - 1) / I(stride);
  }
};
template <class F>
ON_BOTH constexpr Dimension dimension(int d) {
  const Dimension all[3] = {
      {F::KERNEL::depth, F::STRIDE::depth, F::PADDING::depth, F::DILATION::depth},
      {F::KERNEL::height, F::STRIDE::height, F::PADDING::height, F::DILATION::height},
      {F::KERNEL::width, F::STRIDE::width, F::PADDING::width, F::DILATION::width}};
  return all[d];
}

// A place in a block's part of a plane.
struct Inside {
  int depth, height, width;
};
HOST_DEVICE Place operator+(const Place& a, const Inside& b) {
  return {a.depth + b.depth, a.height + b.height, a.width + b.width};
}

// A block's places in each plane, of which it has some; 2 to the power of `bits` neighbouring threads have a row, each
// several of its places.
struct Area {
  int size[3], bits;
  ON_BOTH int64_t count() const { return int64_t(size[0]) * size[1] * size[2]; }
};
ON_BOTH Area area(int64_t depth, int64_t height, int64_t width) {
  int bits = 3;
  while (bits < 8 && (8 << bits) <= width) ++bits;
  return {{int(depth), int(height), int(width)}, bits};
}

// Calls a function with each row of some planes: its plane, where it lies, and the number of its first place among all.
template <class FUNCTION>
HOST_DEVICE void each_row(const Area& area, int planes, const FUNCTION& function) {
  int plane = 0, depth = 0, height = int(threadIdx.x) >> area.bits;
  const auto carry = [&] {
    for (; height >= area.size[1]; height -= area.size[1])
      if (++depth == area.size[0]) depth = 0, ++plane;
  };
  for (carry(); plane < planes; height += POOLING_THREADS >> area.bits, carry())
    function(plane, Inside{depth, height, 0}, ((plane * area.size[0] + depth) * area.size[1] + height) * area.size[2]);
}
// Calls a function with the thread's places of a row from `begin` to `end`.
template <class FUNCTION>
HOST_DEVICE void each_of_row(const Area& area, int begin, int end, const FUNCTION& function) {
  const int lanes = 1 << area.bits, lane = int(threadIdx.x) & (lanes - 1);
  for (int w = lane; w < end; w += lanes)
    if (w >= begin) function(w);
}

// The places of a row of an area that a plane has, if the area begins at some place of it: none where `end` is 0.
struct Part {
  int begin, end;
};
HOST_DEVICE Part part_of_row(const Area& area, const Place& first, const Inside& row, const int64_t* size) {
  const int64_t depth = first.depth + row.depth, height = first.height + row.height, left = size[2] - first.width;
  if (depth < 0 || depth >= size[0] || height < 0 || height >= size[1]) return {0, 0};
  return {first.width < 0 ? int(-first.width) : 0, left < area.size[2] ? int(left) : area.size[2]};
}

// The boxes of a call: of a block, what it writes, the windows of that, and the elements of these, if it keeps them.
struct Boxes {
  Area own, windows, elements;
  int planes;                     // of a block
  int64_t all, along[3], blocks;  // planes of the call, boxes of a plane, and blocks
  bool staged;
  // The plane where a block begins, and the first place of its box there.
  HOST_DEVICE int64_t plane(int64_t block) const { return block / (along[0] * along[1] * along[2]) * planes; }
  HOST_DEVICE Place first(int64_t block) const {
    return {block / along[2] / along[1] % along[0] * own.size[0], block / along[2] % along[1] * own.size[1],
            block % along[2] * own.size[2]};
  }
};

// The area of the windows that reach into a box of elements, or of a box of windows itself.
template <class F>
Area windows_of(const Area& own, const int64_t* out) {
  if constexpr (F::FIRST == 0) return own;
  else {
    int64_t most[3];
    for (int d = 0; d < 3; ++d) {
      const Dimension of = dimension<F>(d);
      most[d] = std::min((own.size[d] - 1 + (of.kernel - 1) * of.dilation) / of.stride + 1, out[d]);
    }
    return area(most[0], most[1], most[2]);
  }
}

// True if it is worth to keep elements that windows share: on an H200 the results of 3 x 3 windows took 0.77 ms so and
// 1.28 ms otherwise, but those at every second pixel 0.44 and 0.29 ms.
template <class F>
constexpr bool OVERLAPS = F::KERNEL::depth * F::KERNEL::height * F::KERNEL::width >
                          (F::FIRST == 0 ? 4 : 1) * F::STRIDE::depth * F::STRIDE::height * F::STRIDE::width;

// The boxes of some sizes: what a block keeps of each plane, where an element takes so many bytes.
template <class F>
Boxes boxes_of_size(const int (&own)[3], const int64_t* out, int64_t bytes) {
  Boxes made{};
  made.own = area(own[0], own[1], own[2]);
  made.windows = windows_of<F>(made.own, out);
  const int* const n = made.windows.size;
  made.elements = area(dimension<F>(0).span(n[0]), dimension<F>(1).span(n[1]), dimension<F>(2).span(n[2]));
  made.staged = OVERLAPS<F> && made.elements.count() * bytes <= STAGED_BYTES;
  return made;
}

// Halves the dimension of which boxes have the most elements, unless a block would have too little to do.
bool halve(int (&own)[3], const Boxes& boxes) {
  int widest = 2;
  for (int d = 1; d >= 0; --d)
    if (boxes.elements.size[d] > boxes.elements.size[widest] && own[d] > 1) widest = d;
  if (boxes.own.count() <= POOLING_THREADS || own[widest] == 1) return false;
  own[widest] = (own[widest] + 1) / 2;
  return true;
}

// Cuts planes of some size.
template <class F>
Boxes boxes_of(const int64_t* size, const int64_t* out, int64_t numel, int64_t bytes) {
  constexpr bool IS_VOLUME = F::KERNEL::depth > 1, IS_IMAGE = F::KERNEL::height > 1;
  constexpr int WIDTH = IS_VOLUME ? 16 : IS_IMAGE ? 32 : BOX, DEPTH = IS_VOLUME ? 8 : 1;
  constexpr int MOST[3] = {DEPTH, BOX / DEPTH / WIDTH, WIDTH};
  const int64_t* const plane = F::FIRST == 0 ? out : size;
  const int64_t whole = plane[0] * plane[1] * plane[2];
  int own[3];
  for (int d = 0; d < 3; ++d) own[d] = int(whole <= BOX ? plane[d] : std::min<int64_t>(plane[d], MOST[d]));
  Boxes made = boxes_of_size<F>(own, out, bytes);
  if constexpr (OVERLAPS<F>)
    while (!made.staged && halve(own, made)) made = boxes_of_size<F>(own, out, bytes);
  int64_t boxes = 1;
  for (int d = 0; d < 3; ++d) boxes *= made.along[d] = (plane[d] + own[d] - 1) / own[d];
  made.all = numel / whole;
  made.planes = boxes > 1 ? 1 : int(std::min(std::max<int64_t>(BOX / whole, 1), made.all));
  if (made.staged) made.planes = int(std::min(int64_t(made.planes), STAGED_BYTES / (made.elements.count() * bytes)));
  made.blocks = (made.all + made.planes - 1) / made.planes * boxes;
  return made;
}

}  // namespace
}  // namespace fusegen
