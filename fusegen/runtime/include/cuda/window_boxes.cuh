#pragma once
// The cut of planes into boxes, on CUDA. A block has a box of a plane, or whole planes where these are small: of the
// results, or, in the gradient, of the elements; with the windows that reach into it, and the columns of these.
#include "on_both.h"
#include "window_parts.h"

namespace fusegen {
namespace {

constexpr int POOLING_THREADS = 256;
constexpr int64_t BOX_BYTES = 47 << 10;  // of shared memory
constexpr int64_t BOX_ELEMENTS = 4096;   // that a block has of small planes
constexpr int64_t MOST_PLACES = 1 << 16; // of a block

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
  // The windows that may have one of some elements.
  ON_BOTH constexpr int64_t windows(int64_t elements) const { return (elements - 1 + reach()) / stride + 1; }
  // The least number of phases: windows of one phase, which are as far from each other, share no element.
  ON_BOTH constexpr int phases() const {
    for (int64_t count = 1;; ++count) {
      bool shares = false;
      for (int64_t far = count * stride; far <= reach(); far += count * stride) shares |= far % dilation == 0;
      if (!shares) return int(count);
    }
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
// The first element of a window.
template <class F>
HOST_DEVICE Place begin_of(const Place& window) {
  return {dimension<F>(0).begin(window.depth), dimension<F>(1).begin(window.height),
          dimension<F>(2).begin(window.width)};
}

// The windows below each other of a strip, through which a thread takes a column of elements: of about eight rows.
template <class F>
constexpr int STRIP = F::KERNEL::height == 1 || F::KERNEL::height > 16 || F::DILATION::height > 1 ||
                              F::STRIDE::height > 4
                          ? 1
                          : 8 / int(F::STRIDE::height);
// The strips at least of which the windows have all of an element's.
template <class F, bool RESULTS>
constexpr int64_t STRIPS = RESULTS ? 1 : (dimension<F>(1).windows(1) + STRIP<F> - 1) / STRIP<F>;

// A place in a block's part of a plane.
struct Inside {
  int depth, height, width;
};
HOST_DEVICE Place operator+(const Place& a, const Inside& b) {
  return {a.depth + b.depth, a.height + b.height, a.width + b.width};
}
HOST_DEVICE Inside operator-(const Place& a, const Place& b) {
  return {int(a.depth - b.depth), int(a.height - b.height), int(a.width - b.width)};
}

// Quotients of numbers below 2 to the power of 16: 2 to the power of 32 divided by the divisor and rounded up, 0 for 1.
ON_BOTH unsigned inverse(int64_t divisor) {
  return divisor == 1 ? 0 : unsigned(((uint64_t(1) << 32) + uint64_t(divisor) - 1) / uint64_t(divisor));
}
HOST_DEVICE int quotient_by(int n, unsigned inverse) {
  return inverse == 0 ? n : int(uint64_t(unsigned(n)) * inverse >> 32);
}

// A block's places in each plane.
struct Area {
  int size[3];
  unsigned inverses[3];
  ON_BOTH int64_t count() const { return int64_t(size[0]) * size[1] * size[2]; }
};
ON_BOTH Area area(int64_t depth, int64_t height, int64_t width) {
  return {{int(depth), int(height), int(width)}, {inverse(depth), inverse(height), inverse(width)}};
}

// Calls a function with places of some planes, one for each thread at a time: its plane, where it lies, and its number.
template <class FUNCTION>
HOST_DEVICE void each_place(const Area& area, int planes, const FUNCTION& function) {
  const int count = int(area.count()) * planes;
  for (int n = int(threadIdx.x); n < count; n += POOLING_THREADS) {
    const int row = quotient_by(n, area.inverses[2]), above = quotient_by(row, area.inverses[1]);
    const int plane = planes == 1 ? 0 : quotient_by(above, area.inverses[0]);
    function(plane, Inside{above - plane * area.size[0], row - above * area.size[1], n - row * area.size[2]}, n);
  }
}

// The same for places of any number.
template <class FUNCTION>
HOST_DEVICE void each_of_many_places(const Area& area, int planes, const FUNCTION& function) {
  const int count = int(area.count()) * planes, height = area.size[1], width = area.size[2];
  for (int n = int(threadIdx.x); n < count; n += POOLING_THREADS) {
    const int above = n / width / height, plane = above / area.size[0];
    function(plane, Inside{above - plane * area.size[0], n / width % height, n % width}, n);
  }
}

// The places from one on that a plane of some sizes has: none in front of `low`, nor from `high` on.
struct Limits {
  int low[3], high[3];
  HOST_DEVICE Limits(const int64_t* size, const Place& from) {
    const int64_t begin[3] = {from.depth, from.height, from.width};
    for (int d = 0; d < 3; ++d) {
      low[d] = begin[d] < 0 ? int(-begin[d]) : 0;
      high[d] = size[d] - begin[d] < 1 << 30 ? int(size[d] - begin[d]) : 1 << 30;
    }
  }
  HOST_DEVICE bool has(int d, int place) const { return place >= low[d] && place < high[d]; }
  // True of a place that is not in front of a plane.
  HOST_DEVICE bool has(const Inside& at) const {
    return at.depth < high[0] && at.height < high[1] && at.width < high[2];
  }
};

template <class F, int D>
constexpr int PHASES = dimension<F>(D).phases();

// The boxes of a call: of a block, what it writes, the windows of that, those of a phase at most, and the columns of
// windows: a place for each strip.
struct Boxes {
  Area own, windows, of_phase, columns;
  int planes, along[3], blocks;  // planes of a block, boxes of a plane, and blocks
  int64_t all, shared;           // planes of the call, and bytes of shared memory
  // Finds the plane where a block begins, and the first place of its box there.
  HOST_DEVICE int64_t begin(unsigned block, Place& first) const {
    int64_t place[3];
    for (int d = 2; d >= 0; --d) {
      const unsigned boxes = unsigned(along[d]), box = boxes == 1 ? 0 : block % boxes;
      place[d] = int64_t(box) * own.size[d];
      if (boxes != 1) block /= boxes;
    }
    first = {place[0], place[1], place[2]};
    return int64_t(block) * planes;
  }
  // The planes of a block that there are.
  HOST_DEVICE int planes_from(int64_t plane) const { return all - plane < planes ? int(all - plane) : planes; }
};

// The bytes that a block needs: for a window whose gradient it keeps, for what a column gives to a window, and for an
// element.
struct Needs {
  int64_t window, column, element;
};

// The bytes of shared memory that a block of the boxes of some size needs for each of its planes.
template <class F>
ON_BOTH constexpr int64_t shared_bytes(const int64_t (&own)[3], const int64_t (&windows)[3], const Needs& needs) {
  const int64_t rows = windows[0] * ((windows[1] + STRIP<F> - 1) / STRIP<F> * STRIP<F>);
  const int64_t columns = rows * dimension<F>(2).span(windows[2]) * needs.column;
  const int64_t elements = own[0] * own[1] * own[2] * needs.element;
  return (rows * windows[2] * needs.window + 7) / 8 * 8 + (columns > elements ? columns : elements);
}

// True if the smallest box fits: one of RESULTS, or an element with the windows that reach into it.
template <class F, bool RESULTS>
constexpr bool fits(const Needs& needs) {
  const int64_t windows[3] = {RESULTS ? 1 : dimension<F>(0).windows(1), STRIPS<F, RESULTS> * STRIP<F>,
                              RESULTS ? 1 : dimension<F>(2).windows(1)};
  return shared_bytes<F>({1, 1, 1}, windows, needs) <= BOX_BYTES &&
         windows[0] * windows[1] * dimension<F>(2).span(windows[2]) < MOST_PLACES;
}

// The boxes of some size; without planes where they do not fit.
template <class F, bool RESULTS>
Boxes boxes_of_size(const int64_t (&own)[3], const int64_t* out, const Needs& needs, int64_t most_planes) {
  int64_t windows[3];
  for (int d = 0; d < 3; ++d) windows[d] = RESULTS ? own[d] : std::min(dimension<F>(d).windows(own[d]), out[d]);
  const int64_t strips = (windows[1] + STRIP<F> - 1) / STRIP<F>, width = dimension<F>(2).span(windows[2]);
  const int64_t bytes = shared_bytes<F>(own, windows, needs), elements = own[0] * own[1] * own[2];
  const int64_t places = std::max(elements, windows[0] * strips * STRIP<F> * width);
  Boxes made{};
  if (bytes > BOX_BYTES || places >= MOST_PLACES) return made;
  made.own = area(own[0], own[1], own[2]);
  made.windows = area(windows[0], strips * STRIP<F>, windows[2]);
  made.of_phase = area((windows[0] - 1) / PHASES<F, 0> + 1, (strips * STRIP<F> - 1) / PHASES<F, 1> + 1,
                       (windows[2] - 1) / PHASES<F, 2> + 1);
  made.columns = area(windows[0], strips, width);
  const int64_t several = std::min(BOX_ELEMENTS / elements, (MOST_PLACES - 1) / places);
  const int64_t fit = bytes > 0 ? std::min(several, BOX_BYTES / bytes) : several;
  made.planes = int(std::max<int64_t>(std::min(most_planes, fit), 1));
  made.shared = made.planes * bytes;
  return made;
}

// The instructions of a block for each of its places, roughly: of rows of columns, of windows and of places.
template <class F, bool RESULTS>
double price(const Boxes& boxes, const Needs& needs) {
  constexpr int64_t ROWS = ((STRIP<F> - 1) * F::STRIDE::height + F::KERNEL::height) * F::KERNEL::depth;
  const auto rounds = [&](const Area& area) {
    return double((area.count() * boxes.planes + POOLING_THREADS - 1) / POOLING_THREADS);
  };
  const double columns = needs.column > 0 ? rounds(boxes.columns) * (40.0 + 10.0 * double(ROWS)) : 0;
  const double windows = rounds(boxes.windows) * (40.0 + 4.0 * double(F::KERNEL::width));
  const double own = RESULTS ? 0 : rounds(boxes.own) * 40.0;
  return (columns + windows + own + 300) / double(boxes.own.count() * boxes.planes);
}

// Cuts the planes of results or elements: the cheapest of boxes that fit into shared memory.
template <class F, bool RESULTS>
Boxes boxes_of(const CallOf<F>& call, const Needs& needs) {
  const int64_t *const size = call.size + call.rank - 3, *const out = size + 3, *const plane = RESULTS ? out : size;
  const int64_t whole = plane[0] * plane[1] * plane[2], given = F::FIRST == 0 ? out[0] * out[1] * out[2]
                                                                             : size[0] * size[1] * size[2];
  Boxes best{};
  best.all = call.numel / given;
  double least = INFINITY;
  for (int64_t cuts = 1; cuts < 2 * plane[2]; cuts *= 2)
    for (int64_t more : {0, 1, 2, 4, 8})
      for (int64_t depth = 1; depth < 2 * plane[0] && depth <= 16; depth *= 2) {
        const int64_t below = (STRIPS<F, RESULTS> + more) * STRIP<F>;
        const int64_t rows = RESULTS ? below : (below - 1) * F::STRIDE::height - dimension<F>(1).reach() + 1;
        const int64_t own[3] = {std::min(depth, plane[0]), std::min(std::max<int64_t>(rows, 1), plane[1]),
                                (plane[2] + cuts - 1) / cuts};
        const bool is_whole = own[0] * own[1] * own[2] == whole && call.rank <= 4;
        Boxes made = boxes_of_size<F, RESULTS>(own, out, needs, is_whole ? best.all : 1);
        const double found = made.planes > 0 ? price<F, RESULTS>(made, needs) : INFINITY;
        made.all = best.all;
        if (found < least) best = made, least = found;
      }
  int64_t boxes = 1;
  for (int d = 0; d < 3; ++d) boxes *= best.along[d] = int((plane[d] + best.own.size[d] - 1) / best.own.size[d]);
  best.blocks = int((best.all + best.planes - 1) / best.planes * boxes);
  return best;
}

}  // namespace
}  // namespace fusegen
