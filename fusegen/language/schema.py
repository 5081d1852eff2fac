"""The keys of a spec, and their JSON Schema.

`FIELDS` is the language itself: one row per key, with its meaning, its JSON Schema and an example. The
parser, the schema for editors and the file that ``fusegen new`` writes all come from it.
"""

import json
from dataclasses import dataclass
from typing import Any

from fusegen.core.row_dimensions import DTYPES as ROW_DTYPES
from fusegen.core.spec import (
    ACCEPTED,
    ARGUMENT_PATTERN,
    DTYPES,
    MAX_DIMENSIONS,
    NAME_PATTERN,
    NUMERICS,
    REDUCTIONS,
)

_WORD_ARGUMENT = r"""[A-Za-z][A-Za-z0-9_]*=('[a-z_]+'|"[a-z_]+")"""
_REFERENCE = r"torch\.(nn\.functional\.|nn\.|special\.)?[A-Za-z][A-Za-z0-9_]*"
_GROUPS = {"type": "string", "pattern": "^[0-9]{1,2} */ *[A-Za-z_][A-Za-z0-9_]*$"}
REFERENCE_PATTERN = rf"^{_REFERENCE}(\({_WORD_ARGUMENT}(, ?{_WORD_ARGUMENT})*\))?$"


KERNEL_KEYS = ("over", "keepdim", "where", "formula", "chain")  # of a kernel among the layers


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a spec: its meaning, its JSON Schema, and an example."""

    key: str
    meaning: str
    schema: dict[str, Any]
    example: str


_TEXT: dict[str, Any] = {"type": "string", "maxLength": 200}
_TERM: dict[str, Any] = {"type": ["string", "number"]}
_NAMED: dict[str, Any] = {"propertyNames": {"pattern": NAME_PATTERN}}
_RESULTS: dict[str, Any] = {
    "anyOf": [_TERM, {"type": "object", "minProperties": 1, "additionalProperties": _TERM, **_NAMED}]
}
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
        "dtype": {"const": "bool", "description": "Of a mask, which formulas read as  where(mask, a, b)."},
        "index": {
            "type": "string",
            "description": "Of an integer for each row, which picks one of its "
            "elements: the first input, as in  logits[target].",
        },
    },
}
_LITERAL: dict[str, Any] = {"type": ["number", "boolean", "string", "null", "array"]}
_ARGUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {"default": _LITERAL, "symbol": {"type": "string", "pattern": NAME_PATTERN}},
    "required": ["default"],
    "additionalProperties": False,
    "description": "A default, and the name by which formulas read it where its own is taken.",
}
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
          "Shapes serve get_inputs and say which tensors are smaller; fill and number serve it only.",
          {"type": "object", "minProperties": 1,
           "additionalProperties": {"anyOf": [_INPUT, {"type": "number"}]}, **_NAMED},
          "inputs: {x: {shape: [128, 64, 126, 126], fill: randn}}"),
    Field("params", "Scalars with their defaults: keyword arguments, set at run time.",
          {"type": "object", "additionalProperties": {"type": "number"}, **_NAMED},
          "params: {alpha: 1.0}"),
    Field("init", "The constructor's arguments, in order, with the defaults that get_init_inputs returns; "
          "formulas may read numbers of it.",
          {"type": "object", "additionalProperties": {"anyOf": [_LITERAL, _ARGUMENT]},
           "propertyNames": {"pattern": ARGUMENT_PATTERN}},
          "init: {in_channels: 8, out_channels: 64, kernel_size: 3}"),
    Field("layers", "What the constructor makes, in order, as attribute: Class(arguments): torch.nn layers "
          "that run before the kernel, on the first input, but for norms whose parts formulas read, as "
          "norm.weight; a Parameter or Buffer that formulas read; a kernel that runs there, as name: "
          "{over: ..., formula: ...}.",
          {"type": "array", "items": _ITEM},
          "layers: [conv: 'Conv2d(in_channels, out_channels, kernel_size)', bias: "
          "'Parameter(zeros(out_channels, 1, 1))']"),
    Field("over", "Neighbouring dimensions of the first input, a row, which formulas reduce together: "
          "[-1], [-2, -1], [1] alone, or [1, ...] for dimension 1 and all behind it; "
          '["1 / groups", ...] for each of so many parts of dimension 1; [0, 2, ...] for all of a channel.',
          {"type": "array", "minItems": 1,
           "items": {"anyOf": [{"type": "integer"}, {"const": "..."}, _GROUPS]}},
          "over: [-1]"),
    Field("keepdim", "Whether a value of a row keeps the dimensions of the row, with size 1, as keepdim of "
          "PyTorch's reductions.", {"type": "boolean"}, "keepdim: true"),
    Field("row_dtype", "The dtype of values of rows where tensors have 16 bits, as losses have it under "
          "torch.autocast.", {"enum": list(ROW_DTYPES)}, "row_dtype: float32"),
    Field("reduction",
          "What the function returns of the values of rows, or without `over` of all elements, as "
          "PyTorch's losses: none for all of them; mean; {mean: weight}, divided by the sum of the "
          "weights that an index picks; sum; batchmean.",
          {"anyOf": [{"enum": list(REDUCTIONS)}, {"type": "object", "required": ["mean"]}]},
          "reduction: mean"),
    Field("where", "Named steps, kept as named lines in the generated code.",
          {"type": "object", "additionalProperties": _TERM, **_NAMED}, "where: {u: x + 3}"),
    Field("formula", "The value of one output element; of several results, as name: formula.", _RESULTS,
          "formula: x * clamp(u / 6, 0, 1)"),
    Field("chain", "Steps applied one after the other: a spec's name, a call of one with its "
          "parameters, or an expression in the running value; as name: step, one that later steps read.",
          {"type": "array", "items": _STEP, "minItems": 1}, "chain: [relu, hardswish]"),
    Field("reference", "The reference implementation in PyTorch that it is checked against.",
          {"type": "string", "pattern": REFERENCE_PATTERN},
          "reference: torch.nn.functional.hardswish"),
    Field("numerics", "accurate: in each cell of inputs at most the larger of 4 ulp and eager's error; "
          "eager: bit-identical to PyTorch's eager ops (CUDA).",
          {"enum": list(NUMERICS)}, "numerics: accurate"),
    Field("dtypes", "The tensor types to generate for.",
          {"type": "array", "items": {"enum": list(DTYPES)}, "minItems": 1, "uniqueItems": True},
          "dtypes: [float32, float16, bfloat16, float64]"),
    Field("assume", "Intervals the inputs are promised to lie in.",
          {"type": "object", "additionalProperties": {"type": "string"}, **_NAMED},
          'assume: {x: "[0, inf)"}'),
    Field("accept", "Warnings of build that are accepted, each with the reason: of the value's error, of "
          "the gradients' error, of the speed.",
          {"type": "object", "properties": dict.fromkeys(ACCEPTED, _TEXT), "additionalProperties": False,
           "minProperties": 1},
          "accept: {gradient: eager loses the same digits next to 3}"),
)
# fmt: on


_KERNEL: dict[str, Any] = {
    "type": "object",
    "properties": {each.key: each.schema for each in FIELDS if each.key in KERNEL_KEYS},
    "oneOf": [{"required": ["formula"]}, {"required": ["chain"]}],
    "additionalProperties": False,
    "description": "A kernel that runs where it stands, in front of the spec's own.",
}
_ITEM["additionalProperties"]["oneOf"].append(_KERNEL)


def schema_text() -> str:
    """Return the text of the JSON Schema of specs."""
    return json.dumps(json_schema(), indent=2) + "\n"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec, for completion and checks in editors."""
    properties = {field.key: {**field.schema, "description": field.meaning} for field in FIELDS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fusegen spec",
        "type": "object",
        "properties": properties,
        "required": ["name", "summary"],
        "oneOf": [{"required": ["formula"]}, {"required": ["chain"]}],
        "additionalProperties": False,
    }
