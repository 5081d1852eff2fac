"""What CPU kernels call in double for the math library, so that loops vectorise.

Branches are selections, and nothing is called: every function is inlined. exp, expm1, log, log1p and erf
err by at most 1.05 ulp, tanh by 1.7, erfc by 2.6 (`tests/test_doubles.py`).

Source: Cody and Waite 1980, Software Manual for the Elementary Functions, chapters 6 and 11; Tang 1990,
ACM Trans. Math. Softw. 16, for log1p; Shepherd and Laframboise 1981, Math. Comp. 36, for erfc, which times
(1 + 2 x) e^(x^2) is smooth in (x - 3.75) / (x + 3.75) from 0 to infinity. Polynomials interpolate in the
zeros of Chebyshev's: of e^r = 1 + r + r^2 p(r), of log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2) and of
erf(x) = 2 x / sqrt(pi) + x^3 p(x^2).
"""

from __future__ import annotations

from fusegen.printers.cpp import lines_of

# fmt: off
EXP = (
    0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326136, 0.001388888888888375,
    0.00019841269874815834, 2.480158732554432e-05, 2.7557255406285044e-06, 2.7557273647451087e-07,
    2.5105214474751413e-08, 2.0914685161418067e-09,
)
LOG = (
    0.6666666666666666, 0.4000000000000088, 0.28571428570803253, 0.22222222391794727, 0.18181795631498243,
    0.15386240172447838, 0.13268760562036724, 0.1308675766695207,
)
ERF = (
    -0.37612638903183754, 0.11283791670955125, -0.026866170645131016, 0.005223977625435901,
    -0.0008548327022582804, 0.00012055332911002013, -1.4925646694146769e-05, 1.6461989260757458e-06,
    -1.636298642553057e-07, 1.4763825058824317e-08, -1.1868731920151609e-09, 7.00225355357979e-11,
)
ERFC = (
    1.2375126308378275, -0.14024059858554702, 0.0035854154854629045, 0.08227673849015113,
    -0.10880393014165805, 0.09230432116021522, -0.058693398591761654, 0.02836227742075386,
    -0.009746579532336114, 0.0017556258454484944, 0.0002937134832205404, -0.0002901540974049676,
    5.164990829645606e-05,
    2.2384550628489278e-05, -1.1446444882750146e-05, -9.750133129744938e-07, 1.7557572419630805e-06,
    -5.361966556540493e-08, -2.630076084593476e-07, 1.8148051418292806e-08, 4.0773822695438946e-08,
    2.0400958765405564e-10, -4.999295226477826e-09, -9.749977861841957e-10,
)


def _constants(name: str, coefficients: tuple[float, ...]) -> str:
    return f"constexpr double {name}[] = {{{', '.join(map(repr, coefficients))}}};"


# in a loop or not at all: a call would keep it from being vectorised
WHOLLY = "__attribute__((always_inline)) inline"
# what several take
POWER = """\
constexpr double TO_INTEGER = 0x1.8p52;  // added and taken off, it leaves an integer

// 2^n, of an n from -1022 to 1023
inline double two_to(double n) {
  const double shifted = n + TO_INTEGER;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 1023) << 52;
  double y;
  memcpy(&y, &bits, sizeof(y));
  return y;
}

// v 2^n, rounded once: 2^n in two factors, as it may be subnormal
inline double scaled_by(double v, double n) {
  const double half = (0.5 * n + TO_INTEGER) - TO_INTEGER;
  return v * two_to(half) * two_to(n - half);
}

// e^(x + rest) as (hi + lo) 2^n
struct Power {
  double hi, lo, n;
};
WHOLLY Power power_of_e(double x, double rest) {
{c}
  const double above = x < -746.0 ? -746.0 : x, t = above > 710.0 ? 710.0 : above;  // 0 and infinity
  const double n = std::fma(t, 1.4426950408889634, TO_INTEGER) - TO_INTEGER;
  const double first = std::fma(n, -0x1.62e42fefa3800p-1, t);  // ln 2 in two
  const double last = std::fma(n, -0x1.ef35793c76730p-45, x == t ? rest : 0.0), r = first + last;
  const double more = std::fma(r * r, polynomial(c, r), (first - r) + last), one = 1.0 + r;
  const double lo = (r - (one - 1.0)) + more, hi = one + lo;
  return {hi, lo - (hi - one), n};
}""".replace("{c}", lines_of(_constants("c", EXP)))
# hi + lo, in which erf and erfc are before they are rounded
ERRORS = """\
// hi + lo
struct Sum {
  double hi, lo;
};

// erf(x), of an x up to 0.83
WHOLLY Sum erf_next_to_0(double x) {
{erf}
  const double s = x * x, line = x * 1.1283791670955126, rest = std::fma(x, 1.1283791670955126, -line);
  const double bend = std::fma(x, std::fma(s, polynomial(c, s), 1.533545961316588e-17), rest);
  const double hi = line + bend;
  return {hi, bend - (hi - line)};
}

// e^(x^2) erfc(x), of an x from 0 to 28
WHOLLY Sum scaled_erfc(double x) {
{erfc}
  const double t = (x - 3.75) / (x + 3.75), t4 = (t * t) * (t * t), t12 = t4 * t4 * t4;
  const double p = std::fma(polynomial(b, t), t12, polynomial(a, t)), d = 1.0 + 2.0 * x, y = p / d;
  return {y, (std::fma(-y, d, p) - y * (2.0 * x - (d - 1.0))) / d};
}""".replace("{erf}", lines_of(_constants("c", ERF))).replace(
    "{erfc}",
    lines_of("; ".join((_constants("a", ERFC[:12])[:-1], _constants("b", ERFC[12:])))),
)
# log(u) of a normal u = m 2^n: the split, the terms of log(m) = log(1 + f), and the sum with a small rest
SPLIT = (
    "uint64_t bits;",
    "memcpy(&bits, &u, sizeof(bits));",
    "bits += 0x3ff0000000000000 - 0x3fe6a09e667f3bcd;  // for an m from root 1/2 to root 2",
    "const uint64_t exponent = (bits >> 52) | 0x4330000000000000;",
    "bits = (bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd;",
    "double m, n;",
    "memcpy(&m, &bits, sizeof(m));",
    "memcpy(&n, &exponent, sizeof(n));",
)
SERIES = "const double f = m - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;"
TOTAL = (
    "const double rest = s * std::fma(z, polynomial(c, z), half) + small;",
    "const double y = std::fma(n, 0.69314718036912382, f - (half - rest));",
)
DOUBLES: dict[str, tuple[str, ...]] = {
    "exp": (
        "const Power e = power_of_e(x, 0.0);",
        "return scaled_by(e.hi, e.n);",
    ),
    "expm1": (
        "const Power e = power_of_e(x < -40.0 ? -40.0 : x, 0.0);",
        "const double half = two_to(e.n - 1.0);  // of 2^n, which may be infinite",
        "const double low = half - 0.5, high = half * (e.hi - 1.0);",
        "const double y = low + high, rest = std::fma(half, e.lo, high - (y - low));",
        "return std::fabs(x) < 0x1p-54 ? x : 2.0 * (y + rest);",
    ),
    "log1p": (
        _constants("c", LOG),
        "const double u = 1.0 + x, v = u - 1.0, lost = (1.0 - (u - v)) + (x - v);",
        *SPLIT,
        "n -= 0x1p52 + 1023.0;",
        SERIES,
        "const double small = std::fma(n, 1.9082149292705877e-10, lost / u);  // ln 2 in two",
        *TOTAL,
        "const double special = x == -1.0 ? -INFINITY : x > 0.0 ? x : NAN;",
        "return x == 0.0 ? x : x > -1.0 && x < INFINITY ? y : x == x ? special : x;",
    ),
    "log": (
        _constants("c", LOG),
        "const bool tiny = x < 0x1p-1022;",
        "const double u = tiny ? x * 0x1p54 : x;",
        *SPLIT,
        "n -= tiny ? 0x1p52 + 1077.0 : 0x1p52 + 1023.0;",
        SERIES,
        "const double small = n * 1.9082149292705877e-10;  // ln 2 in two",
        *TOTAL,
        "const double special = x == 0.0 ? -INFINITY : x > 0.0 ? x : NAN;",
        "return x > 0.0 && x < INFINITY ? y : x == x ? special : x;",
    ),
    "tanh": (
        "const double e = expm1(-2.0 * std::fabs(x)), d = e + 2.0, q = -e / d;",
        "const double rest = std::fma(-q, d, -e) - q * (e - (d - 2.0));",
        "return std::copysign(std::fma(rest, 1.5 - 0.5 * d, q), x);  // about 1 / d, of a d from 1 to 2",
    ),
    "erfc": (
        "const double size = std::fabs(x), z = size > 28.0 ? 28.0 : size;  // it is 0 beyond",
        "const double square = z * z;",
        "const Power e = power_of_e(-square, -std::fma(z, z, -square));",
        "const Sum q = scaled_erfc(z), small = erf_next_to_0(z);",
        "const double y = e.hi * q.hi;",
        "const double rest = std::fma(e.hi, q.hi, -y) + std::fma(e.lo, q.hi, e.hi * q.lo);",
        "const double near = (1.0 - small.hi) - small.lo, far = scaled_by(y + rest, e.n);",
        "const double tail = z < 0.83 ? near : far;",
        "return x < 0.0 ? 2.0 - tail : x == x ? tail : x;",
    ),
    "erf": (
        "const double size = std::fabs(x), far = 1.0 - erfc(size);",
        "const Sum small = erf_next_to_0(size);",
        "const double near = small.hi + small.lo;",
        "return std::copysign(size < 0.83 ? near : far, x);",
    ),
}
# Φ(-x) by those
NORMAL_TAIL = """\
// Φ(-x), of an x from 0 and of bell, which is e^(-x^2 / 2); lifted as that is
WHOLLY Two<double> normal_tail(Two<double> x, Two<double> bell) {
  constexpr double ROOT = 0.70710678118654757, ROOT_REST = -4.83364665672645e-17;
  const double v = x.hi > 39.0 ? 39.0 : x.hi, rest_of_v = v == x.hi ? x.lo : 0.0;  // it is 0 beyond
  const double z = v * ROOT, lost = std::fma(v, ROOT, -z) + std::fma(v, ROOT_REST, rest_of_v * ROOT);
  const Sum q = scaled_erfc(z), small = erf_next_to_0(z);
  const double q_rest = q.lo + lost * (2.0 * z * q.hi - 1.1283791670955126);  // the slope is that
  const Two<double> far = bell * words(0.5 * q.hi, 0.5 * q_rest);
  const double half = 0.5 * small.hi, near = 0.5 - half;
  const double rest = ((0.5 - near) - half) - std::fma(lost * 0.56418958354775628, bell.hi, 0.5 * small.lo);
  return words(z < 0.83 ? near : far.hi, z < 0.83 ? rest : far.lo);
}"""
# of more coefficients than ARITHMETIC_SOURCE's, which leaves a loop in the loop
POLYNOMIAL = """\
// That of up to 33 coefficients
template <typename M, int N>
inline M polynomial(const M (&c)[N], M x) {
  M y = c[N - 1];
#pragma GCC unroll 32
  for (int k = N - 2; k >= 0; --k) y = std::fma(y, x, c[k]);
  return y;
}"""
# what functions in double call besides those that they are made of
NEEDS = {"expm1": ("exp",), "tanh": ("exp", "expm1"), "erf": ("exp", "erfc")}
# of what the kernels have in one word or two; ARITHMETIC_SOURCE's is the math library's in double
EXPONENTIAL = """\
// e^x, in double by that
template <bool SUBNORMAL = true, typename X>
inline Wide<X> exponential(X x) {
  if constexpr (sizeof(Word<X>) == 8) {
    const Two<double> t = x;
    const Power e = power_of_e(t.hi, t.lo);
    return {scaled_by(e.hi, e.n), scaled_by(e.lo, e.n)};
  } else {
    return ::exponential<SUBNORMAL>(x);
  }
}"""
# fmt: on
