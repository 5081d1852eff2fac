"""A spec as a value: everything a YAML file declares, checked, each part with its place."""

from dataclasses import dataclass

from fusegen.core.constructor import Argument, Item, Layer, StateTensor
from fusegen.core.interval import TRUTH, Interval
from fusegen.core.row_dimensions import Over
from fusegen.core.term import SpecCall, Term
from fusegen.errors import Span

DTYPES = ("float32", "float16", "bfloat16", "float64")
NUMERICS = ("accurate", "eager")
REDUCTIONS = ("none", "mean", "sum", "batchmean")  # of the values of rows, or of all elements
ACCEPTED = ("value", "gradient", "speed")  # what a spec may accept of its kernels
NAME_PATTERN = "^[a-z][a-z0-9_]{0,63}$"
ARGUMENT_PATTERN = "^_?[A-Za-z][A-Za-z0-9_]{0,62}$"  # of the constructor: a name in Python alone
MAX_DIMENSIONS, MAX_ELEMENTS = 64, 2**40
MAX_INPUTS, MAX_ARGUMENTS = 32, 64  # each input has a gradient, of as many terms; of PyTorch's operators
DEFAULT_SHAPE = (1024, 1024)


@dataclass(frozen=True, slots=True)
class Fill:
    """The way `get_inputs` fills a tensor: ``rand``, ``randn`` or ``uniform`` between two numbers."""

    kind: str
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor argument; shape and fill are for `get_inputs` only and bind nothing else.

    Where the second of two inputs has a `split`, a call may leave it out: the first is then split into two
    halves along this dimension, as torch.nn.functional.glu does. With `unsqueeze` formulas read it with a
    dimension of size 1 there; with `along`, a tensor of one dimension, aligned with that of the first one.
    With the dtype ``bool`` it is a mask, which formulas read as a condition; others have the spec's dtypes.
    With `index`, the name of the first input, it is an integer for each row: a mask of what it picks.
    """

    name: str
    shape: tuple[int, ...]
    fill: Fill
    span: Span
    split: int | None = None
    unsqueeze: int | None = None
    along: int | None = None
    dtype: str | None = None
    index: str | None = None

    @property
    def is_mask(self) -> bool:
        """True if formulas read it as True and False."""
        return self.dtype == "bool" or self.index is not None

    @property
    def view(self) -> str:
        """The view that formulas read."""
        views = {"unsqueeze": self.unsqueeze, "along": self.along}
        return next((f"{v}({self.name}, {k})" for v, k in views.items() if k is not None), self.name)

    @property
    def is_viewed(self) -> bool:
        """True if formulas read a view of it."""
        return self.view != self.name


@dataclass(frozen=True, slots=True)
class Param:
    """A scalar argument with its default, as float64 holds it.

    With a `position` it is an argument of forward there, else a keyword. With a `path` it is a layer's.
    """

    name: str
    default: float
    span: Span
    position: int | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """The name that a step of a chain gives its value, for later steps."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain: another spec by name, or a term in the running value."""

    call: SpecCall | None  # with keyword arguments only; its tensor is the running value
    term: Term | None
    span: Span
    label: Label | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A line of `where`: a name for a term."""

    name: str
    term: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Dropout:
    """A dropout of a formula, in which it is a product with a mask that PyTorch's generator draws."""

    kept: Input  # the tensor of the kernel that is 1 where an element is kept, and 0 elsewhere
    scale: Param  # the scalar of the kernel by which kept elements are multiplied
    rate: str  # the probability of 0 in Python: a literal, or the name of a scalar
    reads: tuple[str, ...]  # the tensors whose shapes decide that of the mask, in the order read
    span: Span  # where it is written


@dataclass(frozen=True, slots=True)
class Spec:
    """One spec. Exactly one of `formula` and `chain` says what is computed.

    Attributes:
        name: the name of the spec, its file, its module and its function.
        digest: the first 12 hexadecimal digits of the SHA-256 of the file's text.
        init: the constructor's arguments, in order.
        scalars: what the function takes as scalars: numbers of `init` that formulas read, then `params`.
        layers: what the constructor makes, in order: layers of torch.nn, parameters and buffers.
        reference: a function of PyTorch, or a class of torch.nn, perhaps called: ``torch.f(way='up')``.
        span, places: the start of the file; keys, and where their values are written.
        assume: intervals that inputs are promised to lie in.
        accept: the reasons for which warnings of `build` are accepted, by what they are of.
        over: the dimensions of a row, which formulas reduce together; None where none does.
        reduction, divisor: what the function returns of the values of its rows or of all elements, of
            `REDUCTIONS`, and the tensor by whose sum, of what the index picks, a mean is divided, if any.
        results: the names of several results, which are lines of `where`; `formula` is the first one.
        dropouts: in the order in which they draw; formulas read their masks.
        rates: the scalars that dropouts alone read, of which the kernel gets others.
        front: the spec of the kernel that runs in front of this one, and of its layers.
    """

    name: str
    summary: str
    source: str
    inputs: tuple[Input, ...]
    params: tuple[Param, ...]
    init: tuple[Argument, ...]
    scalars: tuple[Param, ...]
    layers: tuple[Item, ...]
    where: tuple[Named, ...]
    formula: Term | None
    chain: tuple[Step, ...]
    reference: str
    numerics: str
    dtypes: tuple[str, ...]
    assume: tuple[tuple[str, Interval], ...]
    accept: tuple[tuple[str, str], ...]
    digest: str
    span: Span
    over: Over | None = None
    reduction: str = "none"
    divisor: str = ""
    results: tuple[str, ...] = ()
    dropouts: tuple[Dropout, ...] = ()
    rates: tuple[Param, ...] = ()
    front: "Spec | None" = None
    leads: bool = False  # to another kernel, which runs behind it
    places: tuple[tuple[str, Span], ...] = ()

    def at(self, key: str) -> Span:
        """Return where the value of a key is written, else the start of the file."""
        return dict(self.places).get(key, self.span)

    @property
    def kernels(self) -> tuple["Spec", ...]:
        """The specs of all kernels, in the order in which they run."""
        return (*(self.front.kernels if self.front else ()), self)

    @property
    def indices(self) -> tuple[Input, ...]:
        """The inputs that pick an element of each row, which are the last ones."""
        return tuple(each for each in self.inputs if each.index is not None)

    @property
    def tensors(self) -> tuple[Input, ...]:
        """The tensors of the kernel: inputs, the bias of a convolution, state that is read, drawn masks."""
        state = (item for item in self.layers if isinstance(item, StateTensor) and item.is_read)
        held = (Input(t.attribute, t.shape, Fill("randn"), t.span, along=t.along) for t in state)
        drawn = (each.kept for each in self.dropouts)
        return (*self.inputs, *([self.bias] if self.bias else []), *held, *drawn)

    @property
    def is_prepared(self) -> bool:
        """True if its kernel takes something else than a call: a view, a mask as numbers or drawn."""
        count = len(self.tensors) - len(self.indices) * (self.reduction != "none")  # a loss takes its index
        return bool(self.dropouts) or any(each.is_viewed or each.is_mask for each in self.tensors[:count])

    @property
    def small(self) -> frozenset[str]:
        """The tensors that a layer holds: an element of them serves many outputs."""
        given = {each.name for each in (*self.inputs, *(of.kept for of in self.dropouts))}
        return frozenset(each.name for each in self.tensors if each.name not in given)

    @property
    def conditions(self) -> frozenset[str]:
        """The names of the inputs that formulas read as True and False."""
        return frozenset(each.name for each in self.inputs if each.is_mask)

    @property
    def masks(self) -> frozenset[str]:
        """The names of the tensors that are 0 or 1 and have no gradient."""
        return self.conditions | {each.kept.name for each in self.dropouts}

    @property
    def ranges(self) -> dict[str, Interval]:
        """The values that tensors may have, where something is known of them."""
        return {**dict(self.assume), **dict.fromkeys(sorted(self.masks), TRUTH)}

    @property
    def producers(self) -> tuple[Layer, ...]:
        """The layers that run in front of the kernel, in order."""
        return tuple(item for item in self.layers if isinstance(item, Layer) and item.runs)

    @property
    def producer(self) -> Layer | None:
        """The layer right in front of the kernel."""
        return self.producers[-1] if self.producers else None

    @property
    def bias(self) -> Input | None:
        """The bias that the kernel adds: of a convolution in front of it, unless rows are channels."""
        layer = self.producer if self.inputs[-1].split is None else None
        if layer is None or layer.bias is None or (self.over and self.over.of_channel):
            return None
        return Input(f"{layer.attribute}_bias", layer.bias, Fill("randn"), layer.span)

    @property
    def numbers(self) -> tuple[Param, ...]:
        """The scalars among the arguments of forward."""
        return tuple(param for param in self.params if param.position is not None)

    @property
    def arguments(self) -> tuple[Input | Param, ...]:
        """The arguments of forward, in order."""
        found: list[Input | Param] = list(self.inputs)
        for number in self.numbers:
            found.insert(number.position or 0, number)
        return tuple(found)
