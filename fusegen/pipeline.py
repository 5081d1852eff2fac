"""From a spec's file to the text of its module.

stage      in                    out
parse      YAML text             Spec, every part with its place
compose    Spec, other specs     Program, over the real numbers
simplify   Program               Program in fewer operations, and the rewrites that led there
lower      Program               Kernel per device and math type; no algebra below this line
verify     Kernel                nothing, or the law it breaks
print      Kernel                C++ text
render     texts                 the module
write      texts by path         files, touched only when their bytes change
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fusegen import render
from fusegen.compose import compose
from fusegen.elements import maths
from fusegen.errors import FusegenError, Span, SpecErrors, Unreadable
from fusegen.ir import Device, Kernel, operations
from fusegen.library import Library, load
from fusegen.lower import lower, notes
from fusegen.parse import parse_spec
from fusegen.printers import dump
from fusegen.printers.cpp import ROUNDED, CppPrinter, support
from fusegen.printers.notation import notation
from fusegen.simplify import simplify
from fusegen.spec import FIELDS, Spec, json_schema
from fusegen.term import Program, Rewrite
from fusegen.verify import broken_law
from fusegen.write import changes


@dataclass(frozen=True)
class Compilation:
    """One spec on its way through the stages; each is run when it is first asked for."""

    spec: Spec
    library: Library

    @cached_property
    def composed(self) -> Program:
        """The program as declared."""
        return compose(self.spec, self.library, self.library.names())

    @cached_property
    def simplified(self) -> tuple[Program, tuple[Rewrite, ...]]:
        """The program in fewer operations, and how it came to be."""
        return simplify(self.composed, dict(self.spec.assume))

    def kernels(self, device: Device) -> tuple[Kernel, ...]:
        """The kernels of a device, one per math type, each checked."""
        program, _ = self.simplified
        kernels = [lower(self.spec.name, program, device, math) for math in maths(self.spec.dtypes)]
        for kernel in kernels:
            law = broken_law(kernel)
            assert law is None, f"{self.spec.name}: {law}"
        return tuple(kernels)

    @cached_property
    def texts(self) -> render.Texts:
        """What the printers write."""
        kernels = {device: self.kernels(device) for device in Device}
        program, rewrites = self.simplified
        return render.Texts(
            notation=notation(self.spec),
            counts=_counts(kernels[Device.CUDA][0]),
            notes={device: (*map(dump.rewrite, rewrites), *notes(program, device)) for device in Device},
            functions={device: support(kernels[device]) for device in Device},
            definitions={
                device: tuple(CppPrinter(kernel).definition() for kernel in kernels[device])
                for device in Device
            },
            rounds=ROUNDED in operations(kernels[Device.CUDA][0]),
        )

    @cached_property
    def sources(self) -> dict[str, str]:
        """The C++ texts of the module by their part."""
        return render.sources(self.spec, self.texts)

    @cached_property
    def module(self) -> str:
        """The text of the module."""
        return render.module(self.spec, self.texts)


def compilation(path: Path) -> Compilation:
    """The compilation of one file; the specs it names are looked up beside it.

    Raises:
        SpecErrors: every mistake in it.
    """
    return Compilation(load(path), Library(path.parent))


def modules(paths: tuple[Path, ...], output: Path) -> dict[Path, str]:
    """The text of every spec's module under the path it belongs to; nothing is written.

    Raises:
        SpecErrors: every mistake in all of the specs.
    """
    texts: dict[Path, str] = {}
    errors: list[FusegenError] = []
    for path in paths:
        try:
            compiled = compilation(path)
            texts[output / f"{compiled.spec.name}.py"] = compiled.module
        except SpecErrors as several:
            errors += several.errors
        except FusegenError as error:
            errors.append(error)
    if errors:
        raise SpecErrors(errors)
    return texts


def stage(path: Path, name: str) -> str:
    """What one stage makes of a spec, as text.

    Args:
        path: the file of the spec.
        name: a key of `STAGES`.
    """
    return STAGES[name](compilation(path)).rstrip("\n") + "\n"


def states(paths: tuple[Path, ...], output: Path) -> list[tuple[str, str, str, str]]:
    """Name, formula, dtypes and state of each spec's module, in the order of the paths."""
    rows = []
    for path in paths:
        compiled = compilation(path)
        spec = compiled.spec
        found = changes({output / f"{spec.name}.py": compiled.module})
        state = {"new": "not built", "changed": "out of date"}[found[0].kind] if found else "current"
        rows.append((spec.name, notation(spec), ", ".join(spec.dtypes), state))
    return rows


STAGES: dict[str, Callable[[Compilation], str]] = {
    "parse": lambda c: dump.spec(c.spec),
    "compose": lambda c: dump.program(c.composed),
    "simplify": lambda c: "\n".join([*map(dump.rewrite, c.simplified[1]), dump.program(c.simplified[0])]),
    "ir": lambda c: "\n".join(dump.kernel(k) for device in Device for k in c.kernels(device)),
    "cuda": lambda c: c.sources["cuda"],
    "cpu": lambda c: c.sources["cpu"],
    "module": lambda c: c.module,
}


def starter(name: str, path: Path) -> str:
    """The text of a new spec, with a comment for every key.

    Raises:
        SpecErrors: the name cannot be one.
        Unreadable: the file exists.
    """
    if path.exists():
        raise Unreadable(Span(path.as_posix()), why="the file exists", remedy="choose another name")
    text = render.fill("spec.yaml.j2", {"name": name, "fields": FIELDS})
    parse_spec(text, path.as_posix())
    return text


def schema_text() -> str:
    """The text of the JSON Schema of specs."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _counts(kernel: Kernel) -> str:
    count = Counter(name for name in operations(kernel) if name != ROUNDED)
    total = sum(count.values())
    listed = ", ".join(f"{number} {name}" for name, number in count.items())
    return f"{total} operation{'s' if total != 1 else ''} an element: {listed or 'none'}."
