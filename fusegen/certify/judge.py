"""One function on one device, judged in one dtype after the other."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fusegen.certify import exact, inputs
from fusegen.certify.enclosures import Enclosure, values
from fusegen.certify.exact import Reals
from fusegen.certify.findings import Accuracy, Evidence, Output, Special, Subject
from fusegen.certify.screen import Screen
from fusegen.certify.sweep import EVERY, Swept, alien, sweep, value_and_slopes

Progress = Callable[[int], None]
LENGTHS = (*range(1, 70), 127, 129, 1000, 1023, 1025)
PLACES = (0, 1, 3)
VECTORS = 64  # elements that are whole vectors on every CPU


@dataclass(frozen=True)
class Judge:
    """A subject with what it takes to judge it.

    Attributes:
        subject: what is judged.
        screen: of its formula.
        device: ``cpu`` or ``cuda``.
    """

    subject: Subject
    screen: Screen
    device: str

    def evidence(self, dtype: str, count: int = EVERY, progress: Progress = lambda done: None) -> Evidence:
        """What is found in one dtype.

        Args:
            dtype: its name in torch.
            count: of float32 inputs to a function of one input; all of them if there are no more.
            progress: is told of inputs as they are done.

        Raises:
            ValueError: the function does not do as a function of tensors should.
        """
        kind: torch.dtype = getattr(torch, dtype)
        self.check(kind)
        one = len(self.subject.program.inputs) == 1
        if one and kind == torch.float32:
            return self.swept(count, progress)
        every = one and kind.itemsize == 2
        if every:
            values = inputs.every(kind)
            points: tuple[Tensor, ...] = (values[values.isfinite()],)
        else:
            points = inputs.sample(self.subject.program, self.subject.params, kind)
        given, eager = self.results(points)
        real = self.reals(points, kind)
        outputs = tuple(
            self.output(k, points, given[k], eager[k] if eager else None, real[k]) for k in range(len(real))
        )
        progress(len(points[0]))
        total = 2**16 if every else len(points[0])
        return self.finished(Evidence(dtype, total, every, 0, 0, outputs), kind, points, given)

    def check(self, dtype: torch.dtype) -> None:
        """Refuse a function that writes over its input, or does not do the same each time.

        Raises:
            ValueError: it is one.
        """
        ordinary = torch.linspace(-4, 4, 4096, dtype=torch.float64).to(self.device, dtype)
        points = tuple(ordinary.clone() for _ in self.subject.program.inputs)
        first, second = (value_and_slopes(self.subject.given, points) for _ in range(2))
        if any(bool(exact.differing(t, ordinary).any()) for t in points):
            raise ValueError("it changes its input")
        if any(bool(exact.differing(a, b).any()) for a, b in zip(first, second, strict=True)):
            raise ValueError("it gives other results the second time")

    def swept(self, count: int, progress: Progress) -> Evidence:
        """What is found on all float32 inputs."""
        found = sweep(self.subject, self.screen, self.device, count, progress)
        points = (torch.cat([found.open, found.worst, inputs.specials(torch.float32)[3:]]),)
        given, eager = self.in_vectors(points)
        real = self.reals(points, torch.float32)
        outputs = []
        for k in range(2):
            there = slice(0, len(found.open))
            output = self.output(k, points, given[k], eager[k] if eager else None, real[k])
            left = self.output(k, (points[0][there],), given[k][there], eager[k][there] if eager else None,
                               Reals(*(t[there] for t in _fields(real[k]))))  # fmt: skip
            outputs.append(_whole(output, left, found, k))
        foreign = alien(found.tally, self.beside) if self.subject.reference else None
        evidence = Evidence(
            "float32", found.inputs, found.inputs >= EVERY, found.lost, 0, tuple(outputs), foreign
        )
        return self.finished(evidence, torch.float32, points, given)

    def results(self, points: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
        """Value and slopes at some points, ours and eager's, on the host."""
        there = tuple(t.to(self.device) for t in points)
        functions = [self.subject.given, *([self.subject.eager] if self.subject.eager else [])]
        columns = [[t.cpu() for t in value_and_slopes(function, there)] for function in functions]
        return columns[0], columns[1] if len(columns) > 1 else []

    def in_vectors(self, points: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
        """The same as a sweep sees it: on the CPU eager may compute otherwise what fills no vector."""
        count = len(points[0])
        filled = tuple(torch.cat([t, t[-1:].expand(-count % VECTORS)]) for t in points)
        given, eager = self.results(filled)
        return [t[:count] for t in given], [t[:count] for t in eager]

    def reals(self, points: tuple[Tensor, ...], dtype: torch.dtype) -> list[Reals]:
        """The real value and slopes at some points."""
        wide = [t.double() for t in points]
        rows = list(zip(*(t.tolist() for t in wide), strict=True))
        columns = values(self.subject.program, self.subject.params, rows, os.cpu_count() or 1)
        least = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).tiny
        sizes = self.screen.enclose(*wide, least_normal=least)[..., 2]
        pairs = [[torch.tensor(half, dtype=torch.float64) for half in column] for column in columns]
        return [
            exact.reals(hi, lo, size, points, dtype) for (hi, lo), size in zip(pairs, sizes, strict=True)
        ]

    def output(
        self, k: int, points: tuple[Tensor, ...], given: Tensor, eager: Tensor | None, real: Reals
    ) -> Output:
        """What is found of one output at some points."""
        name = "value" if k == 0 else f"gradient of {self.subject.program.inputs[k - 1]}"
        if k > 0:  # where there is no function, anything may be its slope
            given = torch.where(real.hi.isnan(), torch.nan, given)
        ours = exact.accuracy(points, given, real)
        if eager is None:
            return Output(name, ours)
        differ = exact.differing(given, eager)
        further = differ & (exact.errors(given, real) > exact.errors(eager, real) * (1 + 2**-12))
        theirs = exact.accuracy(points, eager, real)
        return Output(name, ours, theirs, int(differ.sum()), int(further.sum()))

    def at(self, point: tuple[float, ...], dtype: str) -> list[tuple[str, str, str, str, float]]:
        """Each output at one input: name, hexadecimal floats of ours, eager's and the real, our error."""
        kind: torch.dtype = getattr(torch, dtype)
        points = tuple(torch.full((64,), x, dtype=torch.float64).to(kind) for x in point)
        given, eager = self.results(points)
        real = self.reals(tuple(t[:1] for t in points), kind)
        rows = []
        for k, exactly in enumerate(real):
            name = "value" if k == 0 else f"gradient of {self.subject.program.inputs[k - 1]}"
            beside = float(eager[k][0]).hex() if eager else "none"
            ulp = float(exact.errors(given[k][:1], exactly)[0])
            rows.append((name, float(given[k][0]).hex(), beside, float(exactly.hi[0]).hex(), ulp))
        return rows

    def beside(self, x: float) -> tuple[str, str]:
        """The formula's value and eager's at one float32, as hexadecimal floats."""
        _, _, eager, real, _ = self.at((x,), "float32")[0]
        return real, eager

    def finished(
        self, evidence: Evidence, dtype: torch.dtype, points: tuple[Tensor, ...], given: list[Tensor]
    ) -> Evidence:
        """The evidence with what special inputs and other layouts give."""
        outputs = evidence.outputs
        if len(self.subject.program.inputs) == 1:
            specials = self.specials(dtype)
            outputs = tuple(replace(o, specials=s) for o, s in zip(outputs, specials, strict=True))
        return replace(evidence, outputs=outputs, layouts=self.layouts(points, given))

    def specials(self, dtype: torch.dtype) -> list[tuple[Special, ...]]:
        """What comes of NaN, infinities and zeros, for each output."""
        x = inputs.specials(dtype)
        given, eager = self.results((x,))
        if eager:  # which may give one thing in whole vectors and another in the few elements after them
            vectors = self.results((x.repeat(64),))[1]
            same = [~exact.differing(a, b[: len(x)]) for a, b in zip(given, vectors, strict=True)]
            eager = [torch.where(s, g, e) for s, g, e in zip(same, given, eager, strict=True)]
        host = replace(self, device="cpu").results((x.double(),))[1]
        formula = Enclosure(self.subject.program, self.subject.params)
        limits = {v: formula.limit(v) for v in (math.inf, -math.inf)}
        found = []
        for k in range(2):
            rows = []
            for i, v in enumerate(x.tolist()):
                real = limits[v][k].hi if v in limits else math.nan
                zero = v == 0 and bool(host)
                rows.append(
                    Special(
                        input=repr(v),
                        given=repr(float(given[k][i])),
                        eager=repr(float(eager[k][i])) if eager else "",
                        real=repr(
                            float(host[k][i] if zero else torch.tensor(real, dtype=torch.float64).to(dtype))
                        ),
                    )
                )
            found.append(tuple(rows))
        return found

    def layouts(self, points: tuple[Tensor, ...], given: list[Tensor]) -> int:
        """How many results change where the same inputs come in shorter tensors, or at odd places."""
        size = min(4096, len(points[0]))
        spread = torch.arange(size) * (len(points[0]) // size)
        some = tuple(t[spread].to(self.device) for t in points)
        whole = value_and_slopes(self.subject.given, some)
        wrong = 0
        for length in LENGTHS:
            for place in PLACES:
                if place + length <= size:
                    part = value_and_slopes(
                        self.subject.given, tuple(t[place : place + length] for t in some)
                    )
                    pairs = zip(part, whole, strict=True)
                    wrong += sum(int(exact.differing(a, b[place : place + length]).sum()) for a, b in pairs)
        stepped = value_and_slopes(self.subject.given, tuple(t[1::3] for t in some))
        return wrong + sum(
            int(exact.differing(a, b[1::3]).sum()) for a, b in zip(stepped, whole, strict=True)
        )


def _whole(output: Output, left: Output, found: Swept, k: int) -> Output:
    """A float32 output: worst inputs by enclosures, sums by the screen and of `left`, what it left open."""
    tally = found.tally

    def counted(here: Accuracy, there: Accuracy, who: int) -> Accuracy:
        return replace(
            here,
            misrounded=tally.misrounded[k][who] + there.misrounded,
            overflows=tally.overflows[k][who] + there.overflows,
            falls=tally.falls[who] if k == 0 else 0,
        )

    ends = (-tally.lowest_given[k], tally.highest_given[k], -tally.lowest[k], tally.highest[k])
    inside = torch.tensor(ends[2:], dtype=torch.float64).to(torch.float32).tolist()
    eager = counted(output.eager, left.eager, 1) if output.eager and left.eager else None
    return replace(
        output,
        given=counted(output.given, left.given, 0),
        eager=eager,
        differing=tally.differing[k],
        further=tally.further[k] + left.further,
        range=(ends[0], ends[1], inside[0], inside[1]) if k == 0 else None,
    )


def _fields(real: Reals) -> tuple[Tensor, ...]:
    return real.hi, real.lo, real.unit, real.rounded
