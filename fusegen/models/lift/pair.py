"""A model and its module, made alike on the CPU, and the errors of their results."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fusegen.errors import Differs, FusegenError, NotAModel, Span
from fusegen.models.lift.load import Problem, telling
from fusegen.models.lift.smaller import smaller
from fusegen.project.loader import imported
from fusegen.runtime import together

MOST = 2**22  # elements of inputs and state that are compared at their own sizes
LARGEST = 2**27  # elements that are compared where small sizes are wrong
SEED = 0  # of random numbers
# the error may be so many times the model's, plus so many roundings of the largest result
WITHIN, OF_SIZE = 2.0, 4.0


@dataclass(frozen=True)
class Pair:
    """A model and its module, made after the same seed, on the CPU."""

    sizes: str  # the compared sizes, in words
    problem: Problem  # the file, perhaps with small sizes
    model: nn.Module
    ours: nn.Module
    arguments: list[Any]  # of both constructors
    own: list[Any]  # what get_inputs returns
    after: tuple[Tensor, Tensor]  # the random numbers that each constructor left


class Lifted(Protocol):
    """A lifted model: its file, and its inputs and state on the device `meta`."""

    @property
    def problem(self) -> Problem:
        """The file."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The tensors that take memory: inputs, values and state."""

    @property
    def scalars(self) -> Sequence[str]:
        """The arguments of the constructor that formulas alone read."""


def pair_of(of: Lifted, module: Path) -> Pair | None:
    """Return both, with sizes that can be compared; none where there are none."""
    elements = sum(each.numel() for each in of.tensors)
    if elements > MOST:
        sizes = f"at small sizes, as the file's take {elements:,} elements"
        for trial in smaller(of.problem):
            if trial.elements <= LARGEST:
                with suppress(NotAModel):  # it depends on values, such as indices
                    return made(trial.problem, list(trial.problem.arguments().values()), sizes, module)
    if elements > LARGEST:
        return None
    return made(of.problem, list(of.problem.arguments().values()), "at the sizes of the file", module)


def made(problem: Problem, arguments: list[Any], sizes: str, module: Path) -> Pair:
    """Return both after the same seed, in eval mode, where layers draw no random numbers.

    Raises:
        NotAModel: the model raises.
        Differs: the module raises, and the model does not.
    """
    with torch.no_grad(), telling(problem.path, "the model raises"):
        torch.manual_seed(SEED)
        model, first = problem.model(*arguments), torch.rand(4)
        own = problem.get_inputs()
        model.eval()(*copies(own))
    torch.manual_seed(SEED)
    with differing(module, "its constructor"):
        ours, second = _imported(module).ModelNew(*arguments), torch.rand(4)
    return Pair(sizes, problem, model, ours.eval(), arguments, own, (first, second))


def _imported(path: Path) -> ModuleType:
    """Import a module, whose kernels and those of the modules that it imports are built side by side."""
    module = imported(path)
    names = {str(getattr(value, "__module__", "")) for value in vars(module).values()}
    files = [vars(sys.modules[name]) for name in names if name in sys.modules]
    together.join((file["KERNELS"] for file in files if "KERNELS" in file), "forward", "backward")
    return module


@contextmanager
def differing(module: Path, what: str) -> Iterator[None]:
    """Translate an exception of the module, whose model raises none.

    Raises:
        Differs: in place of it.
    """
    try:
        yield
    except FusegenError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        why = f"{what} raises {type(error).__name__}" + f": {first}" * bool(first)
        raise Differs(Span(str(module)), what=why) from error


def in_double(pair: Pair) -> nn.Module:
    """The model in float64: made again, since a lambda in a copy would call the layers of the original."""
    torch.manual_seed(SEED)
    made = pair.problem.model(*pair.arguments)
    made.load_state_dict(pair.model.state_dict())
    return made.eval().double()


def results(model: nn.Module, inputs: Sequence[Any]) -> list[Tensor]:
    """Return the tensors that a model returns, in order."""
    torch.manual_seed(SEED)
    return [each for each in tree_leaves(model(*inputs)) if isinstance(each, Tensor)]


def errors(ours: Tensor, theirs: Tensor, exact: Tensor) -> tuple[float, float, float]:
    """Return the error of the module, that of the model, and the one that is allowed."""
    known = exact.isfinite()
    error, usual = (_largest((each.double() - exact)[known]) for each in (ours, theirs))
    unit = torch.finfo(theirs.dtype).eps if theirs.is_floating_point() else 0.0
    return error, usual, WITHIN * usual + OF_SIZE * unit * _largest(exact[known])


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def copies(inputs: Sequence[Any]) -> list[Any]:
    """Copy the tensors of inputs, which a model may write to."""
    return [x.clone() if isinstance(x, Tensor) else x for x in inputs]


def doubled(value: Any) -> Any:
    """Widen a tensor of floats to float64; another value stays."""
    return value.double() if is_float(value) else value


def is_float(value: Any) -> bool:
    """Return True for a tensor of floats."""
    return isinstance(value, Tensor) and value.is_floating_point()
