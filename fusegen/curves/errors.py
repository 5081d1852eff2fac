"""The estimated error of a kernel by curves, which err by what a piece may."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fusegen import budget
from fusegen.expected import Formula
from fusegen.facts import Curve
from fusegen.interval import Interval
from fusegen.ir import Call, Const, Device, Expr, Kernel, Let, Ref, Word
from fusegen.method import Pass
from fusegen.ops.kernels import CURVE
from fusegen.roundoff import covered, roundoff

ERRS = 1.25  # ulp, that a piece may err by; it rounds once


@dataclass(frozen=True)
class Bound:
    """The error that a kernel by curves may have.

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
        """The error of the formula in float; that of the contract, if the formula exceeds it."""
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
        inside = covered(whole, sample.points, of.within, of.values)
        outside = {id(point) for point, holds in zip(sample.points, inside, strict=True) if not holds}
        found = roundoff(
            whole,
            sample,
            self.formula.params,
            given=lambda point: id(point) in outside,
            fitted=of.fitted,
        )
        return math.isfinite(found.ulp) and found.ulp <= self.ulp


@dataclass
class _WrittenOut:
    """A kernel whose curves are written out.

    Attributes:
        own: the curves.
        lets: its steps so far.
        fitted: what the steps of curves err by, in ulp, by name.
        within: the intervals in which pieces give the curves, by the names of their arguments.
        values: the names of the curves' values.
    """

    own: Sequence[Curve]
    lets: list[Let] = field(default_factory=list)
    fitted: dict[str, float] = field(default_factory=dict)
    within: dict[str, Interval] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)

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
        self.fitted |= dict.fromkeys((let.name for let in lets), 0.0) | {prefix: ERRS}
        self.within[argument.name] = curve.within
        self.values.add(prefix)
        return Ref(prefix)


def _renamed(expr: Expr, names: dict[str, Ref]) -> Expr:
    """An expression of other names."""
    match expr:
        case Ref(name):
            return names[name]
        case Call(_, args):
            return replace(expr, args=tuple(_renamed(arg, names) for arg in args))
    return expr
