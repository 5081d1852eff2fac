"""The C++ of the kernels of rows: the functions and the types of their phases."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from textwrap import wrap

from fusegen.codegen import row_exponentials
from fusegen.codegen.emit import includes
from fusegen.codegen.printers.families import headers
from fusegen.codegen.printers.function_text import functions
from fusegen.codegen.render import JOINT, NAMESPACE
from fusegen.codegen.row_features import channels, features
from fusegen.compiler.row_kernels import CompiledRows, PhaseKernels
from fusegen.core.folds import LENGTH, SHARE, Level
from fusegen.core.ir import Call, Expr, Kernel, Math, Ref, calls, operations
from fusegen.core.method import Pass
from fusegen.core.ops import TRANSCENDENTAL
from fusegen.core.targets import Device

FUNCTORS = {Pass.FORWARD: "Forward", Pass.BACKWARD: "Backward"}
FAST = ["cuda/plain_double_39.cuh", "cuda/fast_functions.cuh"]  # for elements of 32 and of 16 bits
WATCHED = {"add", "sub", "mul", "neg", "exp"}  # the operations of WatchedFloat
WIDTH = 120  # of a line
NOTE = {
    Pass.FORWARD: "Sums and values of a row are in double, so that a result is rounded once.",
    Pass.BACKWARD: "The gradient reads the inputs, and computes the values of a row again.",
}


def parts(of: CompiledRows) -> dict[str, str]:
    """Return the C++ of a module in parts: what both devices share, and the headers and kernels of each."""
    text = _Text(of)
    passes = [text.of_pass(which) for which in Pass]
    shared = "\n".join(line for each in passes for line in each.shared)
    macro = "FUSEGEN_BROADCASTING_KERNELS" if len(of.spec.tensors) > 1 else "FUSEGEN_KERNELS"
    found = {"shared_source": shared and shared + "\n", "joint": JOINT if shared else "", "convolution": ""}
    for device in Device:
        own = "\n".join(line for each in passes for line in each.own[device])
        found[f"{device.name}_headers"] = text.headers(device) + f"{NAMESPACE}\n"
        found[f"{device.name}_source"] = f"{own}\n}}}}  // namespace fusegen\n{macro}({of.spec.name})\n"
    return found


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

    def headers(self, device: Device) -> str:
        """Return the lines that include the headers of a device."""
        found = [f"{device.family}/rows{device.suffix}"]
        found += FAST if device.fast_types and self.is_fast else []
        phases = [phase for which in Pass for phase in self.of.kernels[which, device]]
        if any(self._falls(self.of.kernels[which, device]) for which in Pass):
            found.append(f"{device.family}/exp_below{device.suffix}")
        for name in headers([k for phase in phases for k in (phase.elements, phase.row) if k]):
            common = name in includes.COMMON
            found.append(f"{name}.h" if common else f"{device.family}/{name}{device.suffix}")
        return "".join(map(includes.INCLUDE.format, includes.needed(dict.fromkeys(found))))

    @staticmethod
    def _falls(phases: Sequence[PhaseKernels]) -> bool:
        """Return True if a phase has an exponential of an element less the largest of its row."""
        tops = row_exponentials.largest(phases)
        return any(row_exponentials.below(each.elements, tops) for each in phases)

    def of_pass(self, which: Pass) -> PassText:
        """Return the C++ of a pass: that of its phases once, where both devices have the same functions."""
        text, functor, made = PassText(), FUNCTORS[which], self.of.schedules[which]
        by_device = {device: self.of.kernels[which, device] for device in Device}
        types = [f"{functor}{place + 1}" for place in range(len(made.phases))]
        names = ", ".join(made.values)
        struct = f"struct {functor}Values {{{f' double {names}; ' * bool(names)}}};"
        phases = {device: broken_lines(NOTE[which], struct) for device in Device}
        tops = row_exponentials.largest(by_device[Device.CUDA])
        for place, name in enumerate(types):
            several = {device: each[place] for device, each in by_device.items()}
            self._add_functions(text, {d: p.elements for d, p in several.items()}, tops)
            if several[Device.CPU].row:
                self._add_functions(text, {d: p.row for d, p in several.items() if p.row})
            for device, phase in several.items():
                phases[device] += self._phase(which, phase, name, tops)
        if not any(text.own.values()) and phases[Device.CPU] == phases[Device.CUDA]:
            text.shared += phases[Device.CPU]
        else:
            for device, lines in phases.items():
                text.own[device] += lines
        for device in Device:
            text.own[device] += self._functor(which, types, device)
        return text

    def _add_functions(
        self, text: PassText, kernels: Mapping[Device, Kernel], tops: Mapping[str, Expr] | None = None
    ) -> None:
        """Add the function of a kernel, unless it is written where it is called."""
        if all(_is_plain(kernel) for kernel in kernels.values()):
            return
        found = functions({d: (k,) for d, k in kernels.items()}, [] if tops is None else [Math.DOUBLE])
        text.shared += [_of_row(each, kernels[Device.CUDA], tops or {}) for each in found.shared]
        for device, own in found.own.items():
            text.own[device] += [_of_row(each, kernels[device], tops or {}) for each in own]

    def _phase(self, which: Pass, of: PhaseKernels, name: str, tops: Mapping[str, Expr]) -> list[str]:
        """Return the type of a phase."""
        made, values = self.of.schedules[which], f"{FUNCTORS[which]}Values"
        places = ", ".join(str(made.inputs.index(each)) for each in of.elements.inputs)
        if of.phase.folds:
            folds = ", ".join(fold.cpp for fold in of.phase.folds)
            base = f"Reduces<{values}, READS<{places}>, {folds}>"
            if of.phase.picks:
                base = f"Picks<{values}, READS<{places}>, {len(of.phase.folds)}>"
        else:
            base = f"Stores<{values}, READS<{places}>, {len(of.elements.results)}>"
        cancels = not of.phase.folds and _cancels(of.elements)
        lines = ["  static constexpr bool CANCELS = true;"] * cancels
        lines += ["  static constexpr bool WATCHES = true;"] * (cancels and _watches(of.elements))
        lines += [f"  FUSEGEN_ELEMENT({self._element(made.inputs, of.elements)})"]
        if of.phase.folds:
            lines[:0] = ["  static constexpr bool EXACT = true;"] * _is_plain(of.elements)
            bounded = row_exponentials.are_bounded(of.elements, tops)
            lines[:0] = ["  static constexpr bool BOUNDED = true;"] * bounded
            own = "; ".join(f"p.{name} = from.{name}" for name in (*of.phase.folded, *of.phase.values))
            lines += [f"  FUSEGEN_ROW({_row(of)})", f"  FUSEGEN_MADE({own})"]
        return [f"struct {name} : {base} {{", *lines, "};"]

    def _element(self, inputs: Sequence[str], kernel: Kernel) -> str:
        """Return the statement that computes the results of an element."""
        values = {name: f"in[{inputs.index(name)}]" for name in kernel.inputs}
        values |= {name: f"p.{name}" for name in kernel.params}
        if _is_plain(kernel):
            names = [result.name for result in kernel.results if isinstance(result, Ref)]
            texts = [values[name] if name in kernel.inputs else f"M({values[name]})" for name in names]
            return "; ".join(f"out[{k}] = {text}" for k, text in enumerate(texts))
        given = [values[name] for name in (*kernel.inputs, *kernel.params)]
        if len(kernel.results) == 1:
            return f"out[0] = {kernel.name}({', '.join(given)})"
        return f"{kernel.name}({', '.join([*given, 'out'])})"

    def _recomputes(self, which: Pass, device: Device) -> bool:
        """Return True if all phases but the last do arithmetic only, which is cheaper than registers."""
        *phases, _ = self.of.kernels[which, device]
        return not any(set(operations(phase.elements)) & TRANSCENDENTAL for phase in phases)

    def _functor(self, which: Pass, types: Sequence[str], device: Device) -> list[str]:
        """Return the type of a kernel."""
        spec, made, functor = self.of.spec, self.of.schedules[which], FUNCTORS[which]
        outputs = len(made.phases[-1].elements.results)
        counts = f"{len(made.inputs)}, {outputs}, {len(spec.scalars)}"
        given = {scalar.name: f"call.param[{k}]" for k, scalar in enumerate(spec.scalars)}
        given |= {LENGTH: "length", SHARE: "1 / length"}
        setting = "; ".join(f"p.{name} = {given[name]}" for name in made.values if name in given)
        lines = [f"  FUSEGEN_VALUES({setting})"]
        lines += ["  static constexpr bool APART = true;"] * bool(spec.over and spec.over.count)
        lines += ["  static constexpr bool RECOMPUTES = true;"] * self._recomputes(which, device)
        own = features(spec)
        rows = sum(1 << k for k, name in enumerate(made.inputs) if name in own)
        lines += [f"  static constexpr unsigned OF_FEATURES = {rows};"] * bool(rows)
        lines += ["  static constexpr bool BY_CHANNEL = true;"] * bool(channels(spec))
        indices = sum(1 << made.inputs.index(each.name) for each in spec.indices)
        lines += [f"  static constexpr unsigned INDICES = {indices};"] * bool(indices)
        if which is Pass.BACKWARD:
            bits = sum(1 << k for k, each in enumerate(spec.tensors) if each.name in own)
            lines += [f"  static constexpr unsigned FEATURES = {bits};"] * bool(bits)
            lines += ["  static constexpr unsigned OF_ROW = 1;"] * (self.of.stored is not Level.ELEMENT)
        elif self.of.stored is not Level.ELEMENT:
            lines += ["  static constexpr bool ONCE_A_ROW = true;"]
        if self.is_fast and device.fast_types:
            lines += ["  using Math32 = PlainDouble;", "  using Math16 = FastFloat;"]
        return [f"struct {functor} : Rows<{counts}, {functor}Values, {', '.join(types)}> {{", *lines, "};"]


def _of_row(text: str, kernel: Kernel, tops: Mapping[str, Expr]) -> str:
    """Return a function whose parameters that are values of a row have their type."""
    head, _, body = row_exponentials.named(text, kernel, tops).partition(") {")
    for name in kernel.params:
        head = re.sub(rf"\bM {name}\b", f"OfRow<M> {name}", head)
    return f"{head}) {{{body}"


def _cancels(kernel: Kernel) -> bool:
    """Return True if an element is a sum or a difference of more than a value and one of its row."""
    sums = [call for call in calls(kernel) if call.op in ("add", "sub")]
    values = set(kernel.inputs), set(kernel.params)
    return any(not _is_shift(call, *values) for call in sums)


def _watches(kernel: Kernel) -> bool:
    """Return True if `WatchedFloat` has all operations of an element."""
    return set(operations(kernel)) <= WATCHED


def _is_shift(call: Call, inputs: Set[str], params: Set[str]) -> bool:
    names = [{arg.name} if isinstance(arg, Ref) else set() for arg in call.args]
    return any(a <= inputs and b <= params and a and b for a, b in (names, reversed(names)))


def _is_plain(kernel: Kernel) -> bool:
    return not kernel.lets and all(isinstance(result, Ref) for result in kernel.results)


def _row(of: PhaseKernels) -> str:
    """Return the statements that set the values of a row behind a phase, each on a line of its own."""
    lines = [f"p.{name} = r[{k}]" for k, name in enumerate(of.phase.folded)]
    if of.row is not None:
        given = [f"p.{name}" for name in of.row.inputs]
        if len(of.phase.values) == 1:
            lines += [f"p.{of.phase.values[0]} = {of.row.name}({', '.join(given)})"]
        else:
            lines += [
                f"double made[{len(of.phase.values)}]",
                f"{of.row.name}({', '.join([*given, 'made'])})",
            ]
            lines += [f"p.{name} = made[{k}]" for k, name in enumerate(of.phase.values)]
    return f";\n{'':14}".join(lines)


def broken_lines(note: str, struct: str) -> list[str]:
    """Return a note and a type above the phases of a pass, in lines of at most 120 characters."""
    wrapped = wrap(struct, WIDTH, subsequent_indent="    ")
    return [f"// {note}", *wrapped]
