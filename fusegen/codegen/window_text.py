"""The text of the module of a spec with a pooling."""

from fusegen.algebra.derive.reverse import GRAD
from fusegen.codegen import window_cpp
from fusegen.codegen.printers.window_eager import arguments, window_statements
from fusegen.codegen.render import Binding, module_class, python
from fusegen.codegen.row_text import digests
from fusegen.compiler.window_kernels import CompiledWindows
from fusegen.core.constructor import literal
from fusegen.core.manifest import Kernels
from fusegen.core.poolings import defaults, poolings, window_names
from fusegen.core.term import unused
from fusegen.errors import NoOlderBinding

_EQUAL = "Equal elements: the first of the {0} ones takes the gradient, and NaN is the {0}."
FORWARD = "Forward: each element of a window is read, and a result written."
EXTREMES = {"amax": "largest", "amin": "smallest"}  # of a window, by its fold


def rendered(of: CompiledWindows, binding: Binding) -> tuple[python.Context, Kernels]:
    """Return what the templates of a module take, and the digests of its kernels.

    Raises:
        NoOlderBinding: its kernels are to be reached by another binding than that of the stable ABI.
    """
    spec, parts = of.spec, window_cpp.parts(of)
    if binding is not Binding.STABLE:
        raise NoOlderBinding(spec.span, name=spec.name, what="windows")
    tensors = python.input_names(spec)
    backward = (unused(GRAD, [*tensors, *python.param_names(spec)]), *tensors)
    context = {
        **module_class.reduced(of, backward, _own_registration(of)),
        "counts": (FORWARD, _gradient(of)),
        "gradient_arguments": "",
        "eager_lines": window_statements(of.eager),
        "doc": _doc(of),
        "runtime_class": "Windows",
        **parts,
    }
    return context, digests(parts)


def _own_registration(of: CompiledWindows) -> list[str]:
    """Return the lines that say what the windows are, and which tensors are read in front of them."""
    window, names = of.window, window_names(of.spec)
    front = f"front={window_cpp.bits(of)},"
    if names:
        given = arguments(poolings(of.spec)[0]).items()
        known = literal(tuple(defaults(of.spec)[name] for name in names))
        return [
            f"window=lambda {', '.join(names)}: dict(",
            f"    rank={window.rank}, {', '.join(f'{key}={text}' for key, text in given)}",
            "),",
            f"numbers={known}, {front}",
        ]
    if window.output:
        return [f"window=({tuple(size or None for size in window.output)},), {front}"]
    numbers = (window.kernel, window.stride, window.padding, window.dilation)
    return [f"window=({', '.join(map(str, numbers))}, {window.ceil}), {front}"]


def _gradient(of: CompiledWindows) -> str:
    extreme = EXTREMES.get(of.window.pooling.fold.name)
    found = f"the {extreme} elements are found again, and " if extreme else ""
    return f"Gradient: {found}each gradient is written once."


def _doc(of: CompiledWindows) -> list[str]:
    dtypes = python.either(of.spec.dtypes)
    rank, names = of.window.rank, python.input_names(of.spec)
    first = of.spec.inputs[0].name
    behind = [name for name in names if name not in of.in_front]
    others = f"; {', '.join(behind)} broadcast to the result" if behind else ""
    extreme = EXTREMES.get(of.window.pooling.fold.name)
    dims = "the last of which is" if rank == 1 else f"the last {rank} of which are"
    return [
        f"Shape: {first} of more than {rank} dimensions, {dims} pooled{others}.",
        f"Dtype: {dtypes}, rounded once, of sums in double; others by PyTorch.",
        *([_EQUAL.format(extreme)] if extreme else []),
        "Raises: RuntimeError or TypeError for what eager refuses, before anything is launched.",
    ]
