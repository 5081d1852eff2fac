#pragma once
// Kernels of rows: loops over the elements of a row, the phases, between which values of the row are computed in
// double.
#include <tuple>
#include <type_traits>
#include "row_channels.h"

namespace fusegen {
namespace {

// Reductions: what an empty row gives, how two values are joined, and whether that rounds. A NaN makes its row NaN.
struct Added {
  static constexpr double IDENTITY = 0;
  static constexpr bool ROUNDS = true;
  template <typename A>
  static HOST_DEVICE A join(A a, A b) {
    return a + b;
  }
};
struct Largest {
  static constexpr double IDENTITY = -INFINITY;
  static constexpr bool ROUNDS = false;
  template <typename A>
  static HOST_DEVICE A join(A a, A b) {
    return b > a || b != b ? b : a;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static __device__ float join(float a, float b) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
#endif
};
struct Smallest {
  static constexpr double IDENTITY = INFINITY;
  static constexpr bool ROUNDS = false;
  template <typename A>
  static HOST_DEVICE A join(A a, A b) {
    return b < a || b != b ? b : a;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static __device__ float join(float a, float b) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
#endif
};

// A value of a row as elements in M read it: itself where M is double, and two floats where M is float, so that a
// difference to it is exact before it is rounded.
template <typename M>
constexpr bool IN_FLOAT = sizeof(M) == 4;
template <typename M, bool = IN_FLOAT<M>>
struct OfRowType {
  using type = M;
};
template <typename M>
HOST_DEVICE M less_two(M x, M hi, M lo) {
  return x - hi - lo;
}
// The second of the two floats: what `hi` leaves of `v`, and 0 where it is infinite.
HOST_DEVICE float lower(double v, float hi) { return hi - hi == 0 ? float(v - double(hi)) : 0; }
template <typename M>
struct TwoFloats {
  template <typename D, typename = std::enable_if_t<std::is_same_v<D, double>>>  // an M is none, as in ?:
  HOST_DEVICE TwoFloats(D v) : hi(float(v)), lo(lower(v, float(v))) {}
  HOST_DEVICE operator M() const { return hi; }
  friend HOST_DEVICE M operator-(M x, TwoFloats r) { return less_two(x, r.hi, r.lo); }
  friend HOST_DEVICE M operator-(TwoFloats r, M x) { return r.hi - x + r.lo; }
  friend HOST_DEVICE M operator+(M x, TwoFloats r) { return x + r.hi + r.lo; }
  friend HOST_DEVICE M operator+(TwoFloats r, M x) { return x + r.hi + r.lo; }
  friend HOST_DEVICE M operator*(M x, TwoFloats r) { return x * r.hi; }
  friend HOST_DEVICE M operator*(TwoFloats r, M x) { return x * r.hi; }
  friend HOST_DEVICE M operator/(M x, TwoFloats r) { return x / r.hi; }
  friend HOST_DEVICE M operator-(TwoFloats r) { return -r.hi; }
  M hi, lo;
};
template <typename M>
struct OfRowType<M, true> {
  using type = TwoFloats<M>;
};
template <typename M>
using OfRow = typename OfRowType<M>::type;

// The inputs that a phase reads, as bits.
template <int... INPUTS>
constexpr unsigned READS = (0u | ... | (1u << INPUTS));

// A phase that reads the inputs INPUTS, the scalars and values of the row VALUES, and reduces what it computes. A
// derived type has `element`, which computes one element, and `row`, which computes what follows once a row.
template <class VALUES, unsigned INPUTS, class... FOLDS>
struct Reduces {
  static constexpr unsigned IN = INPUTS;
  static constexpr int RESULTS = sizeof...(FOLDS);
  static constexpr bool STORES = false, PICKS = false, CANCELS = false, WATCHES = false;
  static constexpr bool ROUNDS = (FOLDS::ROUNDS || ...);
  static constexpr bool EXACT = false;  // whether what it reduces are elements, which need no arithmetic
  static constexpr bool BOUNDED = false;  // whether what it reduces is from 0 to 1
  template <typename>
  using Params = VALUES;
  // Calls a function with the place and the type of each reduction.
  template <class FUNCTION>
  static HOST_DEVICE void each(FUNCTION&& function) {
    int k = 0;
    (function(k++, FOLDS()), ...);
  }
};

// The last phase, which stores OUT results of each element.
template <class VALUES, unsigned INPUTS, int OUT>
struct Stores {
  static constexpr unsigned IN = INPUTS;
  static constexpr int RESULTS = OUT;
  static constexpr bool STORES = true, PICKS = false, EXACT = false, ROUNDS = true, BOUNDED = true;
  static constexpr bool CANCELS = false;  // whether terms of results may cancel, of which float would leave few bits
  static constexpr bool WATCHES = false;  // whether sums and products are all that it does behind a sum that may
  template <typename>
  using Params = VALUES;
  static HOST_DEVICE void row(const double*, VALUES&) {}
};

// The inputs that more than one phase reads, or the first one does.
template <class FIRST, class... OTHERS>
constexpr unsigned shared_inputs() {
  unsigned once = FIRST::IN, twice = FIRST::IN;
  ((twice |= once & OTHERS::IN, once |= OTHERS::IN), ...);
  return twice;
}

// The inputs that more than one phase reads.
template <class... PHASES>
constexpr unsigned repeated_inputs() {
  unsigned once = 0, twice = 0;
  ((twice |= once & PHASES::IN, once |= PHASES::IN), ...);
  return twice;
}

template <int... COUNTS>
constexpr int most_of() {
  int most = 0;
  ((most = COUNTS > most ? COUNTS : most), ...);
  return most;
}

constexpr int count_of(unsigned bits) { return bits == 0 ? 0 : int(bits & 1) + count_of(bits >> 1); }

// A kernel of IN inputs, OUT outputs and P scalars, whose phases read VALUES. FEATURES are the outputs, as bits, that
// are sums over the rows where their operand has one row; STORED_BY is whether results are stored once a row.
template <int IN, int OUT, int P, class VALUES, class... PHASES>
struct Rows {
  static constexpr int INPUTS = IN, OUTPUTS = OUT, SCALARS = P, MOST_RESULTS = most_of<PHASES::RESULTS...>();
  static constexpr unsigned SHARED = shared_inputs<PHASES...>(), REPEATED = repeated_inputs<PHASES...>();
  using Last = std::tuple_element_t<sizeof...(PHASES) - 1, std::tuple<PHASES...>>;  // stores
  static constexpr unsigned FEATURES = 0;
  static constexpr unsigned OF_FEATURES = 0;  // the inputs, as bits, that have one row for all as declared
  static constexpr bool BY_CHANNEL = false;  // whether OF_FEATURES have one value for several neighbours in a row
  static constexpr unsigned OF_ROW = 0;  // the inputs, as bits, of which a row has one value
  static constexpr unsigned INDICES = 0;  // the inputs, as bits, that pick an element of a row, and are 1 there, else 0
  static constexpr bool ONCE_A_ROW = false;
  static constexpr bool APART = false;  // whether the elements of rows may lie apart
  static constexpr bool RECOMPUTES = false;  // whether what a phase computes of elements is cheaper than registers
  using Elements = AllDtypes;
  using Values = VALUES;
  using Math32 = double;  // the arithmetic of an element of 32 bits, and of 16
  using Math16 = float;
};

// The statements that set scalars p of a call, from its scalars and the length of its rows.
#define FUSEGEN_VALUES(...)                                                                                   \
  static HOST_DEVICE Values values(const Call<INPUTS + OUTPUTS, SCALARS>& call, [[maybe_unused]] double length) { \
    Values p{};                                                                                               \
    __VA_ARGS__;                                                                                              \
    return p;                                                                                                 \
  }

// The statements that compute values of the row p from the results r of a phase's reductions.
#define FUSEGEN_ROW(...)                                              \
  template <class VALUES>                                             \
  static HOST_DEVICE void row(const double* r, VALUES& p) {           \
    __VA_ARGS__;                                                      \
  }

// The arithmetic of an element of T, and of one in a phase.
template <class F, typename T, size_t BYTES = sizeof(T)>
struct MathType {
  using type = double;
};
template <class F, typename T>
struct MathType<F, T, 4> {
  using type = typename F::Math32;
};
template <class F, typename T>
struct MathType<F, T, 2> {
  using type = typename F::Math16;
};
template <class PHASE, class F, typename T>
using RoundingMathOf =
    std::conditional_t<PHASE::CANCELS && sizeof(T) == 2, typename F::Math32, typename MathType<F, T>::type>;
template <class PHASE, class F, typename T>
using MathOf = std::conditional_t<PHASE::EXACT, decltype(load(T())), RoundingMathOf<PHASE, F, T>>;

// The outputs of a kernel that may be sums over the rows.
template <class F>
constexpr int SUMS_OF = count_of(F::FEATURES);

// The inputs that rows have for themselves and more than one phase reads, which are worth shared memory.
template <class F>
constexpr unsigned HELD_OF = F::REPEATED & ~F::OF_ROW & ~F::INDICES & ~F::OF_FEATURES;

// The values of the row that a phase makes, of one thread for all.
#define FUSEGEN_MADE(...)                                                            \
  template <class VALUES>                                                            \
  static HOST_DEVICE void take(VALUES& p, [[maybe_unused]] const VALUES& from) {     \
    __VA_ARGS__;                                                                     \
  }

// The number of rows of a call, whose last dimension is the elements of a row.
template <int N>
int64_t rows_of(const Tensors<N>& call) {
  int64_t rows = 1;
  for (int d = 0; d < call.rank - 1; ++d) rows *= call.size[d];
  return rows;
}

// Where a row begins in tensor k, in elements.
template <int N>
HOST_DEVICE int64_t begin_of_row(const Tensors<N>& call, int k, int64_t row) {
  if (call.rank == 2) return row * call.stride[k][0];
  int64_t at = 0;
#ifdef __CUDACC__
#pragma unroll 1
#endif
  for (int d = call.rank - 2; d >= 0; --d) {
    at += row % call.size[d] * call.stride[k][d];
    row /= call.size[d];
  }
  return at;
}

}  // namespace
}  // namespace fusegen
