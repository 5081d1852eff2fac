"""The estimated error of a kernel's results, in ulps of the exact result.

A kernel is evaluated in double at a sample of inputs. From the result back it is found how far the result
moves with each operation; an operation contributes its rounding error times that. The sum also has the
distance of that result from the exact one, which is large where a value overflows or underflows in float.
The largest usual error of every operation is added up. This is no bound: between samples errors may be
larger. `certify` tests every input. With another math library than this host's an estimate changes in its
thirteenth digit.

Source: Bauer 1974, Computational graphs and rounding error, SIAM J. Numer. Anal. 11.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusegen.ir import Const, Device, Expr, Kernel, Math, Ref, held
from fusegen.ops import ROWS, TRANSCENDENTAL
from fusegen.sample import Point, Sample
from fusegen.singles import SINGLES
from fusegen.values import DECIDED, value

# in ulp: estimates that stand for errors of at most 4, since the largest errors do not meet; on CUDA, where
# functions are of single words, there are more of them
TRUSTED = {Device.CPU: 4.75, Device.CUDA: 7.0}
TRUSTED_IN_16_BITS = 2.0**8  # on CUDA; an ulp of a float16 is 2^13 of them
# in ulp: errors up to which one word of double is enough; its functions have 20 or 15 bits more than float
AMPLE, BRIEF = 2.0**20, 2.0**10
IN_DOUBLE = 2.0**-29  # of a kernel's error with float's digits, its error with double's
FUNCTION, ROUNDING = 1.4, 0.5  # in ulp: the error of a function, and of other operations
OWN = {"tanh": 0.8, "erf": 0.8, "cube": 1.0, "soft_sign": 1.0, "rsqrt": 1.0}
DIGITS, LEAST, LARGEST = 24, -149, float.fromhex("0x1.fffffep127")  # of float
NEAR_LARGEST = LARGEST / 16  # a result that overflows from here on overflows a little early
SECOND, GONE = (
    2.0**-49,
    2.0**-102,
)  # the error of two words, and the size below which there is no room for a second
POLYNOMIAL = 2.0**-27  # the error of the polynomials in functions of two words
NONE = 2.0**-27  # of a value that is as near to its argument, or to 1, and is that
# what passes a value on as it is, or one of several
EXACT = frozenset(
    (*DECIDED, "neg", "abs", "sign", "relu", "relu6", "clamp", "saturate", "clamp_min", "clamp_max",
     "minimum", "maximum", "finite_below", "finite_above", "words", "lifted", "lift_back", "capped",
     "sum", "by_width", "rounded")
)  # fmt: skip
ALWAYS_TWO = frozenset(("words", "sum", "product"))  # give two words
AS_GIVEN = frozenset(("add", "sub", "mul", "neg", "where", "lifted"))  # give what they take


@dataclass(frozen=True, slots=True)
class Roundoff:
    """The largest estimated error.

    Attributes:
        ulp: in ulp of the exact result; infinite if a result is NaN or infinite and the exact one is not.
        at: the inputs that have it.
        by: the operation that contributes most; none where a value is too large.
    """

    ulp: float
    at: Point
    by: str


@dataclass(frozen=True, slots=True)
class _Range:
    """Numbers of float's digits from 2^least to the largest one."""

    least: int
    largest: float

    def __call__(self, number: float) -> float:
        """A number, infinite or 0 where it is too large or too small."""
        if abs(number) > self.largest:
            return math.copysign(math.inf, number)
        return math.copysign(0.0, number) if abs(number) < math.ldexp(0.5, self.least) else number

    def unit(self, size: float) -> float:
        """The last place of a number; of one too large, that of the largest."""
        _, exponent = math.frexp(min(abs(size), self.largest))
        return math.ldexp(1.0, max(exponent - DIGITS, self.least) if size else self.least)


FLOAT, DOUBLE = _Range(LEAST, LARGEST), _Range(-1074, sys.float_info.max)


@dataclass(frozen=True, slots=True)
class _Node:
    """An operation on earlier nodes, or a leaf: a number, or the name of what is given."""

    op: str
    args: tuple[int, ...]
    leaf: float | str
    two: bool  # whether it gives two words

    @property
    def is_number(self) -> bool:
        """Whether it is one, the same for every input."""
        return not self.op and isinstance(self.leaf, float)


@dataclass(frozen=True, slots=True)
class _At:
    """A point, the values of all nodes there, and what operations round and their slopes, once known."""

    point: Point
    values: Sequence[float]
    known: dict[int, tuple[float, tuple[float, ...]]]


def roundoff(
    kernel: Kernel,
    sample: Sample,
    params: Mapping[str, float],
    *,
    given: Callable[[Point], bool] = lambda point: False,
    ranged: bool = True,
) -> Roundoff:
    """The largest estimated error of a kernel's results.

    Args:
        kernel: in float.
        sample: points, and the exact results there.
        params: a value for each of the kernel's parameters.
        given: whether polynomials give the result at a point instead of the kernel.
        ranged: whether values on the way have float's range; else only its digits.
    """
    found = sorted(roundoffs(kernel, sample, params, ranged), key=lambda error: -error.ulp)
    return next((error for error in found if not given(error.at)), Roundoff(0.0, {}, ""))


def roundoffs(
    kernel: Kernel, sample: Sample, params: Mapping[str, float], ranged: bool = True
) -> Iterator[Roundoff]:
    """The estimated error of each result at each point of a sample."""
    graph = _Graph(kernel, ranged)
    for point, reals in zip(sample.points, sample.reals, strict=True):
        at = _At(point, graph.values({**params, **point}, graph.range), {})
        for end, real in zip(graph.results, reals, strict=True):
            yield graph.error(end, at, real)


def function(kernel: Kernel, params: Mapping[str, float]) -> Callable[[float], float]:
    """A kernel of one result as a function of its last input, in double; any other input is 1.

    Args:
        kernel: in double.
        params: a value for each of its parameters.
    """
    graph = _Graph(kernel)
    [end], name = graph.results, kernel.inputs[-1]
    others = {**params, **dict.fromkeys(kernel.inputs, 1.0)}
    return lambda x: graph.values({**others, name: x}, float)[end]


def evaluated(expr: Expr, given: Mapping[str, float]) -> float:
    """What an expression of single words gives in double, by the values of what it names."""
    match expr:
        case Const(number):
            return number
        case Ref(name):
            return given[name]
    return value(expr.op, [evaluated(arg, given) for arg in expr.args])


class _Graph:
    """A kernel as a list of operations, each after what it takes."""

    def __init__(self, kernel: Kernel, ranged: bool = True) -> None:
        self.range = FLOAT if ranged else DOUBLE
        self.singles = SINGLES if (kernel.device, kernel.math) == (Device.CUDA, Math.FLOAT) else {}
        self.nodes: list[_Node] = []
        self.known: dict[Expr, int] = {}
        for name in (*kernel.inputs, *kernel.params):
            self.known[Ref(name)] = self.add(_Node("", (), name, False))
        for let in kernel.lets:
            self.known[Ref(let.name)] = self.index(let.value)
        self.results = tuple(map(self.index, kernel.results))

    def add(self, node: _Node) -> int:
        """The place of a new node."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def index(self, expr: Expr) -> int:
        """The place of an expression's node."""
        if expr not in self.known:
            match expr:
                case Const(number):
                    self.known[expr] = self.add(_Node("", (), number, False))
                case Ref(name):
                    raise AssertionError(f"{name} comes later")
                case _:
                    args = tuple(map(self.index, expr.args))
                    self.known[expr] = self.add(_Node(expr.op, args, "", self.gives_two(expr.op, args)))
        return self.known[expr]

    def gives_two(self, op: str, args: Sequence[int]) -> bool:
        """Whether an operation gives two words."""
        if op in AS_GIVEN:
            return any(self.nodes[arg].two for arg in args)
        return op in ALWAYS_TWO or (ROWS[op].wide and op not in self.singles)

    def values(self, given: Mapping[str, float], within: Callable[[float], float]) -> list[float]:
        """What each node is, in double, within a range of numbers."""
        found: list[float] = []
        for node in self.nodes:
            if node.op:
                found.append(within(value(node.op, [found[arg] for arg in node.args])))
            else:
                found.append(given[node.leaf] if isinstance(node.leaf, str) else node.leaf)
        return found

    def error(self, end: int, at: _At, real: float) -> Roundoff:
        """The estimated error of a result at a point.

        Args:
            end: the place of the result.
            at: the point.
            real: the exact result.
        """
        if math.isnan(real) or abs(real) > LARGEST:
            return Roundoff(0.0, at.point, "")
        ulp, result = FLOAT.unit(abs(real)), at.values[end]
        if not math.isfinite(result):
            early = math.isinf(result) and abs(real) > NEAR_LARGEST
            return Roundoff(abs(real) / ulp if early else math.inf, at.point, "")
        parts = [(lost / ulp, node.op) for node, lost in self.losses(end, at)]
        stored = ROUNDING if self.nodes[end].two else 0.0
        whole = abs(result - real) / ulp + stored + sum(lost for lost, _ in parts)
        return Roundoff(whole, at.point, max(parts, default=(0.0, ""))[1])

    def losses(self, end: int, at: _At) -> Iterator[tuple[_Node, float]]:
        """By how much each operation's rounding moves a result, from the result back."""
        moved = [0.0] * end + [1.0]
        for place in range(end, -1, -1):
            node = self.nodes[place]
            if node.op and moved[place]:
                rounded, slopes = self.local(place, at)
                lost = abs(moved[place]) * rounded
                yield node, math.inf if math.isnan(lost) else lost
                for arg, slope in zip(node.args, slopes, strict=True):
                    moved[arg] += moved[place] * slope if slope else 0.0

    def local(self, place: int, at: _At) -> tuple[float, tuple[float, ...]]:
        """What an operation rounds, and its slopes; the same for every result."""
        if place not in at.known:
            node = self.nodes[place]
            rounded = self.rounded(node, at.values[place], at.values)
            at.known[place] = rounded, tuple(self.slopes(node, at.values))
        return at.known[place]

    def rounded(self, node: _Node, result: float, values: Sequence[float]) -> float:
        """What an operation rounds."""
        if node.op in EXACT or result == 0 or not math.isfinite(result):
            return 0.0
        gone = math.ldexp(0.5, self.range.least) if abs(result) < GONE else 0.0
        args = [values[arg] for arg in node.args]
        if self.is_exact(node, result, args):
            return 0.0
        if node.op in TRANSCENDENTAL:
            return self.approximated(node, result, args, gone)
        match node.op:
            case "product":
                return gone
            case "add" | "sub" if node.two:
                return max(map(abs, args)) * SECOND
        if node.two:
            return abs(result) * SECOND + gone
        return OWN.get(node.op, ROUNDING) * self.range.unit(result)

    def is_exact(self, node: _Node, result: float, args: Sequence[float]) -> bool:
        """Whether an operation of single words rounds nothing."""
        match node.op:
            case "add" | "sub" if not node.two:
                nodes = (self.nodes[arg] for arg in node.args)
                grains = [_grain(number, each) for number, each in zip(args, nodes, strict=True)]
                return abs(result) <= math.ldexp(min(grains), DIGITS)
            case "narrow":
                return self.range(result) == held(result, Math.FLOAT)
            case "mul" | "div":
                by = args if node.op == "mul" else args[1:]
                normal = abs(result) >= math.ldexp(1.0, self.range.least + DIGITS - 1)
                return normal and any(map(_is_power, by))
        return False

    def approximated(self, node: _Node, result: float, args: Sequence[float], gone: float) -> float:
        """The error of a function; none where it is its argument or 1 in every digit."""
        size = abs(result)
        apart = min(size, abs(size - 1), *(abs(result - arg) for arg in args))
        if apart <= NONE * size:
            return 0.0
        own = OWN.get(node.op, FUNCTION)
        return apart * POLYNOMIAL + gone if node.two else own * self.range.unit(result)

    def slopes(self, node: _Node, values: Sequence[float]) -> Iterator[float]:
        """How far an operation's result moves with each of its arguments."""
        args = [values[arg] for arg in node.args]
        for k, arg in enumerate(node.args):
            if math.isinf(args[k]) or self.nodes[arg].is_number:
                yield 0.0  # neither a number nor what is too large anyway moves
            else:
                yield SLOPES[node.op](args)[k] if node.op in SLOPES else _slope(node.op, args, k)


SLOPES: dict[str, Callable[[Sequence[float]], tuple[float, ...]]] = {
    "add": lambda _: (1.0, 1.0),
    "sub": lambda _: (1.0, -1.0),
    "mul": lambda args: (args[1], args[0]),
    "product": lambda args: (args[1], args[0]),
    "sum": lambda _: (1.0, 1.0),
    "neg": lambda _: (-1.0,),
    "narrow": lambda _: (1.0,),
    "where": lambda args: (0.0, 1.0, 0.0) if args[0] else (0.0, 0.0, 1.0),
}


def _slope(op: str, args: Sequence[float], k: int) -> float:
    """The slope by one argument, from its neighbours."""
    step = abs(args[k]) * 2.0**-20 or 2.0**-60
    above, below = (value(op, [*args[:k], args[k] + by, *args[k + 1 :]]) for by in (step, -step))
    return (above - below) / (2 * step)


def _grain(number: float, node: _Node) -> float:
    """A power of two that a value is a multiple of: of a number its own, else its last place."""
    if number == 0:
        return math.inf
    if not node.is_number:
        return FLOAT.unit(number)
    numerator, denominator = number.as_integer_ratio()
    return (numerator & -numerator) / denominator


def _is_power(number: float) -> bool:
    """Whether a number is a power of two, or less than nothing and one."""
    return abs(math.frexp(number)[0]) == 0.5
