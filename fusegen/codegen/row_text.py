"""The text of the module of a spec with rows."""

from collections.abc import Mapping

from fusegen.codegen import row_cpp, row_features
from fusegen.codegen.printers.notation import notation
from fusegen.codegen.printers.row_eager import row_statements
from fusegen.codegen.render import MODULE, Binding, fill, module_class, python
from fusegen.codegen.render.registration import registered
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.digest import digest
from fusegen.core.folds import Level
from fusegen.core.manifest import Kernels
from fusegen.core.method import Pass
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.errors import NoOlderBinding

RUNTIME_CLASS = "Rows"
DIGITS = 16  # of a digest in hexadecimal


def rendered(of: CompiledRows, binding: Binding) -> tuple[str, Kernels]:
    """Return the text of a module, and the digests of its kernels.

    Raises:
        NoOlderBinding: its kernels are to be reached by another binding than that of the stable ABI.
    """
    if binding is not Binding.STABLE:
        raise NoOlderBinding(of.spec.span, name=of.spec.name, what="rows")
    spec, parts = of.spec, row_cpp.parts(of)
    backward = of.schedules.backward.inputs
    own = registered(spec, backward, (), {})
    registration = python.filled([*own, "sources=Sources(CUDA_SOURCE, CPU_SOURCE)"], python.MOST)
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
        **python.tensors_and_scalars(spec, ()),
        **module_class.model(spec, ()),
        **python.function(spec, "rounded once"),
        "gradient_arguments": ", ".join([*backward, *python.param_names(spec)]),
        "eager_lines": row_statements(spec, of.eager, of.stored),
        "eager_gradient_lines": (),
        "doc": _doc(of),
        "registration": [*registration, *_own_registration(of)],
        "runtime_class": RUNTIME_CLASS,
        **parts,
    }
    return fill(MODULE, context), digests(parts)


def sources(of: CompiledRows) -> dict[str, str]:
    """Return the C++ of a module, by device."""
    parts = row_cpp.parts(of)
    return {
        d.name: parts[f"{d.name}_headers"] + parts["shared_source"] + parts[f"{d.name}_source"]
        for d in Device
    }


def digests(parts: Mapping[str, str]) -> Kernels:
    """Return the digests of the C++, which both passes have in common."""
    found = {}
    for device in Device:
        text = parts[f"{device.name}_headers"] + parts["shared_source"] + parts[f"{device.name}_source"]
        found[device.name] = (digest(text, DIGITS), digest(text, DIGITS))
    return found


def _own_registration(of: CompiledRows) -> list[str]:
    """Return the lines that say what a row is, and which tensors may have one for all."""
    assert of.spec.over is not None
    over = of.spec.over.of_views
    own = [
        f"over={(over.first, over.count) if over.count else over.first}",
        *[f'reduction="{of.spec.reduction}"'] * (of.stored is not Level.ELEMENT),
        *["indices=1"] * bool(of.spec.indices),
        *[f"groups={over.first - 1}"] * bool(of.spec.over.groups),
    ]
    names = [f'"{name}"' for name in row_features.features(of.spec)]
    several = ", ".join(names) + "," * (len(names) == 1)
    kind = "channels" if row_features.channels(of.spec) else "features"
    return [", ".join([*own, *[f"{kind}=({several})"] * bool(names)]) + ","]


def _doc(of: CompiledRows) -> list[str]:
    """Return the plain function's docstring below its first line."""
    spec = of.spec
    first = spec.inputs[0].name
    result = "one value a row" if of.stored is not Level.ELEMENT else "of the shape of the tensors"
    row = _row(spec)
    dtypes = python.either(spec.dtypes)
    indices = [
        f"Index: {each.name}, an int64 for each row of {each.index}; -100 picks none."
        for each in spec.indices
    ]
    if spec.reduction != "none":
        result = f"the {spec.reduction} of the values of rows"
    return [
        f"Shape: {first} whose rows are {row}; the others broadcast to it. The result is {result}.",
        *indices,
        f"Dtype: {dtypes}, rounded once, of sums in double; others by PyTorch's operations.",
        "Equal bits: those of a row do not depend on the other rows, on their number or on the run.",
        "Raises: RuntimeError or TypeError for what eager refuses, before anything is launched.",
    ]


def _row(spec: Spec) -> str:
    """Return the dimensions of a row in words."""
    assert spec.over is not None
    if spec.over.groups:
        return f"a part of dimension {spec.over.first}, of {spec.over.groups}, and all behind it"
    if not spec.over.count:
        return (
            f"the dimensions from {spec.over.first} on" if spec.over.first != -1 else "the last dimension"
        )
    several = "s" * (spec.over.count > 1)
    return f"dimension{several} {' and '.join(map(str, spec.over.named))}"


def _counted(of: CompiledRows, which: Pass) -> str:
    loops = sum(not phase.picks for phase in of.schedules[which].phases)
    title = "Forward" if which is Pass.FORWARD else "Gradient"
    return f"{title}: {loops} loops over the elements of a row."
