"""One function on one device, judged in one dtype after the other."""

import os
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fusegen.evidence.certify import boxes, cells, exact, guard, parameter_values, specials, tried_inputs
from fusegen.evidence.certify.compared import Compared
from fusegen.evidence.certify.enclosures import values
from fusegen.evidence.certify.exact import Reals
from fusegen.evidence.certify.findings import Accuracy, Evidence, InputsDone, Output, Sample, Subject
from fusegen.evidence.certify.interval_filter import IntervalFilter
from fusegen.evidence.certify.relations import judged_relations
from fusegen.evidence.certify.slopes import Points, value_and_slopes
from fusegen.evidence.certify.sweep import EVERY, mismatch, sweep, whole

Results = tuple[list[Tensor], list[Tensor]]  # ours and eager's: value and slopes
VECTORS = 64  # elements that are whole vectors on every CPU
MOST_BEYOND, BLOCK, MOST_WORST = 2**13, 2**20, 6
MOST_BOXES_AT_SCALARS = 64  # around points at other values of the parameters


@dataclass(frozen=True)
class Evaluator:
    """A subject and a device: all that judging takes."""

    subject: Subject  # what is judged
    device: str  # ``cpu`` or ``cuda``

    @cached_property
    def interval_filter(self) -> IntervalFilter:
        """The filter of its stable program."""
        return IntervalFilter(self.subject.stable, self.subject.params, self.subject.assume)

    @property
    def unary(self) -> bool:
        """True for a function of one tensor."""
        return len(self.subject.program.inputs) == 1

    def total(self, dtype: str, count: int) -> int:
        """Return how many inputs are tried, of at most so many in a sweep."""
        return min(count, EVERY) if self.unary and dtype == "float32" else 2**16

    def prepare(self, dtypes: tuple[str, ...]) -> None:
        """Build the libraries for some dtypes; only a sweep needs the filter."""
        if self.unary and "float32" in dtypes:
            self.interval_filter.library(self.interval_filter.place(self.device))
            self.interval_filter.library("cpu")  # for the guard
        tiny = [torch.zeros(1, device=self.device) for _ in self.subject.program.inputs]
        value_and_slopes(self.subject.given, tuple(tiny))

    def evidence(
        self,
        dtype: str,  # its name in torch
        # of float32 inputs to a function of one input; all of them if there are no more
        count: int = EVERY,
        progress: InputsDone = lambda done: None,  # receives the number of inputs as they are done
    ) -> Evidence:
        """Return the evidence of one dtype.

        Raises:
            ValueError: the function does not do as a function of tensors should.
        """
        kind: torch.dtype = getattr(torch, dtype)
        relations = judged_relations(self.subject, self.device, kind)
        if self.unary and kind == torch.float32:
            found = self.swept(count, progress)
        else:
            found = self.sampled(kind)
            progress(found.inputs)
        return replace(found, scalars=tuple(self.at_scalars(kind)), relations=relations)

    def sampled(self, dtype: torch.dtype) -> Evidence:
        """Return the evidence of every 16-bit number, or of a sample."""
        subject, every = self.subject, self.unary and dtype.itemsize == 2
        program = subject.program
        if every:
            numbers = tried_inputs.every(dtype)
            points: Points = (numbers[numbers.isfinite()],)
        else:
            points = tried_inputs.sample(program, subject.params, dtype, subject.masks)
        ranges = tried_inputs.judged_ranges(program, subject.assume)
        inside = tried_inputs.inside(subject, points)
        judged, further = (tuple(t[where] for t in points) for where in (inside, ~inside))
        found = self.compared(judged)
        outputs = tuple(one.output() for one in found)
        if every:
            outputs = boxes.with_breaches(outputs, [one.binades() for one in found])
        elif dtype.itemsize > 2:
            outputs = boxes.with_breaches(outputs, boxes.judged(self, found))
        total = 2**16 if every and not ranges else len(judged[0])
        name = str(dtype).removeprefix("torch.")
        evidence = Evidence(name, total, every, 0, outputs, ranges=ranges)
        if not self.unary and len(further[0]):
            further = tuple(t[:: -(-len(t) // MOST_BEYOND)] for t in further)
            beyond = tuple(one.output() for one in self.compared(further))
            evidence = replace(evidence, beyond=_brief(len(further[0]), beyond))
        return self.finished(evidence, dtype)

    def compared(self, points: Points, results: Results | None = None) -> list[Compared]:
        """Return each output at some points, from ours and eager's results where they are known."""
        given, eager = results or self.results(points)
        found = []
        for k, (name, real) in enumerate(zip(self.subject.outputs, self.reals(points), strict=True)):
            # where there is no function, anything may be its slope
            ours = given[k] if k == 0 else torch.where(real.hi.isnan(), torch.nan, given[k])
            found.append(Compared(name, points, ours, eager[k] if eager else None, real))
        return found

    def swept(self, count: int, progress: InputsDone) -> Evidence:
        """Return the evidence of all float32 inputs."""
        guard.check(self.subject, self.interval_filter)
        found = sweep(self.subject, self.interval_filter, self.device, count, progress)
        starts = range(0, len(found.open), BLOCK)
        left = [self.opened(found.open[start : start + BLOCK], found.cells) for start in starts]
        special = specials.judged(self.subject, self.subject.program.inputs[0], torch.float32)
        some = (torch.cat([found.cells.worst_inputs(MOST_WORST), special[special == 0]]),)
        largest = self.compared(some, self.in_vectors(some))
        joined = (
            whole(one.output(), [part[k] for part in left], found, k) for k, one in enumerate(largest)
        )
        factor = 1.0 if found.inputs >= EVERY else boxes.FACTOR
        outputs = tuple(replace(o, local=cells.local(found.cells, k, factor)) for k, o in enumerate(joined))
        foreign = mismatch(found.totals, self.beside) if self.subject.reference else None
        ranges = tried_inputs.judged_ranges(self.subject.program, self.subject.assume)
        evidence = Evidence(
            "float32", found.inputs, found.inputs >= EVERY, found.lost, outputs, foreign, ranges
        )
        return self.finished(evidence, torch.float32)

    def opened(self, x: Tensor, known: cells.Cells) -> list[Output]:
        """Return the outputs at inputs that the filter left open, whose errors are added to the cells."""
        found = self.compared((x,), self.in_vectors((x,)))
        for k, one in enumerate(found):
            known.add(x, k, cells.OURS, one.ours)
            known.add_signs(x, k, one.real.hi)
            if one.eager is not None:
                known.add(x, k, cells.EAGER, one.theirs)
        return [one.output() for one in found]

    def at_scalars(self, dtype: torch.dtype) -> list[Sample]:
        """Return the errors on a small sample at other values of the parameters."""
        found = []
        for evaluator, points, chosen in parameter_values.samples(self, dtype):
            compared = evaluator.compared(points)
            outputs = tuple(one.output() for one in compared)
            if dtype.itemsize > 2:
                near = boxes.judged(evaluator, compared, MOST_BOXES_AT_SCALARS)
                outputs = boxes.with_breaches(outputs, near)
            found.append(_brief(len(points[0]), outputs, chosen))
        return found

    def results(self, points: Points) -> Results:
        """Value and slopes at some points, ours and eager's, on the host."""
        there = tuple(t.to(self.device) for t in points)
        functions = [self.subject.given, *([self.subject.eager] if self.subject.eager else [])]
        columns = [[t.cpu() for t in value_and_slopes(function, there)] for function in functions]
        return columns[0], columns[1] if len(columns) > 1 else []

    def in_vectors(self, points: Points) -> Results:
        """The results in whole vectors, as in a sweep: eager may compute a remainder in another way."""
        count = len(points[0])
        filled = tuple(torch.cat([t, t[-1:].expand(-count % VECTORS)]) for t in points)
        given, eager = self.results(filled)
        return [t[:count] for t in given], [t[:count] for t in eager]

    def reals(self, points: Points) -> list[Reals]:
        """Return the exact value and slopes at some points."""
        rows = list(zip(*(t.double().tolist() for t in points), strict=True))
        columns = values(self.subject.program, self.subject.params, rows, os.cpu_count() or 1)
        pairs = [[torch.tensor(half, dtype=torch.float64) for half in column] for column in columns]
        return [exact.reals(hi, lo, points[0].dtype) for hi, lo in pairs]

    def at(self, point: tuple[float, ...], dtype: str) -> list[tuple[str, str, str, str, float]]:
        """Each output at one input: name, hexadecimal floats of ours, eager's and the real, our error."""
        kind: torch.dtype = getattr(torch, dtype)
        points = tuple(torch.full((VECTORS,), x, dtype=torch.float64).to(kind) for x in point)
        given, eager = self.results(points)
        real = self.reals(tuple(t[:1] for t in points))
        rows = []
        for k, (name, exactly) in enumerate(zip(self.subject.outputs, real, strict=True)):
            beside = float(eager[k][0]).hex() if eager else "none"
            ulp = float(exact.errors(given[k][:1], exactly)[0])
            rows.append((name, float(given[k][0]).hex(), beside, float(exactly.hi[0]).hex(), ulp))
        return rows

    def beside(self, x: float) -> tuple[str, str]:
        """Return the formula's value and eager's at one float32, as hexadecimal floats."""
        _, _, eager, real, _ = self.at((x,), "float32")[0]
        return real, eager

    def finished(self, evidence: Evidence, dtype: torch.dtype) -> Evidence:
        """Return the evidence, with the results at special inputs."""
        found = specials.found(self, dtype)
        outputs = tuple(replace(o, specials=s) for o, s in zip(evidence.outputs, found, strict=True))
        return replace(evidence, outputs=outputs)


def _brief(count: int, outputs: tuple[Output, ...], chosen: parameter_values.Chosen = ()) -> Sample:
    """Return a sample with the largest error of each output only."""

    def first(accuracy: Accuracy) -> Accuracy:
        return replace(accuracy, worst=accuracy.worst[:1])

    shown = (replace(o, given=first(o.given), eager=o.eager and first(o.eager)) for o in outputs)
    return Sample(count, tuple(shown), chosen)
