"""Certifies many specs: modules are built side by side, certificates are written as they are found."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from fusegen import build
from fusegen.certify import certificate, contract, guard, host, reference, state, subject
from fusegen.certify.certificate import Kernel
from fusegen.certify.digest import kernel_digest
from fusegen.certify.findings import Evidence
from fusegen.certify.judge import Judge
from fusegen.certify.screen import Screen
from fusegen.certify.sweep import EVERY, value_and_slopes
from fusegen.errors import FusegenError, Misbehaves, NoDevice, Span, SpecErrors
from fusegen.library import Library
from fusegen.parse import parse_spec
from fusegen.pipeline import Compiled
from fusegen.write import apply, changes

Found = TypeVar("Found")


@dataclass(frozen=True)
class Order:
    """The options of a certification.

    Attributes:
        output: the folder of the modules and their certificates.
        devices: ``cpu``, ``cuda`` or both.
        dtypes: those to certify; none means all of the spec's.
        sample: how many float32 inputs to try; a sample is not written down.
        resume: whether to skip the dtypes that a certificate has for the same kernel and versions.
    """

    output: Path
    devices: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    sample: int | None = None
    resume: bool = False


class Watch(Protocol):
    """Receives the progress of a run."""

    def begin(self, title: str, inputs: int) -> None:
        """A dtype of a spec is begun, of so many inputs."""

    def advance(self, inputs: int) -> None:
        """So many of them are done."""


@dataclass(frozen=True)
class Verdict:
    """The findings on one spec, on one device, in one dtype."""

    name: str
    device: str
    evidence: Evidence


def campaign(compilations: tuple[Compiled, ...], order: Order, watch: Watch) -> Iterator[Verdict]:
    """Certify specs on devices; a certificate is written as soon as a dtype is done.

    Raises:
        NoDevice: CUDA is asked for, and there is none.
        NotBuilt: a module is not what its spec says.
        SpecErrors: at the end, for all specs that could not be certified: their functions misbehave, or
            their references are not their formulas.
    """
    check_devices(order.devices)
    jobs = [(compiled, device) for compiled in compilations for device in order.devices]
    subjects = {c.place: subject.of_spec(c, order.output) for c in compilations}
    screens = {place: Screen(s.stable, s.params, s.assume) for place, s in subjects.items()}
    judges = [Judge(subjects[c.place], screens[c.place], device) for c, device in jobs]
    errors: list[FusegenError] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ready = [
            pool.submit(prepared, judge, order.dtypes or compiled.spec.dtypes)
            for (compiled, _), judge in zip(jobs, judges, strict=True)
        ]
        for (compiled, device), judge, done in zip(jobs, judges, ready, strict=True):
            try:
                _sound(judge, done.result)
                yield from _certified(compiled, device, judge, order, watch)
            except FusegenError as error:
                errors.append(error)
    if errors:
        raise SpecErrors(errors)


def prepared(judge: Judge, dtypes: tuple[str, ...]) -> None:
    """Build the libraries that a judge calls for some dtypes; compilers run in parallel."""
    if judge.unary and "float32" in dtypes:  # only a sweep needs the screen
        judge.screen.library(judge.screen.place(judge.device))
        judge.screen.library("cpu")  # for the guard
    tiny = [torch.zeros(1, device=judge.device) for _ in judge.subject.program.inputs]
    value_and_slopes(judge.subject.given, tuple(tiny))


def check_devices(devices: tuple[str, ...]) -> None:
    """Refuse CUDA where there is none.

    Raises:
        NoDevice: there is none.
    """
    if "cuda" in devices and not torch.cuda.is_available():
        raise NoDevice(Span("--device cuda"))


def judged(judge: Judge, dtype: str, count: int, watch: Watch) -> Evidence:
    """The evidence of one dtype, with what it breaks.

    Raises:
        Misbehaves: the function does not do as a function of tensors should.
    """
    wide = dtype == "float32" and judge.unary
    watch.begin(f"{judge.subject.name} {judge.device} {dtype}", min(count, EVERY) if wide else 2**16)
    evidence = _sound(judge, lambda: judge.evidence(dtype, count, watch.advance))
    return contract.judged(evidence, judge.subject.promise, judge.device)


def audit(
    function: str, formula: str, inputs: tuple[str, ...], specs: Path, order: Order, watch: Watch
) -> Iterator[Verdict]:
    """Compare a callable with a formula; nothing is written.

    Args:
        function: its dotted name, perhaps with arguments that are fixed.
        formula: as a spec has it.
        inputs: the names of the tensors in it.
        specs: the folder of the specs that the formula may call.
        order: on what devices and dtypes.
        watch: is told how far this is.

    Raises:
        NoSuchCallable: the name leads to nothing that can be called.
        SpecErrors: the formula is none.
        NoDevice, Misbehaves: as of `campaign`.
    """
    check_devices(order.devices)
    said = {
        "name": "formula",
        "summary": function,
        "inputs": {name: {} for name in inputs},
        "formula": formula,
    }
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in said.items())
    looked_at = subject.of_callable(function, parse_spec(text, "formula"), Library(specs))
    screen = Screen(looked_at.stable, looked_at.params, looked_at.assume)
    for device in order.devices:
        for dtype in order.dtypes:
            judge = Judge(looked_at, screen, device)
            yield Verdict(function, device, judged(judge, dtype, order.sample or EVERY, watch))


def looked_at(compilations: tuple[Compiled, ...], order: Order, inputs: tuple[float, ...]) -> str:
    """The results of specs at one input, eager's and the exact values, as lines of text."""
    check_devices(order.devices)
    lines = []
    for compiled in compilations:
        one = subject.of_spec(compiled, order.output)
        if len(inputs) != len(one.program.inputs):
            continue
        reference.require(compiled.spec, one, "cpu")
        for device in order.devices:
            for dtype in order.dtypes or compiled.spec.dtypes:
                judge = Judge(one, Screen(one.stable, one.params, one.assume), device)
                for name, given, eager, real, ulp in judge.at(inputs, dtype):
                    found = f"{given}, eager {eager}, exact {real}, {ulp:.4g} ulp"
                    lines.append(f"{one.name} {device} {dtype} {name}: {found}")
    return "".join(f"{line}\n" for line in lines)


def told(verdict: Verdict) -> Iterator[str]:
    """The broken promises, and the worst inputs with a command that shows each again."""
    evidence = verdict.evidence
    for sentence in evidence.broken:
        yield f"{verdict.name} on {verdict.device} in {evidence.dtype}: {sentence}"
    for output in evidence.outputs:
        for worst in output.given.worst[:2]:
            at = " ".join(f"--at {x}" for x in worst.inputs)
            place = f"--device {verdict.device} --dtype {evidence.dtype}"
            yield f"  {output.name} {worst.ulp:.4g} ulp: fusegen certify {verdict.name} {place} {at}"
    for sample in evidence.scalars:
        values = ", ".join(f"{name} = {value:.6g}" for name, value in sample.scalars)
        if any(sentence.startswith(f"with {values}: ") for sentence in evidence.broken):
            for output in sample.outputs:
                for worst in output.given.worst:
                    at = ", ".join(worst.inputs)
                    yield f"  with {values}: {output.name} {worst.ulp:.4g} ulp at {at}"


def _sound(judge: Judge, found: Callable[[], Found]) -> Found:
    """The findings, unless the judged function misbehaves.

    Raises:
        Misbehaves: it fails, or changes its input, or returns another kind of result.
    """
    try:
        return found()
    except guard.WrongScreen:
        raise
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Misbehaves(Span(judge.subject.name), name=judge.subject.name, why=why) from error


def _certified(
    compiled: Compiled, device: str, judge: Judge, order: Order, watch: Watch
) -> Iterator[Verdict]:
    """One spec on one device, dtype after dtype."""
    name = compiled.place.as_posix()
    path = certificate.path_of(compiled.module(order.output))
    kernel = Kernel(device, kernel_digest(build.module(compiled), device), host.machine(device))
    reference.require(compiled.spec, judge.subject, device)
    for dtype in compiled.spec.dtypes:
        if order.dtypes and dtype not in order.dtypes:
            continue
        known = state.read(path)
        if order.resume and certificate.holds(known, kernel, dtype):
            continue
        evidence = judged(judge, dtype, order.sample or EVERY, watch)
        if evidence.mismatch is not None:
            raise reference.other(compiled.spec, dtype, evidence.mismatch)
        if order.sample is None:
            after = certificate.with_evidence(known, state.claim(compiled.spec), kernel, evidence)
            for change in changes({path: certificate.text(after)}):
                apply(change)
        yield Verdict(name, device, evidence)
