"""The module of a spec with rows, beside PyTorch's function that its reference names."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from fusegen.codegen import row_features
from fusegen.codegen.render.forward_arguments import function_name
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.folds import Level
from fusegen.core.spec import Over, Spec
from fusegen.errors import NotAReference, OtherFunction
from fusegen.evidence.certify import allowed
from fusegen.evidence.certify.enclosures.ball_rows import values
from fusegen.evidence.certify.enclosures.row_balls import RowBalls
from fusegen.evidence.certify.findings import Function, Subject
from fusegen.evidence.certify.rows.families import Group, groups, normal
from fusegen.project.loader import built

Column = tuple[Tensor, Tensor, Tensor]
APART = 2.0**-40  # of the largest result, in float64
CHANNELS = 24  # of a group, of which its length has divisors


@dataclass(frozen=True)
class RowSubject(Subject):
    """A function of rows.

    Attributes:
        over: the first dimension of a row; the last ones are of it in what the function takes.
        is_apart: whether rows of the module are other dimensions: their elements lie apart in memory.
        features: the tensors that have one row for all.
        by_channel: whether these have one value for several neighbours in a row.
        is_grouped: whether a row is a group of a dimension, of which there is one here.
        once_a_row: whether it has one result a row.
        indices: the tensors that pick an element of each row, which have no gradient.
        lengths: of the rows of other calls.
    """

    with_params: Callable[[dict[str, Fraction]], RowSubject] | None = None
    over: int = -1
    is_apart: bool = False
    features: frozenset[str] = frozenset()
    by_channel: bool = False
    is_grouped: bool = False
    once_a_row: bool = False
    indices: frozenset[str] = frozenset()
    lengths: tuple[int, ...] = (7, 64, 1000, 4099)

    @property
    def few_rows(self) -> tuple[Group, ...]:
        """Return the groups of rows at other values of a parameter."""
        return tuple(Group("normal", 4, length) for length in self.lengths[:2])

    def groups(self, most: int) -> Iterable[Group]:
        """Return the groups of rows that are judged, of at most so many elements in all."""
        return groups(most)

    def exact(self, tensors: Sequence[Tensor], incoming: Tensor, dtype: torch.dtype) -> list[Column]:
        """Return value and gradients of some rows, as `values` does."""
        length = tensors[0].shape[-1]
        flat = [t.reshape(t.shape[0], -1) if t.dim() == tensors[0].dim() else t.flatten() for t in tensors]
        if self.indices:
            flat[-1] = (torch.arange(length) == flat[-1]).double()
        return values(RowBalls(self.program, self.params), flat, incoming, dtype)

    def of_value(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the value for that of the first tensor."""
        first = self.over if self.over > 0 else len(shape) + self.over
        return shape[:first] + (1,) * self.is_grouped if self.once_a_row else shape

    def drawn(self, name: str, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Return a tensor besides the first one, for rows of a shape: in float64, normal, or integers."""
        if name in self.indices:
            found = torch.randint(
                shape[-1], (shape[0], *[1] * (len(shape) - 1)), generator=generator
            ).double()
            found[3:4] = -1  # a row that is ignored
            return found
        one = (*shape[1:-1], 1) if self.by_channel else shape[1:]
        return normal(one if name in self.features else shape, generator, torch.float64)

    def shape(self, rows: int, length: int) -> tuple[int, ...]:
        """Return the shape of a tensor of some rows; those of a group have several channels."""
        if self.is_grouped:
            channels = math.gcd(length, CHANNELS)
            return (rows, *[1] * (self.over - 1), channels, length // channels)
        return (rows, *[1] * ((self.over if self.over > 0 else -self.over) - 1), length)

    def laid(self, rows: Tensor) -> Tensor:
        """Return rows as the module's lie in memory."""
        return apart(rows) if self.is_apart else rows


def apart(rows: Tensor) -> Tensor:
    """Return rows whose elements lie apart in memory."""
    return rows.transpose(0, -1).contiguous().transpose(0, -1)


def of_spec(compiled: CompiledRows, output: Path) -> RowSubject:
    """Return the module of a spec with rows, at the defaults of its parameters.

    Raises:
        NotBuilt: there is no such module, or it is not what the spec says.
        NotAReference, OtherFunction: of the reference.
    """
    spec = compiled.spec
    assert spec.over is not None
    module = built(compiled, output)
    own: Any = module.KERNELS.of_rows if spec.reduction != "none" else getattr(module, function_name(spec))
    whole = RowSubject(
        name=spec.name,
        program=compiled.declared,
        stable=compiled.declared,
        params={},
        given=own,
        promise="rows",
        reference=spec.reference,
        over=-spec.over.count or spec.over.first or -1,
        is_apart=spec.over.count > 0,
        features=frozenset(row_features.features(spec)),
        by_channel=bool(row_features.channels(spec)),
        is_grouped=bool(spec.over.groups),
        once_a_row=compiled.stored is not Level.ELEMENT,
        indices=frozenset(each.name for each in spec.indices),
    )

    def at(params: dict[str, Fraction]) -> RowSubject:
        numbers = {name: float(value) for name, value in params.items()}
        kernels = module.KERNELS
        functions = kernels.rows_last(own), kernels.rows_last(kernels.where_they_are)
        given, plain = (_with_numbers(function, numbers, spec) for function in functions)
        eager = _reference(spec, whole.over, numbers) if spec.reference else plain
        return replace(whole, params=params, given=given, eager=eager, compared=plain, with_params=at)

    found = at({p.name: Fraction(p.default) for p in spec.scalars})
    if spec.reference:
        require(spec, found, found.shape(4, 9))
    return found


def _with_numbers(function: Function, numbers: dict[str, float], spec: Spec) -> Function:
    """Return a function of rows, of one group each; where all of a tensor is a row, of a tensor each."""
    own = [*numbers.values(), *[1] * bool(spec.over and spec.over.groups)]
    if spec.over != Over(0):
        return lambda *tensors: function(*tensors, *own)
    return lambda *rows: torch.stack([function(*row, *own) for row in zip(*rows, strict=True)])


def _reference(spec: Spec, over: int, numbers: dict[str, float]) -> Function:
    """Return PyTorch's function of the first tensor, with the others and the numbers by their names."""
    found = allowed.resolved(spec)
    tensors = [each.name for each in spec.tensors]

    def called(first: Tensor, *others: Tensor) -> Tensor:
        dims = -1 if over == -1 else tuple(range(over % first.dim(), first.dim()))
        known: dict[str, Any] = {"dim": dims, "normalized_shape": first.shape[over:], **numbers}
        known |= dict(zip(tensors[1:], others, strict=True))
        if spec.over and spec.over.groups:
            known[spec.over.groups] = 1
        known |= {each.name: known[each.name].flatten() for each in spec.tensors if each.along is not None}
        known |= {each.name: _integers(known[each.name]) for each in spec.indices}
        known |= {"reduction": "none"} if spec.reduction != "none" else {}
        try:
            names = set(inspect.signature(found).parameters)
        except ValueError:  # of what is no Python
            names = {"dim", *tensors[1:]}
        result: Tensor = found(first, **{name: known[name] for name in names & known.keys()})
        return result

    return called


def _integers(index: Tensor) -> Tensor:
    """Return an index as PyTorch's functions take it, which ignore -100."""
    return torch.where(index < 0, -100, index.long()).flatten()


def require(spec: Spec, subject: RowSubject, shape: tuple[int, ...]) -> None:
    """Refuse a reference that is another function than the formula, at rows of a shape in float64."""
    generator = torch.Generator().manual_seed(1)
    tensors = [normal(shape, generator, torch.float64)]
    tensors += [subject.drawn(name, shape, generator) for name in subject.program.inputs[1:]]
    assert subject.eager is not None
    assert subject.compared is not None
    right = subject.compared(*tensors)
    try:
        got = subject.eager(*tensors)
        gaps = (got - right).abs().flatten()
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise NotAReference(spec.reference_span, reference=spec.reference, why=why) from None
    wrong = torch.nonzero(gaps > APART * right.abs().max())[:, 0]
    if len(wrong):
        first, worst = (
            [f"element {k}", *(f"{float(t.flatten()[k]):.9g}" for t in (right, got))]
            for k in (int(wrong[0]), int(gaps.argmax()))
        )
        raise OtherFunction(
            spec.reference_span, reference=spec.reference, count=f"{len(wrong):,}", dtype="float64",
            first=first[0], real=first[1], got=first[2],
            worst=worst[0], worst_real=worst[1], worst_got=worst[2],
        )  # fmt: skip
