"""The estimated error of a kernel by curves, which err by what a piece may."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fusegen import budget
from fusegen.expected import Formula
from fusegen.facts import Curve
from fusegen.ir import Call, Const, Device, Expr, Kernel, Let, Ref, Word
from fusegen.method import Pass
from fusegen.ops.kernels import CURVE
from fusegen.pieces import SEGMENT
from fusegen.roundoff import NORMAL, inside, roundoff, steps
from fusegen.roundoff.graph import Fitted
from fusegen.sample import Point
from fusegen.values import Column

NEXT_TO_ZERO = 2.5  # ulp that the polynomial around a zero may err by, as its slope has no residual


@dataclass(frozen=True)
class Bound:
    """The error that a kernel by curves may have: the contract's, unless the formula exceeds it in float.

    Attributes:
        which: the pass.
        formula: as declared.
        single: the kernel by the formula, in float.
    """

    which: Pass
    formula: Formula
    single: Kernel

    @cached_property
    def ulp(self) -> float:
        """The contract's if the formula is within it in float; else its own, or eager's if smaller."""
        own = roundoff(self.single, self.formula.sample(self.single), self.formula.params).ulp
        most = budget.FLOAT_ENOUGH[Device.CUDA]
        if own <= most:
            return most
        return min(own, self.formula.enough(Device.CUDA, self.which))

    def holds(self, kernel: Kernel, own: Sequence[Curve]) -> bool:
        """True if a kernel's estimated error is within the bound on inputs that the pieces cover."""
        of, sample = _WrittenOut(own), self.formula.sample(kernel)
        for let in kernel.lets:
            value = of.expr(let.value)
            of.lets.append(Let(let.name, value))
        results = tuple(map(of.expr, kernel.results))
        whole = replace(kernel, lets=tuple(of.lets), results=results)
        fitted, outside = of.at(steps(whole, sample.points), sample.points)
        found = roundoff(
            whole, sample, self.formula.params, given=lambda point: id(point) in outside, fitted=fitted
        )
        return math.isfinite(found.ulp) and found.ulp <= self.ulp


@dataclass
class _WrittenOut:
    """A kernel whose curves are written out.

    Attributes:
        own: the curves.
        lets: its steps so far.
        on_the_way: the steps of curves, by name.
        values: the curves, the names of their arguments and of their values.
    """

    own: Sequence[Curve]
    lets: list[Let] = field(default_factory=list)
    on_the_way: list[str] = field(default_factory=list)
    values: list[tuple[Curve, str, str]] = field(default_factory=list)

    def at(self, of: Mapping[str, Column], points: Sequence[Point]) -> tuple[Fitted, set[int]]:
        """The errors of steps at some points, in ulp, and the points at which no piece gives a curve.

        Args:
            of: the values of the steps.
            points: the points, which are known by their identities.
        """
        fitted: dict[str, float | Column] = dict.fromkeys(self.on_the_way, 0.0)
        missing: set[int] = set()
        for curve, argument, value in self.values:
            near = inside(of[argument], *curve.zeros)
            fitted[value] = SEGMENT.most + near * (NEXT_TO_ZERO - SEGMENT.most)
            each = zip(points, inside(of[argument], curve.within), of[value], strict=True)
            missing |= {id(point) for point, holds, y in each if not holds or not abs(y) >= NORMAL}
        return fitted, missing

    def expr(self, expr: Expr) -> Expr:
        """An expression of these steps."""
        if not isinstance(expr, Call):
            return expr
        args = tuple(map(self.expr, expr.args))
        if expr.op == CURVE and isinstance(args[1], Const):
            return self.value(self.own[int(args[1].value)], args[0])
        return replace(expr, args=args)

    def value(self, curve: Curve, of: Expr) -> Ref:
        """The value of a curve."""
        kernel, prefix = curve.kernel, f"{CURVE}{len(self.lets)} "
        argument = Let(f"{prefix}x", of)
        taken = {let.name: Ref(f"{prefix}{let.name}", let.word) for let in kernel.lets}
        taken[kernel.inputs[0]] = Ref(argument.name, of.word)
        lets = [Let(taken[let.name].name, _renamed(let.value, taken)) for let in kernel.lets]
        result = _renamed(kernel.results[0], taken)
        single = Call("narrow", (result,)) if result.word is Word.DOUBLE else result
        self.lets += [argument, *lets, Let(prefix, single)]
        self.on_the_way += [let.name for let in lets]
        self.values.append((curve, argument.name, prefix))
        return Ref(prefix)


def _renamed(expr: Expr, names: dict[str, Ref]) -> Expr:
    """An expression of other names."""
    match expr:
        case Ref(name):
            return names[name]
        case Call(_, args):
            return replace(expr, args=tuple(_renamed(arg, names) for arg in args))
    return expr
