"""Compares the module of a lifted model with the model: the state_dict after a seed, and the outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fusegen.errors import Differs, NotAModel, Span
from fusegen.lift.load import Problem, executed, read, telling
from fusegen.lift.tiny import Small, by_divisors, by_place, shrunk
from fusegen.loader import imported

MOST = 2**22  # elements of inputs and state that are compared at their own sizes
LARGEST = 2**27  # elements that are compared where small sizes are wrong
SEED, SIGNED = 0, 3.0  # of random numbers; the standard deviation of signed inputs
WITHIN, OF_SIZE = (
    2.0,
    4.0,
)  # the error may be so many times the model's, plus so many roundings of the largest


@dataclass(frozen=True)
class Pair:
    """A model and its module, made after the same seed, on the CPU.

    Attributes:
        sizes: the compared sizes, in words.
        problem: the file, perhaps with small sizes.
        own: what get_inputs returns.
        after: the random numbers that each constructor left.
    """

    sizes: str
    problem: Problem
    model: nn.Module
    ours: nn.Module
    own: list[Any]
    after: tuple[Tensor, Tensor]


class Lifted(Protocol):
    """A lifted model: its file, and its inputs and state on the device `meta`."""

    @property
    def problem(self) -> Problem:
        """The file."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The tensors that take memory: inputs, values and state."""


def verified(of: Lifted, module: Path) -> Iterator[str]:
    """A sentence for each comparison.

    Args:
        of: the lifted model.
        module: the file that was built.

    Raises:
        Differs: the module is not the model.
        NotAModel: the model raises.
    """
    pair = _pair(of, module)
    if pair is None:
        yield "nothing was compared: the file's sizes are too large, and the model raises at small ones"
        return
    yield _state(pair, module)
    yield _outputs(pair, pair.own, "on get_inputs()", module)
    torch.manual_seed(SEED + 1)
    signed = [SIGNED * torch.randn_like(x) if _is_float(x) else x for x in pair.own]
    yield _outputs(pair, signed, "on signed inputs", module)


def _pair(of: Lifted, module: Path) -> Pair | None:
    """Both, with sizes that can be compared; none where there are none."""
    elements = sum(each.numel() for each in of.tensors)
    if elements > MOST:
        sizes = f"at small sizes, as the file's take {elements:,} elements"
        for small in (by_place, by_divisors):
            with suppress(NotAModel):  # which these small sizes are wrong for
                return _made(_small(of.problem, small), sizes, module)
    return _made(of.problem, "at the sizes of the file", module) if elements <= LARGEST else None


def _small(problem: Problem, small: Small) -> Problem:
    path, attribute, tree = read(f"{problem.path}:{problem.attribute}")
    return executed(path, attribute, shrunk(tree, small))


def _made(problem: Problem, sizes: str, module: Path) -> Pair:
    """Both after the same seed, in eval mode, where layers draw no random numbers.

    Raises:
        NotAModel: the model raises.
    """
    arguments = list(problem.arguments().values())
    with torch.no_grad(), telling(problem.path, "the model raises"):
        torch.manual_seed(SEED)
        model, first = problem.model(*arguments), torch.rand(4)
        own = problem.get_inputs()
        model.eval()(*_copies(own))
    torch.manual_seed(SEED)
    ours, second = imported(module).ModelNew(*arguments), torch.rand(4)
    return Pair(sizes, problem, model, ours.eval(), own, (first, second))


def _state(pair: Pair, module: Path) -> str:
    theirs, ours = pair.model.state_dict(), pair.ours.state_dict()
    if list(theirs) != list(ours):
        raise Differs(
            Span(str(module)), what=f"its state_dict has {list(ours)}, the model's {list(theirs)}"
        )
    for name, tensor in theirs.items():
        if tensor.shape != ours[name].shape or not torch.equal(tensor, ours[name]):
            raise Differs(Span(str(module)), what=f"after the same seed {name} has other numbers")
    if not torch.equal(*pair.after):
        raise Differs(Span(str(module)), what="its constructor draws another number of random numbers")
    if not theirs:
        return "the state_dict of both is empty"
    names = ", ".join(theirs)
    return (
        f"after seed {SEED} the state_dict has the model's names, shapes and bits: {names} ({pair.sizes})"
    )


def _outputs(pair: Pair, inputs: Sequence[Any], on: str, module: Path) -> str:
    """The comparison of what both return, each after the same seed.

    Raises:
        Differs: an output has another shape or dtype, or a larger error.
    """
    exact_model = _exact(pair)
    with torch.no_grad(), telling(pair.problem.path, "forward raises"):
        theirs = _results(pair.model, _copies(inputs))
        exact = _results(exact_model, [_double(x) for x in inputs])
    with torch.no_grad():
        ours = _results(pair.ours, _copies(inputs))
    if [(x.shape, x.dtype) for x in ours] != [(x.shape, x.dtype) for x in theirs]:
        raise Differs(Span(str(module)), what=f"{on} it gives {_kinds(ours)}, the model {_kinds(theirs)}")
    error = usual = 0.0
    for each in zip(ours, theirs, exact, strict=True):
        own, model, allowed = _errors(*each)
        if not own <= allowed:  # which NaN is not
            raise Differs(Span(str(module)), what=f"{on} its error is {own:.3g}, the model's {model:.3g}")
        error, usual = max(error, own), max(usual, model)
    shapes = " and ".join(str(list(x.shape)) for x in inputs if isinstance(x, Tensor))
    return f"outputs {on} of {shapes}: largest error {error:.3g}, the model's {usual:.3g}, against float64"


def _exact(pair: Pair) -> nn.Module:
    """The model in float64: made anew, since a lambda in a copy would call the layers of the original."""
    torch.manual_seed(SEED)
    made = pair.problem.model(*pair.problem.arguments().values())
    made.load_state_dict(pair.model.state_dict())
    return made.eval().double()


def _results(model: nn.Module, inputs: Sequence[Any]) -> list[Tensor]:
    """The tensors that a model returns, in order."""
    torch.manual_seed(SEED)
    return [each for each in tree_leaves(model(*inputs)) if isinstance(each, Tensor)]


def _errors(ours: Tensor, theirs: Tensor, exact: Tensor) -> tuple[float, float, float]:
    """The error of the module, that of the model, and the one that is allowed."""
    known = exact.isfinite()
    error, usual = (_largest((each.double() - exact)[known]) for each in (ours, theirs))
    unit = torch.finfo(theirs.dtype).eps if theirs.is_floating_point() else 0.0
    return error, usual, WITHIN * usual + OF_SIZE * unit * _largest(exact[known])


def _kinds(tensors: Sequence[Tensor]) -> str:
    return " and ".join(f"{tuple(each.shape)} of {each.dtype}" for each in tensors)


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _copies(inputs: Sequence[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, Tensor) else x for x in inputs]


def _double(value: Any) -> Any:
    return value.double() if _is_float(value) else value


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
