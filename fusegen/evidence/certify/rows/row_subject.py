"""The module of a spec with rows, beside PyTorch's function that its reference names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Generator, Tensor

from fusegen.codegen import long_rows, row_features
from fusegen.codegen.render.forward_arguments import function_name
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.errors import NotAReference, OtherFunction
from fusegen.evidence.certify.enclosures.ball_rows import values
from fusegen.evidence.certify.enclosures.row_balls import RowBalls
from fusegen.evidence.certify.findings import Subject
from fusegen.evidence.certify.rows.families import Group, groups, normal, within
from fusegen.evidence.certify.rows.row_layouts import apart, dropping, reference, widened, with_numbers

Column = tuple[Tensor, Tensor, Tensor]
APART = 2.0**-40  # of the largest result, in float64
IGNORED = -100  # an index that picks no element
CHANNELS = 24  # of a group, of which its length has divisors
LONGEST = long_rows.LEAST + CHANNELS  # of rows that several blocks have


@dataclass(frozen=True)
class RowSubject(Subject):
    """A function of rows."""

    with_params: Callable[[dict[str, Fraction]], RowSubject] | None = None
    over: int = -1  # the first dimension of a row; the last ones are of it in what the function takes
    ahead: int = 0  # how many dimensions stand between the first one and those of a row
    # whether rows of the module are other dimensions: their elements lie apart in memory
    is_apart: bool = False
    features: frozenset[str] = frozenset()  # the tensors that have one row for all
    by_channel: bool = False  # whether these have one value for several neighbours in a row
    is_grouped: bool = False  # whether a row is a group of a dimension, of which there is one here
    row_results: tuple[int, ...] = ()  # the places of results of which a row has one value
    # the dtype of these beside tensors of a dtype
    values_in: Callable[[torch.dtype], torch.dtype] = lambda dtype: dtype
    of_row: frozenset[str] = frozenset()  # the tensors with a number for each row, which is a channel
    # the tensors that pick an element of each row, which have no gradient
    indices: frozenset[str] = frozenset()
    finds: bool = False  # whether a result is the place of an element, which has none
    lengths: tuple[int, ...] = (7, 64, 1000, 4099)  # of the rows of other calls
    longest: int = 0  # the length of one row more that is judged, if any
    results: tuple[str, ...] = ()  # the names of its results, where there are several

    @property
    def few_rows(self) -> tuple[Group, ...]:
        """Return the groups of rows at other values of a parameter."""
        return tuple(Group("normal", 4, length) for length in self.lengths[:2])

    def groups(self, most: int) -> Iterable[Group]:
        """Return the groups of rows that are judged, of at most so many elements in all."""
        return groups(most, self.longest)

    def exact(
        self, tensors: Sequence[Tensor], incoming: Sequence[Tensor], dtype: torch.dtype
    ) -> list[Column]:
        """Return values and gradients of some rows, as `values` does."""
        length = tensors[0].shape[-1]
        flat = [t.reshape(t.shape[0], -1) if t.dim() == tensors[0].dim() else t.flatten() for t in tensors]
        if self.indices:
            flat[-1] = (torch.arange(length) == flat[-1]).double()
        return values(RowBalls(self.program, self.params), flat, incoming, dtype)

    def of_values(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shape of each value for that of the first tensor."""
        first = self.over if self.over > 0 else len(shape) + self.over
        of_row = shape[:first] + (1,) * self.is_grouped
        return [of_row if k in self.row_results else shape for k in range(len(self.results or "y"))]

    def dtypes_of_values(self, dtype: torch.dtype) -> list[torch.dtype]:
        """Return the dtype in which each value is judged, beside tensors of a dtype."""
        if self.finds:
            return [torch.float32]  # which has the places of all elements
        wide = self.values_in(dtype)
        return [wide if k in self.row_results else dtype for k in range(len(self.results or "y"))]

    def drawn(self, name: str, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Return a tensor besides the first one, for rows of a shape: in float64, normal, or integers."""
        if name in self.indices:
            of_rows = (shape[0], *[1] * (len(shape) - 1))
            found = torch.randint(shape[-1], of_rows, generator=generator)
            found[3:4] = IGNORED
            return found
        if name in self.of_row:
            return normal((shape[0], 1), generator, torch.float64)
        one = (*shape[1:-1], 1) if self.by_channel else shape[1:]
        return normal(one if name in self.features else shape, generator, torch.float64)

    def within(self, name: str, rows: Tensor) -> Tensor:
        """Return a tensor in the range that its spec assumes."""
        return within(rows, *self.assume[name]) if name in self.assume else rows

    def shape(self, rows: int, length: int) -> tuple[int, ...]:
        """Return the shape of a tensor of some rows; those of a group have several channels."""
        if self.is_grouped:
            channels = math.gcd(length, CHANNELS)
            return (rows, *[1] * (self.over - 1), channels, length // channels)
        return (rows, *[1] * (self.ahead + abs(self.over) - 1), length)

    def laid(self, rows: Tensor) -> Tensor:
        """Return rows as the module's lie in memory."""
        return apart(rows) if self.is_apart else rows


def of_module(compiled: CompiledRows, module: Any) -> RowSubject:
    """Return the function of a spec with rows in a module, at the defaults of its parameters.

    Raises:
        NotAReference, OtherFunction: of the reference.
    """
    spec = compiled.spec
    is_plain = spec.reduction == "none" and not (spec.over and spec.over.keeps)
    own: Any = getattr(module, function_name(spec)) if is_plain else module.KERNELS.of_rows
    whole = RowSubject(
        name=spec.name,
        program=compiled.declared,
        stable=compiled.declared,
        params={},
        given=own,
        promise="rows",
        reference=spec.reference,
        **_rows_of(compiled),
        row_results=compiled.row_results,
        **({"values_in": module.KERNELS.values_in} if compiled.is_wide else {}),
        indices=frozenset(each.name for each in spec.indices),
        finds=compiled.finds,
        results=spec.results,
        assume={name: (float(of.low), float(of.high)) for name, of in spec.assume},
    )

    def at(params: dict[str, Fraction]) -> RowSubject:
        numbers = {name: float(value) for name, value in params.items()}
        kernels = module.KERNELS
        eager_rows = dropping(kernels.where_they_are, spec.over, compiled.row_results)
        functions = kernels.rows_last(own), kernels.rows_last(eager_rows)
        given, plain = (with_numbers(function, numbers, spec) for function in functions)
        eager = reference(spec, whole.over, numbers) if spec.reference else plain
        eager = widened(eager, whole.values_in) if spec.reference and compiled.is_wide else eager
        return replace(whole, params=params, given=given, eager=eager, compared=plain, with_params=at)

    found = at({p.name: Fraction(p.default) for p in spec.scalars})
    if spec.reference:
        require(spec, found, found.shape(4, 9))
    return found


def _rows_of(compiled: CompiledRows) -> dict[str, Any]:
    """Return what a subject says of the rows of a spec, and of the tensors that they share."""
    spec = compiled.spec
    assert spec.over is not None
    if spec.over.of_channel:
        return {"of_row": frozenset(each.name for each in spec.tensors if each.along is not None)}
    return {
        "over": -spec.over.count or spec.over.first or -1,
        "ahead": max(spec.over.first - 1, 0) if spec.over.count else 0,
        "is_apart": spec.over.count > 0,
        "features": frozenset(row_features.summed(compiled)),
        "by_channel": bool(row_features.channels(spec)),
        "is_grouped": bool(spec.over.groups),
        "longest": LONGEST if long_rows.headers(compiled, Device.CUDA) else 0,
    }


def require(spec: Spec, subject: RowSubject, shape: tuple[int, ...]) -> None:
    """Refuse a reference that is another function than the formula, at rows of a shape in float64."""
    generator = torch.Generator().manual_seed(1)
    tensors = [normal(shape, generator, torch.float64)]
    tensors += [subject.drawn(name, shape, generator) for name in subject.program.inputs[1:]]
    tensors = [*map(subject.within, subject.program.inputs, tensors)]
    assert subject.eager is not None
    assert subject.compared is not None
    right = subject.compared(*tensors)
    try:
        got = subject.eager(*tensors)
        gaps = (got - right).abs().flatten()
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise NotAReference(spec.at("reference"), reference=spec.reference, why=why) from None
    wrong = torch.nonzero(gaps > APART * right.abs().max())[:, 0]
    if len(wrong):
        first, worst = (
            [f"element {k}", *(f"{float(t.flatten()[k]):.9g}" for t in (right, got))]
            for k in (int(wrong[0]), int(gaps.argmax()))
        )
        raise OtherFunction(
            spec.at("reference"), reference=spec.reference, count=f"{len(wrong):,}", dtype="float64",
            first=first[0], real=first[1], got=first[2],
            worst=worst[0], worst_real=worst[1], worst_got=worst[2],
        )  # fmt: skip
