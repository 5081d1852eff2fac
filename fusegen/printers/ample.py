"""What CUDA kernels compute in where float loses too many digits of a float: double, in one word.

Tensors of doubles take two words of double. Of a float's result fewer than half of a double's digits are
kept, so that one word is ample: `Two<Ample>` has the first, and the compiler drops what the second would
have been. Functions of our own take no branch and no call. They err by 2^-44, or in `BRIEF`, for kernels
that magnify errors little, by 2^-39, with shorter polynomials. Other functions are the math library's.

Source: Cody and Waite 1980, Software Manual for the Elementary Functions, chapter 6; Tang 1990, ACM Trans.
Math. Softw. 16, for log1p; Shepherd and Laframboise 1981, Math. Comp. 36, for Φ(-x), which times
(x + 4.75) e^(x^2 / 2) is smooth in (x - 4.75) / (x + 4.75); rcp.approx.ftz.f64 as the PTX ISA describes it.
Polynomials interpolate in the zeros of Chebyshev's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import fill

from fusegen.ir import Device, Kernel, Math, operations
from fusegen.ops import ROWS
from fusegen.printers.cpp import WIDTH, reached


@dataclass(frozen=True, slots=True)
class Digits:
    """What functions take to be right to so many digits.

    Attributes:
        errs: by what they err, relative to what they give.
        exp, log, tail: coefficients.
        reduced: x - n ln 2, in C++.
        step: from a reciprocal r of 20 bits, with e = 1 - x r, to a better one; says what it does to e.
    """

    errs: str
    exp: tuple[float, ...]
    log: tuple[float, ...]
    tail: tuple[float, ...]
    reduced: str
    step: tuple[str, str]


# fmt: off
AMPLE = Digits(
    errs="2^-44",
    exp=(
        0.5, 0.16666666666648303, 0.041666666666651364, 0.008333333353717156, 0.0013888888905871347,
        0.0001984120875699232, 2.4801536409064087e-05, 2.7625102005388108e-06, 2.761379555451986e-07,
    ),
    log=(
        0.6666666666666208, 0.40000000011206505, 0.2857142413832416, 0.22222862280108716,
        0.18140193802865992, 0.16621817152858928,
    ),
    tail=(
        0.7664162921392182, -0.6535893313078383, 0.4720633490036184, -0.2841845199266155,
        0.13812537702346808, -0.05061383114566911, 0.011440642332316455, 0.00010629557017481299,
        -0.0011377238747660625, 0.0002948265995619858, 6.508149053445101e-05, -4.829946131763125e-05,
        -1.6787201048278942e-06, 6.883222423484718e-06, -2.3889959699289114e-07, -1.0094460963922872e-06,
        3.894688967273901e-08, 1.3641705637941895e-07, 8.729357084355529e-10, -1.020716764315927e-08,
    ),
    reduced="::fma(n, -0x1.ef35793c76730p-45, ::fma(n, -0x1.62e42fefa3800p-1, x))",
    step=("cubes", "::fma(r, ::fma(e, e, e), r)"),
)
BRIEF = Digits(
    errs="2^-39",
    exp=(
        0.4999999999995511, 0.16666666666662586, 0.04166666678626573, 0.00833333334420298,
        0.0013888839110572009, 0.00019841224599656011, 2.4867870179687727e-05, 2.7617564785876086e-06,
    ),
    log=(
        0.6666666666737509, 0.3999999879733759, 0.2857175453591449, 0.22191400830308503,
        0.19362653714202008,
    ),
    tail=(
        0.7664162921389953, -0.6535893313173619, 0.47206334904638686, -0.28418451941945705,
        0.13812537576858144, -0.05061383916614308, 0.011440655722910066, 0.00010635354948119456,
        -0.001137791442517908, 0.0002946007706367437, 6.525970275474306e-05, -4.7794370636050514e-05,
        -1.926942322898321e-06, 6.234515068612647e-06, -7.181999822654732e-08, -5.623876537356095e-07,
    ),
    reduced="::fma(n, -0.69314718055994531, x)",
    step=("squares", "::fma(r, e, r)"),
)
# fmt: on


QUALIFIER = "__device__ __forceinline__"
WORD, COMMENT = re.compile(r"\w+"), re.compile("//.*")


def _operator(returned: str, symbol: str, *kinds: str) -> str:
    """An operator of two values, which are numbers, Amples or two words."""
    values = {"double": "", "Ample": ".v", "Two": ".hi"}
    arguments = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, "ab", strict=True))
    of = f" {symbol} ".join(name + values[kind] for kind, name in zip(kinds, "ab", strict=True))
    return f"friend {QUALIFIER} {returned} operator{symbol}({arguments}) {{ return {of}; }}"


_OPERATORS = [_operator("Ample", symbol, "Ample", "Ample") for symbol in "+-*/"]
_OPERATORS += [_operator("bool", symbol, "Ample", "Ample") for symbol in ("<", "<=", ">", ">=", "==", "!=")]
_OPERATORS_OF_TWO = [
    f"[[maybe_unused]] {_operator('Two', symbol, *kinds)}"
    for symbol in "+-*"
    for kinds in (("Two", "Two"), ("Two", "double"), ("double", "Two"))
]
ALWAYS = ("fabs", "fma", "lifted", "lift_back")  # what arithmetic calls
LIBRARY = {
    "fabs": 1, "sqrt": 1, "exp2": 1, "log": 1, "log2": 1, "sin": 1, "cos": 1, "erf": 1, "pow": 2, "fma": 3,
}  # fmt: skip
BEHIND = {"ratio": "inverse"}  # functions of two words, and what they call
# A function calls only earlier ones.
FUNCTIONS = {
    "EXP": "// of e^r = 1 + r + r^2 p(r)\n{EXP}",
    "LOG": "// of log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2)\n{LOG}",
    "TAIL": "// of (x + 4.75) e^(x^2 / 2) Φ(-x) = p((x - 4.75) / (x + 4.75))\n{TAIL}",
    "two_to": """\
// 2^n, of an n up to 1023; 0 where it would be subnormal.
{device} double two_to(int n) {
  const uint64_t bits = n < -1023 ? 0 : uint64_t(int64_t(n) + 1023) << 52;
  double y;
  memcpy(&y, &bits, sizeof(y));
  return y;
}""",
    "power": """\
// e^x as (1 + rise) 2^n, of an x from -760 to 709: whole, and less 1
struct Power {
  double rise, size;
  bool small;  // n is 0
  {device} double whole() const { return ::fma(rise, size, size); }
  {device} double less() const { return small ? rise : ::fma(rise, size, size - 1.0); }
};
{device} Power power(double x) {
  constexpr double TO_INTEGER = 0x1.8p52;
  const double shifted = ::fma(x, 1.4426950408889634, TO_INTEGER), n = shifted - TO_INTEGER;
  const double r = {reduced};
  int32_t integer;  // n, in the lower half of what is shifted
  memcpy(&integer, &shifted, sizeof(integer));
  return {r * ::fma(r, polynomial(EXP, r), 1.0), two_to(integer), integer == 0};
}""",
    "exp": """\
// e^x, 0 where it would be subnormal, infinite beyond 709; and e^x - 1
{device} Ample exp(Ample x) {
  const double y = power(x.v < -760.0 ? -760.0 : x.v).whole();
  return x.v > 709.0 ? INFINITY : y;
}""",
    "expm1": """\
{device} Ample expm1(Ample x) {
  const double y = power(x.v < -760.0 ? -760.0 : x.v).less();
  return x.v > 709.0 ? INFINITY : y;
}""",
    "exponential": """\
// Of two words, the first alone.
template <bool SUBNORMAL = true>
{device} Ample exponential(Ample x, Ample) {
  return exp(x);
}""",
    "exp_of_two": "{device} Ample exp_of_two(Ample x) { return exp(x); }",
    "expm1_of_two": "{device} Ample expm1_of_two(Ample x) { return expm1(x); }",
    "inverse": """\
// 1 / x, of an x from 2^-1000 to 2^1000: the chip's, of 20 bits, and a step that {does} its error
{device} Ample inverse(Ample x) {
#ifdef __CUDACC__
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x.v));
  const double e = ::fma(-x.v, r, 1.0);
  return {step};
#else
  return 1.0 / x.v;
#endif
}""",
    "twice": """\
// e^(2 |x|), beyond 345 as there
{device} Power twice(Ample x) {
  const double size = ::fabs(x.v);
  return power(size > 345.0 ? 690.0 : size + size);
}""",
    "tanh": """\
{device} Ample tanh(Ample x) {
  const Power e = twice(x);
  return ::copysign(e.less() * inverse(1.0 + e.whole()).v, x.v);
}""",
    "tanh_of_two": "{device} Ample tanh_of_two(Ample x) { return tanh(x); }",
    "tanh_slope": """\
// tanh'(x)
{device} Ample tanh_slope(Ample x) {
  const Power e = twice(x);
  const Ample per = inverse(1.0 + e.whole());
  return 4.0 * e.whole() * per * per;
}""",
    "log1p": """\
// log(1 + x)
{device} Ample log1p(Ample x) {
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
}""",
    "softplus": """\
// log(1 + e^x)
{device} Ample softplus(Ample x) {
  const double size = ::fabs(x.v), e = power(size > 760.0 ? -760.0 : -size).whole();
  const bool doubled = e > 0.41421356237309503;  // 1 + e is from root 1/2 to root 2 of 2
  const double s = (doubled ? e - 1.0 : e) * inverse(e + (doubled ? 3.0 : 2.0)).v, z = s * s;
  const double y = ::fma(s * z, polynomial(LOG, z), s + s) + (doubled ? 0.69314718055994531 : 0.0);
  return x.v > 0.0 ? x.v + y : y;
}""",
    "bell": """\
// e^(-x^2 / 2), 0 where it would be subnormal
{device} double bell(double x) {
  const double size = ::fabs(x), s = size > 38.75 ? 38.75 : size;
  return power(-0.5 * s * s).whole();
}""",
    "ndtr_tail": """\
// Φ(-|x|)
{device} Ample ndtr_tail(Ample x) {
  const double size = ::fabs(x.v), s = size > 38.75 ? 38.75 : size, per = inverse(s + 4.75).v;
  return polynomial(TAIL, (s - 4.75) * per) * per * bell(x.v);
}""",
    "erfc": """\
// erfc(x) = 2 Φ(-x √2)
{device} Ample erfc(Ample x) {
  const Ample half = ndtr_tail(x * 1.4142135623730951);
  return x < 0.0 ? 2.0 - 2.0 * half : 2.0 * half;
}""",
    "times_ndtr": """\
// x Φ(x)
{device} Ample times_ndtr(Ample x) {
  const Ample tail = ndtr_tail(x);
  return x * (x < 0.0 ? tail : 1.0 - tail);
}""",
    "times_ndtr_of_two": "{device} Ample times_ndtr_of_two(Ample x) { return times_ndtr(x); }",
    "times_ndtr_slope": """\
// the slope of x Φ(x)
{device} Ample times_ndtr_slope(Ample x) {
  const Ample tail = ndtr_tail(x), near = 0.39894228040143268 * bell(x.v) * x;
  return x < 0.0 ? tail + near : 1.0 - tail + near;
}""",
    "falling": """\
// e^(-x), beyond 690 as there
{device} double falling(Ample x) {
  return power(::fabs(x.v) > 690.0 ? ::copysign(690.0, -x.v) : -x.v).whole();
}""",
    "sigmoid": "{device} Ample sigmoid(Ample x) { return inverse(1.0 + falling(x)); }",
    "sigmoid_slope": """\
// sigmoid'(x)
{device} Ample sigmoid_slope(Ample x) { return falling(x) * sigmoid(x) * sigmoid(x); }""",
    "gate": """\
// x sigmoid(t)
{device} Ample gate(Ample x, Ample t) { return x * sigmoid(t); }""",
    "gate_of_two": "{device} Ample gate_of_two(Ample x, Ample t) { return gate(x, t); }",
    "lifted": "{device} Ample lifted(Ample x) { return x; }",
    "lift_back": "{device} Ample lift_back(Ample) { return 1.0; }",
}
# what takes two words elsewhere, and what it takes before them
OF_TWO = {
    "exp_of_two": "", "expm1_of_two": "", "tanh_of_two": "", "tanh_slope": "", "softplus": "",
    "ndtr_tail": "", "times_ndtr_of_two": "", "times_ndtr_slope": "", "sigmoid": "", "sigmoid_slope": "",
    "gate": "x", "gate_of_two": "x", "lifted": "", "lift_back": "",
}  # fmt: skip
_TEXT = """\
// Computes what float would lose: a double of which no more is kept than a float holds.
// Functions err by {errs}.
namespace ample {

struct Ample {
  __host__ {device} Ample(double v = 0) : v(v) {}
  {device} explicit operator double() const { return v; }
  {device} explicit operator float() const { return float(v); }
{operators}
  friend {device} Ample operator-(Ample a) { return -a.v; }
  double v;
};
{library}

{functions}

}  // namespace ample

using ample::Ample;

namespace {

// Of two words it has the first.
template <>
struct Two<Ample> {
  {device} Two(Ample hi, Ample = 0) : hi(hi), lo(0) {}
  {device} Two(double hi) : hi(hi), lo(0) {}
  {device} operator Ample() const { return hi; }
{operators_of_two}
  Ample hi, lo;
};
{of_two}
}  // namespace"""


def needed(kernels: Iterable[Kernel]) -> frozenset[str]:
    """The functions that kernels in double call on CUDA, and what these call."""
    named = {name for kernel in kernels for name in operations(kernel)}
    own, others = named & FUNCTIONS.keys(), named - FUNCTIONS.keys()
    rows = reached(others, Device.CUDA, Math.DOUBLE)
    said = " ".join(ROWS[name].body for name in rows - FUNCTIONS.keys())
    words = {*ALWAYS, *own, *rows, *WORD.findall(said), *(ROWS[name].libm for name in rows)}
    return _with_behind(frozenset(words))


def _with_behind(names: frozenset[str]) -> frozenset[str]:
    """With what they call."""
    said = (COMMENT.sub("", FUNCTIONS.get(name, BEHIND.get(name, ""))) for name in names)
    more = {word for text in said for word in WORD.findall(text)}
    return names if more <= names else _with_behind(names | more)


def ample(names: frozenset[str], digits: Digits) -> str:
    """One word of double.

    Args:
        names: the functions to print; others do not count.
        digits: what they take.
    """
    does, step = digits.step
    parts = {
        "operators": "\n".join(f"  {line}" for line in _OPERATORS),
        "operators_of_two": "\n".join(f"  {line}" for line in _OPERATORS_OF_TWO),
        "library": "\n".join(_library(name, count) for name, count in LIBRARY.items() if name in names),
        "functions": "\n\n".join(text for name, text in FUNCTIONS.items() if name in names),
        "of_two": "\n".join(_of_two(name, first) for name, first in OF_TWO.items() if name in names),
        "errs": digits.errs, "reduced": digits.reduced, "does": does, "step": step, "device": QUALIFIER,
        "EXP": _coefficients("EXP", digits.exp), "LOG": _coefficients("LOG", digits.log),
        "TAIL": _coefficients("TAIL", digits.tail),
    }  # fmt: skip
    text = _TEXT
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def _library(name: str, count: int) -> str:
    """One of the math library's."""
    names = "abc"[:count]
    arguments, values = (", ".join(form.format(n) for n in names) for form in ("Ample {}", "{}.v"))
    return f"{QUALIFIER} Ample {name}({arguments}) {{ return ::{name}({values}); }}"


def _of_two(name: str, first: str) -> str:
    """A function of what two words hold, the first of them."""
    arguments, given = (f"Ample {first}, ", f"{first}, ") if first else ("", "")
    return (
        f"[[maybe_unused]] {QUALIFIER} Ample {name}({arguments}Two<Ample> t) "
        f"{{ return {name}({given}t.hi); }}"
    )


def _coefficients(name: str, numbers: tuple[float, ...]) -> str:
    said = f"static __constant__ const double {name}[] = {{{', '.join(map(repr, numbers))}}};"
    return fill(said, WIDTH, subsequent_indent="    ")
