"""What each stage of the compiler makes of a spec, as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fusegen import build
from fusegen.emit.kernels import emitted
from fusegen.ir import Device
from fusegen.method import Pass
from fusegen.pipeline import Compiled
from fusegen.printers import dump


def stage(path: Path, name: str) -> str:
    """What one stage makes of a spec, as text.

    Args:
        path: the file of the spec.
        name: a key of `STAGES`.
    """
    return STAGES[name](build.compiled_file(path)).rstrip("\n") + "\n"


def _simplified(of: Compiled) -> str:
    """The rewrites of both passes, and what is left."""
    return "\n".join(
        line
        for found in of.algebra.derivations
        for line in (*map(dump.rewrite, found.rewrites), dump.program(found.program))
    )


def _kernels(of: Compiled) -> str:
    """The kernels that the module has."""
    every = (kernel for device in Device for which in Pass for kernel in emitted(of, which, device))
    return "\n".join(map(dump.kernel, every))


def _source(part: str) -> Callable[[Compiled], str]:
    """The stage of a part of the module's C++."""
    return lambda of: build.sources(of)[part]


STAGES: dict[str, Callable[[Compiled], str]] = {
    "parse": lambda of: dump.spec(of.spec),
    "compose": lambda of: dump.program(of.declared.composed),
    "derive": lambda of: dump.program(of.algebra.derivations.backward.first),
    "simplify": _simplified,
    "ir": _kernels,
    "cuda": _source("cuda"),
    "cpu": _source("cpu"),
    "module": build.module,
}
