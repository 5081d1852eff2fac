"""What a module says above a kernel of how its results come about."""

from __future__ import annotations

from fusegen.ir import Kernel, operations
from fusegen.links import linked
from fusegen.ops import SINGLES
from fusegen.render.texts import Halves, Singles

WORDS = "in two words, hi + lo, as double_word.h has them"
WHOLE = f"Computed {WORDS}, and rounded once."
IN_ONE = f"I{WORDS[1:]}; in float in one where what follows magnifies little."
ARGUMENTS = f"Computed {WORDS}; in float, only arguments are."
TANGENT = "Next to 0 it is its tangent, as second words would be too small there."
SETTLED = "In 16 bits double decides where it is in doubt how a result is rounded."
SHORTER = "What is so settled need not be as accurate as float's: it takes one word."
DOUBLED = {
    Singles.CUBICS: "But for doubles, results are cubics that are fitted in double: float loses too much.",
    Singles.DOUBLE: "Double computes it for every dtype: float loses too much.",
}
LOOKED_UP = "In 16 bits results are looked up among all there are: to compute them right takes longer."
HALVES = {
    Halves.TESTED: SETTLED,
    Halves.LOOKED_UP: LOOKED_UP,
    Halves.DECLARED: LOOKED_UP,
}
DECLARED = "With other scalars than the spec's they are computed."
TESTED = "With other scalars than the spec's, double decides where it is in doubt how a result is rounded."
SINGLES_ON_CUDA = {
    Singles.PIECES: "In float32 results are cubic polynomials, as computing takes longer than moving.",
    Singles.CUBICS: "In float32 results are cubics that are fitted in double; where none fits, double's.",
    Singles.DECLARED: "In float32 results are cubics, fitted in double; with other scalars, double's.",
}
IN_FLOAT32 = "In float32 double computes it: float loses too much of a float, though not of 16 bits."


def on_cpu(kernel: Kernel, wide: bool, singles: Singles, settled: bool, short: bool) -> tuple[str, ...]:
    """The remarks on a kernel of the CPU.

    Args:
        kernel: the first of its math types.
        wide: whether it computes in two words anywhere.
        singles: how results that are no doubles come about.
        settled: whether double decides where float leaves in doubt how a 16-bit result is rounded.
        short: whether 16-bit results have a function of their own.
    """
    said = {
        IN_ONE if linked(kernel) else WHOLE: wide,
        TANGENT: "scaled" in operations(kernel),  # which nothing but a tangent is there
        DOUBLED.get(singles, ""): singles is not Singles.COMPUTED,
        SETTLED: settled,
        SHORTER: short,
    }
    return tuple(remark for remark, holds in said.items() if holds)


def on_cuda(
    kernel: Kernel, wide: bool, halves: Halves, params: bool, singles: Singles, short: bool
) -> tuple[str, ...]:
    """The remarks on a kernel of CUDA.

    Args:
        kernel: the first of its math types.
        wide: whether it computes in two words anywhere.
        halves: how 16-bit results come about.
        params: whether the spec has parameters.
        singles: how float32 results come about.
        short: whether 16-bit results have a function of their own.
    """
    said = {
        WHOLE if SINGLES.isdisjoint(operations(kernel)) else ARGUMENTS: wide,
        HALVES.get(halves, ""): halves is not Halves.COMPUTED,
        DECLARED: halves is Halves.LOOKED_UP and params,
        TESTED: halves is Halves.DECLARED,
        SINGLES_ON_CUDA.get(singles, ""): singles not in (Singles.COMPUTED, Singles.DOUBLE),
        IN_FLOAT32 if short else DOUBLED[Singles.DOUBLE]: singles is Singles.DOUBLE,
    }
    return tuple(remark for remark, holds in said.items() if holds)
