"""Compares the module of a lifted model with the model: the state_dict after a seed, and the outputs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fusegen.errors import Differs, NotCompared, Span
from fusegen.models.lift.comparison import at_settings
from fusegen.models.lift.load import telling
from fusegen.models.lift.pair import (
    LARGEST,
    SEED,
    Lifted,
    Pair,
    copies,
    differing,
    doubled,
    errors,
    in_double,
    is_float,
    pair_of,
    results,
)

SIGNED = 3.0  # the standard deviation of signed inputs


def verified(of: Lifted, module: Path) -> Iterator[str]:
    """Yield a sentence for each comparison of a lifted model with the module that was built.

    Raises:
        Differs: the module is not the model.
        NotAModel: the model raises.
        NotCompared: the sizes of the file are too large, and no smaller ones fit.
    """
    pair = pair_of(of, module)
    if pair is None:
        raise NotCompared(Span(str(module)), least=f"{LARGEST:,}")
    yield _state(pair, module)
    yield _outputs(pair, pair.own, "on get_inputs()", module)
    torch.manual_seed(SEED + 1)
    signed = [SIGNED * torch.randn_like(x) if is_float(x) else x for x in pair.own]
    yield _outputs(pair, signed, "on signed inputs", module)
    yield at_settings(pair, of.scalars, signed, module)


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
    """Return the comparison of what both return, each after the same seed.

    Raises:
        Differs: an output has another shape or dtype, or a larger error.
    """
    exact_model = in_double(pair)
    with torch.no_grad(), telling(pair.problem.path, "forward raises"):
        theirs = results(pair.model, copies(inputs))
        exact = results(exact_model, [doubled(x) for x in inputs])
    with torch.no_grad(), differing(module, f"{on} it"):
        ours = results(pair.ours, copies(inputs))
    if [(x.shape, x.dtype) for x in ours] != [(x.shape, x.dtype) for x in theirs]:
        raise Differs(Span(str(module)), what=f"{on} it gives {_kinds(ours)}, the model {_kinds(theirs)}")
    error = usual = 0.0
    for each in zip(ours, theirs, exact, strict=True):
        own, model, allowed = errors(*each)
        if not own <= allowed:  # which NaN is not
            raise Differs(Span(str(module)), what=f"{on} its error is {own:.3g}, the model's {model:.3g}")
        error, usual = max(error, own), max(usual, model)
    shapes = " and ".join(str(list(x.shape)) for x in inputs if isinstance(x, Tensor))
    return f"outputs {on} of {shapes}: largest error {error:.3g}, the model's {usual:.3g}, against float64"


def _kinds(tensors: Sequence[Tensor]) -> str:
    return " and ".join(f"{tuple(each.shape)} of {each.dtype}" for each in tensors)
