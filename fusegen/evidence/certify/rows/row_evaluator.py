"""One function of rows on one device, judged in one dtype after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

import torch
from torch import Tensor

from fusegen.evidence.certify import contract, exact
from fusegen.evidence.certify.findings import (
    Accuracy,
    Breach,
    Evidence,
    Function,
    InputsDone,
    Local,
    Output,
    Sample,
    Worst,
)
from fusegen.evidence.certify.rows import row_relations
from fusegen.evidence.certify.rows.families import Group, normal
from fusegen.evidence.certify.rows.row_subject import RowSubject

FURTHER_VALUES = (Fraction(0), Fraction(-3, 4), Fraction(1, 2**30), Fraction(2**30))
THRESHOLDS = tuple(2.0**k for k in range(2, 60))  # in ulp, of rule C2
Columns = tuple[Tensor, ...]  # the values, then the gradients, flat


@dataclass(frozen=True)
class RowEvaluator:
    """A subject with rows and a device."""

    subject: RowSubject
    device: str

    @property
    def names(self) -> list[str]:
        """The names of the outputs."""
        of = self.subject
        graded = [name for name in of.program.inputs if name not in of.indices and not of.finds]
        values = [f"value of {name}" for name in of.results] or ["value"]
        return [*values, *(f"gradient of {name}" for name in graded)]

    def total(self, dtype: str, count: int) -> int:
        """Return the number of elements that are judged, of at most so many."""
        return sum(group.rows * group.length for group in self.subject.groups(count))

    def prepare(self, dtypes: tuple[str, ...]) -> None:
        """Build the libraries."""
        group = Group("normal", 1, self.subject.lengths[0])
        for dtype in dtypes:
            self.results(self.subject.given, *self.tensors(group, getattr(torch, dtype)))

    def evidence(self, dtype: str, count: int, progress: InputsDone = lambda done: None) -> Evidence:
        """Return the evidence of one dtype, of at most so many elements."""
        kind: torch.dtype = getattr(torch, dtype)
        relations = row_relations.judged(self, kind)
        rows = list(self.subject.groups(count))
        outputs, undecided = self.judged(rows, kind, progress)
        inputs = sum(group.rows for group in rows)
        scalars = tuple(self.at_scalars(kind))
        return Evidence(
            dtype,
            inputs,
            every=False,
            undecided=undecided,
            outputs=outputs,
            scalars=scalars,
            relations=relations,
            promise="rows",
        )

    def at_scalars(self, dtype: torch.dtype) -> Iterator[Sample]:
        """Yield the findings at other values of one parameter at a time, which eager takes."""
        params, with_params = self.subject.params, self.subject.with_params
        for name in params if with_params else ():
            for value in FURTHER_VALUES:
                assert with_params is not None
                there = replace(self, subject=with_params({**params, name: value}))
                if there.eager_takes(dtype):
                    some = self.subject.few_rows
                    outputs, _ = there.judged(some, dtype)
                    yield Sample(sum(g.rows for g in some), outputs, ((name, float(value)),))

    def eager_takes(self, dtype: torch.dtype) -> bool:
        """Return True if eager takes the parameters, and its results are numbers."""
        try:
            tensors = [self.tensors(group, dtype) for group in self.subject.few_rows]
            found = [t for each in tensors for t in self.results(self.subject.eager, *each)]
        except RuntimeError:  # PyTorch's, of a number that a 16-bit type does not hold
            return False
        return all(bool(t.isfinite().all()) for t in found)

    def judged(
        self, rows: Iterable[Group], dtype: torch.dtype, progress: InputsDone = lambda done: None
    ) -> tuple[tuple[Output, ...], int]:
        """Return the outputs over groups of rows, and how many results are undecided."""
        found: list[list[Output]] = [[] for _ in self.names]
        undecided = 0
        stored = [*self.subject.dtypes_of_values(dtype), *(dtype for _ in self.names)][: len(found)]
        for group in rows:
            tensors, incoming = self.tensors(group, dtype)
            ours, eager = (
                self.results(function, tensors, incoming)
                for function in (self.subject.given, self.subject.eager)
            )
            wide = tuple(t.double() for t in tensors), tuple(t.double() for t in incoming)
            exact_ones = self.results(self.subject.compared, *wide)
            plain = [t.to(kind) for t, kind in zip(exact_ones, stored, strict=True)]
            reals = self.subject.exact(tensors, incoming, dtype)[: len(found)]
            for k, (*results, (hi, lo, off)) in enumerate(zip(ours, eager, plain, reals, strict=True)):
                real = exact.reals(hi, lo, stored[k])
                found[k].append(_judged(self.names[k], group, results, real, off))
                undecided += int(real.hi.isnan().sum())
            progress(group.rows * group.length)
        return tuple(map(_joined, found)), undecided

    def tensors(self, group: Group, dtype: torch.dtype) -> tuple[Columns, Columns]:
        """Return the inputs of a group on the host, and the gradients that its values are given."""
        generator, subject = group.generator(dtype), self.subject
        shape = subject.shape(group.rows, group.length)
        columns = []
        for k, name in enumerate(subject.program.inputs):
            if k == 0:
                drawn = group.drawn(generator, dtype).reshape(shape)
                columns.append(subject.laid(subject.within(name, drawn)))
            else:
                drawn = subject.within(name, subject.drawn(name, shape, generator))
                drawn = drawn if name in subject.indices else drawn.to(dtype)
                columns.append(subject.laid(drawn) if drawn.shape == shape else drawn)
        kinds = [dtype] if subject.finds else subject.dtypes_of_values(dtype)
        values = zip(subject.of_values(shape), kinds, strict=True)
        return tuple(columns), tuple(normal(each, generator, kind).to(kind) for each, kind in values)

    def results(self, function: Function | None, tensors: Columns, incoming: Columns) -> Columns:
        """Return a function's values and gradients on the host, flat."""
        assert function is not None
        leaves = [t.detach().to(self.device) for t in tensors]
        graded = [t.requires_grad_() for t in leaves[: len(self.names) - len(incoming)]]
        made = function(*leaves)
        values = made if isinstance(made, tuple) else (made,)
        for y, grad in zip(values, incoming, strict=True):
            if (y.shape, y.dtype) != (grad.shape, torch.int64 if self.subject.finds else grad.dtype):
                raise ValueError(f"it makes {tuple(y.shape)} {y.dtype} of {tuple(leaves[0].shape)}")
        if self.subject.finds:
            return tuple(y.cpu().flatten().float() for y in values)
        given = [grad.to(self.device) for grad in incoming]
        slopes = torch.autograd.grad(values, graded, given, materialize_grads=True)  # 0 of what is detached
        return tuple(t.detach().cpu().flatten() for t in (*values, *slopes))


def _judged(name: str, group: Group, results: list[Tensor], real: exact.Reals, off: Tensor) -> Output:
    """Judge an output: ours, eager's, and those of PyTorch's operations in float64, rounded once."""
    ours, eager, _ = (_accuracy(group, t, real) for t in results)
    over = tuple(int(_beyond(t, real, off).sum()) for t in results)
    rule = _broken(results, over, real)
    breach = Breach(rule, 1, 1, "groups", ours.ulp, eager.ulp, (group.place,))
    local = Local(over=(over[0], over[1]), breaches=(breach,) if rule else ())
    return Output(name, ours, eager, local=local, results=len(real.hi))


def _broken(results: list[Tensor], over: tuple[int, ...], real: exact.Reals) -> str:
    """Return the rule that the results of a group break, if they break one.

    Where terms cancel, neither ours nor others in float64 have all digits, and chance decides which one is
    further off: then their numbers are compared.
    """
    ours, eager = (exact.counted_errors(t, real) for t in results[:2])
    if results[0].dtype is torch.float64:
        counts = [(int((ours > t).sum()), int((eager > t).sum())) for t in THRESHOLDS]
        return "C2" if any(_many_more(*count) for count in counts) else ""
    if over[2] == 0:
        return "C7" if over[0] else ""
    return "C7" if _many_more(over[0], over[2]) or ours.max() > eager.max() else ""


def _many_more(count: int, others: int) -> bool:
    return bool(count > others + 3 * others**0.5 + 3)


def _beyond(got: Tensor, real: exact.Reals, off: Tensor) -> Tensor:
    """Return a mask of the results beyond the bound of their dtype, and what computing in double takes."""
    name, errors = str(got.dtype).removeprefix("torch."), exact.counted_errors(got, real)
    if name in contract.HALVES:
        near = exact.neighbours(got, real.rounded) | (errors <= 1 + off / real.ulp)
        return exact.misrounded(got, real) & ~near
    return errors > contract.OF_ROWS[name] + (off / real.ulp if name == "float32" else 0)


def _accuracy(group: Group, got: Tensor, real: exact.Reals) -> Accuracy:
    errors = exact.counted_errors(got, real)
    k = int(errors.argmax())
    worst = Worst((), float(errors[k]), float(got[k]).hex(), float(real.hi[k]).hex(), group.place)
    return exact.counted((worst,) if worst.ulp else (), got, real)


def _joined(found: list[Output]) -> Output:
    """Return an output over all groups, with the rule that it breaks."""
    broken = [breach for one in found for breach in one.local.breaches]
    worst = sorted(broken, key=lambda breach: -breach.ulp)[:1]
    ours, eager = (sum(counts) for counts in zip(*(one.local.over for one in found), strict=True))
    breaches = tuple(replace(breach, count=len(broken), of=len(found)) for breach in worst)
    return replace(
        found[0],
        given=reduce(exact.joined, (one.given for one in found)),
        eager=reduce(exact.joined, filter(None, (one.eager for one in found))),
        local=Local(over=(ours, eager), breaches=breaches),
        results=sum(one.results for one in found),
    )
