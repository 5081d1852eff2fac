"""A network and its example inputs, as the command line names them."""

import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fusegen.errors import NotAModel, Span
from fusegen.models.lift.load import executed_names, read, telling

FORM = "give module:attribute or FILE.py:attribute, a model or a callable that returns one"
INPUTS = "give --input SHAPE for each tensor, as 1x3x224x224, or --inputs module:attribute"
MOST_ELEMENTS = 2**30


def model_of(target: str) -> nn.Module:
    """Return the model that ``module:attribute`` or ``FILE.py:attribute`` means; the code is executed.

    Raises:
        NotAModel: there is none.
    """
    found = _found(target)
    if not isinstance(found, nn.Module):
        if not callable(found):
            raise NotAModel(Span(target), why=f"it is of type {type(found).__name__}", remedy=FORM)
        with telling(_file(target), f"{target} raises"):
            found = found()
    if not isinstance(found, nn.Module):
        raise NotAModel(Span(target), why=f"it returns {type(found).__name__}, no model", remedy=FORM)
    return found


def inputs_of(
    model: nn.Module,  # it
    shapes: Sequence[str],  # of the tensors, as ``1x3x224x224`` or ``4x128:int64``
    target: str | None,  # the callable, or the inputs themselves, as ``module:attribute``
) -> tuple[Any, ...] | dict[str, Any]:
    """Return the example inputs of a model: tensors like its parameters, or what a callable returns.

    Raises:
        NotAModel: there are none, or they cannot be read.
    """
    if target is None:
        if not shapes:
            raise NotAModel(Span("--input"), why="no example inputs are given", remedy=INPUTS)
        like = next((each for each in model.parameters() if each.is_floating_point()), torch.empty(0))
        return tuple(_tensor(shape, like) for shape in shapes)
    found = _found(target)
    if callable(found):
        with telling(_file(target), f"{target} raises"):
            found = found()
    if isinstance(found, Mapping):
        return dict(found)
    return tuple(found) if isinstance(found, list | tuple) else (found,)


def _tensor(text: str, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of a shape, of its own dtype or that of another, on its device.

    Nobody reads its numbers: whole ones are 0, as places in a table have to be.
    """
    shape, _, word = text.lower().partition(":")
    dtype = getattr(torch, word, None) if word else like.dtype
    try:
        sizes = [int(size) for size in shape.replace(",", "x").split("x")]
    except ValueError:
        sizes = [-1]
    if min(sizes) < 0 or torch.Size(sizes).numel() > MOST_ELEMENTS or not isinstance(dtype, torch.dtype):
        raise NotAModel(Span("--input"), why=f"{text!r} is no shape", remedy=INPUTS)
    return torch.zeros(sizes, dtype=dtype, device=like.device)


def _file(target: str) -> Path:
    return Path(target.rpartition(":")[0])


def _found(target: str) -> Any:
    """Return the object that a name means.

    Raises:
        NotAModel: it means nothing, or its code raises.
    """
    if target.rpartition(":")[0].endswith(".py"):
        path, attribute, tree = read(target)
        names = executed_names(path, tree)
        if attribute not in names:
            raise NotAModel(Span(str(path)), why=f"the file defines no {attribute}", remedy=FORM)
        return names[attribute]
    if not target.rpartition(":")[0]:
        raise NotAModel(Span(target), why="it names no module and attribute", remedy=FORM)
    sys.path.insert(0, str(Path.cwd()))
    try:
        return pkgutil.resolve_name(target)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        why = f"importing it raises {type(error).__name__}: {first}"
        raise NotAModel(Span(target), why=why, remedy=FORM) from None
    finally:
        sys.path.pop(0)
