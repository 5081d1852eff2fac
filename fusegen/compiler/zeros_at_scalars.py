"""Zeros of a function of one tensor with scalars, where what was rounded before cancels.

At its defaults a gradient may have no zero, so that neither the choice of single or double words nor an
estimate finds one. The values that `certify` tries are tried here, after the defaults: between sampled
inputs whose results have different signs a zero is found in double. Around it the errors of the kernel in
IEEE arithmetic are compared with those of eager's operations. Both have scalars as floats; a default that
is no float, as 0.1, is so rounded, which next to a zero decides the error of either.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.kernel_values import Unbounded, Values, in_float
from fusegen.core import budget
from fusegen.core.facts import Excess, Roundoff
from fusegen.core.interval import REALS, Point
from fusegen.core.ir import Kernel, Math, calls
from fusegen.core.method import Both, Pass
from fusegen.core.scalar_values import combinations, held
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.lower import lower
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import FLOAT

OCTAVES, OF_EACH = (-30, 40), 8  # exponents of the inputs that are tried, and how many there are of each
FINER, MOST = 512, 8  # inputs between two of these, and zeros that are looked at
AWAY, STEEP = 16, 2.0**-3  # of results so many inputs apart: what differs by more is a jump, no zero
WIDTH, NEAR = 2.0**-7, 256  # of the surroundings of a zero, as of a box of `certify`, and points there
ALIKE, FEW = 1.02, 0.05  # errors that differ by no more are the same, but at so small a part of the points
WORK = 2**13  # operations of a pass, times the combinations of scalars at which a large formula is tried
BETTER = 0.75  # of eager's median error: what is below it is seldom twice eager's in a box by chance


def defaults_and_others(formula: Formula) -> list[dict[str, Fraction]]:
    """Return what `certify` tries: the defaults, and other values beside them."""
    defaults = {name: Fraction(value) for name, value in formula.params.items()}
    return [defaults, *combinations(defaults)]


def others_as_floats(formula: Formula) -> list[dict[str, Fraction]]:
    """Return other values beside the floats nearest to the defaults."""
    return combinations({name: held(value) for name, value in formula.params.items()})


@dataclass(frozen=True)
class OtherScalars:
    """A formula of one tensor at several values of its scalars."""

    formula: Formula  # as declared, at the defaults
    programs: Both[Program]  # of the passes, with steps that only scalars decide
    in_double: Both[Kernel]  # their kernels in double
    scalars: Sequence[Mapping[str, Fraction]]  # what is tried

    def zeros(self, which: Pass) -> Iterator[tuple[Mapping[str, float], Column]]:
        """Yield scalars at which a result has zeros other than at 0, and these."""
        size = sum(1 for _ in calls(self.in_double[which]))
        some = self.scalars[:: max(1, -(-len(self.scalars) * size // WORK))]
        tried = [{name: float(value) for name, value in values.items()} for values in some]
        for scalars, changes in zip(tried, self._coarse(which, tried), strict=True):
            found = self._zeros(which, self._exact(scalars), changes)
            if len(found):
                yield scalars, found

    def excesses(self, which: Pass, kernels: Both[Kernel], of_eager: float = BETTER) -> Iterator[Excess]:
        """Yield errors of kernels in float that may break the contract next to such zeros.

        Args:
            which: the pass.
            kernels: of both passes.
            of_eager: the part of eager's median error that theirs has to exceed.
        """
        for scalars, zeros in self.zeros(which):
            exact = self._exact(scalars)
            own = Values(kernels, exact.params)
            eager = Values(self._eager, with_uniforms(scalars, *self.formula.eager_programs))
            for zero in zeros.tolist():
                points = self._inside(in_float(zero * np.linspace(1 - WIDTH, 1 + WIDTH, NEAR)))
                real = exact.column(which, points)
                ours = _errors(own.column(which, points), real)
                worst = int(np.argmax(ours)) if len(real) else 0
                if not len(real) or ours[worst] <= budget.FLOAT_ENOUGH[Device.CPU]:
                    continue  # most kernels: eager is not asked then
                theirs = _errors(eager.column(which, points), real)
                if _is_like(ours, theirs, of_eager):
                    at = {name: float(column[worst]) for name, column in points.items()}
                    yield Excess(Roundoff(float(ours[worst]), {**at, **scalars}, ""), float(theirs.max()))

    def _exact(self, scalars: Mapping[str, float]) -> Unbounded:
        return Unbounded(self.in_double, with_uniforms(scalars, *self.programs))

    @cached_property
    def _eager(self) -> Both[Kernel]:
        return self.formula.eager_programs.map(lambda each: lower("eager", each, Device.CPU, Math.FLOAT))

    def _coarse(self, which: Pass, tried: Sequence[Point]) -> list[Column]:
        """Return the changes of sign between inputs of every size, for all scalars that are tried."""
        low, high = OCTAVES
        sizes = 2.0 ** np.linspace(low, high, OF_EACH * (high - low) + 1)
        params, count = [with_uniforms(each, *self.programs) for each in tried], len(tried)
        found: list[list[Column]] = [[] for _ in tried]
        for [(name, x)] in (self._inside(side * sizes).items() for side in (1.0, -1.0)):
            if not (len(x) and tried):
                continue
            of = {each: np.repeat([point[each] for point in params], len(x)) for each in params[0]}
            y = Unbounded(self.in_double, of).column(which, {name: np.tile(x, count)})
            for changes, own in zip(found, y.reshape(count, -1), strict=True):
                changes.append(_changes(x, own))
        return [np.concatenate([np.zeros((0, 3)), *changes]) for changes in found]

    def _zeros(self, which: Pass, exact: Unbounded, changes: Column) -> Column:
        """Return zeros between inputs of one sign, to a few digits."""
        # of huge inputs waves have more zeros than are looked at, as roundings in double may of tiny ones
        ordinary = np.argsort(np.abs(np.log2(np.abs(changes[:, 0]))), kind="stable")
        zeros = []
        for low, high, _ in changes[ordinary[:MOST]]:
            [(name, x)] = self._inside(np.linspace(low, high, FINER)).items()
            found = _changes(x, exact.column(which, {name: x}))
            zeros += [zero for zero, _, steepness in found[:1] if steepness <= STEEP]
        return np.array(zeros)

    def _inside(self, numbers: Column) -> dict[str, Column]:
        [name] = self.formula.declared.inputs
        interval = self.formula.assume.get(name, REALS)
        return {name: numbers[(numbers >= float(interval.low)) & (numbers <= float(interval.high))]}


def _changes(x: Column, y: Column) -> Column:
    """Return pairs of inputs at which the signs of a result differ, and how steep it is there."""
    x, y = (each[np.isfinite(y) & (y != 0)] for each in (x, y))
    places = np.flatnonzero(np.signbit(y[:-1]) != np.signbit(y[1:]))
    away = [np.abs(y[np.clip(places + far, 0, len(y) - 1)]) for far in (-AWAY, AWAY + 1)]
    with np.errstate(all="ignore"):
        steepness = np.abs(y[places + 1] - y[places]) / np.max(away, axis=0)
    return np.stack([x[places], x[places + 1], steepness], axis=1)


def _errors(given: Column, real: Column) -> Column:
    """Return the errors of results rounded to floats, in ulp; none of an exact 0, nor of what overflows."""
    with np.errstate(all="ignore"):
        found = np.abs(in_float(given) - real) / FLOAT.unit(real)
    return np.where(np.isfinite(found) & (real != 0), found, 0.0)


def _is_like(ours: Column, theirs: Column, of_eager: float) -> bool:
    """Return True if errors are like eager's, but not the same, as where one argument decides both."""
    apart = np.mean(ours > ALIKE * theirs) > FEW
    return bool(apart and np.median(ours) > of_eager * np.median(theirs))
