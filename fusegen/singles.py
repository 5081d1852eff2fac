"""What float tensors on CUDA take in place of two words: a row a function, in one word.

Two words cost more instructions than a copy leaves room for. These err by less than four units in the last
place; what would magnify a rounding, the argument of an exponential, they take in two words all the same. A
row is a body over X, which is float or Two<float>. Its e and u are 2^64 times an exponential, so that they
are no subnormals where they are small.
"""

from __future__ import annotations

from fusegen.ops import LOG1P, MILLS


def constants(coefficients: tuple[float, ...]) -> str:
    """The coefficients of a polynomial as a statement in float, lowest first."""
    return f"const float c[] = {{{', '.join(f'{c!r}f' for c in coefficients)}}}; "


_P = "const Power<float> p = power(at_least(minus_size(x), -132.5f)); "
_E = _P + "const float e = p; "
_SLOPE = (
    "const Two<float> e = words(p); const float s = e.hi * 0x1p-64f; "
    "const float slope = single_ratio(e, fma_words(s, s + 2.0f, 1.0f)); "
)
# tanh(softplus(x)) is n / (n + 2), where u = e^x and n = u^2 + 2 u
_U = (
    "const X near = at_least(at_most(x, 20.0f), -132.5f); "
    "const float u = power(near), n = fma(u * 0x1p-64f, u, u + u); "
    "const Two<float> d = fma_words(n, 0x1p-64f, 2.0f); "
)
# exp(-x^2 / 2), and Φ(-|x|) over it as k p(k), where k is 1 / (1 + |x| / 4) but for a rest
_BELL = (
    "const X s = at_most(-minus_size(x), 16.0f); const Power<float> bell = power(product(s, -0.5f * s)); "
)
_MILLS = _BELL + (
    constants(MILLS[1:])
    + "const float size = float(s), d = fma(0.25f, size, 1.0f), k = inverse(d), p = k * polynomial(c, k); "
    f"const float first = {MILLS[0]!r}f, rest = fma(k, size, fma(4.0f, k, -4.0f)) * d; "
    "const float bend = rest * fma(size, k * (first + p), -0.39894228f); "
    "const float mills = fma(k, first, fma(k, p, bend)); "
)
_GATE = (
    "const X v = lifted(at_most(at_least(t, -125.0f), 87.0f)); const float e = exponential<false>(-v).hi; "
)
_TIMES_TAIL = (
    _MILLS + "const float y = size * mills, rest_of_y = fma(size, mills, -y); "
    "const float tail = y + fma(bell.more, y, rest_of_y); "
    "return fma(tail * bell.size, -0x1p-64f, at_least("
)
_TAIL = "const float tail = fma(bell.more, mills, mills) * bell.size; "
_EITHER = "return fma(tail, x < 0.0f ? 0x1p-64f : -0x1p-64f, x < 0.0f ? 0.0f : 1.0f);"

SINGLES: dict[str, str] = {
    "gate": _GATE + "return x * refined_inverse(1.0f + e) * lift_back(t);",
    "gate_at_two": _GATE + "return float(x) * refined_inverse(1.0f + e) * lift_back(t);",
    "gate_slope": "const Two<float> w = product(a, b), e = words(power(at_least(minus_size(t), -132.5f))); "
    "const float large = single_ratio(e, fma_words(e.hi, 0x1p-64f, 1.0f)), q = large * 0x1p-64f; "
    "const float sigmoid = fma(w.lo, q, t < 0.0f ? q : 1.0f - q); "
    "return fma(-(w.hi * q), q, fma(w.hi * 0x1p-64f, large, sigmoid));",
    "sigmoid": _E + "const float a = x < 0.0f ? e : 0x1p64f; "
    "return single_ratio(a, fma_words(e, 0x1p-64f, 1.0f)) * 0x1p-64f;",
    "sigmoid_slope": _P + _SLOPE + "return slope * 0x1p-64f;",
    "tanh_slope": "const Power<float> p = power(at_least(minus_size(x) * 2.0f, -132.5f)); "
    + _SLOPE + "return slope * 0x1p-62f;",
    "softplus": _E + constants(LOG1P) + "const Two<float> high = x < 0.0f ? X(0.0f) : x; "
    "const float s = e * 0x1p-64f, log = fma(s * fma(s, polynomial(c, s), -0.5f), e, e); "
    "return high.hi + fma(log, 0x1p-64f, high.lo);",
    "tanh_softplus": _U + "return single_ratio(n, d) * 0x1p-64f;",
    "tanh_softplus_slope": _U + "const float r = refined_inverse(d); "
    "return 4.0f * fma(u * 0x1p-64f, u, u) * r * r * 0x1p-64f;",
    "times_tanh_softplus": _U + "const float q = single_ratio(x > 0.0f ? 2.0f : n, d); "
    "return x > 0.0f ? fma(-near, q, x) : x * q * 0x1p-64f;",
    "times_tanh_softplus_slope": _U + "const float rise = 4.0f * fma(u * 0x1p-64f, u, u); "
    "const float slope = single_ratio(rise, d); return single_ratio(fma(near, slope, n), d) * 0x1p-64f;",
    "times_tanh_softplus_at_two": _U + "const float v = x, q = single_ratio(v > 0.0f ? 2.0f : n, d); "
    "return v > 0.0f ? fma(-float(near), q, v) : v * q * 0x1p-64f;",
    "times_tanh_softplus_slope_at_two": _U + "const float rise = 4.0f * fma(u * 0x1p-64f, u, u); "
    "const float slope = single_ratio(rise, d), part = fma(near.lo, slope, n); "
    "return single_ratio(fma(near.hi, slope, part), d) * 0x1p-64f;",
    "tanh_of_exp": "return tanh(exponential(at_most(x, 10.0f)).hi);",
    "tanh_of_exp_slope": "const float u = exponential(at_most(x, 10.0f)).hi, t = tanh(u); "
    "const Power<float> p = power(at_least(-2.0f * u, -132.5f)); " + _SLOPE
    + "return u < 0.5f ? u * fma(-t, t, 1.0f) : u * slope * 0x1p-62f;",
    "exp_of_two": "const X t = at_least(at_most(x, 89.0f), -104.0f); const Two<float> near = t; "
    "const Raised<float> e = raised(near.hi, near.lo); const int32_t half = e.n >> 1; "
    "const float size = power_of_two<float>(half); "
    "return fma(e.more, size, size) * power_of_two<float>(e.n - half);",
    "gauss": "const Two<float> t = at_least(-product(x, x), -132.5f); return float(power(t)) * 0x1p-64f;",
    "normal": _BELL + "return float(bell) * (0.39894228f * 0x1p-64f);",
    "ndtr": _MILLS + _TAIL + _EITHER,
    "times_ndtr": _TIMES_TAIL + "x, -0.0f));",
    "times_ndtr_at_two": _TIMES_TAIL + "float(x), -0.0f));",
    "times_ndtr_slope": _MILLS + "const float bent = fma(-0.39894228f, size, mills); "
    + _TAIL.replace("mills", "bent") + _EITHER,
}  # fmt: skip
