"""The kernels of specs with their evaluators: each kernel of a module is judged by itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusegen.compiler.row_kernels import CompiledRows
from fusegen.compiler.window_kernels import CompiledWindows
from fusegen.core.spec import Spec
from fusegen.errors import FusegenError, SpecErrors
from fusegen.evidence.certify import module_kernels, reference, subject
from fusegen.evidence.certify.certificate import path_of
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.findings import Subject
from fusegen.evidence.certify.rows import row_subject, window_subject
from fusegen.evidence.certify.rows.row_evaluator import RowEvaluator
from fusegen.evidence.certify.rows.row_subject import RowSubject
from fusegen.project import build
from fusegen.project.build import AnyCompiled
from fusegen.project.loader import built

AnyEvaluator = Evaluator | RowEvaluator


@dataclass(frozen=True)
class OfModule:
    """A kernel of a module."""

    whole: AnyCompiled  # the spec of the module after all stages
    own: AnyCompiled  # that of the kernel, likewise
    title: str  # of the kernel; empty for the last one

    @property
    def spec(self) -> Spec:
        """The spec of the kernel."""
        return self.own.spec

    @property
    def name(self) -> str:
        """The place of the module, and the title."""
        place = self.whole.place.as_posix()
        return f"{place}.{self.title}" if self.title else place

    @property
    def text(self) -> str:
        """The text of a module of this kernel alone."""
        return module_kernels.text_of(build.module(self.whole), self.whole.spec, self.title)

    def certificate(self, output: Path) -> Path:
        """Return the path of its certificate."""
        return path_of(self.whole.module(output), self.title)

    def evaluators(self, output: Path, devices: tuple[str, ...]) -> list[AnyEvaluator]:
        """Return its evaluators, one for each device.

        Raises:
            NotBuilt, NotAReference, OtherFunction: of the module, and of a reference of rows.
        """
        found = subject_of(self.own, module_kernels.seen(built(self.whole, output), self.title))
        if isinstance(found, RowSubject):
            return [RowEvaluator(found, device) for device in devices]
        return [Evaluator(found, device) for device in devices]


def subject_of(compiled: AnyCompiled, module: Any) -> Subject:
    """Return the function of a spec in a module; of rows and windows its reference is compared, too."""
    if isinstance(compiled, CompiledRows):
        return row_subject.of_module(compiled, module)
    if isinstance(compiled, CompiledWindows):
        return window_subject.of_module(compiled, module)
    return subject.of_module(compiled, module)


def require_references(compilations: Iterable[AnyCompiled], output: Path) -> None:
    """Compare the references of specs with their formulas on the CPU; `output` holds their modules.

    Raises:
        SpecErrors: every reference that is another function, or none of its spec's tensors.
    """
    errors: list[FusegenError] = []
    for compiled in compilations:
        try:
            found = subject_of(compiled, built(compiled, output))
            if not isinstance(found, RowSubject):
                reference.require(compiled.spec, found, "cpu")
        except FusegenError as error:
            errors.append(error)
    if errors:
        raise SpecErrors(errors)


def kernels_of(whole: AnyCompiled) -> list[OfModule]:
    """Return the kernels of a module, in the order in which they run."""
    named = zip(build.kernels(whole), module_kernels.titles(whole.spec), strict=True)
    return [OfModule(whole, own, title) for own, title in named]


def paths_of(whole: AnyCompiled, output: Path) -> list[Path]:
    """Return the paths of the certificates of a module's kernels."""
    return [path_of(whole.module(output), title) for title in module_kernels.titles(whole.spec)]
