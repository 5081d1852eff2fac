"""The C++ of the kernels of rows: the functions and the types of their phases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import wrap

from fusegen.codegen import long_rows, phase_text, read_once, row_exponentials, row_results, saved_values
from fusegen.codegen.emit import includes
from fusegen.codegen.printed import FUNCTORS
from fusegen.codegen.printers.families import headers
from fusegen.codegen.printers.function_text import functions
from fusegen.codegen.render import in_parts
from fusegen.codegen.render.forward_arguments import reduces_index
from fusegen.codegen.row_arithmetic import cancels, compares, is_plain, selects, watches
from fusegen.codegen.row_features import channels, summed
from fusegen.codegen.row_indices import index_headers
from fusegen.codegen.row_loops import loops
from fusegen.compiler.row_kernels import CompiledRows, PhaseKernels
from fusegen.core.folds import LENGTH, PLACE, SHARE, Level
from fusegen.core.ir import Expr, Kernel, Math, Ref, operations
from fusegen.core.method import Pass
from fusegen.core.ops import TRANSCENDENTAL
from fusegen.core.targets import Device

FAST = ["cuda/plain_double_39.cuh", "cuda/fast_functions.cuh"]  # for elements of 32 and of 16 bits
WIDTH = 120  # of a line
SCANS = {
    Pass.FORWARD: "All is in double, and a result is rounded once.",
    Pass.BACKWARD: "The gradient reads the inputs, and scans the other way.",
}
ONCE = "Elements are computed in double, so that a result is rounded once; of 16 bits in float."
NOTE = {
    Pass.FORWARD: "Sums and values of a row are in double, so that a result is rounded once.",
    Pass.BACKWARD: "The gradient reads the inputs, and computes the values of a row again.",
}


def parts(of: CompiledRows) -> dict[str, str]:
    """Return the C++ of a module in parts: what both devices share, and the headers and kernels of each."""
    return printed(RowsText(of), of, "KERNELS")


def printed(text: "RowsText", of: CompiledRows, kernels: str) -> dict[str, str]:
    """Return the C++ of a module in parts, whose last line has the macro of its kernels."""
    passes = [text.of_pass(which) for which in Pass]
    shared = "\n".join(line for each in passes for line in each.shared)
    macro = f"{'BROADCASTING_' * (kernels == 'KERNELS' and len(of.spec.tensors) > 1)}{kernels}"
    own = {d: "".join(f"{line}\n" for each in passes for line in each.own[d]) for d in Device}

    def last(device: Device) -> str:
        return f"FUSEGEN_{'SAVING_' * (text.saves and device.launched)}{macro}({of.spec.name})"

    found = in_parts(shared and shared + "\n", own, text.headers, last)
    if reduces_index(of.spec):
        total = "WIDE_" * of.is_wide + "TOTAL"
        found[f"{Device.CUDA.name}_source"] += f"FUSEGEN_{total}({of.spec.name})\n"
    return found


@dataclass
class PassText:
    """The C++ of a pass: what both devices share, and what each has of its own."""

    shared: list[str] = field(default_factory=list)
    own: dict[Device, list[str]] = field(default_factory=lambda: {device: [] for device in Device})


class RowsText:
    """The C++ of a spec's passes."""

    header = "rows"
    notes = NOTE

    def __init__(self, of: CompiledRows) -> None:
        self.of = of
        every = [k for phases in of.kernels.values() for p in phases for k in (p.elements, p.row) if k]
        self.indices = frozenset(each.name for each in of.spec.indices)
        self.saves = bool(saved_values.numbers(of).forward)
        self.is_fast = any(set(operations(kernel)) & TRANSCENDENTAL for kernel in every) and not of.scans

    def headers(self, device: Device) -> str:
        """Return the lines that include the headers of a device."""
        header = "scans" if self.of.scans else "parts" if self.of.in_parts else self.header
        found = [f"{device.family}/{header}{device.suffix}"]
        if device is Device.CPU:
            found += ["cpu/placed_rows.h"] * self.of.schedules.backward.is_placed
            found += ["cpu/rows_with_results.h"] * (self.of.is_mixed and not self.of.is_wide)
        found += [f"{device.family}/wide_values{device.suffix}"] * self.of.is_wide
        found += FAST if device.fast_types and self.is_fast else []
        phases = [phase for which in Pass for phase in self.of.kernels[which, device]]
        if any(row_exponentials.fall(self.of.kernels[which, device]) for which in Pass):
            found.append(f"{device.family}/exp_below{device.suffix}")
        found += read_once.headers(self.of, device) + long_rows.headers(self.of, device)
        if device.fast_types and any(self._selects(phase) for phase in phases):
            found.append("cuda/watched_conditions.cuh")
        found += index_headers(self.of, device)
        families = headers([k for phase in phases for k in (phase.elements, phase.row) if k])
        return includes.lines([*found, *includes.of_families(device, families)])

    def _selects(self, phase: PhaseKernels) -> bool:
        """Return True if a phase is watched in float, and selects."""
        of = phase.elements
        is_watched = not phase.phase.folds and cancels(of) and watches(of, self.indices)
        return is_watched and not self.of.scans and selects(of, self.indices)

    def of_pass(self, which: Pass) -> PassText:
        """Return the C++ of a pass: that of its phases once, where both devices have the same functions."""
        text, functor, made = PassText(), FUNCTORS[which], self.of.schedules[which]
        by_device = {device: self.of.kernels[which, device] for device in Device}
        types = [f"{functor}{place}" for place, _ in enumerate(made.phases, not made.loads)]
        if self.of.finds and which is Pass.FORWARD:
            del types[1:]  # the place of an element is stored as it is
        names = ", ".join(made.values)
        struct = f"struct {functor}Values {{{f' double {names}; ' * bool(names)}}};"
        note = (SCANS if self.of.scans else self.notes)[which] if self.of.reduces else ONCE
        notes = [] if which is Pass.BACKWARD and self.saves else [f"// {note}"]
        phases = {d: [*notes, *wrap(struct, WIDTH, subsequent_indent="    ")] for d in Device}
        tops = row_exponentials.largest(by_device[Device.CUDA])
        for place, name in enumerate(types):
            several = {device: each[place] for device, each in by_device.items()}
            self._add_functions(text, {d: p.elements for d, p in several.items()}, tops)
            if several[Device.CPU].row:
                self._add_functions(text, {d: p.row for d, p in several.items() if p.row})
            for device, phase in several.items():
                phases[device] += self._phase(which, phase, name, tops)
        if own := row_results.phase(self.of, which):
            types.insert(-1, row_results.PHASE)
            phases = {device: [*lines, *own] for device, lines in phases.items()}
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
        if all(is_plain(kernel) for kernel in kernels.values()):
            return
        opens = [] if tops is None else [Math.DOUBLE]  # elements of 16 bits are computed in float
        found = functions({d: (k,) for d, k in kernels.items()}, opens, opens)
        of_row = partial(phase_text.of_row, tops=tops or {}, indices=self.indices)
        text.shared += [of_row(each, kernels[Device.CUDA]) for each in found.shared]
        for device, own in found.own.items():
            text.own[device] += [of_row(each, kernels[device]) for each in own]

    def _phase(self, which: Pass, of: PhaseKernels, name: str, tops: Mapping[str, Expr]) -> list[str]:
        made, values = self.of.schedules[which], f"{FUNCTORS[which]}Values"
        read = (*self.of.tensors(which), *made.scanned, PLACE)
        places = ", ".join(str(read.index(each)) for each in of.elements.inputs if each != PLACE)
        is_loop = bool(of.phase.folds) and not self.of.scans
        if of.phase.loads:
            return [
                f"struct {name} : LoadsRow<{values}> {{",
                f"  FUSEGEN_ROW({phase_text.statements(of, made.values)})",
                "};",
            ]
        if of.phase.scan:
            base = f"Scans<{values}, READS<{places}>, {of.phase.scan.cpp}>"
        elif of.phase.folds and self.of.scans:
            base = f"Finds<{values}, READS<{places}>, {of.phase.folds[0].cpp}>"
        elif of.phase.folds:
            folds = ", ".join(fold.cpp for fold in of.phase.folds)
            base = f"Reduces<{values}, READS<{places}>, {folds}>"
            if of.phase.picks:
                base = f"Picks<{values}, READS<{places}>, {len(of.phase.folds)}>"
        else:
            base = f"Stores<{values}, READS<{places}>, {len(of.elements.results)}>"
        checked = not of.phase.folds and not self.of.scans and cancels(of.elements)
        lines = ["  static constexpr bool CANCELS = true;"] * checked
        watched = checked and watches(of.elements, self.indices)
        lines += ["  static constexpr bool WATCHES = true;"] * watched
        lines += [f"  FUSEGEN_ELEMENT({self._element(read, of.elements)})"]
        if is_loop:
            lines[:0] = ["  static constexpr bool EXACT = true;"] * is_plain(of.elements)
            bounded = row_exponentials.are_bounded(of.elements, tops)
            lines[:0] = ["  static constexpr bool BOUNDED = true;"] * bounded
            own = "; ".join(f"p.{name} = from.{name}" for name in (*of.phase.folded, *of.phase.values))
            lines += [f"  FUSEGEN_ROW({phase_text.statements(of, made.values)})", f"  FUSEGEN_MADE({own})"]
        return [f"struct {name} : {base} {{", *lines, "};"]

    def _element(self, inputs: Sequence[str], kernel: Kernel) -> str:
        values = {name: f"in[{inputs.index(name)}]" for name in kernel.inputs}
        values |= {name: f"p.{name}" for name in kernel.params}
        if is_plain(kernel):
            names = [result.name for result in kernel.results if isinstance(result, Ref)]
            texts = [values[name] if name in kernel.inputs else f"M({values[name]})" for name in names]
            return "; ".join(f"out[{k}] = {text}" for k, text in enumerate(texts))
        given = [values[name] for name in (*kernel.inputs, *kernel.params)]
        if len(kernel.results) == 1:
            return f"out[0] = {kernel.name}{'' if given else '<M>'}({', '.join(given)})"
        return f"{kernel.name}({', '.join([*given, 'out'])})"

    def _recomputes(self, which: Pass, device: Device) -> bool:
        """Return True if all phases but the last do arithmetic only, which is cheaper than registers."""
        *phases, _ = self.of.kernels[which, device]
        return not any(set(operations(phase.elements)) & TRANSCENDENTAL for phase in phases)

    def _functor(self, which: Pass, types: Sequence[str], device: Device) -> list[str]:
        spec, made, functor = self.of.spec, self.of.schedules[which], FUNCTORS[which]
        outputs = len(made.phases[-1].elements.results)
        inputs = self.of.tensors(which)
        count = len(inputs) + row_results.stored(self.of, which)
        kind, counts = "Rows", f"{count}, {outputs}, {len(spec.scalars)}"
        given = {scalar.name: f"call.param[{k}]" for k, scalar in enumerate(spec.scalars)}
        given |= {LENGTH: "length", SHARE: "1 / length"}
        setting = "; ".join(f"p.{name} = {given[name]}" for name in made.values if name in given)
        lines = [f"  FUSEGEN_VALUES({setting})"]
        lines += ["  static constexpr bool APART = true;"] * bool(spec.over and spec.over.count)
        recomputes = not self.of.scans and self._recomputes(which, device)
        lines += ["  static constexpr bool RECOMPUTES = true;"] * recomputes
        own = summed(self.of)
        rows = sum(1 << k for k, name in enumerate(inputs) if name in own)
        lines += [f"  static constexpr unsigned OF_FEATURES = {rows};"] * bool(rows)
        lines += ["  static constexpr bool BY_CHANNEL = true;"] * bool(channels(spec))
        indices = sum(1 << inputs.index(each.name) for each in spec.indices)
        lines += [f"  static constexpr unsigned INDICES = {indices};"] * bool(indices)
        if which is Pass.BACKWARD:
            bits = sum(1 << k for k, each in enumerate(spec.tensors) if each.name in own)
            lines += [f"  static constexpr unsigned FEATURES = {bits};"] * bool(bits)
        elif self.of.in_parts:
            kind, counts = "Parts", f"{len(inputs)}, {len(spec.scalars)}"
        elif self.of.stored is not Level.ELEMENT:
            lines += ["  static constexpr bool ONCE_A_ROW = true;"]
        of_row = row_results.of_row(self.of, which)
        lines += [f"  static constexpr unsigned OF_ROW = {of_row};"] * bool(of_row)
        lines += self._math(which, device)
        name, behind = row_results.named(self.of, which)
        lines += saved_values.lines(self.of, which, device)
        values, types = loops(self.of, which, device, types)
        head = f"struct {name} : {kind}<{counts}, {values}, {', '.join(types)}> {{"
        picking = [f"FUSEGEN_INDEX({each})" for each in dict.fromkeys((name, functor)) if indices]
        return [head, *lines, "};", *behind, *picking]

    def _math(self, which: Pass, device: Device) -> list[str]:
        """Return the arithmetic of an element, unless it is double, and float of 16 bits."""
        of_row = {*self.of.schedules[which].values} - {*self.of.schedules[which].params}
        same = any(compares(phase.elements, of_row) for phase in self.of.kernels[which, device])
        # float has too few digits for results of float32
        same = same or (self.of.is_wide and self.is_fast and which is Pass.FORWARD)
        if self.is_fast and device.fast_types:
            narrow = "PlainDouble" if same else "FastFloat"
            return ["  using Math32 = PlainDouble;", f"  using Math16 = {narrow};"]
        return ["  using Math16 = double;"] if same else []
