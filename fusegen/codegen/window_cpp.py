"""The C++ of kernels with a pooling: what is computed in front of it and behind it, and a type of these."""

from collections.abc import Mapping
from functools import partial

from fusegen.codegen.emit import includes
from fusegen.codegen.printers.families import headers
from fusegen.codegen.printers.function_text import functions
from fusegen.codegen.render import in_parts
from fusegen.codegen.row_arithmetic import is_plain
from fusegen.compiler.window_kernels import CompiledWindows, reads
from fusegen.core.folds import LENGTH
from fusegen.core.ir import Kernel, Ref
from fusegen.core.poolings import Window, window_names
from fusegen.core.spec import Spec
from fusegen.core.targets import Device

FUNCTIONS = ("FRONT", "BEHIND", "FRONT_GRADIENT", "BEHIND_GRADIENT")
NOTE = (
    "// Sums, and what is computed of an element and of a window, are in double: a result is rounded once."
)
CHOSEN = "  FUSEGEN_DIVISORS"  # by the constructor's numbers
PASSES = "struct Forward : ForwardPooling<Own> {};\nstruct Backward : BackwardPooling<Own> {};"


def parts(of: CompiledWindows) -> dict[str, str]:
    """Return the C++ of a module in parts: what both devices share, and the headers and kernels of each."""
    shared, own = _functions(of)
    struct = "\n".join(_struct(of))
    if any(own.values()):
        own = {device: [*lines, NOTE, struct] for device, lines in own.items()}
    else:
        shared = [*shared, NOTE, struct]
    text = "".join(f"{each}\n" for each in shared)
    texts = {device: "".join(f"{each}\n" for each in (*lines, PASSES)) for device, lines in own.items()}
    return in_parts(text, texts, partial(_headers, of), partial(_macro, of))


def _functions(of: CompiledWindows) -> tuple[list[str], dict[Device, list[str]]]:
    shared: list[str] = []
    own: dict[Device, list[str]] = {device: [] for device in Device}
    for kernels in of.kernels:
        for place in range(2):
            several = {device: (both[place],) for device, both in kernels.items()}
            if all(is_plain(kernel) for (kernel,) in several.values()):
                continue
            found = functions(several, ())
            shared += found.shared
            for device, texts in found.own.items():
                own[device] += texts
    return shared, own


def _headers(of: CompiledWindows, device: Device) -> str:
    families = headers([kernel for both in of.kernels for kernel in both[device]])
    header = "window_layouts" if _by_layout(of, device) else "windows"
    own = f"{device.family}/{header}{device.suffix}"
    return includes.lines([own, *includes.of_families(device, families)])


def _macro(of: CompiledWindows, device: Device) -> str:
    return f"FUSEGEN_{'WINDOWS' if _by_layout(of, device) else 'KERNELS'}({of.spec.name})"


def _by_layout(of: CompiledWindows, device: Device) -> bool:
    """Return True if the launch chooses a kernel by the layout of a call."""
    return device.launched and not of.window.pooling.is_adaptive


def _struct(of: CompiledWindows) -> list[str]:
    spec, window = of.spec, of.window
    front, behind = of.kernels.forward[Device.CPU]
    _, behind_gradient = of.kernels.backward[Device.CPU]
    names = [each.name for each in spec.tensors]
    lines = [f"struct Own : Pooling<{len(names)}, {len(spec.scalars)}, {window.pooling.fold.cpp}> {{"]
    chosen, adaptive = bool(window_names(spec)), window.pooling.is_adaptive
    lines += ["  static constexpr bool ADAPTIVE = true;"] * adaptive
    for key, values in sizes(window).items() if not adaptive else ():
        lines += [f"  using {key} = Sizes<{f'FUSEGEN_{key}' if chosen else values}>;"]
    lines += [f"  static constexpr unsigned FRONT = {bits(of)};"]
    if is_plain(front):
        (read,) = front.inputs
        lines += ["  static constexpr bool EXACT = true;"]
        lines += [f"  static constexpr int EXACT_TENSOR = {names.index(read)};"]
    lines += ["  static constexpr bool READS_POOLED = true;"] * reads(behind_gradient, of.pooled)
    lines += ["  static constexpr bool AVERAGES = true;"] * window.pooling.averages
    if window.pooling.averages and not adaptive:
        lines += [CHOSEN] * chosen
        lines += ["  static constexpr bool COUNTS_PADDING = false;"] * (
            not window.counts_padding and not chosen
        )
        lines += [f"  static constexpr int64_t DIVISOR = {window.divisor};"] * bool(
            window.divisor and not chosen
        )
    kernels = (front, behind, *of.kernels.backward[Device.CPU])
    for name, kernel in zip(FUNCTIONS, kernels, strict=True):
        given = _values(spec, kernel, of.pooled)
        value = _value(kernel, given)
        lines.append(f"  FUSEGEN_{name}({_set(kernel, given) if name.endswith('GRADIENT') else value})")
    return [*lines, "};"]


def _value(kernel: Kernel, given: Mapping[str, str]) -> str:
    if is_plain(kernel):
        return ", ".join(given[result.name] for result in kernel.results if isinstance(result, Ref))
    arguments = [given[name] for name in (*kernel.inputs, *kernel.params)]
    return f"{kernel.name}({', '.join([*arguments, *['out'] * (len(kernel.results) > 1)])})"


def _set(kernel: Kernel, given: Mapping[str, str]) -> str:
    value = _value(kernel, given)
    if len(kernel.results) > 1 and not is_plain(kernel):
        return value
    return "; ".join(
        f"out[{k}] = {text}" for k, text in enumerate(value.split(", ") if is_plain(kernel) else [value])
    )


def _values(spec: Spec, kernel: Kernel, pooled: str) -> dict[str, str]:
    """Return the C++ of each value that a function of the type may read."""
    found = {each.name: f"t[{k}]" for k, each in enumerate(spec.tensors)}
    found |= {each.name: f"p[{k}]" for k, each in enumerate(spec.scalars)}
    first = kernel.inputs[0]
    return found | ({} if first in found else {first: "grad"}) | {pooled: "pooled", LENGTH: "length"}


def sizes(window: Window) -> dict[str, str]:
    """Return the numbers of a window along three dimensions, 1 and no padding along those that it lacks."""
    found = {
        "KERNEL": (window.kernel, 1),
        "STRIDE": (window.stride, 1),
        "PADDING": (window.padding, 0),
        "DILATION": (window.dilation, 1),
    }
    return {
        key: ", ".join(map(str, (*[none] * (3 - window.rank), *numbers)))
        for key, (numbers, none) in found.items()
    }


def bits(of: CompiledWindows) -> int:
    """Return the tensors in front of the pooling, as bits."""
    return sum(1 << k for k, each in enumerate(of.spec.tensors) if each.name in of.in_front)
