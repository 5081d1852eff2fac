"""What CUDA kernels compute in where float loses too many digits of a float: double, in one word.

Tensors of doubles take two words of double. Of a float's result fewer than half of a double's digits are
kept, so that one word is ample: `Two<Ample>` has the first, and the compiler drops what the second would
have been. exp, log1p, erfc and inverse take no branch and no call. The first three err by eight units of
double's last place at most (`tests/test_ample.py`); the inverse is the chip's, of 20 bits, and a step cubes
its error. Other functions are the math library's.

Source: Cody and Waite 1980, Software Manual for the Elementary Functions, chapter 6; Tang 1990, ACM Trans.
Math. Softw. 16; rcp.approx.ftz.f64 as the PTX ISA describes it.
"""

from __future__ import annotations

from functools import reduce
from textwrap import fill

from fusegen.printers.cpp import WIDTH
from fusegen.printers.doubles import ERFC, EXP, LOG


def _operator(returned: str, symbol: str, *kinds: str) -> str:
    """An operator of two values, which are numbers, Amples or two words."""
    values = {"double": "", "Ample": ".v", "Two": ".hi"}
    arguments = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, "ab", strict=True))
    of = f" {symbol} ".join(name + values[kind] for kind, name in zip(kinds, "ab", strict=True))
    return f"friend __device__ __forceinline__ {returned} operator{symbol}({arguments}) {{ return {of}; }}"


def _function(name: str, count: int) -> str:
    """One of the math library's."""
    names = "abc"[:count]
    arguments, values = (", ".join(form.format(n) for n in names) for form in ("Ample {}", "{}.v"))
    return f"__device__ __forceinline__ Ample {name}({arguments}) {{ return ::{name}({values}); }}"


def _coefficients(name: str, numbers: tuple[float, ...]) -> str:
    said = (
        f"[[maybe_unused]] static __constant__ const double {name}[] = {{{', '.join(map(repr, numbers))}}};"
    )
    return fill(said, WIDTH, subsequent_indent="    ")


_OWN = [_operator("Ample", symbol, "Ample", "Ample") for symbol in "+-*/"]
_OWN += [_operator("bool", symbol, "Ample", "Ample") for symbol in ("<", "<=", ">", ">=", "==", "!=")]
_TWO = [
    f"[[maybe_unused]] {_operator('Two', symbol, *kinds)}"
    for symbol in "+-*"
    for kinds in (("Two", "Two"), ("Two", "double"), ("double", "Two"))
]
_LIBRARY = {
    "fabs": 1, "sqrt": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "sin": 1, "cos": 1, "tanh": 1,
    "erf": 1, "pow": 2, "fma": 3,
}  # fmt: skip
_PARTS = {
    "own": "\n".join(f"  {line}" for line in _OWN),
    "two": "\n".join(f"  {line}" for line in _TWO),
    "library": "\n".join(_function(name, count) for name, count in _LIBRARY.items()),
    "exp": _coefficients("EXP", EXP),
    "log": _coefficients("LOG", LOG),
    "erfc": _coefficients("ERFC", ERFC[:12]),
    "erfc_high": _coefficients("ERFC_HIGH", ERFC[12:]),
}
_TEXT = """\
// Computes what float would lose: a double of which no more is kept than a float holds.
namespace ample {

struct Ample {
  __host__ __device__ __forceinline__ Ample(double v = 0) : v(v) {}
  __device__ __forceinline__ explicit operator double() const { return v; }
  __device__ __forceinline__ explicit operator float() const { return float(v); }
{own}
  friend __device__ __forceinline__ Ample operator-(Ample a) { return -a.v; }
  double v;
};
{library}

// Of e^r = 1 + r + r^2 p(r), of log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2), and two for erfc.
{exp}
{log}
{erfc}
{erfc_high}

// 2^n, of an n up to 1024, which gives infinity; 0 where it would be subnormal.
__device__ __forceinline__ double two_to(int n) {
  const uint64_t bits = n < -1023 ? 0 : uint64_t(int64_t(n) + 1023) << 52;
  double y;
  memcpy(&y, &bits, sizeof(y));
  return y;
}

// e^x, or 0 where it would be subnormal
__device__ __forceinline__ Ample exp(Ample x) {
  constexpr double TO_INTEGER = 0x1.8p52;
  const double above = x.v < -745.0 ? -745.0 : x.v, t = above > 710.0 ? 710.0 : above;
  const double shifted = ::fma(t, 1.4426950408889634, TO_INTEGER), n = shifted - TO_INTEGER;
  const double r = ::fma(n, -0x1.ef35793c76730p-45, ::fma(n, -0x1.62e42fefa3800p-1, t));  // ln 2 in two
  int32_t integer;  // n, in the lower half of what is shifted
  memcpy(&integer, &shifted, sizeof(integer));
  return (1.0 + ::fma(r * r, polynomial(EXP, r), r)) * two_to(integer);
}
// Of two words, the first alone.
template <bool SUBNORMAL = true>
__device__ __forceinline__ Ample exponential(Ample x, Ample) {
  return exp(x);
}

// 1 / x, of an x from 2^-1000 to 2^1000
__device__ __forceinline__ Ample inverse(Ample x) {
#ifdef __CUDACC__
  double r;  // to 20 bits
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x.v));
  const double e = ::fma(-x.v, r, 1.0);
  return ::fma(r, ::fma(e, e, e), r);
#else
  return 1.0 / x.v;
#endif
}

// log(1 + x)
__device__ __forceinline__ Ample log1p(Ample x) {
  const double u = 1.0 + x.v, v = u - 1.0, lost = (1.0 - (u - v)) + (x.v - v);
  uint64_t bits;
  memcpy(&bits, &u, sizeof(bits));
  const int64_t n = int64_t(bits - 0x3fe6a09e00000000) >> 52;  // so that m is from root 1/2 to root 2
  bits -= uint64_t(n) << 52;
  double m;
  memcpy(&m, &bits, sizeof(m));
  const double s = ::fma(lost, two_to(int(-n)), m - 1.0) * inverse(1.0 + m).v, z = s * s;
  const double y = ::fma(double(int(n)), 0.69314718055994531, ::fma(s * z, polynomial(LOG, z), s + s));
  const double special = x.v == -1.0 ? -INFINITY : x.v < -1.0 ? NAN : x.v;  // also 0, with its sign
  return x.v > -1.0 && x.v < INFINITY && x.v != 0.0 ? y : special;
}

// erfc(x): times (1 + 2 |x|) e^(x^2), it is smooth in t
__device__ __forceinline__ Ample erfc(Ample x) {
  const double size = ::fabs(x.v), z = size > 27.5 ? 27.5 : size;  // it is 0 beyond
  const double u = z + 3.75, d = ::fma(2.0, z, 1.0);
  const double per = inverse(u * d).v, t = (z - 3.75) * (per * d), t4 = (t * t) * (t * t);
  const double p = ::fma(polynomial(ERFC_HIGH, t), t4 * t4 * t4, polynomial(ERFC, t)) * (per * u);
  const double square = z * z, rest = ::fma(z, z, -square), e = exp(-square).v, y = ::fma(-rest, e, e) * p;
  return x.v < 0.0 ? 2.0 - y : x.v == x.v ? y : x.v;
}

// x sigmoid(t)
__device__ __forceinline__ Ample gate(Ample x, Ample t) {
  return x * inverse(1.0 + exp(t.v < -690.0 ? 690.0 : -t.v));
}

// Φ(-|x|); the tails that double needs a lift for are no floats
__device__ __forceinline__ Ample ndtr_tail(Ample x) { return 0.5 * erfc(fabs(x) * 0.70710678118654757); }
__device__ __forceinline__ Ample exp_of_two(Ample x) { return exp(x); }
__device__ __forceinline__ Ample expm1_of_two(Ample x) { return expm1(x); }
__device__ __forceinline__ Ample lifted(Ample x) { return x; }
__device__ __forceinline__ Ample lift_back(Ample) { return 1.0; }

}  // namespace ample

using ample::Ample;

namespace {

// Of two words it has the first.
template <>
struct Two<Ample> {
  __device__ __forceinline__ Two(Ample hi, Ample = 0) : hi(hi), lo(0) {}
  __device__ __forceinline__ Two(double hi) : hi(hi), lo(0) {}
  __device__ __forceinline__ operator Ample() const { return hi; }
{two}
  Ample hi, lo;
};
[[maybe_unused]] __device__ __forceinline__ Ample ndtr_tail(Two<Ample> x) { return ndtr_tail(x.hi); }
[[maybe_unused]] __device__ __forceinline__ Ample exp_of_two(Two<Ample> x) { return exp(x.hi); }
[[maybe_unused]] __device__ __forceinline__ Ample expm1_of_two(Two<Ample> x) { return expm1(x.hi); }
}  // namespace"""
AMPLE = reduce(lambda text, part: text.replace(f"{{{part}}}", _PARTS[part]), _PARTS, _TEXT)
