"""The estimated errors of a kernel by curves, which err by what a piece may."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusegen.core.cubic import SEGMENT
from fusegen.core.facts import Curve, Curves
from fusegen.core.interval import Point
from fusegen.core.ir import Call, Const, Expr, Let, Ref, Word
from fusegen.core.ops.double_word import CURVE
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff import NORMAL, Errors, errors, inside, steps
from fusegen.numerics.roundoff.graph import Fitted
from fusegen.numerics.sample import Sample

NEXT_TO_ZERO = 2.5  # ulp that the polynomial around a zero may err by, as its slope has no residual


def by_curves(of: Curves, sample: Sample, params: Point) -> tuple[Errors, Callable[[Point], bool]]:
    """Return the errors of a kernel by curves at the points of a sample, and whether a point has no piece.

    Args:
        of: the kernel and its curves.
        sample: points, and the exact results there.
        params: a value for each of the kernel's parameters.
    """
    kernel = of.kernel
    out = _WrittenOut(of.curves)
    for let in kernel.lets:
        value = out.expr(let.value)
        out.lets.append(Let(let.name, value))
    results = tuple(map(out.expr, kernel.results))
    whole = replace(kernel, lets=tuple(out.lets), results=results)
    fitted, missing = out.at(steps(whole, sample.points), sample.points)
    return errors(whole, sample, params, fitted=fitted), lambda point: id(point) in missing


@dataclass
class _WrittenOut:
    """A kernel whose curves are written out."""

    own: Sequence[Curve]  # the curves
    lets: list[Let] = field(default_factory=list)  # its steps so far
    on_the_way: list[str] = field(default_factory=list)  # the steps of curves, by name
    # the curves, the names of their arguments and of their values
    values: list[tuple[Curve, str, str]] = field(default_factory=list)

    def at(
        self,
        of: Mapping[str, Column],  # the values of the steps
        points: Sequence[Point],  # the points, which are known by their identities
    ) -> tuple[Fitted, set[int]]:
        """The errors of steps at some points, in ulp, and the points at which no piece gives a curve."""
        fitted: dict[str, float | Column] = dict.fromkeys(self.on_the_way, 0.0)
        missing: set[int] = set()
        for curve, argument, value in self.values:
            near = inside(of[argument], *curve.zeros)
            fitted[value] = SEGMENT.most + near * (NEXT_TO_ZERO - SEGMENT.most)
            each = zip(points, inside(of[argument], curve.within), of[value], strict=True)
            missing |= {id(point) for point, holds, y in each if not holds or not abs(y) >= NORMAL}
        return fitted, missing

    def expr(self, expr: Expr) -> Expr:
        """Return an expression of these steps."""
        if not isinstance(expr, Call):
            return expr
        args = tuple(map(self.expr, expr.args))
        if expr.op == CURVE and isinstance(args[1], Const):
            return self.value(self.own[int(args[1].value)], args[0])
        return replace(expr, args=args)

    def value(self, curve: Curve, of: Expr) -> Ref:
        """Return the value of a curve."""
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
    """Return an expression of other names."""
    match expr:
        case Ref(name):
            return names[name]
        case Call(_, args):
            return replace(expr, args=tuple(_renamed(arg, names) for arg in args))
    return expr
