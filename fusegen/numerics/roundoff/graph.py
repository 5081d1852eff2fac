"""A kernel as a list of operations, each after what it takes, and their values at many points.

A value is a column: a number for each point, in double.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from fusegen.core.budget import FUNCTION_ULP, FUNCTION_ULPS, SINGLE_RESULT_ULP
from fusegen.core.ir import Body, Call, Const, Expr, Kernel, Math, Ref, Word
from fusegen.numerics.ieee import Column, column, value
from fusegen.numerics.roundoff.low_words import LowWords

Fitted = Mapping[str, float | Column]
IEEE = ("add", "sub", "mul", "div", "neg", "reciprocal")
UNITED = ("tanh", "erf")  # whose single-word bodies are the math library's
FINITE, MOST = ("clamp_to_lowest", "clamp_to_highest"), 2.0**126  # of float
DIGITS, LEAST, LARGEST = 24, -149, float.fromhex("0x1.fffffep127")  # of float


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers of float's digits from 2^least to the largest one."""

    least: int
    largest: float

    def __call__(self, numbers: Column) -> Column:
        """Return numbers, infinite or 0 where they are too large or too small."""
        sizes = np.abs(numbers)
        if not (sizes > self.largest).any() and not ((sizes < self.smallest) & (sizes > 0)).any():
            return numbers
        found = np.where(sizes > self.largest, np.copysign(math.inf, numbers), numbers)
        return np.where(sizes < self.smallest, np.copysign(0.0, numbers), found)

    @property
    def smallest(self) -> float:
        """The size below which a number is rounded to 0."""
        return math.ldexp(0.5, self.least)

    def unit(self, numbers: Column) -> Column:
        """Return the last place of each number; of one too large, that of the largest."""
        sizes = np.minimum(np.abs(numbers), self.largest)
        _, exponents = np.frexp(sizes)
        return np.ldexp(1.0, np.where(sizes > 0, np.maximum(exponents - DIGITS, self.least), self.least))


FLOAT, DOUBLE = Range(LEAST, LARGEST), Range(-1074, sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Node:
    """An operation on earlier nodes, or a leaf: a number, or the name of what is given."""

    op: str
    args: tuple[int, ...]
    leaf: float | str
    double_word: bool  # whether its result is a double-word value
    exact: bool = False  # a sum or a product of single words, as one
    usual: float = 0.0  # the error of a function of single words, in ulp
    single_result: bool = False  # whether a function has that body
    fitted: float | Column | None = None  # the error of what a polynomial gives, in ulp
    known: bool = False  # whether the same numbers decide it for every input: it has the error it has

    @property
    def is_number(self) -> bool:
        """True if it is one, the same for every input."""
        return not self.op and isinstance(self.leaf, float)


class Graph:
    """A kernel as a list of operations."""

    def __init__(self, kernel: Kernel, fitted: Fitted = MappingProxyType({})) -> None:
        """List the operations of a kernel; fitted steps have an error in ulp, but 0 of those on the way."""
        # the usual errors of functions where it runs, in ulp
        self.functions = FUNCTION_ULPS[kernel.device.like]
        self.rounds = kernel.math is Math.FLOAT
        self.nodes: list[Node] = []  # each after what it takes
        self.known: dict[Expr, int] = {}
        for name in (*kernel.inputs, *kernel.params):
            leaf = Node("", (), name, double_word=False, known=name in kernel.params)
            self.known[Ref(name)] = self.add(leaf)
        for let in kernel.lets:
            first = len(self.nodes)
            self.known[Ref(let.name, let.word)] = place = self.index(let.value)
            if let.name in fitted:
                self.nodes[first:] = [replace(node, fitted=0.0) for node in self.nodes[first:]]
                self.nodes[place] = replace(self.nodes[place], fitted=fitted[let.name])
        self.results = tuple(map(self.index, kernel.results))  # the places of the kernel's results

    def add(self, node: Node) -> int:
        """Return the place of a new node."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def index(self, expr: Expr) -> int:
        """Return the place of an expression's node."""
        if expr not in self.known:
            match expr:
                case Const(number):
                    self.known[expr] = self.add(Node("", (), number, double_word=False, known=True))
                case Ref(name):
                    raise AssertionError(f"{name} comes later")
                case _:
                    args = tuple(map(self.index, expr.args))
                    double_word, usual = expr.word is Word.DOUBLE, self.usual(expr)
                    known = self.rounds and self.is_known(expr, args)
                    single = expr.body is Body.SINGLE_RESULT
                    node = Node(expr.op, args, "", double_word, _is_exact(expr), usual, single, known=known)
                    self.known[expr] = self.add(node)
        return self.known[expr]

    def is_known(self, call: Call, args: Sequence[int]) -> bool:
        """Return True if IEEE arithmetic rounds an operation of single words, the same for every input."""
        single = call.word is Word.SINGLE and call.op in IEEE
        return single and all(self.nodes[arg].known for arg in args)

    def usual(self, call: Call) -> float:
        """Return the usual error of a function; the tables say nothing of the bodies that chains have."""
        if call.body is Body.SINGLE_RESULT:
            return SINGLE_RESULT_ULP.get(call.op, FUNCTION_ULP)
        own = self.functions if call.body is None or call.op in UNITED else {}
        return own.get(call.op, FUNCTION_ULP)

    def computed(self, op: str, args: Sequence[Column]) -> Column:
        """Return the values of an operation; one that keeps infinities finite gives what float has."""
        found = column(op, args)
        if not self.rounds or op not in FINITE:
            return found
        return np.maximum(found, -MOST) if op == "clamp_to_lowest" else np.minimum(found, MOST)

    def values(
        self,
        given: Mapping[str, Column],  # a column for each input and parameter, all of one length
        within: Callable[[Column], Column],  # rounds numbers to the range
        # the same of single words, where these are rounded otherwise
        single: Callable[[Column], Column] | None = None,
    ) -> list[Column]:
        """Return the value of each node at each point, within a range of numbers."""
        rounded = single or within
        [points] = {len(each) for each in given.values()} or {1}
        found: list[Column] = []
        low = LowWords(found)
        for place, node in enumerate(self.nodes):
            if not node.op:
                leaf = node.leaf
                found.append(given[leaf] if isinstance(leaf, str) else np.full(points, leaf))
            elif node.double_word and node.op in low.sums:
                found.append(within(low.sum(place, node.op, node.args)))
            elif node.args:
                stored = within if node.double_word else rounded
                value_at = stored(self.computed(node.op, [found[arg] for arg in node.args]))
                found.append(value_at.astype(np.float32).astype(float) if node.known else value_at)
            else:
                found.append(within(np.full(points, value(node.op, ()))))
        return found


def _is_exact(call: Call) -> bool:
    """Return True if an operation is a sum or a product of single words as a double-word value."""
    return call.op in ("add", "mul") and call.body is Body.DOUBLE_WORD
