"""What a YAML node has to be: a scalar, a list, a map, a number."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from fusegen.errors import Span, WrongType, WrongValue
from fusegen.parse import document as yaml

MAX_LENGTH = 100
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?")


def as_scalar(node: yaml.Node, key: str, expected: str, example: str) -> yaml.Scalar:
    """A node as a scalar."""
    if not isinstance(node, yaml.Scalar) or not (node.text.strip() or node.quoted):
        raise WrongType(node.span, key=key, expected=expected, example=example)
    return node


def as_sequence(node: yaml.Node, key: str, expected: str, example: str) -> yaml.Sequence:
    """A node as a list."""
    if not isinstance(node, yaml.Sequence):
        raise WrongType(node.span, key=key, expected=expected, example=example)
    return node


def as_mapping(node: yaml.Node, key: str, expected: str, example: str) -> yaml.Mapping:
    """A node as a map."""
    if not isinstance(node, yaml.Mapping):
        raise WrongType(node.span, key=key, expected=expected, example=example)
    return node


def number(written: str, span: Span, key: str) -> Fraction:
    """The exact value of a decimal number."""
    if len(written) > MAX_LENGTH or not NUMBER.fullmatch(written) or not math.isfinite(float(written)):
        remedy = "write a finite number such as 0.5, -3 or 1e-6"
        raise WrongValue(span, value=written[:80], key=f"number for {key}", remedy=remedy)
    return Fraction(written)
