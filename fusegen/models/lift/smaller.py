"""A problem with sizes that are quick to compare, at which the model makes the same calls.

A number above `tiny.SMALL` may be no size: the depth of a stage, or channels that the class has in its own
text, too. Numbers are made small only where the model still runs, and calls the same functions in the same
order; the others stay. Nothing is computed: the model runs on the device `meta`.
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fusegen.errors import NotAModel
from fusegen.models.lift.load import Problem, executed, read, telling
from fusegen.models.lift.tiny import Small, by_divisors, by_place, shrunk, sizes_of

ALONE = 12  # sizes, the largest first, that are tried one by one where all of them together do not fit


@dataclass(frozen=True)
class Trial:
    """A problem that ran."""

    problem: Problem  # it
    calls: tuple[str, ...]  # the functions of torch that forward called, in order
    elements: int  # of its inputs, parameters and buffers

    @property
    def key(self) -> tuple[tuple[str, ...], int]:
        """Equal where a model does the same with tensors of as many elements."""
        return self.calls, self.elements


def smaller(problem: Problem) -> Iterator[Trial]:
    """Yield the problem with smaller sizes, all of them first; nothing if it needs values to run."""
    with suppress(NotAModel):
        own = tried(problem)
        path, attribute, tree = read(f"{problem.path}:{problem.attribute}")

        def fitting(small: Small) -> Trial | None:
            with suppress(NotAModel):
                trial = tried(executed(path, attribute, shrunk(tree, small)))
                return trial if trial.calls == own.calls and trial.elements < own.elements else None
            return None

        yield from filter(None, map(fitting, (by_place, by_divisors)))
        yield from filter(None, [_one_by_one(tree, fitting)])


def tried(problem: Problem) -> Trial:
    """Run a model without values.

    Raises:
        NotAModel: it raises.
    """
    arguments = problem.arguments().values()
    with torch.no_grad(), torch.device("meta"), telling(problem.path, "the model raises"):
        model, inputs, calls = problem.model(*arguments), problem.get_inputs(), _Calls()
        with calls:
            model.eval()(*inputs)
    tensors = [*(x for x in inputs if isinstance(x, Tensor)), *model.parameters(), *model.buffers()]
    return Trial(problem, tuple(calls.names), sum(each.numel() for each in tensors))


def _one_by_one(tree: ast.Module, fitting: Callable[[Small], Trial | None]) -> Trial | None:
    """Return the problem with those sizes small that can be alone, the largest first."""
    found, kept = None, set[int]()
    for size in sorted(sizes_of(tree), reverse=True)[:ALONE]:
        trial = fitting(_only({*kept, size}))
        if trial is not None:
            found = trial
            kept.add(size)
    return found


def _only(some: set[int]) -> Small:
    """Return small sizes for some sizes; the others stay."""

    def small(sizes: set[int], numbers: set[int]) -> dict[int, int]:
        return {size: value if size in some else size for size, value in by_place(sizes, numbers).items()}

    return small


class _Calls(TorchFunctionMode):
    """Notes the names of the functions of torch that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Note the name and call the function."""
        self.names.append(str(getattr(func, "__name__", func)))
        return func(*args, **(kwargs or {}))
