"""The output of each stage of the compiler, as text."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

from fusegen.codegen.emit.needed_kernels import emitted
from fusegen.codegen.printers import dump
from fusegen.compiler.pipeline import Compiled
from fusegen.core.facts import Estimate
from fusegen.core.method import Pass
from fusegen.core.poolings import is_reduced
from fusegen.core.targets import Device
from fusegen.language import library
from fusegen.project import build
from fusegen.schedule.forms import BITMASK, MASKED
from fusegen.schedule.sentences import told


def stage(path: Path, name: str) -> str:
    """Return the output of a stage of `STAGES` for the file of a spec, as text."""
    spec = library.load(path)
    if name in REDUCED and (is_reduced(spec) or spec.front):
        text = REDUCED[name](build.compiled_either(path))
    else:
        text = STAGES[name](build.compiled_file(path))
    return text.rstrip("\n") + "\n"


def _simplified(of: Compiled) -> str:
    return "\n".join(
        line
        for found in of.algebra.derivations
        for line in (*map(dump.rewrite, found.rewrites), dump.program(found.program))
    )


def _facts(of: Compiled) -> str:
    lines = []
    for which in Pass:
        found = of.facts[which]
        lines.append(which.value)
        for field in fields(found):
            value = getattr(found, field.name)
            if field.name == "bitmask":
                value = bool(value)
            if field.name == "curves" and value:
                value = len(value.curves)
            each = value.items() if isinstance(value, Mapping) else [("", value)]
            lines += [f"  {field.name}{_on(place)} = {_told(one)}" for place, one in each]
    return "\n".join(lines)


def _on(place: Device | str) -> str:
    return f" on {place.name}" if isinstance(place, Device) else ""


def _told(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case Estimate(single, excess, double):
            own, eager = (excess.own.ulp, excess.eager) if excess else (None, None)
            others = [
                ("where it exceeds the contract", own),
                ("eager's there", eager),
                ("double's", double),
            ]
            more = [f"{of} {ulp:.3g}" for of, ulp in others if ulp is not None]
            return ", ".join([f"{single.ulp:.3g} ulp in float", *more])
        case None:
            return "none"
    return str(value)


def _plan(of: Compiled) -> str:
    lines = [
        f"{which.value} on {device.name}: {sentence}"
        for which in Pass
        for device in Device
        for sentence in told(of.plan.of(which, device))
    ]
    return "\n".join(
        [*lines, *([f"{Pass.BACKWARD.value} on cuda: {MASKED}"] if BITMASK in of.forms else [])]
    )


def _kernels(of: Compiled) -> str:
    every = (kernel for device in Device for which in Pass for kernel in emitted(of, which, device))
    return "\n".join(map(dump.kernel, every))


def _source(part: str) -> Callable[[build.AnyCompiled], str]:
    return lambda of: build.sources(of)[part]


# the stages that formulas which reduce rows or windows have, too
REDUCED: dict[str, Callable[[build.AnyCompiled], str]] = {
    "parse": lambda of: dump.spec(of.spec),
    "cuda": _source("cuda"),
    "cpu": _source("cpu"),
    "module": build.module,
}
STAGES: dict[str, Callable[[Compiled], str]] = {
    "parse": REDUCED["parse"],
    "compose": lambda of: dump.program(of.declared.composed),
    "derive": lambda of: dump.program(of.algebra.derivations.backward.first),
    "simplify": _simplified,
    "ir": _kernels,
    "facts": _facts,
    "plan": _plan,
    **REDUCED,
}
