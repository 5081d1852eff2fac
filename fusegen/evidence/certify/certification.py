"""Certifies many specs: modules are built side by side, certificates are written as they are found."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from fusegen.compiler.pipeline import Compiled
from fusegen.core.timing import step
from fusegen.core.write import apply, changes
from fusegen.errors import FusegenError, Misbehaves, NoDevice, Span, SpecErrors, WorkerKilled
from fusegen.evidence.certify import (
    certificate_state,
    certificate_text,
    contract,
    guard,
    host,
    reference,
    runs,
)
from fusegen.evidence.certify.certificate import Kernel
from fusegen.evidence.certify.digest import kernel_digest
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.findings import Evidence, Subject
from fusegen.evidence.certify.kernels_of_modules import AnyEvaluator, OfModule, kernels_of
from fusegen.evidence.certify.subject import of_spec
from fusegen.evidence.certify.sweep import EVERY
from fusegen.project.build import AnyCompiled

Found = TypeVar("Found")


@dataclass(frozen=True)
class CertifyOptions:
    """The options of a certification."""

    output: Path  # the folder of the modules and their certificates
    devices: tuple[str, ...]  # ``cpu``, ``cuda`` or both
    dtypes: tuple[str, ...] = ()  # those to certify; none means all of the spec's
    sample: int | None = None  # how many float32 inputs to try; a sample is not written down
    # whether to skip the dtypes that a certificate has for the same kernel and versions
    resume: bool = False


@dataclass(frozen=True)
class Verdict:
    """The findings on one spec, on one device, in one dtype."""

    name: str
    device: str
    evidence: Evidence


class CertifyProgress(Protocol):
    """Receives the progress of a certification, spec by spec and dtype by dtype."""

    def begin(self, title: str, inputs: int) -> None:
        """The start of a dtype of a spec, and its number of inputs."""

    def advance(self, inputs: int) -> None:
        """The number of inputs that were done since the last call."""


class Unwatched:
    """Drops the progress of a certification."""

    def begin(self, title: str, inputs: int) -> None:
        """Do nothing."""

    def advance(self, inputs: int) -> None:
        """Do nothing."""


def certify_all(
    compilations: tuple[AnyCompiled, ...], options: CertifyOptions, progress: CertifyProgress
) -> Iterator[Verdict]:
    """Certify specs on devices; a certificate is written as soon as a dtype is done.

    Raises:
        NoDevice: CUDA is asked for, and there is none.
        NotBuilt: a module is not what its spec says.
        SpecErrors: at the end, for all specs that could not be certified: their functions misbehave, or
            their references are not their formulas.
    """
    check_devices(options.devices)
    every = [kernel for compiled in compilations for kernel in kernels_of(compiled)]
    jobs = [(kernel, device) for kernel in every for device in options.devices]
    evaluators = [one for kernel in every for one in kernel.evaluators(options.output, options.devices)]
    errors: list[FusegenError] = []
    with host.without_libraries(), ThreadPoolExecutor(os.cpu_count()) as pool:
        ready = [
            pool.submit(prepared, evaluator, options.dtypes or kernel.spec.dtypes)
            for (kernel, _), evaluator in zip(jobs, evaluators, strict=True)
        ]
        for (kernel, device), evaluator, done in zip(jobs, evaluators, ready, strict=True):
            try:
                _sound(evaluator, done.result)
                yield from _certified(kernel, device, evaluator, options, progress)
            except FusegenError as error:
                errors.append(error)
    if errors:
        raise SpecErrors(errors)


def prepared(evaluator: AnyEvaluator, dtypes: tuple[str, ...]) -> None:
    """Build the libraries that an evaluator calls for some dtypes; compilers run in parallel."""
    with step(f"{evaluator.subject.name}: build for {evaluator.device}"):
        evaluator.prepare(dtypes)


def check_devices(devices: tuple[str, ...]) -> None:
    """Refuse CUDA where there is none.

    Raises:
        NoDevice: there is none.
    """
    if "cuda" in devices and not torch.cuda.is_available():
        raise NoDevice(Span("--device cuda"))


def judged(evaluator: AnyEvaluator, dtype: str, count: int, progress: CertifyProgress) -> Evidence:
    """Return the evidence of one dtype, with what it breaks.

    Raises:
        Misbehaves: the function does not do as a function of tensors should.
    """
    title = f"{evaluator.subject.name} {evaluator.device} {dtype}"
    progress.begin(title, evaluator.total(dtype, count))
    with step(f"{title}: evaluate"):
        evidence = _sound(evaluator, lambda: evaluator.evidence(dtype, count, progress.advance))
    return contract.judged(evidence, evaluator.subject.promise, evaluator.device)


def audit(
    subject: Subject,  # the callable and the formula, as of `subject.of_callable`
    options: CertifyOptions,  # the devices, the dtypes and the number of inputs
    progress: CertifyProgress,  # receives the number of finished inputs
) -> Iterator[Verdict]:
    """Compare a callable with its formula; nothing is written.

    Raises:
        NoDevice, Misbehaves: as of `certify_all`.
    """
    check_devices(options.devices)
    for device in options.devices:
        evaluator = Evaluator(subject, device)
        for dtype in options.dtypes:
            found = judged(evaluator, dtype, options.sample or EVERY, progress)
            yield Verdict(subject.name, device, found)


def looked_at(
    compilations: tuple[Compiled, ...], options: CertifyOptions, inputs: tuple[float, ...]
) -> str:
    """Return the results of specs at one input, eager's and the exact values, as lines of text."""
    check_devices(options.devices)
    lines = []
    for compiled in compilations:
        one = of_spec(compiled, options.output)
        if len(inputs) != len(one.program.inputs):
            continue
        reference.require(compiled.spec, one, "cpu")
        for device in options.devices:
            for dtype in options.dtypes or compiled.spec.dtypes:
                for name, given, eager, real, ulp in Evaluator(one, device).at(inputs, dtype):
                    found = f"{given}, eager {eager}, exact {real}, {ulp:.4g} ulp"
                    lines.append(f"{one.name} {device} {dtype} {name}: {found}")
    return "".join(f"{line}\n" for line in lines)


def _sound(evaluator: AnyEvaluator, found: Callable[[], Found]) -> Found:
    try:
        return found()
    except guard.WrongFilter:
        raise
    except BrokenProcessPool as error:
        raise WorkerKilled(Span(evaluator.subject.name), name=evaluator.subject.name) from error
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Misbehaves(Span(evaluator.subject.name), name=evaluator.subject.name, why=why) from error


def _certified(
    of: OfModule, device: str, evaluator: AnyEvaluator, options: CertifyOptions, progress: CertifyProgress
) -> Iterator[Verdict]:
    """Yield one kernel of a spec on one device, dtype after dtype."""
    spec, path = of.spec, of.certificate(options.output)
    kernel = Kernel(device, kernel_digest(of.text, device), host.machine(device))
    if isinstance(evaluator, Evaluator):
        reference.require(spec, evaluator.subject, device)
    for dtype in spec.dtypes:
        if options.dtypes and dtype not in options.dtypes:
            continue
        known = certificate_state.read(path)
        if options.resume and known.holds(kernel, dtype):
            continue
        evidence = judged(evaluator, dtype, options.sample or EVERY, progress)
        if evidence.mismatch is not None:
            raise reference.other(spec, dtype, evidence.mismatch)
        if options.sample is None:
            evidence, is_worse = _ratcheted(evidence, known.evidence(device, dtype))
            if not is_worse:
                now = certificate_state.read(
                    path
                )  # a certification on the other device may have ended since
                after = now.with_evidence(certificate_state.claim(spec), kernel, evidence)
                for change in changes({path: certificate_text.text(after)}):
                    apply(change)
        yield Verdict(of.name, device, evidence)


def _ratcheted(evidence: Evidence, before: Evidence | None) -> tuple[Evidence, bool]:
    """The evidence with a sentence for each error that has grown, and whether there is one (rule C6).

    A certificate is not replaced by a worse one: whoever accepts the new errors removes the file first.
    """
    known = {output.name: output for output in before.outputs} if before else {}
    grown = [
        sentence
        for output in evidence.outputs
        if output.name in known
        for sentence in runs.grown(known[output.name], output)
    ]
    return replace(evidence, broken=(*evidence.broken, *grown)), bool(grown)
