"""A spec as a value: everything a YAML file declares, checked, each part with its place.

`FIELDS` is the language itself: one row per key, with its meaning, its JSON Schema and an example. The
parser, the schema for editors and the file that ``fusegen new`` writes all come from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusegen.constructor import Argument, Item, Layer, StateTensor
from fusegen.errors import Span
from fusegen.interval import Interval
from fusegen.term import SpecCall, Term

DTYPES = ("float32", "float16", "bfloat16", "float64")
NUMERICS = ("accurate", "eager")
NAME_PATTERN = "^[a-z][a-z0-9_]{0,63}$"
_WORD_ARGUMENT = r"""[A-Za-z][A-Za-z0-9_]*=('[a-z_]+'|"[a-z_]+")"""
_REFERENCE = r"torch\.(nn\.functional\.|nn\.|special\.)?[A-Za-z][A-Za-z0-9_]*"
REFERENCE_PATTERN = rf"^{_REFERENCE}(\({_WORD_ARGUMENT}(, ?{_WORD_ARGUMENT})*\))?$"
MAX_DIMENSIONS, MAX_ELEMENTS = 64, 2**40
MAX_INPUTS = 32  # each has a gradient, whose terms may be as many
DEFAULT_SHAPE = (1024, 1024)


@dataclass(frozen=True, slots=True)
class Fill:
    """How `get_inputs` fills a tensor: ``rand``, ``randn`` or ``uniform`` between two numbers."""

    kind: str
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor argument; shape and fill are for `get_inputs` only and bind nothing else.

    Where the second of two inputs has a `split`, a call may leave it out: the first is then split into two
    halves along this dimension, as torch.nn.functional.glu does.
    """

    name: str
    shape: tuple[int, ...]
    fill: Fill
    span: Span
    split: int | None = None


@dataclass(frozen=True, slots=True)
class Param:
    """A scalar argument with its default, as float64 holds it.

    One with a `position` is an argument of forward at this place, the others are keywords.
    """

    name: str
    default: float
    span: Span
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """The name that a step of a chain gives its value, for later steps."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain: another spec by name, or a term in the running value.

    `call` holds keyword arguments only; its tensor is the running value.
    """

    call: SpecCall | None
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
class Spec:
    """One spec. Exactly one of `formula` and `chain` says what is computed.

    Attributes:
        name: the name of the spec, its file, its module and its function.
        digest: the first 12 hexadecimal digits of the SHA-256 of the file's text.
        init: the constructor's arguments, in order.
        scalars: what the function takes as scalars: numbers of `init` that formulas read, then `params`.
        layers: what the constructor makes, in order: layers of torch.nn, parameters and buffers.
        reference: a function of torch, torch.special or torch.nn.functional, or a class of torch.nn,
            perhaps called with words: ``torch.f(mode='fast', way='up')``.
        reference_span: where it is written; the start of the file where it is not.
        assume: intervals that inputs are promised to lie in.
        span: the start of the file.
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
    reference_span: Span
    numerics: str
    dtypes: tuple[str, ...]
    assume: tuple[tuple[str, Interval], ...]
    digest: str
    span: Span

    @property
    def tensors(self) -> tuple[Input, ...]:
        """The tensors of the function: the inputs, the bias of a convolution, the state that is read."""
        state = (item for item in self.layers if isinstance(item, StateTensor) and item.is_read)
        held = (Input(t.attribute, t.shape, Fill("randn"), t.span) for t in state)
        return (*self.inputs, *([self.bias] if self.bias else []), *held)

    @property
    def producer(self) -> Layer | None:
        """The layer right in front of the kernel."""
        return next((item for item in reversed(self.layers) if isinstance(item, Layer)), None)

    @property
    def bias(self) -> Input | None:
        """The bias that the kernel adds: of a convolution right in front of it, unless that has none."""
        layer = self.producer if self.inputs[-1].split is None else None
        if layer is None or layer.bias is None:
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


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a spec: what it means, its JSON Schema, and how it is written."""

    key: str
    meaning: str
    schema: dict[str, Any]
    example: str


_TEXT: dict[str, Any] = {"type": "string", "maxLength": 200}
_TERM: dict[str, Any] = {"type": ["string", "number"]}
_NAMED: dict[str, Any] = {"propertyNames": {"pattern": NAME_PATTERN}}
_STEP: dict[str, Any] = {
    "anyOf": [
        _TERM,
        {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": _TERM, **_NAMED},
    ]
}
_SIZE = {"type": "integer", "minimum": 0}
_SPLIT = {
    "type": "integer",
    "minimum": -MAX_DIMENSIONS,
    "maximum": MAX_DIMENSIONS - 1,
    "description": "Of the second of two inputs: where it is not given, the first is split into two halves "
    "along this dimension.",
}
_INPUT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "shape": {"type": "array", "items": _SIZE, "maxItems": MAX_DIMENSIONS},
        "fill": {"type": "string", "pattern": r"^(rand|randn|uniform\(.+,.+\))$"},
        "split": _SPLIT,
    },
}
_LITERAL: dict[str, Any] = {"type": ["number", "boolean", "string", "null", "array"]}
_ITEM: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": {
        "oneOf": [
            {"type": "string", "description": "Class(arguments), Parameter(...) or Buffer(...)"},
            {
                "type": "object",
                "properties": {"unread": {"type": "string", "pattern": r"^\s*(Parameter|Buffer)\b"}},
                "required": ["unread"],
                "additionalProperties": False,
                "description": "A Parameter or Buffer that the model holds and no formula reads.",
            },
        ]
    },
    **_NAMED,
}

# fmt: off
FIELDS = (
    Field("name", "The spec's name: file stem, module and function.",
          {"type": "string", "pattern": NAME_PATTERN}, "name: gate"),
    Field("summary", "One line that describes it.", _TEXT,
          "summary: The input times its own hard-sigmoid."),
    Field("source", "Where the formula is from.", _TEXT,
          "source: Howard et al. 2019, arXiv:1905.02244, section 5.2"),
    Field("inputs",
          "The arguments of forward: tensors, of which the first is threaded through a chain, and numbers. "
          "Shape, fill and number serve get_inputs only.",
          {"type": "object", "minProperties": 1,
           "additionalProperties": {"anyOf": [_INPUT, {"type": "number"}]}, **_NAMED},
          "inputs: {x: {shape: [128, 64, 126, 126], fill: randn}}"),
    Field("params", "Scalars with their defaults: keyword arguments, set at run time.",
          {"type": "object", "additionalProperties": {"type": "number"}, **_NAMED},
          "params: {alpha: 1.0}"),
    Field("init", "The constructor's arguments, in order, with the defaults that get_init_inputs returns; "
          "formulas may read numbers of it.",
          {"type": "object", "additionalProperties": _LITERAL, **_NAMED},
          "init: {in_channels: 8, out_channels: 64, kernel_size: 3}"),
    Field("layers", "What the constructor makes, in order, as attribute: Class(arguments): torch.nn layers "
          "that run before the kernel, on the first input; a Parameter or Buffer that formulas read.",
          {"type": "array", "items": _ITEM},
          "layers: [conv: 'Conv2d(in_channels, out_channels, kernel_size)', bias: "
          "'Parameter(zeros(out_channels, 1, 1))']"),
    Field("where", "Named steps, kept as named lines in the generated code.",
          {"type": "object", "additionalProperties": _TERM, **_NAMED}, "where: {u: x + 3}"),
    Field("formula", "The value of one output element.", _TERM, "formula: x * clamp(u / 6, 0, 1)"),
    Field("chain", "Steps applied one after the other: a spec's name, a call of one with its "
          "parameters, or an expression in the running value; as name: step, one that later steps read.",
          {"type": "array", "items": _STEP, "minItems": 1}, "chain: [relu, hardswish]"),
    Field("reference", "The reference implementation in PyTorch that it is checked against.",
          {"type": "string", "pattern": REFERENCE_PATTERN},
          "reference: torch.nn.functional.hardswish"),
    Field("numerics", "accurate: at most the larger of 4 ulp and eager's error; eager: bit-identical to "
          "PyTorch's eager ops (CUDA).",
          {"enum": list(NUMERICS)}, "numerics: accurate"),
    Field("dtypes", "The tensor types to generate for.",
          {"type": "array", "items": {"enum": list(DTYPES)}, "minItems": 1, "uniqueItems": True},
          "dtypes: [float32, float16, bfloat16, float64]"),
    Field("assume", "Intervals the inputs are promised to lie in.",
          {"type": "object", "additionalProperties": {"type": "string"}, **_NAMED},
          'assume: {x: "[0, inf)"}'),
)
# fmt: on
