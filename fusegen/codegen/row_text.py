"""The text of the module of a spec with rows: the kernels of its phases, printed and rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusegen.codegen.printers.families import headers
from fusegen.codegen.printers.function_text import functions
from fusegen.codegen.printers.notation import notation
from fusegen.codegen.printers.row_eager import row_statements
from fusegen.codegen.render import INTERFACE, JOINT, MODULE, NAMESPACE, fill, includes, module_class, python
from fusegen.compiler.row_kernels import CompiledRows, PhaseKernels
from fusegen.core.digest import digest
from fusegen.core.folds import LENGTH, Level
from fusegen.core.ir import Kernel, Math, Ref, operations
from fusegen.core.manifest import Kernels
from fusegen.core.method import Pass
from fusegen.core.ops import TRANSCENDENTAL
from fusegen.core.spec import Input, Spec
from fusegen.core.targets import Device

FUNCTORS = {Pass.FORWARD: "Forward", Pass.BACKWARD: "Backward"}
FAST = "cuda/plain_double_39.cuh"  # double for results of at most 32 bits, of which it has 39
RUNTIME_CLASS = "Rows"
DIGITS = 16  # of a digest in hexadecimal
NOTE = {
    Pass.FORWARD: "Sums and values of a row are in double, so that a result is rounded once.",
    Pass.BACKWARD: "The gradient reads the inputs, and computes the values of a row again.",
}


@dataclass(frozen=True)
class RowTexts:
    """What the Python of a module asks of its printed texts."""

    inputs: tuple[str, ...]
    eager: tuple[str, ...]
    unread: tuple[str, ...]
    bounds: tuple[str, ...] = ()
    rounds: bool = False
    eager_gradient: tuple[str, ...] = ()
    detached: tuple[str, ...] = ()
    gradients: tuple[int, ...] = ()
    forms: tuple[Any, ...] = ()
    library: None = None

    @property
    def backward(self) -> RowTexts:
        """The gradient, of which its inputs are asked for."""
        return self


def rendered(of: CompiledRows) -> tuple[str, Kernels]:
    """Return the text of a module, and the digests of its kernels."""
    spec, parts = of.spec, _parts(of)
    texts = RowTexts(of.schedules.backward.inputs, row_statements(spec, of.eager, of.stored), ())
    registration = python.registration(spec, texts, INTERFACE)  # type: ignore[arg-type]
    context = {
        "name": spec.name,
        "origin": of.origin,
        "dots": "." * len(of.place.parts),
        "digest": spec.digest,
        "summary": spec.summary,
        "source": spec.source,
        "notation": notation(spec),
        "counts": [_counted(of, which) for which in Pass],
        "autocasts": False,
        **python.tensors_and_scalars(spec, texts),  # type: ignore[arg-type]
        **module_class.model(spec, texts),  # type: ignore[arg-type]
        **python.function(spec, texts),  # type: ignore[arg-type]
        **python.gradient(spec, texts),  # type: ignore[arg-type]
        "doc": _doc(of),
        "registration": [*registration, *_own_registration(of)],
        "runtime_class": RUNTIME_CLASS,
        **parts,
    }
    return fill(MODULE, context), _digests(parts)


def sources(of: CompiledRows) -> dict[str, str]:
    """Return the C++ of a module, by device."""
    parts = _parts(of)
    return {
        d.name: parts[f"{d.name}_headers"] + parts["shared_source"] + parts[f"{d.name}_source"]
        for d in Device
    }


def _digests(parts: Mapping[str, str]) -> Kernels:
    """Return the digests of the C++, which both passes have in common."""
    found = {}
    for device in Device:
        text = parts[f"{device.name}_headers"] + parts["shared_source"] + parts[f"{device.name}_source"]
        found[device.name] = (digest(text, DIGITS), digest(text, DIGITS))
    return found


def _own_registration(of: CompiledRows) -> list[str]:
    return [f"over={of.spec.over}," + " once_a_row=True," * (of.stored is not Level.ELEMENT)]


def _doc(of: CompiledRows) -> list[str]:
    """Return the plain function's docstring below its first line."""
    spec = of.spec
    first = spec.inputs[0].name
    result = "one value a row" if of.stored is not Level.ELEMENT else "of the shape of the tensors"
    row = f"the dimensions from {spec.over} on" if spec.over != -1 else "the last dimension"
    return [
        f"Shape: {first} whose rows are {row}; the others broadcast to it. The result is {result}.",
        f"Dtype: {python.either(spec.dtypes)}, computed in double and rounded once; others by PyTorch's operations.",
        "Equal bits: those of a row do not depend on the other rows, on their number or on the run.",
        "Raises: RuntimeError or TypeError for what eager refuses, before anything is launched.",
    ]


def _counted(of: CompiledRows, which: Pass) -> str:
    loops = len(of.schedules[which].phases)
    title = "Forward" if which is Pass.FORWARD else "Gradient"
    return f"{title}: {loops} loops over the elements of a row, which is read once where a team's registers hold it."


def features(spec: Spec) -> tuple[str, ...]:
    """Return the tensors that have one row for all, by their declared shapes."""
    first = spec.inputs[0]
    rank = len(first.shape)
    assert spec.over is not None
    rows = spec.over if spec.over >= 0 else rank + spec.over
    return tuple(each.name for each in spec.tensors if each is not first and _has_one_row(each, rank, rows))


def _has_one_row(of: Input, rank: int, rows: int) -> bool:
    shape = (1,) * (rank - len(of.shape)) + of.shape
    return all(size == 1 for size in shape[:rows])


def _parts(of: CompiledRows) -> dict[str, str]:
    """Return the C++ of a module in parts: what both devices share, and the headers and kernels of each."""
    text = _Text(of)
    passes = [text.of_pass(which) for which in Pass]
    shared = "\n".join(line for each in passes for line in each.shared)
    macro = "FUSEGEN_BROADCASTING_KERNELS" if len(of.spec.tensors) > 1 else "FUSEGEN_KERNELS"
    parts = {"shared_source": shared and shared + "\n", "joint": JOINT if shared else "", "convolution": ""}
    for device in Device:
        found = [f"{device.family}/rows{device.suffix}"]
        found += [FAST] if device.fast_types and text.is_fast else []
        several = [k for which in Pass for p in of.kernels[which, device] for k in (p.elements, p.row) if k]
        for name in headers(several):
            found.append(
                f"{name}.h" if name in includes.COMMON else f"{device.family}/{name}{device.suffix}"
            )
        include = "".join(map(includes.INCLUDE.format, includes.needed(dict.fromkeys(found))))
        parts[f"{device.name}_headers"] = include + f"{NAMESPACE}\n"
        own = "\n".join(line for each in passes for line in each.own[device])
        parts[f"{device.name}_source"] = f"{own}\n}}}}  // namespace fusegen\n{macro}({of.spec.name})\n"
    return parts


@dataclass
class PassText:
    """The C++ of a pass: what both devices share, and what each has of its own."""

    shared: list[str] = field(default_factory=list)
    own: dict[Device, list[str]] = field(default_factory=lambda: {device: [] for device in Device})


class _Text:
    """The C++ of a spec's passes."""

    def __init__(self, of: CompiledRows) -> None:
        self.of = of
        every = [k for phases in of.kernels.values() for p in phases for k in (p.elements, p.row) if k]
        self.is_fast = any(set(operations(kernel)) & TRANSCENDENTAL for kernel in every)

    def of_pass(self, which: Pass) -> PassText:
        """Return the C++ of a pass."""
        text, functor, made = PassText(), FUNCTORS[which], self.of.schedules[which]
        for device in Device:
            text.own[device] += [f"// {NOTE[which]}"]
        values = f"{functor}Values"
        names = ", ".join(made.values)
        struct = f"struct {values} {{ double {names}; }};" if names else f"struct {values} {{}};"
        by_device = {device: self.of.kernels[which, device] for device in Device}
        types: list[str] = []
        for place in range(len(made.phases)):
            phases = {device: several[place] for device, several in by_device.items()}
            types.append(f"{functor}{place + 1}")
            self._add_functions(text, {d: p.elements for d, p in phases.items()}, opens=self.is_fast)
            if phases[Device.CPU].row:
                self._add_functions(text, {d: p.row for d, p in phases.items() if p.row}, opens=False)
            for device, phase in phases.items():
                if place == 0:
                    text.own[device].append(struct)
                text.own[device] += self._phase(which, phase, types[-1])
        for device in Device:
            text.own[device] += self._functor(which, types, device)
        return text

    def _add_functions(self, text: PassText, kernels: Mapping[Device, Kernel], *, opens: bool) -> None:
        """Add the function of a kernel, unless it is written where it is called."""
        if all(_is_plain(kernel) for kernel in kernels.values()):
            return
        found = functions({d: (k,) for d, k in kernels.items()}, [Math.DOUBLE] if opens else [])
        text.shared += found.shared
        for device, own in found.own.items():
            text.own[device] += own

    def _phase(self, which: Pass, of: PhaseKernels, name: str) -> list[str]:
        """Return the type of a phase."""
        made, values = self.of.schedules[which], f"{FUNCTORS[which]}Values"
        places = ", ".join(str(made.inputs.index(each)) for each in of.elements.inputs)
        if of.phase.folds:
            base = f"Reduces<{values}, READS<{places}>, {', '.join(fold.cpp for fold in of.phase.folds)}>"
        else:
            base = f"Stores<{values}, READS<{places}>, {len(of.elements.results)}>"
        lines = [f"  FUSEGEN_ELEMENT({self._element(made.inputs, of.elements)})"]
        if of.phase.folds:
            lines += [f"  FUSEGEN_ROW({_row(of)})"]
        return [f"struct {name} : {base} {{", *lines, "};"]

    def _element(self, inputs: Sequence[str], kernel: Kernel) -> str:
        """Return the statement that computes the results of an element."""
        number = "M(p.{})" if self.is_fast else "p.{}"
        values = {name: f"in[{inputs.index(name)}]" for name in kernel.inputs}
        values |= {name: number.format(name) for name in kernel.params}
        if _is_plain(kernel):
            return "; ".join(
                f"out[{k}] = {values[result.name]}"
                for k, result in enumerate(kernel.results)
                if isinstance(result, Ref)
            )
        given = [values[name] for name in (*kernel.inputs, *kernel.params)]
        if len(kernel.results) == 1:
            return f"out[0] = {kernel.name}({', '.join(given)})"
        return f"{kernel.name}({', '.join([*given, 'out'])})"

    def _functor(self, which: Pass, types: Sequence[str], device: Device) -> list[str]:
        """Return the type of a kernel."""
        spec, made, functor = self.of.spec, self.of.schedules[which], FUNCTORS[which]
        outputs = len(made.phases[-1].elements.results)
        counts = f"{len(made.inputs)}, {outputs}, {len(spec.scalars)}"
        given = {scalar.name: f"call.param[{k}]" for k, scalar in enumerate(spec.scalars)} | {
            LENGTH: "length"
        }
        setting = "; ".join(f"p.{name} = {given[name]}" for name in made.values if name in given)
        lines = [f"  FUSEGEN_VALUES({setting})"]
        if which is Pass.BACKWARD:
            own = features(spec)
            bits = sum(1 << k for k, each in enumerate(spec.tensors) if each.name in own)
            lines += [f"  static constexpr unsigned FEATURES = {bits};"] * bool(bits)
        elif self.of.stored is not Level.ELEMENT:
            lines += ["  static constexpr bool ONCE_A_ROW = true;"]
        lines += ["  using Math = PlainDouble;"] * (self.is_fast and device.fast_types)
        return [f"struct {functor} : Rows<{counts}, {functor}Values, {', '.join(types)}> {{", *lines, "};"]


def _is_plain(kernel: Kernel) -> bool:
    return not kernel.lets and all(isinstance(result, Ref) for result in kernel.results)


def _row(of: PhaseKernels) -> str:
    """Return the statements that set the values of a row behind a phase."""
    lines = [f"p.{name} = r[{k}]" for k, name in enumerate(of.phase.folded)]
    if of.row is None:
        return "; ".join(lines)
    given = [f"p.{name}" for name in of.row.inputs]
    if len(of.phase.values) == 1:
        return "; ".join([*lines, f"p.{of.phase.values[0]} = {of.row.name}({', '.join(given)})"])
    lines += [f"double made[{len(of.phase.values)}]", f"{of.row.name}({', '.join([*given, 'made'])})"]
    return "; ".join([*lines, *(f"p.{name} = made[{k}]" for k, name in enumerate(of.phase.values))])
