"""Arguments that layers of PyTorch take, as far as they can be checked without it.

`TYPES` has a row for each argument, `LAWS` one for what must hold between arguments. What else PyTorch
refuses, it refuses when the module is constructed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Given = Mapping[str, Any]  # the arguments of a layer by name


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an argument."""

    expected: str  # in words; ``{several}`` is where a layer of several spatial dimensions takes a tuple
    example: str  # a value
    admits: Callable[[Any, int], bool]  # whether a value is that, in a layer of so many dimensions


@dataclass(frozen=True, slots=True)
class Law:
    """A constraint between arguments of a family of layers."""

    family: str  # how the names of these layers begin
    argument: str  # the one that the error message names
    expected: str  # what that one is, in words
    example: str  # an argument that would do
    reads: Given  # the arguments, with PyTorch's defaults; None where there is none
    holds: Callable[[Given], bool]  # whether it holds


@dataclass(frozen=True, slots=True)
class Refused:
    """An argument that PyTorch refuses, the expected type in words, and an example."""

    argument: str
    expected: str
    example: str


def refused(layer: str, given: Given) -> Iterator[Refused]:
    """Yield the arguments of a layer that PyTorch refuses, each for one reason."""
    n, wrong = dimensions(layer), set()
    several = f", or {n} of them" if n > 1 else ""
    for argument, value in given.items():
        found = type_of(layer, argument)
        if found and not found.admits(value, n):
            wrong.add(argument)
            yield Refused(argument, found.expected.format(several=several), f"{argument}={found.example}")
    for law in LAWS:
        known = {name: given.get(name, default) for name, default in law.reads.items()}
        unknown = wrong & known.keys() or None in known.values()
        if layer.startswith(law.family) and not unknown and not law.holds(known):
            yield Refused(law.argument, law.expected, law.example)


def type_of(layer: str, argument: str) -> Type | None:
    """Return the type of a layer's argument; None if no row has it."""
    own = (types for family, types in OF_FAMILIES.items() if layer.startswith(family))
    return next((types[argument] for types in own if argument in types), TYPES.get(argument))


def dimensions(layer: str) -> int:
    """Return the number of spatial dimensions of a layer: 2 of Conv2d, 1 if its name has no number."""
    return int(layer[-2]) if layer[-2:-1].isdigit() else 1


def is_whole(value: Any, least: int) -> bool:
    """Return True if a value is a whole number, and no less than some."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_real(value: Any) -> bool:
    """Return True if a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def each(sizes: Any) -> tuple[Any, ...]:
    """Return the values of one number or of several."""
    return sizes if isinstance(sizes, tuple) else (sizes,)


def _whole(least: int) -> Callable[[Any, int], bool]:
    return lambda value, _: is_whole(value, least)


def _extent(least: int) -> Callable[[Any, int], bool]:
    def admits(value: Any, n: int) -> bool:
        return len(each(value)) in (1, n) and all(is_whole(size, least) for size in each(value))

    return admits


def _kernel(value: Any, n: int) -> bool:
    fits = len(value) == n if isinstance(value, tuple) else True
    return fits and all(is_whole(size, 1) for size in each(value))


def _shape(value: Any, _: int) -> bool:
    return bool(each(value)) and all(is_whole(size, 0) for size in each(value))


def _among(*words: str) -> Type:
    *others, last = map(repr, words)
    shown = f"{', '.join(others)} or {last}" if others else last
    return Type(shown, repr(words[0]), lambda value, _: value in words)


def _or_nothing(of: Type) -> Type:
    expected = f"{of.expected}, or None"
    return Type(expected, of.example, lambda value, n: value is None or of.admits(value, n))


def _smaller(given: Given) -> bool:
    most = max(*each(given["stride"]), *each(given["dilation"]))
    return all(size < most for size in each(given["output_padding"]))


_NATURAL = Type("a whole number, zero or more", "8", _whole(0))
_COUNT = Type("a whole number, one or more", "1", _whole(1))
_INDEX = Type("a whole number", "1", _whole(-64))
_MARGIN = Type("a whole number, zero or more{several}", "0", _extent(0))
_STEP = Type("a whole number, one or more{several}", "1", _extent(1))
_TRUTH = Type("True or False", "False", lambda value, _: isinstance(value, bool))
_REAL = Type("a number", "0.1", lambda value, _: is_real(value))
TYPES: dict[str, Type] = {
    **dict.fromkeys(("in_channels", "out_channels", "in_features", "out_features"), _NATURAL),
    **dict.fromkeys(("num_features", "num_channels"), _NATURAL),
    **dict.fromkeys(("groups", "num_groups"), _COUNT),
    "kernel_size": Type("a whole number, one or more{several}", "3", _kernel),
    **dict.fromkeys(("stride", "dilation"), _STEP),
    **dict.fromkeys(("padding", "output_padding"), _MARGIN),
    "padding_mode": _among("zeros", "reflect", "replicate", "circular"),
    **dict.fromkeys(("bias", "affine", "elementwise_affine", "track_running_stats"), _TRUTH),
    **dict.fromkeys(("ceil_mode", "count_include_pad", "inplace"), _TRUTH),
    "return_indices": Type("False, as a chain takes one tensor", "False", lambda value, _: value is False),
    **dict.fromkeys(("eps", "momentum"), _or_nothing(_REAL)),
    "p": Type("a number from 0 to 1", "0.5", lambda value, _: is_real(value) and 0 <= value <= 1),
    "divisor_override": _or_nothing(_COUNT),
    **dict.fromkeys(("start_dim", "end_dim"), _INDEX),
    "normalized_shape": Type("a whole number, or a tuple of them", "64", _shape),
    "dtype": Type("None, as `.to(dtype)` converts a model", "None", lambda value, _: value is None),
}
OF_FAMILIES: dict[str, dict[str, Type]] = {  # what some layers take instead, by how their names begin
    "ConvTranspose": {"padding": _MARGIN, "padding_mode": _among("zeros")},
    "Conv": {
        "padding": Type(
            "a whole number, zero or more{several}, 'same' or 'valid'",
            "1",
            lambda value, n: value in ("same", "valid") or _MARGIN.admits(value, n),
        ),
    },
    "AvgPool": {"stride": _or_nothing(_STEP)},
    "MaxPool": {"stride": _or_nothing(_STEP)},
}
LAWS = (
    Law("Conv", "in_channels", "a multiple of groups", "groups=1", {"in_channels": None, "groups": 1},
        lambda given: given["in_channels"] % given["groups"] == 0),
    Law("Conv", "out_channels", "a multiple of groups", "groups=1", {"out_channels": None, "groups": 1},
        lambda given: given["out_channels"] % given["groups"] == 0),
    Law("GroupNorm", "num_channels", "a multiple of num_groups", "num_groups=1",
        {"num_channels": None, "num_groups": None},
        lambda given: given["num_channels"] % given["num_groups"] == 0),
    Law("Conv", "stride", "1 where padding is 'same'", "padding=1", {"stride": 1, "padding": 0},
        lambda given: given["padding"] != "same" or {*each(given["stride"])} == {1}),
    Law("ConvTranspose", "output_padding", "smaller than stride or dilation", "output_padding=0",
        {"output_padding": 0, "stride": 1, "dilation": 1}, _smaller),
)  # fmt: skip
