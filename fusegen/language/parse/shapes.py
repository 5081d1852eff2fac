"""Shapes of YAML nodes: a scalar, a list, a map."""

from fusegen.errors import WrongType
from fusegen.language.parse import document as yaml


def as_scalar(node: yaml.Node, key: str, expected: str, example: str) -> yaml.Scalar:
    """Return a node as a scalar."""
    if not isinstance(node, yaml.Scalar) or not (node.text.strip() or node.quoted):
        raise WrongType(node.span, key=key, expected=expected, example=example)
    return node


def as_sequence(node: yaml.Node, key: str, expected: str, example: str) -> yaml.Sequence:
    """Return a node as a list."""
    if not isinstance(node, yaml.Sequence):
        raise WrongType(node.span, key=key, expected=expected, example=example)
    return node


def as_mapping(node: yaml.Node, key: str, expected: str, example: str) -> yaml.Mapping:
    """Return a node as a map."""
    if not isinstance(node, yaml.Mapping):
        raise WrongType(node.span, key=key, expected=expected, example=example)
    return node
