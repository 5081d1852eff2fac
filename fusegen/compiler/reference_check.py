"""The comparison of a spec's formula with the kernel of PyTorch that its reference names, without torch.

A reference that is a row of `aten.ATEN` replaces the gradient of an arithmetic spec, and the value of an
eager one. Before it is used, its row and the formula are evaluated over the real numbers at a few hundred
points, with the defaults of the parameters and with other values. References without a row are compared by
`certify.reference`, which calls them.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

from fusegen.algebra.compose import Library, compose, expanded
from fusegen.core.aten import ATEN
from fusegen.core.interval import Point, in_words
from fusegen.core.spec import Spec
from fusegen.core.term import Name, Program, SpecCall, Term, walk
from fusegen.errors import FusegenError, OtherFunction, ReferenceTensors, SpecErrors, counted
from fusegen.numerics.reals import Reals
from fusegen.numerics.sample import sampled

APART = 2.0**-22  # of the largest of the result and the inputs: PyTorch's kernels hold constants as floats
LEAST = 2.0**-126
STEPS, FAR = 64, Fraction(2**10)  # through an interval, as far as it is no further out
SCALED, ZERO = 0.75, 0.25  # what defaults are multiplied by for the second comparison; what 0 becomes

Gap = tuple[float, Point, float, float]  # how far apart, where, the formula's value, the reference's


def check_references(spec: Spec, library: Library) -> None:
    """Compare the formula with the reference, of a spec and of every spec that it calls.

    Raises:
        SpecErrors: a reference takes another number of tensors, or is another function.
    """
    errors = [error for called in _reachable(spec, library) for error in _mistakes(called, library)]
    if errors:
        raise SpecErrors(errors)


def needs_torch(spec: Spec) -> bool:
    """Return True if a spec has a reference that only PyTorch can evaluate."""
    return bool(spec.reference) and not _has_row(spec)


def _has_row(spec: Spec) -> bool:
    """True if the reference is a row whose parameters the spec has, so that the row takes its place."""
    row = ATEN.get(spec.reference)
    return row is not None and not spec.masks and set(row.params) <= {p.name for p in spec.scalars}


def _reachable(spec: Spec, library: Library) -> Iterator[Spec]:
    """Yield a spec and those that it calls, directly or not, each once."""
    seen, waiting = {spec.name}, [spec]
    while waiting:
        current = waiting.pop()
        yield current
        for name in _called(current):
            if name not in seen:
                seen.add(name)
                waiting += filter(None, [library(name)])


def _called(spec: Spec) -> Iterator[str]:
    calls = [step.call for step in spec.chain if step.call]
    terms: list[Term] = [step.term for step in spec.chain if step.term]
    terms += [line.term for line in spec.where]
    terms += [spec.formula] if spec.formula else []
    terms += [value for call in calls for _, value in call.keywords]
    yield from (call.spec for call in calls)
    yield from (part.spec for term in terms for part in walk(term) if isinstance(part, SpecCall))


def _mistakes(spec: Spec, library: Library) -> Iterator[FusegenError]:
    kernel = ATEN.get(spec.reference)
    if kernel is None:
        return
    if len(spec.tensors) != len(kernel.inputs):
        takes, found = (counted(len(names), "tensor") for names in (kernel.inputs, spec.tensors))
        yield ReferenceTensors(spec.at("reference"), reference=spec.reference, takes=takes, found=found)
    elif _has_row(spec):
        gaps = _gaps(spec, expanded(compose(spec, library)), _kernel(spec))
        if gaps:
            yield _other(spec, gaps)


def _params(spec: Spec) -> Iterator[dict[str, float]]:
    """Yield the values of the parameters at which the two are compared."""
    yield {p.name: p.default for p in spec.scalars}
    if spec.scalars:
        yield {p.name: p.default * SCALED or ZERO for p in spec.scalars}


@lru_cache(maxsize=512)  # of gelu, say, each spec that calls it would ask again: a tenth of a build
def _gaps(spec: Spec, formula: Program, kernel: Program) -> tuple[Gap, ...]:
    """Return the points at which a spec's formula and the kernel are further apart than any rounding."""
    both = Reals(formula), Reals(kernel)
    return tuple(gap for params in _params(spec) for gap in _gaps_at(spec, *both, params))


def _gaps_at(spec: Spec, formula: Reals, kernel: Reals, params: Point) -> Iterator[Gap]:
    for point in _points(spec):
        given = {**point, **params}
        [real], [other] = formula(given), kernel(given)
        gap = abs(other - real) / max(abs(real), *map(abs, point.values()), LEAST)
        if math.isfinite(real) and math.isfinite(other) and gap > APART:
            yield gap, given, real, other


def _points(spec: Spec) -> Iterator[Point]:
    """Yield the points of the error estimate, and even steps through each interval that is promised."""
    names = [i.name for i in spec.tensors]
    points = sampled(names, "", {}, spec.ranges, lambda _: ()).points
    found = [{name: point[name] for name in names} for point in points]
    yield from found
    for name, interval in spec.assume:
        low, high = max(interval.low, -FAR), min(interval.high, FAR)
        others = found[0] if found else dict.fromkeys(names, 1.0)
        for k in range(STEPS + 1):
            yield {**others, name: float(low + (high - low) * Fraction(k, STEPS))}


def _kernel(spec: Spec) -> Program:
    """Return the program of the reference's kernel, of the spec's inputs and parameters."""
    inputs, params = (tuple(v.name for v in values) for values in (spec.tensors, spec.scalars))
    row = ATEN[spec.reference]
    return Program(inputs, params, (), (row.forward(*map(Name, (*inputs, *row.params))),))


def _other(spec: Spec, gaps: Sequence[Gap]) -> FusegenError:
    (_, first, real, got), (_, worst, worst_real, worst_got) = gaps[0], max(gaps, key=lambda gap: gap[0])
    return OtherFunction(
        spec.at("reference"), reference=spec.reference, count=f"{len(gaps):,}", dtype="float32",
        first=in_words(first), real=f"{real:.9g}", got=f"{got:.9g}",
        worst=in_words(worst), worst_real=f"{worst_real:.9g}", worst_got=f"{worst_got:.9g}",
    )  # fmt: skip
