#pragma once
// Double-word arithmetic: a value is hi + lo, not added up, and rounds once, where it is stored. A lo of NaN, which
// comes of infinities, counts as none. Source: Dekker 1971, Numer. Math. 18; Ogita, Rump and Oishi 2005, SIAM J. Sci.
// Comput. 26; Joldes, Muller and Popescu 2017, ACM Trans. Math. Softw. 44.
#include <type_traits>
#include "basics.h"

namespace fusegen {
namespace {

template <typename M>
struct DoubleWord {
  HOST_DEVICE DoubleWord(M hi, M lo = 0) : hi(hi), lo(lo) {}
  HOST_DEVICE operator M() const {
    const M y = hi + lo;
    return y < hi || y > hi ? y : hi;  // of -0, that
  }
  M hi, lo;
};

// The body of a function that a kernel calls, where the types of the arguments do not say which: f<DOUBLE_WORD>(x).
enum Body { DOUBLE_WORD, SINGLE_WORD, NEAR };
// R, in the overload whose body is OWN.
template <Body BODY, Body OWN, typename R>
using ForBody = std::enable_if_t<BODY == OWN, R>;

// The single-word and the double-word type of a value of either.
template <typename X>
struct Words {
  using single = X;
  using two = DoubleWord<X>;
};
template <typename M>
struct Words<DoubleWord<M>> {
  using single = M;
  using two = DoubleWord<M>;
};
template <typename X>
using Scalar = typename Words<X>::single;
template <typename X>
using Promoted = typename Words<X>::two;

template <typename M>
HOST_DEVICE bool operator<(DoubleWord<M> a, M b) {
  return a.hi < b;
}
template <typename M>
HOST_DEVICE bool operator>(DoubleWord<M> a, M b) {
  return a.hi > b;
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator-(DoubleWord<M> a) {
  return {-a.hi, -a.lo};
}

// A double-word number.
template <typename M>
HOST_DEVICE DoubleWord<M> double_word(M hi, M lo) {
  return {hi, lo};
}

// The number hi + lo of doubles as a double-word value of M.
template <typename M>
HOST_DEVICE Promoted<M> number(double hi, double lo) {
  if constexpr (sizeof(M) == 8) {
    return double_word(M(hi), M(lo));
  } else {
    const float first = float(hi);
    return double_word(M(first), M(float(hi - double(first) + lo)));
  }
}

// a b and a + b exactly, of single words.
template <typename M>
HOST_DEVICE DoubleWord<M> two_prod(M a, M b) {
  const M p = a * b;
  return {p, fma(a, b, -p)};
}
template <typename M>
HOST_DEVICE DoubleWord<M> two_sum(M a, M b) {
  const M s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
// a + b exactly, of a b no larger than a; -0 and 0 give -0.
template <typename M>
HOST_DEVICE DoubleWord<M> fast_two_sum(M a, M b) {
  const M s = a + b, hi = s == a ? a : s;
  return {hi, b - (hi - a)};
}
// 1 + a, of an a from -1 to 2^23.
template <typename M>
HOST_DEVICE DoubleWord<M> one_plus(DoubleWord<M> a) {
  const M s = M(1) + a.hi;
  return {s, (a.hi - (s - M(1))) + a.lo};
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator+(DoubleWord<M> a, M b) {
  const DoubleWord<M> s = two_sum(a.hi, b);
  return {s.hi, s.lo + a.lo};
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator+(M a, DoubleWord<M> b) {
  return b + a;
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator+(DoubleWord<M> a, DoubleWord<M> b) {
  const DoubleWord<M> s = two_sum(a.hi, b.hi);
  return {s.hi, s.lo + (a.lo + b.lo)};
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator-(DoubleWord<M> a, M b) {
  return a + -b;
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator-(M a, DoubleWord<M> b) {
  return -b + a;
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator-(DoubleWord<M> a, DoubleWord<M> b) {
  return a + -b;
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator*(DoubleWord<M> a, M b) {
  const DoubleWord<M> p = two_prod(a.hi, b);
  return {p.hi, fma(a.lo, b, p.lo)};
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator*(M a, DoubleWord<M> b) {
  return b * a;
}
template <typename M>
HOST_DEVICE DoubleWord<M> operator*(DoubleWord<M> a, DoubleWord<M> b) {
  const DoubleWord<M> p = two_prod(a.hi, b.hi);
  return {p.hi, fma(a.hi, b.lo, fma(a.lo, b.hi, p.lo))};
}
template <typename M>
HOST_DEVICE DoubleWord<M> two_prod(DoubleWord<M> a, DoubleWord<M> b) {
  return a * b;
}

// 1 / x to 1 ulp, of an x from 2^-100 to 2^100.
template <typename M>
HOST_DEVICE M reciprocal_approx(M x) {
#ifdef __CUDACC__
  if constexpr (sizeof(M) == 4) {
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
  }
#endif
  return M(1) / x;
}
// a^2 + 2 a, of an a from 0.
template <typename M>
HOST_DEVICE DoubleWord<M> quadratic(DoubleWord<M> a) {
  const M twice = a.hi + a.hi, y = fma(a.hi, a.hi, twice);
  return {y, fma(a.lo, twice + M(2), fma(a.hi, a.hi, twice - y))};
}
// a + 2, of an a from 0.
template <typename M>
HOST_DEVICE DoubleWord<M> plus_two(DoubleWord<M> a) {
  const M s = a.hi + M(2);
  return {s, (a.hi - (s - M(2))) + a.lo};
}
// a / b, of a b from 2^-100 to 2^100.
template <typename M>
HOST_DEVICE DoubleWord<M> divide(DoubleWord<M> a, DoubleWord<M> b) {
  const M r = reciprocal_approx(b.hi), q = a.hi * r;
  const M rest = fma(-q, b.lo, fma(-q, b.hi, a.hi) + a.lo);
  return {q, rest * r};
}
// -|x|
template <typename M>
HOST_DEVICE M neg_abs(M x) {
  return -fabs(x);
}
template <typename M>
HOST_DEVICE DoubleWord<M> neg_abs(DoubleWord<M> x) {
  return {-fabs(x.hi), x.hi < M(0) ? x.lo : -x.lo};
}

// x, or the least that is as good as what is below it; double needs none.
template <typename M>
HOST_DEVICE M fast_clamp_min(M x, M least) {
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(M) == 4) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(least));
    return x;
  }
#endif
  return x <= least && sizeof(M) == 4 ? least : x;
}
// x, or the most that is as good as what is above it.
template <typename M>
HOST_DEVICE M fast_clamp_max(M x, M most) {
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(M) == 4) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(most));
    return x;
  }
#endif
  return x >= most ? most : x;
}
template <typename M>
HOST_DEVICE DoubleWord<M> fast_clamp_min(DoubleWord<M> x, M least) {
  const M v = fast_clamp_min(x.hi, least);
  return {v, v == x.hi ? x.lo : M(0)};
}
template <typename M>
HOST_DEVICE DoubleWord<M> fast_clamp_max(DoubleWord<M> x, M most) {
  const M v = fast_clamp_max(x.hi, most);
  return {v, v == x.hi ? x.lo : M(0)};
}

// x (hi + lo)
template <typename M>
HOST_DEVICE M scaled(M x, M hi, M lo) {
  return fma(x, hi, x * lo);
}

// a b c + d
template <typename M>
HOST_DEVICE M product_plus(M a, M b, M c, M d) {
  const M p = a * b;
  return fma(p, c, fma(fma(a, b, -p), c, d));
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> square(X x) {
  return two_prod(x, x);
}

template <Body BODY, typename X>
HOST_DEVICE ForBody<BODY, DOUBLE_WORD, Promoted<X>> cube(X x) {
  return two_prod(x, x) * x;
}

// (a + a_lo) + (b + b_lo) x
template <typename X>
HOST_DEVICE Promoted<X> linear(Scalar<X> b, Scalar<X> b_lo, Scalar<X> a, Scalar<X> a_lo, X x) {
  using M = Scalar<X>;
  const M v = x.hi, y = fma(b, v, a), rest = fma(b, v, a - y) + fma(b_lo, v, a_lo);
  const M lo = fma(b, x.lo, rest);
  return sizeof(M) == 8 && lo == lo ? fast_two_sum(y, lo) : double_word(y, lo);
}

}  // namespace
}  // namespace fusegen
