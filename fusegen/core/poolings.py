"""Poolings: reductions over windows of the last dimensions of a tensor, by PyTorch's names.

In a formula a pooling is a call such as ``max_pool2d(relu(x), 2)``. In a program it is a fold, `amax`,
`amin` or `sum`, of what stands in it; the windows are a value of the spec. The divisor of an average is the
scalar `LENGTH`, which has a value for each window. A number of a window may be one of the constructor's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fusegen.core.constructor import Value
from fusegen.core.folds import AMAX, AMIN, LENGTH, SUM, Fold, fold
from fusegen.core.spec import Spec
from fusegen.core.term import Name, Number, SpecCall, Term, call, rebuild, walk

MAX_SIZE = 2**20  # of a number of a window
TUPLE = ""  # the name of a call that is a tuple of numbers
NONE = "None"  # the name that stands for a size of the tensor itself


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

    @property
    def is_adaptive(self) -> bool:
        """True if the size of the result decides the windows."""
        return "output_size" in self.args

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
ARGS |= {f"adaptive_{kind}": ("input", "output_size") for kind in ("avg", "max")}
KINDS = {"max": AMAX, "min": AMIN, "sum": SUM, "avg": SUM}
FLAGS = ("ceil_mode", "count_include_pad")
OR_NONE = ("stride", "divisor_override")  # which PyTorch's default of None leaves out
LEAST = {"padding": 0}  # of a number; of others 1
POOLINGS = {
    f"{kind}_pool{rank}d": Pooling(
        f"{kind}_pool{rank}d",
        KINDS[kind[-3:]],
        rank,
        args[:-1] if (kind, rank) == ("avg", 1) else args,
        kind.endswith("avg"),
    )
    for kind, args in ARGS.items()
    for rank in (1, 2, 3)
}


def example(pooling: Pooling) -> str:
    """Return how a pooling is called."""
    return f"{pooling.name}(x, {'output_size=7' if pooling.is_adaptive else 'kernel_size=2'})"


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
        output: the sizes of the result of an adaptive one, 0 for that of the tensor; it has no others.
    """

    pooling: Pooling
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool = False
    counts_padding: bool = True
    divisor: int = 0
    output: tuple[int, ...] = ()

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
        if self.output:
            return self.output[d] or size
        stride, before = self.stride[d], self.padding[d]
        span = size + 2 * before - self.whole[d]
        found = (span + (stride - 1 if self.ceil else 0)) // stride + 1
        # the last window begins in the tensor or in the padding in front of it
        return found - (self.ceil and (found - 1) * stride >= size + before)


def window(given: SpecCall, of: Mapping[str, Value]) -> Window:
    """Return the windows that a call of a pooling means, with values for the names in its arguments."""
    pooling = POOLINGS[given.spec]
    values = {name: value_of(term, of) for name, term in given.keywords}
    values = {name: value for name, value in values.items() if value is not None}

    def each(name: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        found = values.get(name, otherwise)
        several = found if isinstance(found, tuple) else (found,)
        whole = tuple(int(size) if isinstance(size, int) else 0 for size in several)
        return whole * pooling.rank if len(whole) == 1 else whole

    kernel = each("kernel_size", (1,))
    stride, padding, dilation = each("stride", kernel), each("padding", (0,)), each("dilation", (1,))
    (ceil, *_), (counts, *_) = each("ceil_mode", (0,)), each("count_include_pad", (1,))
    (divisor, *_), output = each("divisor_override", (0,)), each("output_size", ())
    found = Window(pooling, kernel, stride, padding, dilation, bool(ceil), bool(counts), divisor)
    return replace(found, output=output)


def value_of(term: Term, of: Mapping[str, Value]) -> Value:
    """Return the value of an argument: of a number, a name, or a tuple of these."""
    match term:
        case Name(name):
            return of.get(name)
        case SpecCall():
            return tuple(value_of(part, of) for part in term.args)
    assert isinstance(term, Number)
    return int(term.value)


def is_legal(pooling: Pooling, name: str, value: Value) -> bool:
    """Return True if PyTorch takes a value for an argument of a pooling."""
    if name in FLAGS:
        return isinstance(value, bool)
    if value is None:
        return name in OR_NONE
    several = value if isinstance(value, tuple) else (value,)
    least, may_lack = LEAST.get(name, 1), name == "output_size" and len(several) > 1
    numbers = [each for each in several if each is not None or not may_lack]
    sizes = (1,) if name == "divisor_override" else (1, pooling.rank)
    return len(several) in sizes and all(type(n) is int and least <= n <= MAX_SIZE for n in numbers)


def poolings(spec: Spec) -> tuple[SpecCall, ...]:
    """Return the calls of poolings in a spec, in the order written."""
    found = [*(line.term for line in spec.where), spec.formula]
    found += [step.call if step.term is None else step.term for step in spec.chain]
    every = (part for term in found if term is not None for part in walk(term))
    return tuple(part for part in every if isinstance(part, SpecCall) and part.spec in POOLINGS)


def window_of(spec: Spec) -> Window | None:
    """Return the windows of the pooling of a spec at the constructor's defaults; None where it has none."""
    return next((window(found, defaults(spec)) for found in poolings(spec)), None)


def defaults(spec: Spec) -> dict[str, Value]:
    """Return the defaults of the constructor by the names that formulas read, if nothing else has these."""
    taken = {each.name for each in spec.inputs} | {line.name for line in spec.where}
    taken |= {step.label.name for step in spec.chain if step.label}
    return {each.symbol: each.default for each in spec.init if each.symbol not in taken}


def window_names(spec: Spec) -> tuple[str, ...]:
    """Return the constructor's arguments that the numbers of windows read, in the constructor's order."""
    every = (part for found in poolings(spec) for _, value in found.keywords for part in walk(value))
    read = {part.name for part in every if isinstance(part, Name)}
    return tuple(argument.symbol for argument in spec.init if argument.symbol in read)


def of_tensors(term: Term) -> Term:
    """Return a term with poolings without the numbers of their windows."""
    if is_pooling(term):
        assert isinstance(term, SpecCall)
        term = replace(term, keywords=())
    return rebuild(term, of_tensors)


def is_reduced(spec: Spec) -> bool:
    """Return True if the formulas of a spec reduce rows or windows."""
    return spec.over is not None or bool(poolings(spec))
