"""Poolings: reductions over windows of the last dimensions of a tensor, by PyTorch's names.

In a formula a pooling is a call such as ``max_pool2d(relu(x), 2)``. In a program it is a fold, `amax`,
`amin` or `sum`, of what stands in it; the windows are a value of the spec. The divisor of an average is the
scalar `LENGTH`, which has a value for each window.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fusegen.core.folds import AMAX, AMIN, LENGTH, SUM, Fold, fold
from fusegen.core.spec import Spec
from fusegen.core.term import Name, Number, SpecCall, Term, call, walk

MAX_SIZE = 2**20  # of a number of a window
TUPLE = ""  # the name of a call that is a tuple of numbers


@dataclass(frozen=True, slots=True)
class Pooling:
    """A pooling.

    Attributes:
        name: PyTorch's, or one like it.
        fold: by which it reduces a window.
        rank: the number of dimensions of a window, the last ones of a tensor.
        args: its arguments in PyTorch's order, the tensor first.
        averages: whether it divides by the number of elements.
    """

    name: str
    fold: Fold
    rank: int
    args: tuple[str, ...]
    averages: bool

    def value(self, term: Term) -> Term:
        """Return the pooling of a term as a formula of its fold."""
        folded = fold(self.fold, term)
        return call("div", folded, Name(LENGTH)) if self.averages else folded


COMMON = ("input", "kernel_size", "stride", "padding")
ARGS = {
    "max": (*COMMON, "dilation", "ceil_mode"),
    "min": (*COMMON, "dilation", "ceil_mode"),
    "sum": (*COMMON, "ceil_mode"),
    "avg": (*COMMON, "ceil_mode", "count_include_pad", "divisor_override"),
}
KINDS = {"max": AMAX, "min": AMIN, "sum": SUM, "avg": SUM}
FLAGS = ("ceil_mode", "count_include_pad")
POOLINGS = {
    f"{kind}_pool{rank}d": Pooling(
        f"{kind}_pool{rank}d",
        KINDS[kind],
        rank,
        args[:-1] if (kind, rank) == ("avg", 1) else args,
        kind == "avg",
    )
    for kind, args in ARGS.items()
    for rank in (1, 2, 3)
}


def example(pooling: Pooling) -> str:
    """Return how a pooling is called."""
    return f"{pooling.name}(x, kernel_size=2)"


def is_pooling(term: Term) -> bool:
    """Return True if a term is a call of a pooling."""
    return isinstance(term, SpecCall) and term.spec in POOLINGS


@dataclass(frozen=True, slots=True)
class Window:
    """The windows of a pooling, with a number for each of its dimensions.

    Attributes:
        pooling: the pooling.
        kernel, stride, padding, dilation: PyTorch's.
        ceil: whether a window may begin so late that it ends beyond the padding.
        counts_padding: whether an average divides by the elements of padding, too.
        divisor: by which an average divides in any case; 0 where it counts elements.
    """

    pooling: Pooling
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool = False
    counts_padding: bool = True
    divisor: int = 0

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.pooling.rank

    @property
    def whole(self) -> tuple[int, ...]:
        """The elements from the first of a window to its last, with those between."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def widest_padding(self) -> tuple[int, ...]:
        """The widest padding that PyTorch takes: half of a window, without what dilation leaves out."""
        return tuple(size // 2 for size in self.kernel)

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result for the shape of a tensor; sizes below 1 mean that it has none."""
        *batch, own = (*shape[: -self.rank], shape[-self.rank :])
        return (*batch, *(self._size(d, n) for d, n in enumerate(own)))

    def _size(self, d: int, size: int) -> int:
        stride, before = self.stride[d], self.padding[d]
        span = size + 2 * before - self.whole[d]
        found = (span + (stride - 1 if self.ceil else 0)) // stride + 1
        # the last window begins in the tensor or in the padding in front of it
        return found - (self.ceil and (found - 1) * stride >= size + before)


def window(given: SpecCall) -> Window:
    """Return the windows that a call of a pooling means; its keywords are numbers and tuples of them."""
    pooling, values = POOLINGS[given.spec], dict(given.keywords)

    def each(name: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        found = numbers(values[name]) if name in values else otherwise
        return found * pooling.rank if len(found) == 1 else found

    kernel = each("kernel_size", (1,))
    (ceil,), (counts,), (divisor,) = (
        numbers(values[name]) if name in values else (otherwise,)
        for name, otherwise in (("ceil_mode", 0), ("count_include_pad", 1), ("divisor_override", 0))
    )
    stride, padding, dilation = each("stride", kernel), each("padding", (0,)), each("dilation", (1,))
    return Window(pooling, kernel, stride, padding, dilation, bool(ceil), bool(counts), divisor)


def numbers(term: Term) -> tuple[int, ...]:
    """Return the whole numbers of a term: of a number, or of a tuple."""
    parts: Iterable[Term] = term.args if isinstance(term, SpecCall) else (term,)
    return tuple(int(part.value) for part in parts if isinstance(part, Number))


def poolings(spec: Spec) -> tuple[SpecCall, ...]:
    """Return the calls of poolings in a spec, in the order written."""
    found = [*(line.term for line in spec.where), spec.formula]
    found += [step.call if step.term is None else step.term for step in spec.chain]
    every = (part for term in found if term is not None for part in walk(term))
    return tuple(part for part in every if isinstance(part, SpecCall) and part.spec in POOLINGS)


def window_of(spec: Spec) -> Window | None:
    """Return the windows that the pooling of a spec reduces; None where it has none."""
    return next(map(window, poolings(spec)), None)


def is_reduced(spec: Spec) -> bool:
    """Return True if the formulas of a spec reduce rows or windows."""
    return spec.over is not None or bool(poolings(spec))
