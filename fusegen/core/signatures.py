"""Signatures of PyTorch's functions, beyond the arguments of a formula's own functions.

Source: torch.nn.functional, and ATen's Activation.cpp.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

# by function: the argument that is a word, and the spec that each word means
FORMS: dict[str, tuple[str, dict[str, str]]] = {
    "gelu": ("approximate", {"none": "gelu", "tanh": "gelu_tanh"}),
}
EXTENDED = frozenset({"softplus"})  # primitives that take the parameters of the spec of their name


@dataclass(frozen=True, slots=True)
class Choice:
    """A word that PyTorch's function takes."""

    function: str  # the function below torch
    argument: str  # the name of the argument
    word: str  # its value for one spec


_GELU = "torch.nn.functional.gelu"
CHOICES: dict[str, Choice] = {
    _GELU: Choice("nn.functional.gelu", "approximate", "none"),
    f"{_GELU}(approximate='none')": Choice("nn.functional.gelu", "approximate", "none"),
    f"{_GELU}(approximate='tanh')": Choice("nn.functional.gelu", "approximate", "tanh"),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Scalars that PyTorch's function refuses."""

    params: tuple[str, ...]  # the names of the scalars
    condition: str  # the Python expression in them that is true where they are refused
    error: str  # the exception's name
    sentence: str  # what it says


REFUSALS: dict[str, Refusal] = {
    "torch.nn.functional.hardtanh": Refusal(
        ("min_val", "max_val"), "min_val > max_val", "ValueError", "min_val cannot be greater than max_val"
    ),
    "torch.nn.functional.softshrink": Refusal(
        ("lambd",), "not lambd >= 0", "RuntimeError", "lambd cannot be less than 0"
    ),
    "torch.nn.functional.rrelu": Refusal(
        ("lower", "upper"), "lower > upper", "RuntimeError", "lower cannot be greater than upper"
    ),
    "torch.nn.functional.celu": Refusal(("alpha",), "alpha == 0", "RuntimeError", "alpha cannot be 0"),
}


def choice_of(reference: str) -> Choice | None:
    """Return the word that the function of a reference takes, if it takes one."""
    return CHOICES.get(reference)


def refusal_of(reference: str, params: Collection[str]) -> Refusal | None:
    """The scalars that the function of a reference refuses, if a spec has parameters of their names."""
    refusal = REFUSALS.get(reference)
    return refusal if refusal and set(refusal.params) <= set(params) else None


def argument_named(name: str, arguments: Sequence[str]) -> str:
    """The argument that a keyword means; PyTorch calls the first input, and the second of a pair other."""
    first, *others = arguments
    if name == "input" and name not in arguments:
        return first
    return "b" if name == "other" and first == "a" and others == ["b"] else name
