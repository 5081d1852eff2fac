"""The comparison of the filter's program with the formula as declared, before it judges anything."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from fusegen.evidence.certify import tried_inputs
from fusegen.evidence.certify.enclosures import Enclosure
from fusegen.evidence.certify.enclosures.doubles import Real
from fusegen.evidence.certify.findings import Subject
from fusegen.evidence.certify.interval_filter import IntervalFilter

AT_KINKS, ELSEWHERE = 100, 100


class WrongFilter(AssertionError):
    """An interval of the filter does not contain the exact value: an error in fusegen."""


def check(subject: Subject, interval_filter: IntervalFilter) -> None:
    """Compare the filter's intervals of value and derivative with enclosures at some 200 inputs.

    Raises:
        WrongFilter: an interval does not contain the exact value.
    """
    points = _points(subject)
    formula = Enclosure(subject.program, subject.params)
    found = interval_filter.enclose(points)
    for i, x in enumerate(points.tolist()):
        for name, real, (low, high) in zip(
            ("value", "derivative"), formula(x), found[:, i].tolist(), strict=True
        ):
            if not math.isnan(real.hi) and not holds((low, high), real):
                where = f"at {x!r} its {name} lies between {low!r} and {high!r}"
                raise WrongFilter(
                    f"the stable program of {subject.name} is not its formula: {where}, the formula's is "
                    f"{real.hi!r}"
                )


def holds(interval: tuple[float, float], real: Real) -> bool:
    """True if an interval contains a number, which is known to 2**-100; infinity is beyond every double."""
    low, high = interval
    if math.isinf(real.hi):
        return high == math.inf > low if real.hi > 0 else low == -math.inf < high
    number = Fraction(real.hi) + Fraction(real.lo)
    margin = abs(number) / 2**100
    above = low == -math.inf or Fraction(low) <= number + margin
    return above and (high == math.inf or number - margin <= Fraction(high))


def _points(subject: Subject) -> Tensor:
    """Float32 inputs in the judged range: kinks with their neighbours, and numbers of every size."""
    near = torch.tensor(tried_inputs.kinks(subject.program, subject.params), dtype=torch.float64).float()
    [spread] = tried_inputs.sample(subject.program, subject.params, torch.float32)
    ordinary = torch.linspace(-20, 20, ELSEWHERE)
    parts = [near[:: -(-len(near) // AT_KINKS)], spread[:: -(-len(spread) // ELSEWHERE)], ordinary]
    points = torch.cat(parts)
    return points[points.isfinite() & tried_inputs.inside(subject, (points,))].double()
