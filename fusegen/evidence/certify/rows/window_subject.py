"""The module of a spec with a pooling, which is judged as one of rows: a row is a plane of windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

import torch
from torch import Generator, Tensor

from fusegen.codegen.render.forward_arguments import function_name
from fusegen.compiler.window_kernels import CompiledWindows
from fusegen.core.poolings import Window
from fusegen.errors import NotAReference
from fusegen.evidence.certify import allowed
from fusegen.evidence.certify.enclosures.ball_rows import values
from fusegen.evidence.certify.enclosures.window_balls import WindowBalls, elements
from fusegen.evidence.certify.findings import Function
from fusegen.evidence.certify.rows.families import KINDS, Group, normal
from fusegen.evidence.certify.rows.row_subject import Column, RowSubject, require

ROWS, STEPS = 4, (0, 1, 3)  # planes of each kind, and how many strides they are larger than a window


@dataclass(frozen=True)
class WindowSubject(RowSubject):
    """A function with a pooling."""

    window: Window | None = None  # its windows
    in_front: tuple[bool, ...] = ()  # for each tensor, whether it is read in the pooling

    def groups(self, most: int) -> Iterable[Group]:
        """Return the groups of planes that are judged, of at most so many elements in all."""
        for length in self.lengths:
            for kind in KINDS:
                most -= ROWS * length
                if most >= 0:
                    yield Group(kind, ROWS, length)

    def exact(
        self, tensors: Sequence[Tensor], incoming: Sequence[Tensor], dtype: torch.dtype
    ) -> list[Column]:
        """Return value and gradients of some planes, as `values` does."""
        assert self.window is not None
        first = self.in_front.index(True)
        windows = elements(self.window, tensors[first].shape[1:])
        return values(
            WindowBalls(self.program, self.params, windows, self.in_front), tensors, incoming, dtype
        )

    def shape(self, rows: int, length: int) -> tuple[int, ...]:
        """Return the shape of a tensor of some planes in the pooling."""
        assert self.window is not None
        return (rows, *planes(self.window)[length])

    def of_values(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shape of the result."""
        assert self.window is not None
        return [self.window.sizes(shape)]

    def drawn(self, name: str, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Return a tensor besides the first one, for planes of a shape."""
        front = self.in_front[self.program.inputs.index(name)]
        return normal(shape if front else self.of_values(shape)[0], generator, torch.float64)


def planes(window: Window) -> dict[int, tuple[int, ...]]:
    """Return the sizes of planes by their number of elements: of one window, and of a few each way."""
    found = {}
    whole = window.output or window.whole  # of an adaptive pooling, one element a window, then several
    strides, least = window.output or window.stride, 4 if window.rank == 1 else 2
    for steps in STEPS:
        numbers = zip(whole, strides, strict=True)
        sizes = tuple(max(size, least) + steps * stride + d % 2 for d, (size, stride) in enumerate(numbers))
        found[prod(sizes)] = sizes
    return found


def of_module(compiled: CompiledWindows, module: Any) -> WindowSubject:
    """Return the function of a spec with a pooling in a module, at the defaults of its parameters.

    Raises:
        NotAReference, OtherFunction: of the reference.
    """
    spec = compiled.spec
    own: Any = getattr(module, function_name(spec))
    whole = WindowSubject(
        name=spec.name,
        program=compiled.declared,
        stable=compiled.declared,
        params={},
        given=own,
        promise="rows",
        reference=spec.reference,
        lengths=tuple(planes(compiled.window)),
        window=compiled.window,
        in_front=tuple(each.name in compiled.in_front for each in spec.tensors),
    )

    def at(params: dict[str, Fraction]) -> WindowSubject:
        numbers = [float(value) for value in params.values()]

        pytorch: Any = module.KERNELS.eager  # with the numbers of the windows
        given, plain = (_with_numbers(function, numbers) for function in (own, pytorch))
        eager = _in_float(_reference(compiled) if spec.reference else plain)
        return replace(whole, params=params, given=given, eager=eager, compared=plain, with_params=at)

    found = at({p.name: Fraction(p.default) for p in spec.scalars})
    if spec.reference:
        require(spec, found, found.shape(ROWS, max(found.lengths)))
    return found


def _with_numbers(function: Function, numbers: Sequence[float]) -> Function:
    return lambda *tensors: function(*tensors, *numbers)


def _in_float(function: Function) -> Function:
    """Return a function that computes in float32 where PyTorch has no kernel of 16 bits."""

    def called(*tensors: Tensor) -> Tensor:
        try:
            return function(*tensors)
        except NotImplementedError:
            return function(*(t.float() for t in tensors)).to(tensors[0].dtype)

    return called


def _reference(compiled: CompiledWindows) -> Function:
    """Return PyTorch's function of the tensors that the spec names, with the numbers of its windows."""
    spec, window = compiled.spec, compiled.window
    function = allowed.resolved(spec)
    if spec.reference.rpartition(".")[2] != window.pooling.name:
        why = f"the pooling is {window.pooling.name}"
        raise NotAReference(spec.at("reference"), reference=spec.reference, why=why)
    known = {
        "kernel_size": window.kernel,
        "stride": window.stride,
        "padding": window.padding,
        "dilation": window.dilation,
        "ceil_mode": window.ceil,
        "count_include_pad": window.counts_padding,
        "divisor_override": window.divisor or None,
        "output_size": tuple(size or None for size in window.output) if window.rank > 1 else window.output,
    }
    given = {name: known[name] for name in window.pooling.args if name in known}
    return lambda *tensors: function(*tensors, **given)
