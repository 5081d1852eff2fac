"""What a chain takes on the CPU in place of two words in float: a row a function of one word, in one word.

A row named `near` is of an argument from `FROM` on, where nothing is too small for a float and little
cancels; the `short` ones are of any, infinities included. Of one float in thirteen the largest errors were
1.5 to 2.2 units in the last place, and 2.6 and 3.1 of Φ's. All are in float throughout, so that loops over
them become vector instructions of full width. What is `capped` is a factor as well, as it is, so that NaN
stays.
"""

from __future__ import annotations

import math
from fractions import Fraction

from fusegen.ir import Device, Kernel, Math, operations
from fusegen.ops import MILLS
from fusegen.singles import constants

# the ones of any argument, by what they are functions of; tanh and erf are those of `vectorised`
SHORT = {"gate": "gate_short", "times_ndtr": "times_ndtr_short", "tanh": "tanh", "erf": "erf"}
UNBOUNDED = ("gate_short", "times_ndtr_short")  # keep an infinite argument finite themselves
# where the near ones begin, by what they are functions of
FROM = {
    "gate": Fraction(-12, 10),
    "sigmoid": Fraction(-12, 10),
    "times_tanh_softplus": Fraction(-12, 10),
    "times_ndtr": Fraction(-3, 10),
}

# Φ(x) = 1/2 + x p(x²) / q(x²) up to 5.45, from where on it is 1 in float; minimax in the relative error, by
# Lawson's iteration
_NDTR_OVER = (0.39894225438191855, 0.033478380291227176, 0.004655214126419138, 0.0001651203312086846,
              6.338137912045887e-06, 2.312449939834623e-08)  # fmt: skip
_NDTR_UNDER = (1.0, 0.2505840289837366, 0.028433893948196374, 0.00186357058851682, 7.251479163973359e-05,
               1.2073623755084121e-06)  # fmt: skip

# MILLS but for its first, by powers of k - 1/2
_MILLS_AT_HALF = (0.17814990878105164, 0.2515967786312103, 0.27108025550842285, 0.2039332389831543,
                  0.0753641426563263, -0.030323991551995277, -0.051753800362348557, 0.0030324608087539673,
                  0.01689239591360092)  # fmt: skip

# MILLS' first over a quarter of c = 1 / sqrt(2 pi). By what k is off, being rounded, MILLS bends by
# size k (first + p) - c; times d, which is 1 + size / 4 and 1 / k, that is size (p + this) - c
_OVER_QUARTER = round(MILLS[0] - 1 / (4 * math.sqrt(2 * math.pi)), 14)

# d + rest is 1 + e^-v, as 1 + s + more s
_SUM = (
    "const Raised<M> e = raised(-v, 0.0f); const M s = power_of_two<M>(e.n), one = 1.0f + s; "
    "const M d = fma(e.more, s, one)"
)
_REST = ", rest = fma(e.more, s, one - d); "

LINKS: dict[str, str] = {
    # by its bits, which are ordered as floats are, but for negative ones among each other
    "capped": "int32_t bits, bound; memcpy(&bits, &x, sizeof(bits)); memcpy(&bound, &most, sizeof(bound)); "
    "bits = bits < bound ? bits : bound; memcpy(&x, &bits, sizeof(x)); return x;",
    "gate_short": "const M t = at_least(x, -125.0f), v = lifted(capped(t, 87.0f)); " + _SUM + _REST
    + "const M r = 1.0f / d; return t * fma(fma(-r, rest, fma(-r, d, 1.0f)), r, r) * lift_back(t);",
    "gate_near": "const M v = capped(x, 87.0f); " + _SUM + "; return x / d;",
    "sigmoid_near": "const M v = at_most(x, 87.0f); " + _SUM + "; return 1.0f / d;",
    # n / d with n = u^2 + 2 u, u = e^x and d = n + 2
    "times_tanh_softplus_near": "const Raised<M> e = raised(capped(x, 20.0f), 0.0f); "
    "const M s = power_of_two<M>(e.n), u = fma(e.more, s, s), u_rest = fma(e.more, s, s - u); "
    "const Two<M> n = quadratic(words(u, u_rest)), d = plus_two(n); "
    "const M r = 1.0f / d.hi, q = n.hi * r; "
    "return x * fma(fma(-q, d.lo, fma(-q, d.hi, n.hi) + n.lo), r, q);",
    # Φ(-|x|) as in two words, but by k = 1 / (1 + |x| / 4) in float, whose rest bends the result, and what
    # k multiplies by powers of k - 1/2, of which the first outweighs the others
    "times_ndtr_short": "const M size = capped(fabs(x), 16.0f); "
    "const Two<M> t = product(-0.5f * size, size); const Raised<M> bell = raised(t.hi, t.lo); "
    + constants(_MILLS_AT_HALF)
    + "const M d = fma(0.25f, size, 1.0f), k = 1.0f / d, q = polynomial(c, k - 0.5f), p = k * q; "
    f"const M first = {MILLS[0]!r}f, rest = fma(k, size, fma(4.0f, k, -4.0f)); "
    f"const M bend = rest * fma(size, p + {_OVER_QUARTER!r}f, -0.39894228f); "
    "const M mills = fma(k, first, fma(k, p, fma(k, fma(k, q, -p), bend))); "
    "const M y = size * mills, y_rest = fma(size, mills, -y); "
    "const M tail = (y + fma(bell.more, y, y_rest)) * power_of_two<M>(bell.n + 64); "
    "return fma(tail, -0x1p-64f, x < 0.0f ? -0.0f : x);",
    "times_ndtr_near": f"{constants(_NDTR_OVER).replace(' c[]', ' over[]')}"
    f"{constants(_NDTR_UNDER).replace(' c[]', ' under[]')}const M v = capped(x, 5.45f), s = v * v; "
    "return x * fma(v, polynomial(over, s) / polynomial(under, s), 0.5f);",
}  # fmt: skip


def linked(kernel: Kernel) -> bool:
    """Whether functions give and take one word in a chain, which they do in float on the CPU only."""
    on_cpu = (kernel.device, kernel.math) == (Device.CPU, Math.FLOAT)
    return on_cpu and not {*LINKS, *SHORT.values()}.isdisjoint(operations(kernel))
