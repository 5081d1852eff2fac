"""The share of float32 results that are misrounded on the CPU, beside eager's (rule C5).

Where IEEE arithmetic defines both, their results at random inputs are counted. A function has errors of its
own, which decide results that are all but the same at a quarter of the inputs, as in a tail: there the
estimated error is compared with the distance from the exact result to the next tie. A scalar that is no
float may decide such results, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.kernel_values import Points, Unrounded, Values, in_float
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.zeros_of_sums import ROUNDED_ONCE
from fusegen.core import budget
from fusegen.core.interval import REALS, Interval, Truth
from fusegen.core.ir import Math, operations
from fusegen.core.method import Pass, Variant
from fusegen.core.ops import TRANSCENDENTAL
from fusegen.core.targets import Device
from fusegen.lower import lower
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import FLOAT, Graph, Node
from fusegen.numerics.roundoff.local import Mask, Run
from fusegen.numerics.roundoff.results import losses
from fusegen.numerics.sample import JUDGED

SEED, EVERY_SIZE, ORDINARY = 20261, 2**13, 2**11  # points: in every binade; normal ones, and of each octave
USUAL, OCTAVES = (4.0, 3.0), (-20.0, 13.28)  # the sizes of normal numbers; exponents up to JUDGED
MOST, AS_OFTEN = 0.25, 0.99  # a share that C5 admits; of eager's, what may be as large on other points
TINY = 2.0**-24  # an argument at which a function is all but that at 0
DIVISIONS = {"div", "quotient", "reciprocal", "sqrt"}
ROOM = 4.0  # of an estimated error: further away the nearest float is certain


@dataclass(frozen=True)
class Share:
    """A share of results that C5 may not admit."""

    # which, output: of the results: 0 is the value, k the gradient of the k-th input
    which: Pass
    output: int
    # own, eager: the shares
    own: float
    eager: float


def misrounded(of: Compiled) -> Iterator[Share]:
    """Yield the shares that may break C5; none of a spec that promises PyTorch's bits."""
    formula = of.declared.formula
    if of.declared.is_eager or of.algebra.pytorch_bits or not formula.declared.inputs:
        return
    if "float32" not in of.spec.dtypes:
        return
    points = random_floats(formula)
    if not len(next(iter(points.values()))):
        return
    passes = _Passes.of(of, points)
    for which in Pass:
        if of.facts[which].float_ok[Device.CPU]:
            yield from passes.shares(which)


@dataclass(frozen=True)
class _Passes:
    # own, exact, eager: the results in float, without roundings, and of eager's operations
    own: Values
    exact: Unrounded
    eager: Values
    points: Points  # the inputs
    defined: bool  # whether IEEE arithmetic defines all results in float
    is_like_eager: bool  # whether nothing is divided: what the estimates have alike has the same bits then

    @staticmethod
    def of(of: Compiled, points: Points) -> _Passes:
        formula = of.declared.formula
        params = with_uniforms(formula.params, *of.programs)
        kernels = of.in_variant(Device.CPU, Variant.SINGLE_RESULT)
        eager = formula.eager_programs.map(lambda each: lower("eager", each, Device.CPU, Math.FLOAT))
        scalars = with_uniforms(formula.params, *formula.eager_programs)
        used = frozenset[str]().union(*map(operations, (*kernels, *eager)))
        defined, divides = used <= ROUNDED_ONCE, bool(used & DIVISIONS)
        own, exact = Values(kernels, params), Unrounded(kernels, params)
        return _Passes(own, exact, Values(eager, scalars), points, defined, not divides)

    def shares(self, which: Pass) -> Iterator[Share]:
        """Yield those of a pass that may break the rule."""
        own, eager = (each.at(which, self.points) for each in (self.own, self.eager))
        for output, exact in self.exact.unrounded(which, self.points).items():
            right = in_float(exact)
            judged = np.isfinite(right) & np.isfinite(exact)
            theirs = float(np.mean(judged & (eager[output] != right)))
            if self.defined and self.is_like_eager and (own[output] == eager[output])[judged].all():
                continue
            if self.defined:
                share = float(np.mean(judged & (own[output] != right)))
            else:
                wrong = judged & (own[output] != right)
                share = self.of_frequent(which, output, np.where(judged, exact, 0.0), wrong)
            if share > max(MOST, AS_OFTEN * theirs):
                yield Share(which, output, share, theirs)

    def of_frequent(self, which: Pass, output: int, exact: Column, wrong: Mask) -> float:
        """Return the share of frequent results that are wrong, or of the first if it is doubtful."""
        numbers, counts = np.unique(exact, return_counts=True)
        place = [*self.exact.unrounded(which, self.points)].index(output)
        share, most = 0.0, int(np.argmax(counts))
        for k in np.flatnonzero(counts > MOST * len(exact)):
            real, at = float(numbers[k]), int(np.argmax(exact == numbers[k]))
            open_ = k == most and real != in_float(numbers)[k]
            if wrong[at] or (open_ and self.is_doubtful(which, at, place, real)):
                share += float(counts[k]) / len(exact)
        return share

    def is_doubtful(self, which: Pass, at: int, place: int, real: float) -> bool:
        """Return True if the estimated error at a point may reach the next tie."""
        part = abs(real) / float(FLOAT.unit(np.array([real]))[0]) % 1.0
        return ROOM * self.lost(which, at, place, real) > abs(part - 0.5)

    def lost(self, which: Pass, at: int, place: int, real: float) -> float:
        """Return the estimated error at a point, in ulp: what functions add to roundings."""
        kernel = self.own.kernels[which]
        given = {name: column[at : at + 1] for name, column in self.points.items()}
        incoming, *outputs = [name for name in kernel.inputs if name not in given] or [""]
        value = self.own.at(Pass.FORWARD, given)[0]
        scalars = {name: np.array([float(self.own.params[name])]) for name in kernel.params}
        graph = Graph(kernel)
        with np.errstate(all="ignore"):
            columns = {**given, incoming: np.ones(1), **dict.fromkeys(outputs, value), **scalars}
            values = graph.values(columns, FLOAT)
            graph.nodes = [_own_errors(node, values) for node in graph.nodes]
            found = sum(
                float(part[0]) for _, part in losses(graph.results[place], Run(graph, FLOAT, values))
            )
        return found / float(FLOAT.unit(np.array([real]))[0])


def _own_errors(node: Node, values: Sequence[Column]) -> Node:
    """Return an operation with the errors of functions alone; at 0 certificates show them to be right."""
    if node.op not in TRANSCENDENTAL or any(abs(values[arg][0]) < TINY for arg in node.args):
        return replace(node, fitted=0.0)
    return node if node.double_word else replace(node, fitted=max(node.usual - budget.ROUNDING_ULP, 0.0))


def random_floats(formula: Formula) -> Points:
    """Return random floats in the judged ranges: of a function of one tensor in every binade."""
    draw, names = np.random.default_rng(SEED), formula.declared.inputs
    found: dict[str, Column] = {}
    for name in names:
        sizes = 2.0 ** draw.integers(-126, 128, EVERY_SIZE) * draw.uniform(1, 2, EVERY_SIZE)
        parts = [sizes * draw.choice((-1.0, 1.0), EVERY_SIZE)]
        if len(names) > 1:
            parts[0] = draw.permutation(np.concatenate([*parts, draw.normal(0, USUAL[0], ORDINARY)]))
            octaves = 2.0 ** draw.uniform(*OCTAVES, ORDINARY) * draw.choice((-1.0, 1.0), ORDINARY)
            parts += [draw.normal(0, USUAL[1], ORDINARY), octaves]
        found[name] = in_float(np.concatenate(parts))
    inside = np.ones(len(found[names[0]]), bool)
    for name, column in found.items():
        range_ = formula.assume.get(name, REALS if len(names) == 1 else Interval(-JUDGED, JUDGED))
        if isinstance(range_, Truth):
            found[name] = (column > 0).astype(float)
        else:
            inside &= (column >= float(range_.low)) & (column <= float(range_.high))
    return {name: column[inside] for name, column in found.items()}
