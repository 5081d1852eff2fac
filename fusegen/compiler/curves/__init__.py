"""The form of a pass of several tensors on CUDA in which piecewise cubics give its unary segments.

A curve is a segment that is fitted in double on first use, around the centres that `pieces` finds. A lookup
takes a float32 element fewer instructions than most functions do. 16-bit elements keep the formula, whose
fast functions take 4 to 23 instructions: 32 lookups of 16 bytes take an SM's L1 cache 10 cycles or more,
and that many elements are moved in 8. A table by a 16-bit operand would have float entries, 256 KiB, which
that cache does not hold.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import NormalDist

from fusegen.algebra.segments import Segments, segments
from fusegen.compiler.curves import savings
from fusegen.compiler.estimates import Formula
from fusegen.compiler.local_excess import excess, tolerated
from fusegen.core.candidates import Candidate, cheapest
from fusegen.core.cubic import SEGMENT, Function, UniformGrid, fits, of_one_step
from fusegen.core.facts import Curve, Curves
from fusegen.core.interval import Interval
from fusegen.core.ir import Kernel, Math
from fusegen.core.method import Both, Pass, Variant
from fusegen.core.ops import ROWS, TRANSCENDENTAL, TURNS
from fusegen.core.ops.double_word import CURVE
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Apply, Program, applied
from fusegen.lower import lower
from fusegen.lower.laws import broken_law
from fusegen.lower.variants import Kernels
from fusegen.numerics.grids import SPREADS, STEPS, uniform_grid
from fusegen.numerics.roundoff import NORMAL, Errors, function
from fusegen.numerics.roundoff.curves import by_curves

MOST = 4  # curves of a kernel, each of which has 256 KiB of pieces at most, and as much around zeros
TRIED = 12  # segments of a pass that are fitted, so that no spec takes long
# of normal inputs, none of them 0, and what share may be in no piece: with 1 % every fourth warp looks on
PROBES, MISSED = 257, 0.005
NEAR = 4  # pieces next to a zero, whose polynomial may take their place


def curves(
    spec: Spec,  # with its dtypes and tensors
    programs: Both[Program],  # of the passes, as simplified; infinities take the formula
    kernels: Kernels,  # by the formula
    formula: Formula,  # whose errors they are estimated against
) -> Both[Curves | None]:
    """Return the passes by curves, where these are accurate enough."""
    if len(spec.tensors) < 2 or spec.scalars or "float32" not in spec.dtypes:
        return Both(None, None)
    small = _small(spec)

    def found(which: Pass) -> Curves | None:
        name, fitted = f"{spec.name}_{which.value}", _Fitted()
        split = segments(programs[which], fitted.pays)
        if not 0 < len(split.curves) <= MOST:
            return None
        own = tuple(fitted.curves[each] for each in split.curves)
        before = _sized(kernels[which, Device.CUDA, Variant.FLOAT], small)
        outer = (replace(kernel, owners=before.owners) for kernel in _outer(name, which, split))
        each = (_sized(kernel, small) for kernel in outer)
        tried = (Curves(kernel, own, saves=savings.saves(before, kernel)) for kernel in each)
        return cheapest(
            Candidate(curves, savings.exposed(curves.kernel), partial(keeps_bound, curves, formula, before))
            for curves in tried
        )

    return Both.of(found)


def keeps_bound(
    curves: Curves,
    formula: Formula,  # as declared
    single: Kernel,  # the kernel by the formula, in float
) -> bool:
    """True if the estimated error by curves is within the contract on inputs that the pieces cover."""

    def estimated(of: Formula) -> Errors:
        found, missing = by_curves(curves, of.sample(curves.kernel), of.params)
        return found.but(missing)

    return excess(formula, single, estimated, tolerated(single)) is None


def _small(spec: Spec) -> frozenset[str]:
    """The tensors of which an element serves many outputs: those of a layer, and those declared smaller.

    With a layer in front the shape of the first operand is unknown.
    """
    if spec.producer:
        return spec.small
    sizes = {each.name: math.prod(each.shape) for each in spec.inputs}
    return spec.small | {name for name, size in sizes.items() if size < max(sizes.values())}


def _sized(kernel: Kernel, small: frozenset[str]) -> Kernel:
    return replace(kernel, small=small & set(kernel.inputs))


class _Fitted:
    def __init__(self) -> None:
        self.curves: dict[Program, Curve] = {}
        self.left = TRIED

    def pays(self, segment: Program) -> bool:
        """True if a segment takes more instructions than its curve, and nearly all inputs are in pieces."""
        [result] = segment.results
        is_value = isinstance(result, Apply) and not ROWS[result.op].boolean
        if not is_value or not self.left or TRANSCENDENTAL.isdisjoint(applied(segment.terms)):
            return False
        if not TURNS.isdisjoint(applied(segment.terms)):  # 0 at every sample, it may be
            return False
        single = lower(CURVE, segment, Device.CUDA, Math.FLOAT, precise=True)
        if not savings.is_large(single):
            return False
        self.left -= 1
        curve = _curve(segment)
        if curve:
            self.curves[segment] = curve
        return curve is not None


def _curve(segment: Program) -> Curve | None:
    """Return a curve, if nearly all inputs of ordinary sizes are in pieces."""
    kernel = lower(CURVE, segment, Device.CUDA, Math.DOUBLE, precise=True)
    assert broken_law(kernel) is None, broken_law(kernel)
    of = function(kernel, {})
    found = _grid(of)
    if found is None:
        return None
    step, low, high = found.above.step, found.below.last, found.above.last
    least = -math.inf if found.below.linear_tail else -low * step
    most = math.inf if found.above.linear_tail else high * step
    return Curve(segment, kernel, step, -low, high, Interval(least, most), tuple(_zeros(found, of)))


def _grid(of: Function) -> UniformGrid | None:
    """Return the fewest centres with which nearly all inputs of ordinary sizes are in pieces."""
    found = uniform_grid(of)
    probes = [scale * x for scale in SPREADS for x in NormalDist().quantiles(PROBES)]
    values, largest = of(probes), min(found.above.step, found.below.step)

    def missed(tried: UniformGrid) -> int:
        holds = fits(tried, of, SEGMENT)
        return sum(y == 0 or not holds(x) for x, y in zip(probes, values, strict=True))

    every = (of_one_step(found, step) for step in STEPS if step <= largest)
    return next((tried for tried in every if missed(tried) <= MISSED * len(probes)), None)


def _zeros(found: UniformGrid, of: Function) -> Iterator[Interval]:
    """The intervals around zeros where a piece exceeds its bound: another polynomial is used there."""
    step, low, high = found.above.step, -found.below.last, found.above.last
    holds, values = fits(found, of, SEGMENT), of([k * step for k in range(low, high + 1)])
    for k, (y, z) in enumerate(pairwise(values), low):
        near = range(max(k - NEAR, low), min(k + NEAR + 1, high) + 1)
        if (y < 0) == (z < 0) or max(abs(y), abs(z)) < NORMAL or all(holds(i * step) for i in near):
            continue
        yield Interval((near[0] - 0.5) * step, (near[-1] + 0.5) * step)


def _outer(name: str, which: Pass, split: Segments) -> Iterator[Kernel]:
    """Yield the kernels that call the curves: with double-word arguments, and in single words."""
    incoming = split.outer.inputs[0] if which is Pass.BACKWARD else None
    for precise in (True, False):
        kernel = lower(f"{name}_by_curves", split.outer, Device.CUDA, Math.FLOAT, precise, incoming)
        assert broken_law(kernel) is None, f"{kernel.name}: {broken_law(kernel)}"
        yield kernel
