"""Problems one after the other: each is found a candidate, tried, timed and measured."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks.kernelbench import accuracy, problem, timing, trials
from benchmarks.kernelbench.accuracy import Accuracy
from benchmarks.kernelbench.candidates import Made
from benchmarks.kernelbench.problem import NotAProblem, sentence
from benchmarks.kernelbench.timing import Times
from benchmarks.kernelbench.trials import Finding, Models, Place
from benchmarks.kernelbench.turns import Turns

RIGHT, WRONG, REFUSED, FAILS, NONE = "right", "WRONG", "REFUSED", "FAILS", "no module"
STATE, TIMES, ACCURACY, LOADING = "state_dict", "times", "accuracy", "loading"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    place: Place  # where models run
    shapes: str  # ``declared`` or ``tiny``
    competitors: tuple[str, ...]  # who is timed
    rounds: int  # the turns of each; 0 times nobody
    trials: int = 5  # of other inputs, as the benchmark has five
    turns: Turns = timing.TURNS  # of the processes of the run


@dataclass(frozen=True)
class Outcome:
    """The outcome of one problem."""

    problem: str  # its name
    kind: str  # its class, where it was constructed
    candidate: str  # the file of its candidate
    state: str  # ``right``, or the kind of failure in capitals
    findings: tuple[Finding, ...] = ()  # the failed checks
    # accuracy, times: the measurements; None where there are none
    accuracy: Accuracy | None = None
    times: Times | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)  # that each phase took, by its name


def outcomes(paths: tuple[Path, ...], made: Mapping[Path, Made], options: Options) -> Iterator[Outcome]:
    """Yield the outcome of each problem, as soon as it is known.

    Args:
        paths: the files of the problems.
        made: the candidates that there are, by the files of their problems.
        options: of the run.
    """
    for path in paths:
        yield outcome(path, made.get(path), options)


def outcome(path: Path, candidate: Made | None, options: Options) -> Outcome:
    """Return the outcome of one problem; arguments as of `outcomes`."""
    if candidate is None:
        return Outcome(path.stem, "", "", NONE)
    if candidate.refused:
        refusal = Finding("fusegen", candidate.refused)
        return Outcome(path.stem, "", candidate.path.as_posix(), REFUSED, (refusal,))
    found = _outcome(path, candidate, options)
    gc.collect()
    if options.place.device == "cuda":
        torch.cuda.empty_cache()
    return found


def _outcome(path: Path, made: Made, options: Options) -> Outcome:
    """Return the outcome of a problem that has a candidate."""
    kind, candidate, begin = "", made.path.as_posix(), time.perf_counter()
    try:
        pair = problem.executed(problem.read(path, options.shapes), made.text)
        of = trials.models(pair, options.place)
        kind = problem.class_of(of.reference)
        loading = time.perf_counter() - begin
        found = Examination(of, options).outcome(path.stem, kind, candidate)
        return replace(found, seconds={LOADING: loading, **found.seconds})
    except NotAProblem as error:
        return Outcome(path.stem, kind, candidate, FAILS, (Finding(LOADING, str(error)),))
    except Exception as error:  # of the problem's or the candidate's code
        return Outcome(path.stem, kind, candidate, FAILS, (Finding(LOADING, sentence(error)),))


class Examination:
    """Everything that is tried on one pair; what fails is a finding, and the next part runs."""

    def __init__(self, of: Models, options: Options) -> None:
        """Take models that have just been made."""
        self.of, self.options = of, options
        self.findings: list[Finding] = []
        self.seconds: dict[str, float] = {}

    def outcome(self, name: str, kind: str, candidate: str) -> Outcome:
        """Return the outcome: a candidate that fails the trials or has another state is not measured."""
        place = self.options.place
        with self.timing(STATE):
            differs = trials.state_differs(self.of.reference, self.of.candidate)
            self.findings += [Finding(STATE, differs)] if differs else []
            self.of = trials.placed(self.of, place)
        count = self.options.trials
        shared = self.options.turns.shared
        tried = self.tried(trials.TRIALS, lambda: list(trials.findings(self.of, place, count)), shared)
        self.findings += tried or []
        measured, timed = None, None
        if not self.findings:
            timed = self.tried(TIMES, self.timed) if self.options.rounds else None
            measured = self.tried(ACCURACY, lambda: accuracy.accuracy(self.of, place), shared)
            self.findings += measured.findings if measured else ()
        state = WRONG if self.findings else RIGHT
        found = tuple(self.findings)
        return Outcome(name, kind, candidate, state, found, measured, timed, self.seconds)

    def timed(self) -> Times:
        """Return the times of everybody who is asked for."""
        of = self.options
        return timing.times(self.of, of.place, of.competitors, of.rounds, of.turns)

    def tried(
        self,
        check: str,
        part: Callable[[], Result],
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Result | None:
        """Return the result of a part, in a turn of its own; None, and a finding, if it fails."""
        try:
            with self.timing(check), turn():
                return part()
        except Exception as error:  # of the problem's or the candidate's code
            self.findings.append(Finding(check, f"it fails: {sentence(error)}"))
            return None

    @contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        """Keep the seconds of a phase, whether it fails or not."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = time.perf_counter() - begin
