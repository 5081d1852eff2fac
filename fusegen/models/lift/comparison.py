"""The comparison of outputs and gradients in both modes, at several numbers of the constructor."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.errors import Differs, NotAModel, Span
from fusegen.models.lift.load import Problem, telling
from fusegen.models.lift.pair import Pair, differing, doubled, errors, in_double, is_float, made, results
from fusegen.models.lift.smaller import tried

FACTORS = (1.0, 0.75, 1.25)  # of the constructor's numbers in a comparison
MODES = ("eval", "train")


def at_settings(
    pair: Pair,  # the model and its module, at the numbers of the file
    scalars: Sequence[str],  # the arguments of the constructor that formulas alone read
    inputs: Sequence[Any],  # of both
    module: Path,  # the file that was built
) -> str:
    """Return the sentence of a comparison. A setting or a mode that the model does not take is left out.

    Raises:
        Differs: an output or a gradient has a larger error than the model's allows.
    """
    error = usual = 0.0
    compared: dict[str, None] = {}
    for numbers in _settings(pair, scalars):
        for mode in MODES:
            at = f"in {mode}" + "".join(f", {name}={value!r}" for name, value in numbers.items())
            with suppress(NotAModel):
                for own, model, allowed in _graded(_changed(pair, numbers, module), mode, inputs, module):
                    if not own <= allowed:
                        what = f"{at} its error is {own:.3g}, the model's {model:.3g}"
                        raise Differs(Span(str(module)), what=what)
                    error, usual = max(error, own), max(usual, model)
                compared[at] = None
    if not compared:
        return "no gradient was compared: the model raises with gradients"
    where = "; ".join(compared)
    return f"outputs and gradients {where}: largest error {error:.3g}, the model's {usual:.3g}"


def free_numbers(problem: Problem) -> tuple[str, ...]:
    """Return the numbers of the constructor that may change: a model makes the same calls of equal sizes.

    Raises:
        NotAModel: the model raises at those of the file.
    """
    own = problem.arguments()
    calls = tried(problem).key
    return tuple(
        name
        for name, value in own.items()
        if _scaled(value, FACTORS[-1]) != value
        and all(_key(other) == calls for other in other_settings(problem, name))
    )


def other_settings(problem: Problem, name: str) -> Iterator[Problem]:
    """Yield the problem with other values of one number of the constructor."""
    own = problem.arguments()
    for factor in FACTORS[1:]:
        yield problem.given({**own, name: _scaled(own[name], factor)})


def _key(problem: Problem) -> object:
    """Return the calls of a model; None where it raises."""
    with suppress(NotAModel):
        return tried(problem).key
    return None


def _settings(pair: Pair, scalars: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the numbers of the file by their names, and others."""
    own = dict(zip(pair.problem.arguments(), pair.arguments, strict=True))
    for factor in FACTORS if scalars else FACTORS[:1]:
        yield {name: _scaled(own[name], factor) for name in scalars}


def _scaled(value: Any, factor: float) -> Any:
    """Another number near a number of the constructor; a whole one stays whole, and a truth is kept."""
    if isinstance(value, bool) or not isinstance(value, int | float) or factor == 1:
        return value
    return value + (1 if factor > 1 else -1) if isinstance(value, int) else value * factor or factor - 1


def _changed(pair: Pair, numbers: Mapping[str, Any], module: Path) -> Pair:
    """Return the model and its module at other numbers of the constructor."""
    names = pair.problem.arguments()
    arguments = [numbers.get(name, own) for name, own in zip(names, pair.arguments, strict=True)]
    return made(pair.problem, arguments, pair.sizes, module)


def _graded(pair: Pair, mode: str, inputs: Sequence[Any], module: Path) -> list[tuple[float, float, float]]:
    """Return the errors of outputs and gradients, as `errors` gives them."""
    exact_model = in_double(pair)
    models = [each.train(mode == "train") for each in (pair.ours, pair.model, exact_model)]
    with telling(pair.problem.path, "the model raises"):
        theirs = _with_gradients(models[1], inputs)
        exact = _with_gradients(models[2], [doubled(x) for x in inputs])
    with differing(module, f"in {mode}, with gradients, it"):
        ours = _with_gradients(models[0], inputs)
    return [errors(*each) for each in zip(ours, theirs, exact, strict=True)]


def _with_gradients(model: nn.Module, inputs: Sequence[Any]) -> list[Tensor]:
    """Return the outputs of a model, and the gradients of their weighted sum by inputs and parameters."""
    leaves = [x.clone().requires_grad_() if is_float(x) else x for x in inputs]
    outputs = results(model, [x.clone() if isinstance(x, Tensor) else x for x in leaves])
    parameters = (each for _, each in sorted(model.named_parameters()))
    wanted = [x for x in (*leaves, *parameters) if isinstance(x, Tensor) and x.requires_grad]
    sums = [
        (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view_as(y)).sum()
        for y in outputs
        if y.requires_grad
    ]
    found = torch.autograd.grad(sums, wanted, allow_unused=True) if sums and wanted else ()
    grads = [torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=False)]
    return [*(y.detach() for y in outputs), *grads]
