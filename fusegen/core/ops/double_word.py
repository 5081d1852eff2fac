"""Operations of kernels only: double-word values, and prescaled values below the range of a single word.

Formulas contain none of them, so that they have no function over the real numbers. A mend may ask for
`narrow`, which rounds a double-word value.
"""

from typing import Any

from fusegen.core import interval
from fusegen.core.interval import INFINITY, REALS, between
from fusegen.core.ops.row import CHAINED, SINGLE_RESULT, Op, Words, always

CURVE = "curve"


def _word(name: str, *args: str, range_: Any, **more: Any) -> Op:
    return Op(name, args, _no_function, range_, written=False, **more)


def _no_function(*_: Any) -> Any:
    raise AssertionError("no formula holds it")


WORDS = {row.name: row for row in (
    _word("words", "hi", "lo", range_=interval.add, header="double_word", cpp="double_word",
          words=Words.DOUBLE),
    _word("narrow", "x", range_=lambda a: a, words=Words.NARROWED),
    _word("scaled", "x", "hi", "lo", range_=lambda x, hi, lo: interval.multiply(x, interval.add(hi, lo)),
          header="double_word"),
    _word("product_plus", "a", "b", "c", "d",
          range_=lambda a, b, c, d: interval.add(interval.multiply(interval.multiply(a, b), c), d),
          header="double_word"),
    _word("prescaled", "x", range_=lambda a: a, header="exponential",
          words=Words.AS_GIVEN),
    _word("unscale", "x", range_=always(0, 1), header="exponential",
          words=Words.NARROWED),
    _word("x_sigmoid", "x", "t", range_=lambda x, t: interval.multiply(x, between(0, 1)),
          header="logistic", transcendental=True, fast=True, single=True,
          words=Words.AS_FIRST, bodies=(*CHAINED, *SINGLE_RESULT)),
    # in singles only; of a prescaled t
    _word("times_sigmoid", "x", "t", range_=lambda x, t: interval.multiply(x, between(0, 1)),
          header="logistic", transcendental=True, fast=True, single=True, words=Words.NARROWED,
          bodies=SINGLE_RESULT),
    _word("x_sigmoid_slope", "a", "b", "t", range_=lambda a, b, t: REALS,
          header="logistic", fast=True, single=True, words=Words.NARROWED,
          bodies=SINGLE_RESULT),
    # a + b x of an a and a b of one sign and an x from 0; half the bits of a word are enough for a. The
    # low word may be larger than a rounding in float, whose exponential takes it as it is.
    _word("linear", "b", "b_lo", "a", "a_lo", "x", range_=lambda b, b_lo, a, a_lo, x: interval.add(
        interval.add(a, a_lo), interval.multiply(interval.add(b, b_lo), x)),
          words=Words.DOUBLE, header="double_word"),
    _word("ndtr_tail", "x", range_=always(0, INFINITY), words=Words.DOUBLE,
          header="normal", transcendental=True),
    # the k-th curve of a kernel, a function of one value that a piecewise cubic gives
    _word(CURVE, "x", "k", range_=lambda x, k: REALS, words=Words.NARROWED, transcendental=True,
          single=True),
)}  # fmt: skip
