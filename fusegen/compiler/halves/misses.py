"""The 16-bit inputs at which a kernel misses the promise: the correctly rounded result or its neighbour.

A kernel of one tensor is evaluated at numbers of every binade. Exact values take long, so that they are
computed only where a result is doubtful: where the estimated error is a part of an ulp of the 16-bit type,
or a value on the way is too large or too small for the kernel's arithmetic.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import is_arithmetic
from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.halves.half_types import HALVES, Half, Places
from fusegen.compiler.halves.side import Series
from fusegen.compiler.halves.tail_series import fitted
from fusegen.core import budget
from fusegen.core.interval import REALS, Point
from fusegen.core.ir import Kernel, Math, round_to
from fusegen.core.method import Pass
from fusegen.core.targets import Device
from fusegen.lower import lower
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import DOUBLE, FLOAT, Graph, Range
from fusegen.numerics.roundoff.local import Mask, Run
from fusegen.numerics.roundoff.results import losses

DOUBTFUL = 1 / 8  # of an ulp of the 16-bit type: a larger estimated error is compared with the exact value
MOST = 200  # doubtful results of a kernel in a type whose exact values are computed
WORST = 16  # further ones, those that lose most
NORMAL = 2.0**-1022  # the least double with all digits
DIVISIONS, LEAST_DIVISOR = ("div", "quotient", "reciprocal"), 2.0**-124  # `FastFloat` takes a quarter of it
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "minimum", "maximum"))
# operations whose result may be 0 or infinite though no argument is
PASSED_ON = frozenset(
    ("add", "sub", "where", "neg", "abs", "narrow", "words", "relu", "minimum", "maximum")
)


@dataclass(frozen=True)
class Halves:
    """The promise of a pass of a function of one tensor, in the 16-bit types of its spec."""

    formula: Formula  # as declared
    which: Pass  # the pass
    dtypes: tuple[str, ...]  # the names of the spec's 16-bit types
    params: Point  # a value for each parameter of its kernels

    def misses(self, kernel: Kernel) -> list[float]:
        """Return the tried inputs at which a kernel's result is neither the correct one nor its neighbour.

        Args:
            kernel: of one result, which reads the input and nothing else but the incoming gradient; none
                of the inputs of a kernel that reads the rounded output.
        """
        if self.name not in kernel.inputs:
            return []
        return [x for dtype in self.dtypes for x in self._misses(kernel, HALVES[dtype])]

    def series(self, missed: Sequence[float]) -> list[Series] | None:
        """Series that give the results at all inputs that are missed; None if there are none for some."""
        return fitted(missed, self.exact, [2.0 ** math.frexp(HALVES[d].largest)[1] for d in self.dtypes])

    @property
    def name(self) -> str:
        """The name of the input."""
        [name] = self.formula.declared.inputs
        return name

    def exact(self, x: float) -> float:
        """Return the exact result at a number, for an incoming gradient of 1; NaN where there is none."""
        return self.formula.exact.at(self.which, {**self.formula.params, self.name: x})[0]

    @cached_property
    def _is_arithmetic(self) -> bool:
        """True if the formula has no function whose kernel rounds otherwise than it is evaluated."""
        return is_arithmetic(expanded(self.formula.declared))

    def _misses(self, kernel: Kernel, half: Half) -> Iterator[float]:
        interval = self.formula.assume.get(self.name, REALS)
        tried = [x for x in half.sample().tolist() if interval.low <= x <= interval.high]
        if not tried:
            return
        inputs = {self.name: np.array(tried)}
        [(given, lost, doubtful, kinks)] = evaluated(kernel, half, inputs, self.params)
        for k in chosen(lost / half.unit(given), (doubtful | kinks) & _telling(given)):
            real = self.exact(tried[k])
            if real == given[k] == 0 and self._is_arithmetic:  # its roundings are those of the kernel
                continue
            if math.isnan(real) or not missed(float(given[k]), float(lost[k]), real, half):
                continue
            if not (math.isinf(given[k]) and self._eager_overflows(kernel.device, tried[k])):
                yield tried[k]

    def _eager_overflows(self, device: Device, x: float) -> bool:
        """Return True if eager's operations in float give no finite result."""
        program = self.formula.eager_programs[self.which]
        if self.name not in program.inputs:
            return True
        params = with_uniforms(self.formula.params, program)
        kernel = lower("eager", program, device, Math.FLOAT)
        run, [end] = _run(kernel, FLOAT, {self.name: np.array([x])}, params)
        return not math.isfinite(run.values[end][0])


def evaluated(
    kernel: Kernel,  # in float or in double
    half: Half,  # the type of its inputs and results
    inputs: Mapping[str, Column],  # a column for each but the incoming gradient, which is 1
    params: Point,  # a value for each parameter
) -> list[tuple[Column, Column, Mask, Mask]]:
    """Return each result of a kernel at some inputs, its estimated errors, doubtful places, and kinks."""
    of_float = kernel.math is Math.FLOAT
    within, scale = (FLOAT, 1.0) if of_float else (DOUBLE, budget.IN_DOUBLE)
    run, ends = _run(kernel, within, inputs, params)
    run, found = replace(run, none=run.none * scale), []
    with np.errstate(all="ignore"):
        beyond, kinks = np.any([*_out_of_range(run)], axis=0), _at_kinks(run)
        for end in ends:
            given = run.values[end]
            lost = sum((part for _, part in losses(end, run)), np.zeros(len(given))) * scale
            if of_float and kernel.device.fast_types:
                lost = np.where(_fast_inverse_overflows(run), math.inf, lost)
            unsure = ~np.isfinite(given) | ~(lost <= DOUBTFUL * half.unit(given))
            found.append((given, lost, unsure | beyond, kinks))
    return found


def _run(
    kernel: Kernel, within: Range, inputs: Mapping[str, Column], params: Point
) -> tuple[Run, Sequence[int]]:
    """Return a kernel's operations with their values at some inputs, and the places of its results."""
    graph, count = Graph(kernel), len(next(iter(inputs.values())))
    if kernel.math is Math.DOUBLE:  # whose low words the values here, in double, do not have
        graph.nodes = [replace(node, double_word=False, exact=False) for node in graph.nodes]
    columns = {name: inputs.get(name, np.ones(count)) for name in kernel.inputs}
    columns |= {p: np.full(count, round_to(params[p], kernel.math)) for p in kernel.params}
    with np.errstate(all="ignore"):
        return Run(graph, within, graph.values(columns, within)), graph.results


def missed(given: float, lost: float, real: float, half: Half) -> bool:
    """Return True if a result may be neither the correctly rounded value nor its neighbour."""
    if math.isnan(given):
        return True
    lost = lost if math.isfinite(given) else 0.0  # an infinity is as good as what overflows
    right, *ends = half.places(np.array([real, given - lost, given + lost])).tolist()
    overflows = max(map(abs, ends)) >= half.infinity > abs(right)
    return bool(overflows or max(abs(end - right) for end in ends) > 1)


def _at_kinks(run: Run) -> Mask:
    """Return where a comparison finds what was rounded before to be equal: it may have reached a kink."""
    found = np.zeros(len(run.values[0]), bool)
    for node in run.graph.nodes:
        if node.op in COMPARISONS and any(run.graph.nodes[arg].args for arg in node.args):
            found |= run.values[node.args[0]] == run.values[node.args[1]]
    return found


def _out_of_range(run: Run) -> Iterator[Mask]:
    """Where operations give what their arithmetic cannot hold."""
    yield np.zeros(len(run.values[0]), bool)
    for node, found in zip(run.graph.nodes, run.values, strict=True):
        if not node.args:
            continue
        args = [run.values[arg] for arg in node.args]
        yield np.isinf(found) & np.all([np.isfinite(arg) for arg in args], axis=0)
        if node.op not in PASSED_ON:
            size = np.abs(found)
            tiny = (size < NORMAL) & np.all([arg != 0 for arg in args], axis=0)
            yield tiny


def _fast_inverse_overflows(run: Run) -> Mask:
    """Where a divisor is so small that the special-function unit flushes it: its inverse is infinite."""
    found = np.zeros(len(run.values[0]), bool)
    for node in run.graph.nodes:
        if node.op in DIVISIONS:
            found |= np.abs(run.values[node.args[-1]]) < LEAST_DIVISOR
    return found


def chosen(lost: Column, doubtful: Mask) -> list[int]:
    """Return doubtful places: some of all, and the worst ones of a finite loss, in their order."""
    places = np.flatnonzero(doubtful)
    finite = places[np.isfinite(lost[places])]
    worst = finite[np.argsort(-lost[finite], kind="stable")[:WORST]]
    return sorted({*spread(places, MOST), *worst.tolist()})


def spread(places: Places, most: int) -> list[int]:
    """Return every K-th place, so many that all have their share."""
    found: list[int] = places[:: -(-len(places) // most) or 1].tolist()
    return found


def _telling(given: Column) -> Mask:
    """Return all results but those inside a run of equal ones, of which every eighth is kept."""
    same: Mask = (given == np.roll(given, 1)) & (given == np.roll(given, -1))
    kept: Mask = ~same | (np.arange(len(given)) % 8 == 0)
    return kept
