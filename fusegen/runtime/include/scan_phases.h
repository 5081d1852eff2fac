#pragma once
// Kernels of scans: folds of which each prefix is a result, and the place of a row's largest or smallest element.
#include "row_phases.h"

namespace fusegen {
namespace {

// A scan joins values: that of no element, that of an element's results, and that of the elements of two values, of
// which the first come before. `result` is stored: of the value of a prefix, and the results of an element.
struct RunningSum {
  using Value = double;
  static constexpr int ARITY = 1;
  static HOST_DEVICE Value none() { return 0; }
  static HOST_DEVICE Value of(const double* own) { return own[0]; }
  static HOST_DEVICE Value join(Value before, Value value) { return before + value; }
  static HOST_DEVICE double result(Value value, const double*) { return value; }
};
struct RunningProduct {
  using Value = double;
  static constexpr int ARITY = 1;
  static HOST_DEVICE Value none() { return 1; }
  static HOST_DEVICE Value of(const double* own) { return own[0]; }
  static HOST_DEVICE Value join(Value before, Value value) { return before * value; }
  static HOST_DEVICE double result(Value value, const double*) { return value; }
};
// A product that stays 0 behind a 0, whatever comes, as gradients do.
struct RunningFactors : RunningProduct {
  static HOST_DEVICE Value join(Value before, Value value) {
    return (before == 0) | (value == 0) ? 0 : before * value;
  }
};
// The gradient of a product of an element m and those before it, without a division: the product p of those before,
// times the sum of what each later result passes back. With an element, that becomes a + m' s, of the element m' that
// came before it on the way back; of results without their own elements a + m s. An element of 0 leaves nothing of s,
// not even NaN: behind it no product has a gradient. The gradient is NaN where PyTorch, which multiplies first and
// divides by m last, adds infinities of both signs, or divides by what is no finite number.
template <bool EXCLUDES>
struct RunningSlope {
  static constexpr int ARITY = 3, POSITIVE = 1, NEGATIVE = 2;
  // Of elements: their sum, the signs of its terms, the product of those that s is multiplied by, and the last of them,
  // by which it is multiplied when the next element comes.
  struct Value {
    double sum, m, next;
    int signs;
  };
  static HOST_DEVICE double times(double a, double b) { return (a == 0) | (b == 0) ? 0 : a * b; }
  static HOST_DEVICE int signs_of(double term) { return (term > 0 ? POSITIVE : 0) | (term < 0 ? NEGATIVE : 0); }
  static HOST_DEVICE int turned(int signs, double m) {
    return m == 0 ? 0 : m < 0 ? (signs & POSITIVE) * NEGATIVE | signs / NEGATIVE : signs;
  }
  // NaN where infinities of both signs are added.
  static HOST_DEVICE double spread(double m, int signs) {
    return (signs == (POSITIVE | NEGATIVE)) & (fabs(m) == INFINITY) ? NAN : 0;
  }
  static HOST_DEVICE Value none() { return {0, 1, 1, 0}; }
  static HOST_DEVICE Value of(const double* own) {
    return {own[0], EXCLUDES ? own[1] : 1, EXCLUDES ? 1 : own[1], signs_of(own[0])};
  }
  // Behind elements before; those of `value` are at least one.
  static HOST_DEVICE Value join(const Value& before, const Value& value) {
    const double m = times(value.m, before.next);
    const double sum = (m == 0) | (before.sum == 0) ? value.sum : fma(m, before.sum, value.sum);
    return {sum + spread(m, before.signs), times(m, before.m), value.next, value.signs | turned(before.signs, m)};
  }
  static HOST_DEVICE double result(const Value& before, const double* own) {
    const Value all = EXCLUDES ? before : join(before, of(own));
    const double m = own[1], p = own[2];
    return (p == 0) | (all.sum == 0) ? 0 : p * all.sum + spread(p, all.signs) + (m - m);
  }
};

template <class JOIN, bool REVERSED, bool EXCLUDES>
struct Scan : JOIN {
  static constexpr bool REVERSE = REVERSED;    // from the last element on
  static constexpr bool EXCLUSIVE = EXCLUDES;  // without an element's own value
};

// A phase that scans what it computes of elements. What later phases read of it are inputs behind those of the kernel.
template <class VALUES, unsigned INPUTS, class SCAN>
struct Scans {
  using Own = SCAN;
  static constexpr unsigned IN = INPUTS;
  static constexpr int RESULTS = SCAN::ARITY;
  template <typename>
  using Params = VALUES;
};

// The one phase of a kernel that stores where the largest or the smallest of what it computes is.
template <class VALUES, unsigned INPUTS, class FOLD>
struct Finds {
  using Fold = FOLD;
  static constexpr unsigned IN = INPUTS;
  static constexpr int RESULTS = 1;
  template <typename>
  using Params = VALUES;
};

// A value and its place in a row. The first of equal ones is found, and NaN before all others.
struct Found {
  double value;
  int64_t place;
};
template <class FOLD>
HOST_DEVICE bool replaces(double a, double b) {
  constexpr bool LARGEST = FOLD::IDENTITY < 0;
  return (LARGEST ? b > a : b < a) | ((b != b) & (a == a));
}
// True if b is found instead of a, whichever comes first; a place of -1 is none.
template <class FOLD>
HOST_DEVICE bool is_better(const Found& a, const Found& b) {
  if (a.place < 0 || b.place < 0) return a.place < 0;
  const bool same = (a.value == b.value) | ((a.value != a.value) & (b.value != b.value));
  return same ? b.place < a.place : replaces<FOLD>(a.value, b.value);
}

// The phases of a kernel: none, one or two scans, of which the second goes the other way, and what is stored.
template <class STORES>
struct NoScans {
  using Last = STORES;
  static constexpr int SCANS = 0;
  static constexpr bool REVERSE = false;  // of the loop that stores
};
template <class ONE, class STORES>
struct OneScan {
  using First = ONE;
  using Last = STORES;
  static constexpr int SCANS = 1;
  static constexpr bool REVERSE = ONE::Own::REVERSE;
};
template <class ONE, class TWO, class STORES>
struct TwoScans {
  static_assert(ONE::Own::REVERSE != TWO::Own::REVERSE, "a gradient scans the other way");
  using First = ONE;
  using Second = TWO;
  using Last = STORES;
  static constexpr int SCANS = 2;
  static constexpr bool REVERSE = TWO::Own::REVERSE;
};
template <int IN, int OUT, int P, class VALUES, class A>
NoScans<A> phases_of(const Rows<IN, OUT, P, VALUES, A>&);
template <int IN, int OUT, int P, class VALUES, class A, class B>
OneScan<A, B> phases_of(const Rows<IN, OUT, P, VALUES, A, B>&);
template <int IN, int OUT, int P, class VALUES, class A, class B, class C>
TwoScans<A, B, C> phases_of(const Rows<IN, OUT, P, VALUES, A, B, C>&);
template <class F>
using PhasesOf = decltype(phases_of(F()));

// True of a kernel that finds elements.
template <class VALUES, unsigned INPUTS, class FOLD>
std::true_type is_finding(const Finds<VALUES, INPUTS, FOLD>*);
std::false_type is_finding(const void*);
template <class F>
constexpr bool finds = decltype(is_finding(static_cast<typename PhasesOf<F>::Last*>(nullptr)))::value;

// The inputs that any phase reads, as bits.
template <class PHASES>
constexpr unsigned read_by() {
  unsigned bits = PHASES::Last::IN;
  if constexpr (PHASES::SCANS > 0) bits |= PHASES::First::IN;
  if constexpr (PHASES::SCANS > 1) bits |= PHASES::Second::IN;
  return bits;
}

// Why a call cannot be, if it cannot.
template <class F>
const char* refuse_rows(const Tensors<F::INPUTS + F::OUTPUTS>& call) {
  if (finds<F> && call.size[call.rank - 1] == 0) return "a row has no elements, so that none is found";
  return nullptr;
}
const char* const REFUSED_SUM = "a gradient of a scan is no sum over the rows; expand the tensor that has one row";

}  // namespace
}  // namespace fusegen
